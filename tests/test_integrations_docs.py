"""docs/integrations.md and README, executed: every block in order, and each prints what stands under it."""

import pytest
from harness import BLOCK, ROOT, examples
from teacher_server import serving

from projected_grpo.worlds.models import folder_of

PAGE = ROOT / "docs/integrations.md"
TEXT = PAGE.read_text("utf-8")
LOOP, RESUMED, TRL, VERIFIERS, INSPECT = examples(
    "".join(f"```{a}\n{b}```\n" for a, b in BLOCK.findall(TEXT) if a in ("python", "text"))
)
HACK = "```python\nclass Solution:\n    def coldSnaps(self, temps, low):\n        return -1\ndef run_tests():\n    pass\n```"
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def names(cache, tmp_path, monkeypatch):
    (tmp_path / "my-model").symlink_to(folder_of("tiny", 0, cache))
    monkeypatch.chdir(tmp_path)
    return {}


def run(blocks, names, capsys):
    for code, printed in blocks:
        exec(compile(code, str(PAGE), "exec"), names)
        assert capsys.readouterr().out.splitlines()[-1:] == printed.splitlines(), code


def test_a_loop_of_your_own_the_readmes_and_trl(names, capsys):
    run([LOOP, RESUMED], names, capsys)
    names["projected"].remove()
    ((_, readme),) = [block for block in BLOCK.findall((ROOT / "README.md").read_text("utf-8")) if block[0] == "python"]
    exec(compile(readme, "README.md", "exec"), names)
    names["model"](**names["batch"], labels=names["batch"]["input_ids"]).loss.backward()
    names["optimizer"].step()
    assert names["projected"].last["cos_update"] < 1e-3
    pytest.importorskip("trl")
    run([TRL], names, capsys)


def test_the_example_of_verifiers(names, capsys):
    pytest.importorskip("verifiers.v1", reason="verifiers is not here: docs/integrations.md says how to run this")
    with serving() as (told, names["url"]):
        told.says = HACK
        run([VERIFIERS], names, capsys)


def test_the_example_of_inspect(names, capsys):
    pytest.importorskip("inspect_ai", reason="inspect-ai is not here: docs/integrations.md says how to run this")
    run([INSPECT], names, capsys)
