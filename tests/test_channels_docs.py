"""docs/channels.md, executed: every python block in order, and each prints what stands under it."""

import re

import pytest
from harness import ROOT

PAGE = ROOT / "docs/channels.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(text):
    """(code, what it prints) of every example; every block is code or its output."""
    found = BLOCK.findall(text)
    assert [language for language, _ in found] == ["python", "text"] * (len(found) // 2)
    return [(code, said) for (_, code), (_, said) in zip(found[::2], found[1::2], strict=True)]


@pytest.mark.usefixtures("antipasto")  # built before: a build says so on stdout
def test_every_example_of_the_page_prints_what_it_says(capsys, tmp_path, monkeypatch, cache):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/cache").symlink_to(cache)
    monkeypatch.chdir(tmp_path)
    names, text = {}, PAGE.read_text("utf-8")
    assert len(examples(text)) == text.count("```") / 4 == 2
    for code, said in examples(text):
        exec(compile(code, str(PAGE), "exec"), names)
        assert capsys.readouterr().out == said, code


def test_the_page_names_every_page_of_the_room():
    text = PAGE.read_text("utf-8")
    pages = {p.stem for p in (ROOT / "src/projected_grpo/channels").glob("*.py")}
    assert all(f"channels/{p}.py" in text or f"channels.{p} " in text for p in pages - {"__init__", "outputs"})
