"""docs/sky.yaml: what it runs is run, on the tiny model; a second machine goes on where the first one was taken away."""

import json
import os
import re
import subprocess
import sys

import pytest
import yaml
from conftest import ROOT, cut_after

UV = '#!/bin/sh\n[ "$1 $2 $3" = "run just train" ] || exit 9\nshift 3\nexec {python} {root}/scripts/train.py "$@"\n'
"""Stands for `uv run just train`: the same script by this interpreter."""


@pytest.fixture
def task():
    return yaml.safe_load((ROOT / "docs/sky.yaml").read_text("utf-8"))


def test_its_recipes_and_folders_are_there(task):
    recipes = re.findall(r"^([a-z][\w-]*)[^\n]*:$", (ROOT / "justfile").read_text("utf-8"), re.MULTILINE)
    called = re.findall(r"uv run just ([\w-]+)", task["setup"] + task["run"])
    assert called == ["download-model", "train"]
    assert set(called) <= set(recipes)
    (mount,) = task["file_mounts"]
    assert all(task["envs"][name].startswith(mount) for name in ("OUT", "VHACK", "PROBLEMS"))


@pytest.mark.slow
def test_a_run_that_was_cut_goes_on_and_is_begun_where_there_is_none(script, task, tmp_path):
    assert script("extract_vhack_grad", "tiny", "--out", str(tmp_path / "v"))[0] == 0
    fake = tmp_path / "bin/uv"
    fake.parent.mkdir()
    fake.write_text(UV.format(python=sys.executable, root=ROOT))
    fake.chmod(0o755)
    own = {
        "PRESET": "tiny",
        "PROBLEMS": "builtin",
        "OUT": str(tmp_path),
        "VHACK": str(tmp_path / "v/vhack.safetensors"),
    }
    env = {**os.environ, **task["envs"], **own, "PATH": f"{fake.parent}:{os.environ['PATH']}"}

    def launch():
        done = subprocess.run(
            ["bash", "-c", task["run"]], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    run = tmp_path / "projected_41"
    assert "resumed" not in launch()
    manifest = json.loads((run / "manifest.json").read_text("utf-8"))
    assert manifest["finished"]
    run.rename(tmp_path / "whole")
    begun = ["--arm", "projected", "--seed", "41", "--vhack", own["VHACK"], "--problems", "builtin", "--out", str(run)]
    with cut_after(1):
        assert script("train", "tiny", *begun)[0] == 130
    assert "resumed after step 0" in launch()
    last = sorted(run.glob("step_*"))[-1]
    assert last.name == sorted((tmp_path / "whole").glob("step_*"))[-1].name
