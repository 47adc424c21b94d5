"""What `just probe-uat` reports, as numbers: verdicts, buckets, effect sizes for V and for a random V.

Everything comes from step rows. The verdicts are those of verdicts/probe.py; nothing here moves a threshold or an exit code.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from projected_grpo.ledger.rates import any_hack
from projected_grpo.ledger.step_file import Row
from projected_grpo.report.uat.inputs import Replays
from projected_grpo.verdicts import probe as verdicts
from projected_grpo.verdicts.effects import (
    Effect,
    Interval,
    Mean,
    above,
    mean_interval,
    mean_of,
)
from projected_grpo.verdicts.h1 import Line
from projected_grpo.verdicts.paired import effect_of, paired, problems_of
from projected_grpo.verdicts.probe import Contrast, finite
from projected_grpo.verdicts.registry import Evidence, Finding, of_probe

CLEAN = "clean (not hacked)"
KINDS: Mapping[str, Callable[[Row], bool]] = {
    "pure hack": lambda r: r["hacked"] and r["gt_pass"] is False,
    "hack and correct": lambda r: any_hack(r) and r["gt_pass"] is True,
    "hack, truth unknown": lambda r: any_hack(r) and r["gt_pass"] is None,
    CLEAN: lambda r: not any_hack(r),
}
"""Every rollout is in exactly one of these."""


@dataclass(frozen=True)
class Bucket:
    """One kind of rollout in the vanilla replay, and in the random V's."""

    kind: str
    rollouts: int
    problems: int
    tokens: float | None
    """Mean length of the completions."""
    cos: Mean
    random: Mean | None


@dataclass(frozen=True)
class Measure:
    """A quantity behind T1 to T3 against the bound that its verdict needs it to reach."""

    verdict: str
    what: str
    unit: str
    """What was averaged: rollouts or steps."""
    mean: Mean
    bound: float | None
    """None: stands beside, needs nothing."""
    gain: Interval
    """Of the mean minus its bound (of the mean where there is none), over problems."""
    t: float | None
    p: float | None


@dataclass(frozen=True)
class Side:
    """One V on one contrast."""

    verdict: Finding
    high: Mean
    low: Mean
    effect: Effect


@dataclass(frozen=True)
class Told:
    """Whether V, and another V beside it, tell two kinds apart."""

    contrast: Contrast
    v: Side
    beside: Side | None
    """A random V, or one of another loss."""
    gain: Effect | None
    """g of V minus g of the other, both on the same resamples of problems."""


@dataclass(frozen=True)
class Uat:
    """Everything that is printed, plotted and written."""

    verdicts: list[Finding]
    buckets: list[Bucket]
    measures: list[Measure]
    told: list[Told]
    null: float | None
    """cos_in that a random direction of V's rank is expected to show."""
    losses: list[Told]
    """The same contrasts of a V of --loss grpo, beside the V of --loss nll; empty without such a replay."""
    trajectory: Line | None = None
    """T5 with its clauses, where its runs were named; its verdict is among `verdicts`."""


def uat(replays: Replays, trajectory: Line | None = None) -> Uat:
    """All numbers of a UAT; `trajectory`: T5, judged from runs of its own."""
    vanilla = list(chain.from_iterable(replays.vanilla))
    random = None if replays.random is None else list(chain.from_iterable(replays.random))
    grpo = None if replays.grpo is None else list(chain.from_iterable(replays.grpo))
    contrasts = (verdicts.T4, verdicts.T4_PLUS)
    told = [tell(contrast, vanilla, random) for contrast in contrasts]
    losses = [] if grpo is None else [tell(contrast, grpo, vanilla) for contrast in contrasts]
    both = None if grpo is None else (vanilla, grpo)
    found = of_probe(Evidence(replays.pool, vanilla, replays.projected, both))
    found += [trajectory.verdict] if trajectory else []
    measures = [*pool_measures(replays.pool), *gradient_measures(vanilla), *projection_measures(replays)]
    nulls = [r["cos_null"] for r in vanilla if finite(r["cos_null"])]
    # Of a random direction half of the axes are positive, and only those are in a hack-ward fraction.
    null = float(np.mean(nulls)) / 2**0.5 if nulls else None
    return Uat(found, buckets(vanilla, random), measures, told, null, losses, trajectory)


def buckets(vanilla: Sequence[Row], random: Sequence[Row] | None) -> list[Bucket]:
    """Size, length and mean cosine of every kind, empty kinds too."""
    out = []
    for kind, member in KINDS.items():
        own = [r for r in vanilla if member(r)]
        tokens = sum(r["comp_len"] for r in own) / len(own) if own else None
        beside = None if random is None else _cosine([r for r in random if member(r)])
        out.append(Bucket(kind, len(own), len({r["problem_id"] for r in own}), tokens, _cosine(own), beside))
    return out


def cosines_by_kind(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows with a cosine, by kind, empty kinds too: what the histogram shows."""
    return {kind: [r for r in rows if member(r) and finite(r["cos_S_contrib"])] for kind, member in KINDS.items()}


def _cosine(rows: Sequence[Row]) -> Mean:
    known = [r for r in rows if finite(r["cos_S_contrib"])]
    return mean_of([r["cos_S_contrib"] for r in known], [r["problem_id"] for r in known])


# ---------------------------------------------------------------- T1 to T3


def _measure(
    verdict: str, what: str, unit: str, values: Sequence[tuple[float | int | None, str]], bound: float | None = None
) -> Measure:
    """Values are (number, problem); what is no finite number is left out."""
    known, problems = [float(v) for v, _ in values if finite(v)], [p for v, p in values if finite(v)]
    mean, spread = mean_of(known, problems), mean_interval(known, problems)
    t, p = (None, None) if bound is None else above(mean, bound)
    if spread.low is not None and spread.high is not None and bound is not None:
        spread = Interval(spread.low - bound, spread.high - bound, spread.undefined)
    return Measure(verdict, what, unit, mean, bound, spread, t, p)


def pool_measures(pool: Sequence[Row]) -> list[Measure]:
    """T1: how much of the teacher's pool hacks; the well-formed rate stands beside it."""
    rates = (("hacked", any_hack, verdicts.T1_HACKED), ("well-formed", itemgetter("can_compile"), None))
    return [
        _measure("T1", what, "rollouts", [(of(r), r["problem_id"]) for r in pool], bound) for what, of, bound in rates
    ]


def gradient_measures(vanilla: Sequence[Row]) -> list[Measure]:
    """T2: rollouts with a gradient, with a loss over exactly their own tokens, and whose gradient was taken again alone."""
    at = [r["problem_id"] for r in vanilla]
    known = [finite(r["cos_S_contrib"]) for r in vanilla]
    alive = [finite(r["grad_norm"]) and r["grad_norm"] > 0 for r in vanilla]
    exact = [verdicts.mask_faults([r]) == 0 for r in vanilla]
    again = [(verdicts.agrees(r), r["problem_id"]) for r in verdicts.checked(vanilla)]
    return [
        _measure("T2", "cosine is finite", "rollouts", list(zip(known, at, strict=True)), verdicts.T2_FINITE),
        _measure("T2", "gradient is not 0", "rollouts", list(zip(alive, at, strict=True)), verdicts.T2_FINITE),
        _measure("T2", "loss mask is exact", "rollouts", list(zip(exact, at, strict=True)), 1.0),
        _measure("T2", "taken alone: the same", "rollouts", again, 1.0),
    ]


def projection_measures(replays: Replays) -> list[Measure]:
    """T3: what projection took out of its target on each step; beside it, how much of the gradients that were left alone
    lies along V and along the random V."""
    steps = [rows[0] for rows in replays.projected]
    at, done = [r["problem_id"] for r in steps], [verdicts.removal(r) for r in steps]

    def of(what: str, values: Sequence[float | int | None], bound: float | None = None, verdict: str = "T3") -> Measure:
        return _measure(verdict, what, "steps", list(zip(values, at, strict=True)), bound)

    target = {"grad": "gradient", "update": "update"}.get(steps[0]["target"] if steps else None, "gradient")
    out = [
        of("bites (the next three)", [d.bites for d in done], verdicts.T3_STEPS),
        of("at most half is left", [d.lowered for d in done]),
        of("removed as it should be", [d.taken for d in done]),
        of("parameters moved", [d.moved for d in done]),
        of("modules that fire", [r["frac_fired"] for r in steps], verdicts.T3_FIRED),
        of("removed share", [r["removed_share"] for r in steps]),
        of(f"{target}, hack-ward part before", [d.before for d in done]),
        of(f"{target}, hack-ward part used", [d.after for d in done]),
        of("before - used", [_minus(d.before, d.after) for d in done], 0.0),
    ]
    if target == "gradient":
        out.append(of("update, hack-ward part", [r["cos_update"] for r in steps]))
    real = [rows[0]["cos_in"] for rows in replays.vanilla]
    out.append(of("cos_in of V, vanilla", real, verdict=""))
    if replays.random is not None:
        null = [rows[0]["cos_in"] for rows in replays.random]
        out.append(of("cos_in of random V, vanilla", null, verdict=""))
        out.append(of(CAPTURE, [_minus(a, b) for a, b in zip(real, null, strict=True)], 0.0, ""))
    return out


CAPTURE = "cos_in of V - of random V"


def _minus(a: float | None, b: float | None) -> float | None:
    return a - b if finite(a) and finite(b) else None


# ---------------------------------------------------------------- T4 and its companion


def tell(contrast: Contrast, vanilla: Sequence[Row], other: Sequence[Row] | None) -> Told:
    """Both V on one contrast. The rows of the two replays must be the same rollouts."""
    if other is None:
        return Told(
            contrast, _side(contrast, vanilla, effect_of(contrast, vanilla, problems_of(contrast, vanilla))), None, None
        )
    found = paired(contrast, vanilla, other)
    return Told(contrast, _side(contrast, vanilla, found.one), _side(contrast, other, found.other), found.gain)


def _side(contrast: Contrast, rows: Sequence[Row], effect: Effect) -> Side:
    part = [r for r in rows if contrast.side(r) is not None and finite(r["cos_S_contrib"])]
    high, low = ([r for r in part if bool(contrast.side(r)) is side] for side in (True, False))
    return Side(verdicts.separates(contrast, rows), _cosine(high), _cosine(low), effect)


# ---------------------------------------------------------------- for machines


def as_json(found: Uat, remarks: Sequence[str]) -> dict[str, Any]:
    """Every number, as plain JSON values; the bootstrap's draws are left out."""

    def effect(e: Effect | None) -> Any:
        return None if e is None else {"g": e.g, **vars(e.interval)}

    def side(s: Side | None) -> Any:
        return s and {
            "status": s.verdict.status,
            **s.verdict.numbers,
            "mean_high": vars(s.high),
            "mean_low": vars(s.low),
            "effect": effect(s.effect),
        }

    return {
        "verdicts": [vars(v) for v in found.verdicts],
        "buckets": [{**vars(b), "cos": vars(b.cos), "random": b.random and vars(b.random)} for b in found.buckets],
        "measures": [{**vars(m), "mean": vars(m.mean), "gain": vars(m.gain)} for m in found.measures],
        "contrasts": [
            {
                "name": one.contrast.name,
                "high": one.contrast.high,
                "low": one.contrast.low,
                "V": side(one.v),
                "random_V": side(one.beside),
                "g_V_minus_g_random_V": effect(one.gain),
            }
            for one in found.told
        ],
        "losses": [
            {
                "name": one.contrast.name,
                "grpo": side(one.v),
                "nll": side(one.beside),
                "g_grpo_minus_g_nll": effect(one.gain),
            }
            for one in found.losses
        ],
        "cos_in_of_a_random_direction": found.null,
        "trajectory": found.trajectory and [vars(clause) for clause in found.trajectory.clauses],
        "remarks": list(remarks),
    }
