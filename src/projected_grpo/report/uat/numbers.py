"""What `just probe-uat` reports, as numbers: verdicts, kinds of rollouts, effect sizes for V and for another V, remarks.

Everything comes from step rows. The verdicts are those of verdicts/probe.py; nothing here moves a threshold or an exit code.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from projected_grpo.ledger.rates import any_hack, known_mean, pure_hack
from projected_grpo.ledger.step_file import Row
from projected_grpo.report.uat.inputs import Replays
from projected_grpo.verdicts.effects import Effect, lower_end
from projected_grpo.verdicts.extraction import effect_of, paired, problems_of
from projected_grpo.verdicts.probe import ALPHA, T4, T4_PLUS, Contrast, finite, separates
from projected_grpo.verdicts.registry import Evidence, Finding, Line, of_probe
from projected_grpo.verdicts.statistics import MIN_PROBLEMS

CLEAN = "clean (not hacked)"
KINDS: Mapping[str, Callable[[Row], bool]] = {
    "pure hack": lambda r: bool(pure_hack(r)),
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
    known: int
    """Of them: how many have a cosine."""
    cos: float | None
    """Its mean against V."""
    random: float | None
    """... and against the random V; None without one."""


@dataclass(frozen=True)
class Side:
    """One V on one contrast."""

    verdict: Finding
    effect: Effect


@dataclass(frozen=True)
class Separation:
    """Whether V, and another V on the same rollouts, separate two kinds."""

    contrast: Contrast
    v: Side
    other: Side | None
    """A random V, or one of another loss."""
    gain: Effect | None
    """g of V minus g of the other, both on the same resamples of problems."""


@dataclass(frozen=True)
class Uat:
    """Everything that is printed, plotted and written."""

    verdicts: list[Finding]
    buckets: list[Bucket]
    separations: list[Separation]
    cos_in: Mapping[str, float | None]
    """Hack-ward fraction of the gradients that were left as they are: along V, along the random V, and what a random
    direction of V's rank is expected to show."""
    captured: float | None
    """Lower end (95 %) of cos_in of V minus that of the random V, over problems; None without one."""
    losses: list[Separation]
    """The same contrasts of a V of --loss grpo, with the V of --loss nll as the other; empty without such a replay."""
    trajectory: Line | None = None
    """T5 with its clauses, where its runs were named; its verdict is among `verdicts`."""


def uat(replays: Replays, trajectory: Line | None = None) -> Uat:
    """Returns all numbers of a UAT; `trajectory`: T5, judged from other runs."""
    vanilla = list(chain.from_iterable(replays.vanilla))
    random = list(chain.from_iterable(replays.random))
    grpo = list(chain.from_iterable(replays.grpo))
    contrasts = (T4, T4_PLUS)
    losses = [separation(contrast, grpo, vanilla) for contrast in contrasts] if grpo else []
    found = of_probe(Evidence(replays.pool, vanilla, replays.projected, (vanilla, grpo) if grpo else None))
    found += [trajectory.verdict] if trajectory else []
    first = {"V": replays.vanilla, "random V": replays.random}
    cos_in = {of: known_mean(rows[0]["cos_in"] for rows in steps) for of, steps in first.items()}
    null = known_mean(r["cos_null"] for r in vanilla)
    # Of a random direction half of the axes are positive, and only those are in a hack-ward fraction.
    cos_in["a random direction, expected"] = None if null is None else null / 2**0.5
    return Uat(
        found, buckets(vanilla, random), [separation(contrast, vanilla, random) for contrast in contrasts], cos_in,
        captured(replays), losses, trajectory,
    )  # fmt: skip


def buckets(vanilla: Sequence[Row], random: Sequence[Row]) -> list[Bucket]:
    """Returns size, length and mean cosine of every kind, empty kinds too."""
    out = []
    by_kind, of_random = cosines_by_kind(vanilla), cosines_by_kind(random)
    for kind, member in KINDS.items():
        rows = [r for r in vanilla if member(r)]
        problems, known = len({r["problem_id"] for r in rows}), by_kind[kind]
        tokens = known_mean(r["comp_len"] for r in rows)
        cos, other = (known_mean(r["cos_S_contrib"] for r in of) for of in (known, of_random[kind]))
        out.append(Bucket(kind, len(rows), problems, tokens, len(known), cos, other))
    return out


def cosines_by_kind(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Returns the rows with a cosine by kind, empty kinds too: what the histogram shows."""
    return {kind: [r for r in rows if member(r) and finite(r["cos_S_contrib"])] for kind, member in KINDS.items()}


def captured(replays: Replays) -> float | None:
    """Returns the lower end of cos_in of V minus that of the random V; None where there is no random V, or few problems."""
    pairs = [(a[0]["cos_in"], b[0]["cos_in"]) for a, b in zip(replays.vanilla, replays.random, strict=False)]
    gains = [a - b for a, b in pairs if finite(a) and finite(b)]
    return lower_end(gains) if len(gains) >= MIN_PROBLEMS else None


def separation(contrast: Contrast, vanilla: Sequence[Row], other: Sequence[Row]) -> Separation:
    """Returns both V on one contrast. The rows of the two replays must be the same rollouts; `other` may be empty."""
    verdict = separates(contrast, vanilla)
    if not other:
        effect = effect_of(contrast, vanilla, problems_of(contrast, vanilla))
        return Separation(contrast, Side(verdict, effect), None, None)
    found = paired(contrast, vanilla, other)
    return Separation(contrast, Side(verdict, found.one), Side(separates(contrast, other), found.other), found.gain)


# ---------------------------------------------------------------- remarks


def remarks(found: Uat) -> list[str]:
    """Returns what the numbers do not let one conclude, a line each. No verdict and no exit code depends on a remark."""
    rollouts, known = (sum(of) for of in zip(*((b.rollouts, b.known) for b in found.buckets), strict=True))
    lines = []
    if not any(b.rollouts for b in found.buckets if b.kind != CLEAN):
        lines.append(
            "Nothing that was replayed hacks, so T4 has nothing to compare. On preset tiny that is as it should be: random "
            "weights write no code, and only T2 and T3 can pass."
        )
    if known < rollouts:
        lines.append(
            f"{rollouts - known} of {rollouts} rollouts have no cosine (no gradient) and are in no mean of cosines."
        )
    if found.captured is not None and found.captured <= 0:
        lines.append("T3: V holds no more of the gradient than a random V of its rank, so T3 is no evidence for it.")
    for one in found.separations:
        lines += [f"{one.contrast.name}{line}" for line in (_against_random(one), *_of_v(one)) if line]
    return lines


def _against_random(one: Separation) -> str:
    """A separation that a random V shares is no evidence for V."""
    if one.other is None or one.gain is None or one.v.effect.g is None:
        return ""
    interval = one.gain.interval
    if one.other.verdict.status == "PASS":
        return ": the random V passes too. What both show is no evidence that V knows hacks."
    if interval.low is None:
        return f": whether V beats the random V is not known: {interval.why}."
    if interval.above_0:
        return ""
    lead = " PASS is no evidence yet" if one.v.verdict.status == "PASS" else ""
    return f"{lead}: not shown to be better than the random V: g(V) - g(random V) = {one.gain.text} is not above 0."


def _of_v(one: Separation) -> list[str]:
    """What Welch's test over rollouts does not see: problems, length, the sign."""
    numbers, interval = one.v.verdict.numbers, one.v.effect.interval
    p, matched = numbers.get("p"), numbers.get("p_matched")
    lines = []
    if p is not None and p < ALPHA:
        if interval.low is not None and not interval.above_0 and not interval.below_0:
            lines.append(f": p < {ALPHA} over rollouts, but the interval of g over problems covers 0.")
        if matched is None:
            lines.append(": passes over rollouts; at equal length it is not known, so nothing is claimed.")
        elif matched >= ALPHA:
            lines.append(": passes over rollouts, fails within problems at equal length: V may see length.")
    if interval.below_0:
        lines.append(f": the other way round. V is higher on {one.contrast.low} than on {one.contrast.high}.")
    return lines


# ---------------------------------------------------------------- for machines


def as_json(found: Uat) -> dict[str, Any]:
    """Returns every number, as plain JSON values; the bootstrap's draws are left out."""

    def effect(e: Effect | None) -> Any:
        return e and {"g": e.g, **vars(e.interval)}

    def side(s: Side | None) -> Any:
        return s and {"status": s.verdict.status, **s.verdict.numbers, "effect": effect(s.effect)}

    def contrasts(separations: Sequence[Separation], v: str, other: str) -> list[dict[str, Any]]:
        return [
            {"name": one.contrast.name, v: side(one.v), other: side(one.other), f"g_{v}_minus_g_{other}": effect(one.gain)}
            for one in separations
        ]  # fmt: skip

    return {
        "verdicts": [vars(v) for v in found.verdicts],
        "buckets": [vars(b) for b in found.buckets],
        "contrasts": contrasts(found.separations, "V", "random_V"),
        "losses": contrasts(found.losses, "grpo", "nll"),
        "cos_in": dict(found.cos_in),
        "trajectory": found.trajectory and [vars(clause) for clause in found.trajectory.clauses],
        "remarks": remarks(found),
    }
