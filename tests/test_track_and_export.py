"""docs/track-and-export.md, executed: every command through its script, every example prints what stands under it."""

import re
import shlex

import pytest
from conftest import ROOT
from test_channels_docs import BLOCK, examples

PAGE = ROOT / "docs/track-and-export.md"
RECIPE = re.compile(r"^([a-z][\w-]*) .*:\n    \{\{ py \}\} scripts/(\w+)\.py \"\$@\"$", re.MULTILINE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_page_does_what_it_says(script, capsys):
    text = PAGE.read_text("utf-8")
    scripts = dict(RECIPE.findall((ROOT / "justfile").read_text("utf-8")))
    (commands,) = [code for language, code in BLOCK.findall(text) if language == "bash"]
    for line in commands.splitlines():
        recipe, *args = shlex.split(line.removeprefix("uv run just "))
        code, _, err = script(scripts[recipe], *args)
        assert (code, err) == (0, ""), line
    found = examples(text.replace(f"```bash\n{commands}```", ""))
    assert len(found) == 1
    for code, said in found:
        exec(compile(code, str(PAGE), "exec"), {})
        assert capsys.readouterr().out == said
