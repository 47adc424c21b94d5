"""docs/use-in-your-trainer.md, executed: every block in order, and each prints what stands under it."""

import pytest
from conftest import ROOT
from test_channels_docs import examples

from projected_grpo.run.models import BUILT

PAGE = ROOT / "docs/use-in-your-trainer.md"


@pytest.fixture
def names(cache, tmp_path, monkeypatch):
    (tmp_path / "my-model").symlink_to(BUILT["tiny"].base("tiny", 0, cache))
    monkeypatch.chdir(tmp_path)
    return {}


def run(blocks, names, capsys):
    for code, said in blocks:
        exec(compile(code, str(PAGE), "exec"), names)
        assert capsys.readouterr().out.splitlines()[-1:] == said.splitlines(), code


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_example_prints_what_it_says(names, capsys):
    blocks = examples(PAGE.read_text("utf-8"))
    assert ["trl" in code for code, _ in blocks] == [False, False, True]
    run(blocks[:2], names, capsys)
    pytest.importorskip("trl")
    run(blocks[2:], names, capsys)
