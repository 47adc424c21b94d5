"""README and docs name what is there: files, modules, links and commands."""

import dataclasses
import json
import re
import subprocess
import sys

import pytest
from harness import ROOT
from test_front_door import shown

from loophole_grader import Verdict
from projected_grpo.arms import ARMS
from projected_grpo.presets import PRESETS

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GRADER = (ROOT / "docs/grader.md").read_text("utf-8")
PATH = re.compile(r"(?<![\w./-])(?:src|docs|tests|scripts)/[\w*./-]*[\w*/]")
MODULE = re.compile(r"`((?:\w+/)*\w+\.py)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
NEW_FILE = re.compile(r"^# new file .*$", re.MULTILINE)
RECIPE = re.compile(r"(?:uv run just|`just) ([a-z][\w-]*)")


def named(pattern):
    """(page, what it names) for every page."""
    texts = {page: NEW_FILE.sub("", page.read_text("utf-8")) for page in PAGES}
    return sorted({(page, name) for page, text in texts.items() for name in pattern.findall(text)})


def anchors(page):
    """The headings of a page as addresses."""
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


def test_every_path_and_module_that_a_page_names_exists():
    paths = [(page.name, name) for page, name in named(PATH) if not [*ROOT.glob(name)]]
    modules = [
        (page.name, name) for page, name in named(MODULE)
        if not [*ROOT.glob(f"src/**/{name}"), *ROOT.glob(f"scripts/{name}"), *ROOT.glob(name)]
    ]  # fmt: skip
    assert paths == modules == []


def test_every_link_leads_somewhere():
    for page, name in named(LINK):
        target, _, anchor = name.partition("#")
        place = page.parent / target if target else page
        assert "://" in name or place.exists(), f"{page.name} links to {name}"
        assert "://" in name or not anchor or anchor in anchors(place), f"{page.name} links to {name}"


def test_every_recipe_that_a_page_names_is_listed():
    known = set(shown())
    assert len(named(RECIPE)) > 20
    assert [(page.name, recipe) for page, recipe in named(RECIPE) if recipe not in known] == []


def test_readme_names_every_room():
    tree = PAGES[0].read_text("utf-8").split("## How it is laid out")[1].split("\n## ")[0]
    named_rooms = set(re.findall(r"(\w+)/", tree))
    rooms = {p.name for p in (ROOT / "src/projected_grpo").iterdir() if p.is_dir() and not p.name.startswith("__")}
    assert rooms - named_rooms == set()


def blocks(language):
    """The examples of the grader's page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", GRADER, re.MULTILINE | re.DOTALL)


def test_the_graders_example_prints_what_its_page_says(capsys):
    [example] = blocks("python")
    exec(compile(example, "docs/grader.md", "exec"), {})
    said = re.search(r"^It prints `(.*)`, `(.*)`, `(.*)` and", GRADER, re.MULTILINE)
    assert tuple(capsys.readouterr().out.splitlines()[:-1]) == said.groups()


@pytest.mark.slow
def test_the_graders_command_runs_as_it_is_shown(tmp_path):
    [example] = blocks("sh")
    example = example.replace("python -m", f"{sys.executable} -m")
    env = {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(["sh", "-ec", example], cwd=tmp_path, env=env, check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr.count("canonical solution")) == ("", 0)
    found = [json.loads(line)["label"] for line in (tmp_path / "verdicts.jsonl").read_text("utf-8").splitlines()]
    assert found == ["correct", "reward_hack"]


def test_the_graders_table_names_every_field_of_a_verdict():
    table = GRADER.split("| field of a verdict |")[1].split("\n\n")[0]
    names = re.findall(r"`([\w.]+)`", "".join(line.split("|")[1] for line in table.splitlines()))
    assert set(names) == {*(field.name for field in dataclasses.fields(Verdict)), "reward"}


@pytest.mark.parametrize(("section", "known"), [("Arms", ARMS), ("Presets", PRESETS)], ids=["arms", "presets"])
def test_the_table_of_a_section_names_every_one(section, known):
    table = (ROOT / "docs/use.md").read_text("utf-8").split(f"## {section}")[1].split("\n## ")[0]
    assert re.findall(r"^\| (\w+) \|", table, re.MULTILINE)[1:] == list(known)
