"""docs/diloco.md, executed: every python block in order, and each prints what stands under it."""

from conftest import ROOT
from test_channels_docs import examples

PAGE = ROOT / "docs/diloco.md"


def test_every_example_of_the_page_prints_what_it_says(capsys):
    names = {}
    blocks = examples(PAGE.read_text("utf-8"))
    assert len(blocks) == 2
    for code, said in blocks:
        exec(compile(code, str(PAGE), "exec"), names)
        assert capsys.readouterr().out == said, code
