"""Chains of runs, defined once: which script with which arguments, into which folder, after what. Torch-free.

probe     the cheap look before a sweep: V -> verify -> teacher pool -> replays -> UAT
full      the sweep: V -> verify -> every arm and control on every seed -> results
toy       both, on the toy world
unknown   does V stop hacks that it has never seen? V from two of the four mechanisms at a time, all six splits, and V
          from pairs that share no mechanism at all, only the words `def run_tests`
variants  other ways to use the same V, beside the recipe

A back end (here, pueue, slurm) decides where and when a link runs; what the links are does not depend on it.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from projected_grpo.arms import ARMS, arms_of
from projected_grpo.chains.links import Link
from projected_grpo.presets import Preset
from projected_grpo.toy.programs import MECHANISMS
from projected_grpo.toy.settings import SHAPES

Chain = Literal["probe", "full", "toy", "unknown", "variants"]
VARIANTS = {
    "recipe": ("--arm", "projected"),
    "update_one_sided": ("--arm", "projected", "--gate", "one_sided"),
    "grad_no_gate": ("--arm", "projected", "--project", "grad"),
    "literal": ("--arm", "literal"),
    "refreshed": ("--arm", "projected", "--refresh-every", "40"),
}
"""Gate and target apart, both together as in the seed of the idea, and the recipe with V extracted anew every 40 steps."""
IN_H1 = (*arms_of("baseline"), *arms_of("method"), *arms_of("control"))
RANK = 0.375
"""k as a share of a toy model's width."""


@dataclass(frozen=True)
class Plan:
    """What is run, on which preset, and where."""

    preset: Preset
    out: Path
    model: str
    """A toy model's name; elsewhere empty, the preset's own."""
    seeds: tuple[int, ...]
    arms: tuple[str, ...]
    steps: int
    pool_problems: int
    replays: int
    problems: str = ""
    """Problems to train and to probe on; empty = the preset's own."""
    cores: int = 2
    """Threads that building the toy base may take."""

    @property
    def threads(self) -> int:
        """Threads of a link; 0 = all."""
        return 1 if self.preset.on_cpu else 0


def chain_of(plan: Plan, chain: Chain) -> list[Link]:
    """Every link of a chain, needs before what needs them."""
    base = [_base(plan)] if plan.preset.builds_base else []
    if chain == "probe":
        return [*base, *_extracts(plan, ["none", "random"]), _verify(plan, "none"), *_probe(plan)]
    if chain == "full":
        pool = [_pool(plan)] if plan.preset.teacher_share == "pool" else []
        return [*base, *_extracts(plan, _made(plan)), _verify(plan, "none"), *pool, *_with_results(plan, _arms(plan))]
    if chain == "toy":
        made = list(dict.fromkeys([*_made(plan), "random"]))
        return [*base, *_extracts(plan, made), _verify(plan, "none"), *_probe(plan), *_with_results(plan, _arms(plan))]
    return [*base, *_with_results(plan, _unknown(plan) if chain == "unknown" else _variants(plan))]


def rank_of(model: str) -> int:
    """k for a toy model: the same share of its width on each."""
    return round(RANK * SHAPES[model]["hidden_size"])


def _made(plan: Plan) -> list[str]:
    """Kinds of V that the arms need."""
    return list(dict.fromkeys(["none", *(ARMS[arm].measured for arm in plan.arms)]))


def _v(plan: Plan, made: str) -> str:
    return str(plan.out / f"vhack_{made}" / "vhack.safetensors")


def _script(plan: Plan, name: str) -> tuple[str, ...]:
    """A script with the preset, and the model where a toy one is chosen."""
    return (f"scripts/{name}.py", plan.preset.name, *(("--model", plan.model) if plan.model else ()))


def _verified(made: str) -> tuple[str, ...]:
    """What a run with this kind of V waits for: a V that passed on held-out pairs, and its own."""
    return ("verify_none",) if made == "none" else ("verify_none", f"extract_{made}")


def _problems(plan: Plan) -> tuple[str, ...]:
    return ("--problems", plan.problems) if plan.problems else ()


def _workers(plan: Plan) -> tuple[str, ...]:
    """One grader process a link where links share the cores."""
    return ("--grader-workers", "1") if plan.preset.on_cpu else ()


def _base(plan: Plan) -> Link:
    out = plan.out / "base"
    argv = ("scripts/build_toy.py", "--model", plan.model, "--out", str(out))
    return Link("base", argv, out, threads=plan.cores, cost=8.0, why="a base that codes and hardly hacks, a teacher that "
                "hacks", resolve="on a model that misses its bars no run means anything")  # fmt: skip


def _after_base(plan: Plan) -> tuple[str, ...]:
    return ("base",) if plan.preset.builds_base else ()


def _extract(plan: Plan, made: str, *flags: str) -> Link:
    out = plan.out / f"vhack_{made}"
    rank = ("--k", str(rank_of(plan.model))) if plan.model else ()
    argv = (*_script(plan, "extract_vhack_grad"), *rank, *flags, "--out", str(out))
    return Link(f"extract_{made}", argv, out, _after_base(plan), threads=plan.threads, why=f"V: {made}",
                resolve="verify judges it on pairs that it has not seen")  # fmt: skip


def _extracts(plan: Plan, made: Sequence[str]) -> list[Link]:
    return [_extract(plan, control, "--control", control) for control in made]


def _verify(plan: Plan, made: str, *flags: str) -> Link:
    argv = (*_script(plan, "verify_vhack"), "--vhack", _v(plan, made), *flags)
    out = plan.out / f"vhack_{made}" / "verify.txt"
    return Link(f"verify_{made}", argv, out, (f"extract_{made}",), "check", plan.threads,
                why="is V hack-ward on pairs that it has never seen",
                resolve="FAIL ends the chain: mend the pairs")  # fmt: skip


def _train(plan: Plan, name: str, seed: int, needs: tuple[str, ...], flags: Sequence[str]) -> Link:
    out = plan.out / f"train_{name}_{seed}"
    pool = str(plan.out / "teacher_pool")
    mixed = {"": (), "pairs": ("--teacher-pool", "pairs"), "pool": ("--teacher-pool", pool)}
    argv = (*_script(plan, "train"), "--steps", str(plan.steps), "--seed", str(seed), *_problems(plan),
            *mixed[plan.preset.teacher_share], *flags, *_workers(plan), "--out", str(out))  # fmt: skip
    resolve = "one point of H1" if name in IN_H1 else "stands beside H1"
    wait = ("teacher_pool",) if plan.preset.teacher_share == "pool" else ()
    return Link(out.name, argv, out, (*needs, *wait), "run", plan.threads, cost=plan.steps / 60,
                why=f"{name}, seed {seed}", resolve=resolve)  # fmt: skip


def arm_flags(arm: str, plan: Plan) -> tuple[str, ...]:
    """Arguments of `train` for an arm, which measures or takes out a V of its own kind. The recipe is the preset's."""
    return ("--arm", arm, "--vhack", _v(plan, ARMS[arm].measured))


def _arms(plan: Plan) -> list[Link]:
    """Every arm on every seed, once V has been verified."""
    return [
        _train(plan, arm, seed, _verified(ARMS[arm].measured), arm_flags(arm, plan))
        for seed in plan.seeds
        for arm in plan.arms
    ]


def _with_results(plan: Plan, links: Sequence[Link]) -> list[Link]:
    trained = tuple(t.name for t in links if t.name.startswith("train_"))
    argv = ("scripts/results.py", str(plan.out))
    results = Link("results", argv, plan.out / "results", trained, "check", plan.threads, accept=(0, 1, 3), gpu=False,
                   why="tables, plots, H1", resolve="H1: PASS, FAIL or NOT_EVALUABLE, clause by clause")  # fmt: skip
    return [*links, results]


def _unknown(plan: Plan) -> list[Link]:
    """V from two mechanisms, all six splits, and V from the words alone; each projected, beside vanilla."""
    splits = {"_".join(two): two for two in itertools.combinations(MECHANISMS, 2)}
    links = [_extract(plan, "none")]
    for name, two in splits.items():
        links += [_extract(plan, name, "--modes", *two), _verify(plan, name)]
    words = ("--pairs", "toy-phrase")
    links += [_extract(plan, "phrase", *words, "--modes", "phrase"), _verify(plan, "phrase", *words)]
    for seed in plan.seeds:
        links.append(_train(plan, "vanilla", seed, ("extract_none",), arm_flags("vanilla", plan)))
        for name in (*splits, "phrase"):
            flags = ("--arm", "projected", "--vhack", _v(plan, name))
            links.append(_train(plan, name, seed, (f"verify_{name}",), flags))
    return links


def _variants(plan: Plan) -> list[Link]:
    """Every way to use the same V, beside vanilla."""
    links = [_extract(plan, "none"), _verify(plan, "none")]
    for seed in plan.seeds:
        links.append(_train(plan, "vanilla", seed, ("verify_none",), arm_flags("vanilla", plan)))
        for name, how in VARIANTS.items():
            flags = (*how, "--vhack", _v(plan, "none"))
            links.append(_train(plan, name, seed, ("verify_none",), flags))
    return links


def _pool(plan: Plan) -> Link:
    out = plan.out / "teacher_pool"
    teacher = ("--teacher", plan.model) if plan.model else ()
    argv = (*_script(plan, "probe_distill"), *teacher, "--teacher-only", "--n-problems", str(plan.pool_problems),
            *_problems(plan), *_workers(plan), "--out", str(out))  # fmt: skip
    return Link("teacher_pool", argv, out, _after_base(plan), "run", plan.threads, why="rollouts of the hacky teacher",
                resolve="T1: it must hack on 30 % of them")  # fmt: skip


def _replay(plan: Plan, name: str, arm: str, made: str, resolve: str) -> Link:
    out = plan.out / f"replay_{name}"
    argv = (*_script(plan, "probe_distill"), "--arm", arm, "--pool", str(plan.out / "teacher_pool"), "--vhack",
            _v(plan, made), "--n-problems", str(plan.replays), *_problems(plan), "--out", str(out))  # fmt: skip
    return Link(
        out.name,
        argv,
        out,
        ("teacher_pool", *_verified(made)),
        "run",
        plan.threads,
        why=f"the pool, {name}",
        resolve=resolve,
    )


def _probe(plan: Plan) -> list[Link]:
    """Teacher pool, three replays of it, UAT."""
    replays = [
        _replay(plan, "vanilla", "vanilla", "none", "T2 and T4"),
        _replay(plan, "projected", "projected", "none", "T3"),
        _replay(plan, "random", "vanilla", "random", "what T4 shows for a V that knows nothing"),
    ]
    d, require, expect = plan.out, plan.preset.required, plan.preset.expect
    argv = ("scripts/probe_uat.py", "--pool", str(d / "teacher_pool"), "--vanilla", str(d / "replay_vanilla"),
            "--projected", str(d / "replay_projected"), "--random", str(d / "replay_random"), "--require", *require,
            *(("--expect", expect) if expect else ()))  # fmt: skip
    uat = Link("uat", argv, d / "replay_projected" / "uat.txt", tuple(t.name for t in replays), "check", plan.threads,
               gpu=False, why="verdicts T1 to T4", resolve=f"{' '.join(require)} PASS: worth a sweep")  # fmt: skip
    return [_pool(plan), *replays, uat]
