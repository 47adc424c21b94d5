"""README, docs and justfile: what they name is there, and docs/channels.md prints what it says."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness import BLOCK, ROOT, examples

from loophole_grader import Verdict
from projected_grpo.arms import ARMS
from projected_grpo.presets import PRESETS

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GRADER = (ROOT / "docs/grader.md").read_text("utf-8")
PATH = re.compile(r"(?<![\w./-])(?:src|docs|tests|scripts)/[\w*./-]*[\w*/]")
MODULE = re.compile(r"`((?:\w+/)*\w+\.py)`")
CHANNELS = ROOT / "docs/channels.md"
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


def test_the_graders_example_prints_what_its_page_says(capsys):
    example = dict(BLOCK.findall(GRADER))["python"]
    exec(compile(example, "docs/grader.md", "exec"), {})
    said = re.search(r"^It prints `(.*)`, `(.*)`, `(.*)` and", GRADER, re.MULTILINE)
    assert tuple(capsys.readouterr().out.splitlines()[:-1]) == said.groups()


@pytest.mark.slow
def test_the_graders_command_runs_as_it_is_shown(tmp_path):
    example = dict(BLOCK.findall(GRADER))["sh"].replace("python -m", f"{sys.executable} -m")
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
    named = [name for name, one in known.items() if not getattr(one, "random_twin", False)]  # of these one sentence
    assert re.findall(r"^\| ([\w-]+) \|", table, re.MULTILINE)[1:] == named


# ---------------------------------------------------------------- docs/channels.md, executed


@pytest.mark.usefixtures("antipasto")  # built before: a build says so on stdout
def test_every_example_of_the_page_prints_what_it_says(capsys, tmp_path, monkeypatch, cache):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/cache").symlink_to(cache)
    monkeypatch.chdir(tmp_path)
    names, text = {}, CHANNELS.read_text("utf-8")
    assert len(examples(text)) == text.count("```") / 4 == 2
    for code, said in examples(text):
        exec(compile(code, str(CHANNELS), "exec"), names)
        assert capsys.readouterr().out == said, code


# ---------------------------------------------------------------- the justfile as a user meets it


def just(*words):
    """(exit code, stdout, stderr) of the environment's own just."""
    command = [Path(sys.executable).parent / "just", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def shown():
    """The recipes that `just --list` shows."""
    code, out, err = just("--list", "--unsorted")
    assert code == 0, err
    return re.findall(r"^    ([a-z][\w-]*)", out, re.MULTILINE)


IN_BASH = ("probe-teacher-pool", "probe-vanilla-replay", "probe-projected-replay", "probe-v-replay")
IN_PYTHON = (
    "compare", "export", "extract_vhack_grad", "multi_turn", "re_extract", "regrade", "report", "results",
    "serve_teacher", "show", "traces", "train", "train_diloco", "train_parallel", "verify_vhack",
)  # fmt: skip
MISSING = re.compile(r"^error: (missing: |no preset given: |no arguments: |\'\': ).*\n$|Required options", re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", IN_BASH)
def test_a_recipe_without_its_argument_says_what_is_missing(recipe):
    code, out, err = just(recipe)
    assert (code, out) == (2, "")
    assert MISSING.search(err), err


@pytest.mark.parametrize("name", IN_PYTHON)
def test_a_script_without_its_argument_says_what_is_missing(script, name):
    code, out, err = script(name)
    assert (code, out) == (2, "")
    assert MISSING.search(err), err
