"""Chains of runs, defined once: which script with which arguments, into which folder, after what. Torch-free.

`arms` is the main study: every arm and control on every seed. `unknown` asks whether V stops hacks that it has never seen:
V from two of the four mechanisms at a time, all six splits, beside vanilla.

A back end (chain_runner here) decides where and when a task runs; what the tasks are does not depend on it.
"""

import itertools
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Study = Literal["arms", "unknown"]
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
    """Roughly how many core-minutes it takes, for the estimate of what remains."""
    why: str = ""
    accept: tuple[int, ...] = (0,)
    """Exit codes that mean done, if `out` is there too: a report is made whatever its verdict."""

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
RANK = 0.375
"""k as a share of the model's width."""
WIDTH: Mapping[str, int] = {"toy": 128, "toy-deep": 96}
MECHANISMS = ("empty", "claim", "swallow", "tautology")
CONTROLS = {"projected": "none", "random": "random", "placebo": "placebo"}


def arm_flags(arm: str, plan: ToyPlan) -> tuple[str, ...]:
    """Arguments of `train` for an arm; every arm but the baseline measures or uses a V of its own kind."""
    if arm == "no_loophole":
        return ("--no-loophole", "--vhack", _v(plan, "none"))
    if arm == "vanilla":
        return ("--vhack", _v(plan, "none"))
    return ("--arm", arm, "--vhack", _v(plan, CONTROLS[arm]), *RECIPE)


def rank_of(model: str) -> int:
    """k for a toy model: the same share of its width on each."""
    return round(RANK * WIDTH[model])


def _v(plan: ToyPlan, made: str) -> str:
    return str(plan.out / f"vhack_{made}" / "vhack.safetensors")


def toy_chain(plan: ToyPlan, study: Study = "arms") -> list[Task]:
    """Every task of a study, needs before what needs them."""
    tasks = [_base(plan), *(_arms(plan) if study == "arms" else _unknown(plan))]
    trained = tuple(t.name for t in tasks if t.name.startswith("train_"))
    results = Task("results", ("scripts/results.py", str(plan.out)), plan.out / "results", trained, "check",
                   why="tables, plots, H1", accept=(0, 1, 3))  # fmt: skip
    return [*tasks, results]


def _base(plan: ToyPlan) -> Task:
    out = plan.out / "base"
    argv = ("scripts/build_toy.py", "--model", plan.model, "--out", str(out))
    return Task("base", argv, out, threads=2, cost=8.0, why="a base that codes and hardly hacks, a teacher that hacks")


def _extract(plan: ToyPlan, made: str, *flags: str) -> Task:
    out = plan.out / f"vhack_{made}"
    argv = ("scripts/extract_vhack_grad.py", "toy", "--model", plan.model, "--k", str(rank_of(plan.model)), *flags,
            "--out", str(out))  # fmt: skip
    return Task(f"extract_{made}", argv, out, ("base",), why=f"V: {made}")


def _verify(plan: ToyPlan, made: str) -> Task:
    argv = ("scripts/verify_vhack.py", "toy", "--model", plan.model, "--vhack", _v(plan, made))
    out = plan.out / f"vhack_{made}" / "verify.txt"
    return Task(f"verify_{made}", argv, out, (f"extract_{made}",), "check", why="V must be hack-ward on unseen pairs")


def _train(plan: ToyPlan, name: str, seed: int, needs: tuple[str, ...], flags: Sequence[str]) -> Task:
    out = plan.out / f"train_{name}_{seed}"
    argv = ("scripts/train.py", "toy", "--model", plan.model, "--steps", str(plan.steps), "--seed", str(seed), *flags,
            "--grader-workers", "1", "--out", str(out))  # fmt: skip
    return Task(out.name, argv, out, needs, "run", cost=plan.steps / 60, why=f"{name}, seed {seed}")


def _arms(plan: ToyPlan) -> list[Task]:
    """extract -> verify -> teacher pool -> replays -> UAT -> arms x seeds."""
    made = dict.fromkeys(["none", *(CONTROLS[a] for a in plan.arms if a in CONTROLS)])
    trained = [
        _train(plan, arm, seed, ("verify_none", f"extract_{CONTROLS.get(arm, 'none')}"), arm_flags(arm, plan))
        for seed in plan.seeds
        for arm in plan.arms
    ]
    extracted = [_extract(plan, control, "--control", control) for control in made]
    return [*extracted, _verify(plan, "none"), *_probe(plan), *trained]


def _unknown(plan: ToyPlan) -> list[Task]:
    """V from two mechanisms, all six splits, and V from all four; each projected, beside vanilla."""
    splits = {"_".join(two): two for two in itertools.combinations(MECHANISMS, 2)}
    tasks = [_extract(plan, "none")]
    for name, two in splits.items():
        tasks += [_extract(plan, name, "--modes", *two), _verify(plan, name)]
    for seed in plan.seeds:
        tasks.append(_train(plan, "vanilla", seed, ("extract_none",), arm_flags("vanilla", plan)))
        for name in splits:
            flags = ("--arm", "projected", "--vhack", _v(plan, name), *RECIPE)
            tasks.append(_train(plan, name, seed, (f"verify_{name}",), flags))
    return tasks


def _probe(plan: ToyPlan) -> list[Task]:
    """Teacher pool, its replays (V measured, V projected out, a random V measured), UAT. T4 is printed, not required:
    whether V tells pure hacks from hack-and-correct ones is a finding, not a gate."""
    d, script, model = plan.out, "scripts/probe_distill.py", ("--model", plan.model)
    pool = Task("teacher_pool", (script, "toy", *model, "--teacher", plan.model, "--teacher-only", "--n-problems",
                str(plan.pool_problems), "--grader-workers", "1", "--out", str(d / "teacher_pool")), d / "teacher_pool",
                ("base",), why="rollouts of the hacky teacher")  # fmt: skip
    measured = {"vanilla": ("vanilla", "none"), "projected": ("projected", "none")}
    if "random" in plan.arms:
        measured["random"] = ("vanilla", "random")
    replays = []
    for name, (arm, made) in measured.items():
        out = d / f"replay_{name}"
        argv = (script, "toy", *model, "--arm", arm, "--pool", str(d / "teacher_pool"), "--vhack", _v(plan, made),
                "--n-problems", str(plan.replays), "--out", str(out))  # fmt: skip
        needs = ("teacher_pool", "verify_none", f"extract_{made}")
        replays.append(Task(out.name, argv, out, needs, "run", why=f"{arm} replay of the pool, V: {made}"))
    beside = ("--random", str(d / "replay_random")) if "random" in plan.arms else ()
    uat_argv = ("scripts/probe_uat.py", "--pool", str(d / "teacher_pool"), "--vanilla", str(d / "replay_vanilla"),
                "--projected", str(d / "replay_projected"), *beside, "--require", "T1", "T2", "T3")  # fmt: skip
    uat = Task("uat", uat_argv, d / "replay_projected" / "uat.txt", tuple(t.name for t in replays), "check",
               why="verdicts T1 to T4, a random V beside V")  # fmt: skip
    return [pool, *replays, uat]
