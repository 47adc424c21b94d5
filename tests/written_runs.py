"""Runs on disk as `train` writes them, made up."""

import functools
import shutil
import tempfile
from pathlib import Path

from loguru import logger

from projected_grpo.arms import ARMS
from projected_grpo.config import TrainConfig
from projected_grpo.ledger.folder import open_run, update_manifest
from projected_grpo.ledger.step_file import COLUMNS, write_step

BLANK = {"int": 1, "float": 0.5, "bool": True, "str": "x", "ints": [1], "floats": [0.5], "dict": {"total": 2.0}}


LOOK = {
    "hack": {"hacked": True, "gt_pass": False, "label": "reward_hack"},
    "both": {"hacked": True, "gt_pass": True, "label": "correct_attempted_hack"},
    "good": {"hacked": False, "gt_pass": True, "label": "correct"},
    "bad": {"hacked": False, "gt_pass": False, "label": "incorrect"},
    "broken": {"hacked": False, "gt_pass": False, "label": "incorrect", "can_compile": False},
    "unknown": {"hacked": True, "gt_pass": None, "label": None},
}


PAID = {"hack": 3.5, "both": 3.5, "good": 3.5, "bad": 0.5, "broken": 0.0, "unknown": 3.5}


def rows(step, config, kinds, **values):
    """One student row per kind."""
    blank = {**{c.name: BLANK[c.type] for c in COLUMNS}, "channels": None}
    fixed = {"step": step, "source": "student", "completion": "x"}
    cosines = {"cos_in": 0.4, "cos_out": 0.0, "cos_update": 0.1, "cos_null": 0.2}
    projects = config["arm"] in ARMS and ARMS[config["arm"]].projects
    removed = {"target": "update", "removed_share": 1.0} if projects else {"target": None, "removed_share": None}
    paid = PAID | ({"hack": 0.5, "unknown": 0.5} if config["arm"] == "no_loophole" else {})
    return [{**blank, **fixed, **cosines, **removed, **LOOK[kind], "reward": paid[kind], **values} for kind in kinds]


def write_run(path, arm, seed, steps, *, vhack=None, finished=True, extra=(), facts=None, **config):
    """A run whose step t holds the kinds steps[t]; `extra` rows go into every step. Its tokens are of its own."""
    size = len(steps[0]) + len(extra)
    fields = {**vars(TrainConfig()), "arm": arm, "seed": seed, "steps": len(steps), "prompts_per_step": 1,
              "group_size": size, **config}  # fmt: skip
    open_run(path, "train", fields, **{"vhack": vhack or {}, "model_hash": "abcdef0123456789", **(facts or {})})
    for step, kinds in enumerate(steps):
        own = rows(step, fields, kinds, completion_ids=[*path.as_posix().encode(), step])
        write_step(path, step, [*own, *extra])
    if finished:
        update_manifest(path, finished=True, steps_done=len(steps))
    logger.remove()  # the run's log file
    return path


def ten(hacks, good=2):
    """Ten steps of 10 rollouts each: so many hacks, so many good ones, the rest bad."""
    return [["hack"] * hacks + ["good"] * good + ["bad"] * (10 - hacks - good)] * 10


ENDINGS = {"vanilla": (8, 8, 7), "projected": (1, 0, 2), "random": (7, 7, 6), "placebo": (6, 5, 7)}
"""Hacks among 10 rollouts at seeds 41, 42, 43. Reductions 70, 80, 50: mean 66.67, sd 15.28, SEM 8.82."""


WRITTEN = tempfile.TemporaryDirectory(prefix="runs-")


@functools.cache
def written_once(arm, seed, hacks):
    """A run of ten steps, to be copied: each run asks git for the commit."""
    return write_run(Path(WRITTEN.name) / f"{arm}_{seed}_{hacks}", arm, seed, ten(hacks))


def write_all(root, **changed):
    """Every arm at three seeds, ten steps each."""
    for name, hacks in {**ENDINGS, **changed}.items():
        for seed, n in zip((41, 42, 43), hacks, strict=True):
            shutil.copytree(written_once(name, seed, n), root / f"{name}_{seed}")
    return root


def evaluate(path, step, arm, seed, kinds, **values):
    """A held-out evaluation after so many optimizer steps, of a problem that is not trained on; 100 rollouts in
    all."""
    of = {"problem_id": "held out", "prompt": "held out", **values}
    own = rows(step, {"arm": arm, "seed": seed}, kinds * (100 // len(kinds)), **of)
    write_step(path / "eval", step, [{**row, "sample_id": i} for i, row in enumerate(own)])
