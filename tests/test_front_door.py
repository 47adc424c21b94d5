"""The justfile as a user meets it: what its list says, and the environment that its recipes run in."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import ROOT

JUSTFILE = (ROOT / "justfile").read_text("utf-8")
HEADER = re.compile(
    r"^(?!set |(?:export )?\w+ :=)@?([a-z_][\w-]*)(?: .*?)?:"
)  # a recipe's first line, not an assignment
PROPER = ("V ", "GRPO ", "H1 ", "HTML ", "UAT ")
LONGEST = 110


def just(*words, **variables):
    """(exit code, stdout) of the environment's own just."""
    done = subprocess.run(
        [Path(sys.executable).parent / "just", *words],
        cwd=ROOT, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def comments(justfile):
    """Recipe -> the comment lines right above it, attributes aside."""
    lines = justfile.splitlines()
    found = {}
    for i, line in enumerate(lines):
        if not (header := HEADER.match(line)):
            continue
        above = i - 1
        while lines[above].startswith("["):
            above -= 1
        comment = []
        while above >= 0 and lines[above].startswith("#"):
            comment.insert(0, lines[above].removeprefix("# "))
            above -= 1
        found[header.group(1)] = comment
    return found


def faults(comment):
    """What is wrong with a recipe's comment."""
    if len(comment) != 1:
        return f"{len(comment)} lines"
    line = comment[0]
    if not (line[0].islower() or line.startswith(PROPER)):
        return "begins like the rest of a sentence, or like a heading"
    return f"{len(line)} characters" if len(line) > LONGEST else None


def shown():
    """The recipes that `just --list` shows."""
    code, out = just("--list", "--unsorted")
    assert code == 0
    return re.findall(r"^    ([a-z][\w-]*)", out, re.MULTILINE)


def test_every_recipe_that_is_listed_says_what_it_does_in_one_line():
    known = comments(JUSTFILE)
    names = shown()
    assert set(names) == {name for name in known if not name.startswith("_")}  # nothing is missed by the search
    assert {name: fault for name in names if (fault := faults(known[name]))} == {}


def test_no_recipe_has_a_comment_of_two_lines():
    assert {name: lines for name, lines in comments(JUSTFILE).items() if len(lines) > 1} == {}


@pytest.mark.parametrize(
    "above",
    [
        "# one line\n# and a second\n",
        "",
        "# `preset=toy` of a sentence cut in half\n",
        "# x" + 110 * "x" + "\n",
        "# Title\n",
    ],
)
def test_the_check_of_comments_can_fail(above):
    assert faults(
        comments(f'x := "1"\n\n{above}[group("g"), no-exit-message]\nrecipe n preset="tiny" *args: check\n')["recipe"]
    )


# ---------------------------------------------------------------- bad input


PARAMETER = re.compile(r"(?<= )([*+]?)[a-z][\w-]*(=?)")
HIDDEN = {"_smoke", "_probe-n", "_probe-vhack"}
"""Called by other recipes alone."""
ASK = (
    "by-difficulty", "compare", "compare-v", "diff-runs", "explain", "export", "extract-vhack", "judge-teachers",
    "link", "multi-turn", "probe-grpo-v-replay", "probe-projected-replay", "probe-random-replay", "probe-teacher-pool",
    "probe-vanilla-replay", "regrade", "results", "serve-teacher", "show", "show-source", "summarise", "toy-diloco",
    "traces", "train", "train-diloco", "train-parallel", "verify-vhack",
)  # fmt: skip


def test_scripts_and_not_just_ask_for_what_is_missing():
    """just would print its own usage, and exit with 1, which is a verdict's code."""
    found = set()
    for line in JUSTFILE.splitlines():
        if header := HEADER.match(line):
            own = PARAMETER.findall(re.sub(r"\(.*?\)", "", header.group(0)).partition(":")[0])
            found |= {header.group(1)} if any(kind != "*" and not default for kind, default in own) else set()
    assert found == HIDDEN


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ASK)
def test_a_recipe_without_its_argument_says_what_is_missing(recipe):
    just = Path(sys.executable).parent / "just"
    done = subprocess.run([just, recipe], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(
        r"^error: (missing: |no preset given: |no arguments: |\'\': ).*\n$|Required options", done.stderr
    ), done.stderr


# ---------------------------------------------------------------- bytecode is made once


def test_recipes_keep_bytecode_even_where_the_shell_forbids_it():
    """Without it every start compiles torch and transformers anew: 14 s of import where 5 would do."""
    ask = "import sys; sys.exit(sys.dont_write_bytecode)"
    assert just("--command", sys.executable, "-c", ask, PYTHONDONTWRITEBYTECODE="1")[0] == 0


def test_uv_does_not_compile_the_environment_in_every_run():
    """Every `uv run` syncs first, and with compile-bytecode every sync walks through all of site-packages."""
    assert "compile-bytecode" not in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["uv"]
