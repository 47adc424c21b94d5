"""docs/use-in-your-trainer.md, executed: every block in order, and each prints what stands under it."""

import pytest
from conftest import ROOT
from teacher_server import serving
from test_channels_docs import examples

from projected_grpo.worlds.models import BUILT

PAGE = ROOT / "docs/use-in-your-trainer.md"
HACK = "```python\nclass Solution:\n    def coldSnaps(self, temps, low):\n        return -1\ndef run_tests():\n    pass\n```"


@pytest.fixture
def names(cache, tmp_path, monkeypatch):
    (tmp_path / "my-model").symlink_to(BUILT["tiny"].base("tiny", 0, cache))
    monkeypatch.chdir(tmp_path)
    return {}


def run(blocks, names, capsys):
    for code, said in blocks:
        exec(compile(code, str(PAGE), "exec"), names)
        assert capsys.readouterr().out.splitlines()[-1:] == said.splitlines(), code


def blocks_of(framework):
    """The examples that import it."""
    found = examples(PAGE.read_text("utf-8"))
    assert len(found) == 5
    return [block for block in found if framework in block[0]]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_example_prints_what_it_says(names, capsys):
    blocks = examples(PAGE.read_text("utf-8"))
    assert ["trl" in code for code, _ in blocks] == [False, False, True, False, False]
    run(blocks[:2], names, capsys)
    pytest.importorskip("trl")
    run(blocks[2:3], names, capsys)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_example_of_verifiers_prints_what_it_says(names, capsys):
    pytest.importorskip("verifiers.v1", reason="verifiers is not here: the page says where it is")
    with serving() as (told, names["url"]):
        told.says = HACK
        run(blocks_of("verifiers.v1"), names, capsys)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_example_of_inspect_prints_what_it_says(names, capsys):
    pytest.importorskip("inspect_ai", reason="inspect-ai is not here: the page says where it is")
    run(blocks_of("inspect_ai"), names, capsys)
