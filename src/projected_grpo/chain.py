"""Chains of runs, defined once: which script with which arguments, into which folder, after what. Torch-free.

A back end (chain_runner here) decides where and when a task runs; what the tasks are does not depend on it.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["once", "run", "check"]


@dataclass(frozen=True)
class Task:
    """One link of a chain."""

    name: str
    argv: tuple[str, ...]
    """Script and its arguments; the interpreter is the back end's."""
    out: Path
    """Folder (or, of a check, file) that it writes."""
    needs: tuple[str, ...] = ()
    kind: Kind = "once"
    """once: writes a run directory in one go; run: the same, and can be resumed; check: a verdict on finished runs."""
    threads: int = 1
    """Fixed, since the number of threads can change the last digits."""
    cost: float = 0.2
    """Roughly how long it takes, in any unit, for the estimate of what remains."""
    why: str = ""

    @property
    def command(self) -> str:
        """What a person would type."""
        return shlex.join(("python", *self.argv))


@dataclass(frozen=True)
class ToyPlan:
    """What of the toy world is run."""

    out: Path
    model: str = "toy"
    seeds: tuple[int, ...] = (41, 42, 43)
    arms: tuple[str, ...] = ("vanilla", "projected", "random", "placebo", "no_loophole")
    steps: int = 200
    pool_problems: int = 48
    replays: int = 24


RECIPE = ("--project", "update", "--gate", "no_gate")
"""What the projected arm and its controls do with V (docs/results.md: chosen on development seeds)."""
K = 48
CONTROLS = {"projected": "none", "random": "random", "placebo": "placebo"}


def arm_flags(arm: str, plan: ToyPlan) -> tuple[str, ...]:
    """Arguments of `train` for an arm; every arm but the baseline measures or uses a V of its own kind."""
    if arm == "no_loophole":
        return ("--no-loophole", "--vhack", _v(plan, "none"))
    if arm == "vanilla":
        return ("--vhack", _v(plan, "none"))
    return ("--arm", arm, "--vhack", _v(plan, CONTROLS[arm]), *RECIPE)


def _v(plan: ToyPlan, control: str) -> str:
    return str(plan.out / f"vhack_{control}" / "vhack.safetensors")


def toy_chain(plan: ToyPlan) -> list[Task]:
    """base -> extract -> verify -> teacher pool -> replays -> UAT -> arms x seeds -> results."""
    model = ("--model", plan.model)
    d = plan.out
    tasks = [
        Task("base", ("scripts/build_toy.py", *model, "--out", str(d / "base")), d / "base", threads=2, cost=4.0,
             why="a base model that codes and hardly hacks, a teacher that hacks")
    ]  # fmt: skip
    controls = ["none", *(CONTROLS[a] for a in plan.arms if CONTROLS.get(a, "none") != "none")]
    tasks += [
        Task(f"extract_{c}", ("scripts/extract_vhack_grad.py", "toy", *model, "--k", str(K), "--control", c, "--out",
             str(d / f"vhack_{c}")), d / f"vhack_{c}", ("base",), why=f"V, control={c}")
        for c in controls
    ]  # fmt: skip
    tasks.append(
        Task("verify", ("scripts/verify_vhack.py", "toy", *model, "--vhack", _v(plan, "none")),
             d / "vhack_none" / "verify.txt", ("extract_none",), "check", why="V must point hack-ward on unseen pairs")
    )  # fmt: skip
    tasks += _probe(plan, model)
    for seed in plan.seeds:
        for arm in plan.arms:
            needs = ("verify", f"extract_{CONTROLS.get(arm, 'none')}")
            out = d / f"train_{arm}_{seed}"
            argv = ("scripts/train.py", "toy", *model, "--steps", str(plan.steps), "--seed", str(seed),
                    *arm_flags(arm, plan), "--grader-workers", "1", "--out", str(out))  # fmt: skip
            tasks.append(Task(out.name, argv, out, needs, "run", cost=plan.steps / 60, why=f"{arm}, seed {seed}"))
    trained = tuple(t.name for t in tasks if t.name.startswith("train_"))
    tasks.append(
        Task("results", ("scripts/results.py", str(d)), d / "results", trained, "check", why="tables, plots, H1")
    )
    return tasks


def _probe(plan: ToyPlan, model: Sequence[str]) -> list[Task]:
    """Teacher pool, both replays, UAT. T4 is printed, not required: whether V tells pure hacks from hack-and-correct
    ones is a finding, not a gate."""
    d, script = plan.out, "scripts/probe_distill.py"
    pool = Task("teacher_pool", (script, "toy", *model, "--teacher", plan.model, "--teacher-only", "--n-problems",
                str(plan.pool_problems), "--grader-workers", "1", "--out", str(d / "teacher_pool")), d / "teacher_pool",
                ("base",), why="rollouts of the hacky teacher")  # fmt: skip
    replays = []
    for arm in ("vanilla", "projected"):
        out = d / f"replay_{arm}"
        argv = (script, "toy", *model, "--arm", arm, "--pool", str(d / "teacher_pool"), "--vhack", _v(plan, "none"),
                "--n-problems", str(plan.replays), "--out", str(out))  # fmt: skip
        replays.append(Task(out.name, argv, out, ("teacher_pool", "verify"), "run", why=f"{arm} replay of the pool"))
    uat_argv = ("scripts/probe_uat.py", "--pool", str(d / "teacher_pool"), "--vanilla", str(d / "replay_vanilla"),
                "--projected", str(d / "replay_projected"), "--require", "T1", "T2", "T3")  # fmt: skip
    uat = Task("uat", uat_argv, d / "replay_projected" / "uat.txt", ("replay_vanilla", "replay_projected"), "check",
               why="verdicts T1 to T4")  # fmt: skip
    return [pool, *replays, uat]
