"""What `just probe-uat` reports, as numbers: verdicts, buckets, effect sizes for V and for a random V.

Everything comes from step rows. The verdicts are those of verdicts/probe.py; nothing here moves a threshold or an exit code.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from projected_grpo.ledger.rates import any_hack
from projected_grpo.ledger.step_file import Row
from projected_grpo.report.uat.inputs import Replays
from projected_grpo.verdicts import probe as verdicts
from projected_grpo.verdicts.effects import Effect, Mean, mean_of
from projected_grpo.verdicts.extraction import effect_of, paired, problems_of
from projected_grpo.verdicts.intervals import lower_end
from projected_grpo.verdicts.probe import Contrast, finite
from projected_grpo.verdicts.registry import Evidence, Finding, Line, of_probe
from projected_grpo.verdicts.statistics import MIN_PROBLEMS

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
    """A quantity behind T1 to T3, and what its verdict needs it to reach; None: nothing."""

    verdict: str
    what: str
    mean: Mean
    """Over rollouts for T1 and T2, over steps (one problem each) for T3."""
    bound: float | None


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
    captured: float | None
    """Lower end (95 %) of cos_in of V minus that of the random V, over problems; None without one."""
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
    return Uat(found, buckets(vanilla, random), measures, told, null, captured(replays), losses, trajectory)


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
    verdict: str, what: str, values: Iterable[Any], problems: Sequence[str], bound: float | None = None
) -> Measure:
    """What is no finite number is left out."""
    known = [(float(v), problem) for v, problem in zip(values, problems, strict=True) if finite(v)]
    return Measure(verdict, what, mean_of([v for v, _ in known], [problem for _, problem in known]), bound)


def pool_measures(pool: Sequence[Row]) -> list[Measure]:
    """T1: how much of the teacher's pool hacks, and how much compiles."""
    at = [r["problem_id"] for r in pool]
    return [
        _measure("T1", "hacked", map(any_hack, pool), at, verdicts.T1_HACKED),
        _measure("T1", "well-formed", (r["can_compile"] for r in pool), at),
    ]


def gradient_measures(vanilla: Sequence[Row]) -> list[Measure]:
    """T2: rollouts with a gradient, with a loss over exactly their own tokens, and whose gradient was taken again alone."""
    at, again = [r["problem_id"] for r in vanilla], verdicts.checked(vanilla)
    alive = (finite(r["grad_norm"]) and r["grad_norm"] > 0 for r in vanilla)
    return [
        _measure("T2", "cosine is finite", (finite(r["cos_S_contrib"]) for r in vanilla), at, verdicts.T2_FINITE),
        _measure("T2", "gradient is not 0", alive, at, verdicts.T2_FINITE),
        _measure("T2", "loss mask is exact", (verdicts.mask_faults([r]) == 0 for r in vanilla), at, 1.0),
        _measure("T2", "taken alone: the same", map(verdicts.agrees, again), [r["problem_id"] for r in again], 1.0),
    ]


def projection_measures(replays: Replays) -> list[Measure]:
    """T3: what projection removed from its target on each step; and how much of the gradients that were left as they are
    lies along V and along the random V."""
    steps = [rows[0] for rows in replays.projected]
    at, done = [r["problem_id"] for r in steps], [verdicts.removal(r) for r in steps]
    target = {"grad": "gradient", "update": "update"}.get(steps[0]["target"] if steps else None, "gradient")
    out = [
        _measure("T3", "bites (the next three)", [d.bites for d in done], at, verdicts.T3_STEPS),
        _measure("T3", "at most half is left", [d.lowered for d in done], at),
        _measure("T3", "removed as it should be", [d.taken for d in done], at),
        _measure("T3", "parameters moved", [d.moved for d in done], at),
        _measure("T3", "modules that fire", [r["frac_fired"] for r in steps], at, verdicts.T3_FIRED),
        _measure("T3", "removed share", [r["removed_share"] for r in steps], at),
        _measure("T3", f"{target}, hack-ward part before", [d.before for d in done], at),
        _measure("T3", f"{target}, hack-ward part used", [d.after for d in done], at),
    ]
    if target == "gradient":
        out.append(_measure("T3", "update, hack-ward part", [r["cos_update"] for r in steps], at))
    out.append(_measure("", "cos_in of V, vanilla", [rows[0]["cos_in"] for rows in replays.vanilla], at))
    if replays.random is not None:
        out.append(_measure("", "cos_in of random V, vanilla", [rows[0]["cos_in"] for rows in replays.random], at))
    return out


def captured(replays: Replays) -> float | None:
    """Returns the lower end of cos_in of V minus that of the random V; None where there is no random V, or few problems."""
    both = zip(replays.vanilla, replays.random or (), strict=False)
    pairs = [(a[0]["cos_in"], b[0]["cos_in"]) for a, b in both]
    gains = [a - b for a, b in pairs if finite(a) and finite(b)]
    return lower_end(gains) if len(gains) >= MIN_PROBLEMS else None


# ---------------------------------------------------------------- T4 and its companion


def tell(contrast: Contrast, vanilla: Sequence[Row], other: Sequence[Row] | None) -> Told:
    """Returns both V on one contrast. The rows of the two replays must be the same rollouts."""
    if other is None:
        effect = effect_of(contrast, vanilla, problems_of(contrast, vanilla))
        return Told(contrast, _side(contrast, vanilla, effect), None, None)
    found = paired(contrast, vanilla, other)
    return Told(contrast, _side(contrast, vanilla, found.one), _side(contrast, other, found.other), found.gain)


def _side(contrast: Contrast, rows: Sequence[Row], effect: Effect) -> Side:
    part = [r for r in rows if contrast.side(r) is not None and finite(r["cos_S_contrib"])]
    high, low = ([r for r in part if bool(contrast.side(r)) is side] for side in (True, False))
    return Side(verdicts.separates(contrast, rows), _cosine(high), _cosine(low), effect)


# ---------------------------------------------------------------- for machines


def as_json(found: Uat, remarks: Sequence[str]) -> dict[str, Any]:
    """Returns every number, as plain JSON values; the bootstrap's draws are left out."""

    def effect(e: Effect | None) -> Any:
        return e and {"g": e.g, **vars(e.interval)}

    def side(s: Side | None) -> Any:
        means = {} if s is None else {"mean_high": vars(s.high), "mean_low": vars(s.low), "effect": effect(s.effect)}
        return s and {"status": s.verdict.status, **s.verdict.numbers, **means}

    def contrasts(told: Sequence[Told], v: str, other: str) -> list[dict[str, Any]]:
        return [
            {
                "name": one.contrast.name,
                v: side(one.v),
                other: side(one.beside),
                f"g_{v}_minus_g_{other}": effect(one.gain),
            }
            for one in told
        ]

    return {
        "verdicts": [vars(v) for v in found.verdicts],
        "buckets": [{**vars(b), "cos": vars(b.cos), "random": b.random and vars(b.random)} for b in found.buckets],
        "measures": [{**vars(m), "mean": vars(m.mean)} for m in found.measures],
        "contrasts": contrasts(found.told, "V", "random_V"),
        "losses": contrasts(found.losses, "grpo", "nll"),
        "cos_in_of_a_random_direction": found.null,
        "trajectory": found.trajectory and [vars(clause) for clause in found.trajectory.clauses],
        "remarks": list(remarks),
    }
