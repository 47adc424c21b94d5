"""The justfile as a user meets it: what its list says, and the environment that its recipes run in."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness import ROOT


def just(*words, **variables):
    """(exit code, stdout, stderr) of the environment's own just."""
    done = subprocess.run(
        [Path(sys.executable).parent / "just", *words],
        cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip
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


def test_recipes_keep_bytecode_even_where_the_shell_forbids_it():
    """Without it every start compiles torch and transformers again: 14 s of import where 5 would do."""
    ask = "import sys; sys.exit(sys.dont_write_bytecode)"
    assert just("--command", sys.executable, "-c", ask, PYTHONDONTWRITEBYTECODE="1")[0] == 0
