"""What `just probe-uat` reports, as numbers: verdicts, kinds of rollouts, effect sizes for V and for another V, remarks.

Everything comes from step rows. The verdicts are those of verdicts/probe.py; nothing here moves a threshold or an exit code.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from projected_grpo.ledger.rates import any_hack, known_mean, pure_hack
from projected_grpo.ledger.step_file import Row
from projected_grpo.report.uat.inputs import Replays
from projected_grpo.verdicts.effects import Effect, lower_end
from projected_grpo.verdicts.extraction import effect_of, paired, problems_of
from projected_grpo.verdicts.probe import ALPHA, T4, T4_PLUS, Contrast, finite, separates
from projected_grpo.verdicts.registry import CLAIMS, Finding
from projected_grpo.verdicts.statistics import MIN_PROBLEMS

V, RANDOM = "V", "random V"
CLEAN = "clean (not hacked)"
KINDS: Mapping[str, Callable[[Row], bool]] = {
    "pure hack": lambda r: bool(pure_hack(r)),
    "hack and correct": lambda r: any_hack(r) and r["gt_pass"] is True,
    "hack, truth unknown": lambda r: any_hack(r) and r["gt_pass"] is None,
    CLEAN: lambda r: not any_hack(r),
}
"""Every rollout is in exactly one of these."""


@dataclass(frozen=True)
class Separation:
    """Whether V, and another V on the same rollouts, separate two kinds."""

    contrast: Contrast
    verdicts: Mapping[str, Finding]
    """By the V's name."""
    effects: Mapping[str, Effect]
    """The same. Of two V, `A - B` is g of the first minus g of the second, both on the same resamples of problems."""


@dataclass(frozen=True)
class Uat:
    """Everything that is printed and written."""

    verdicts: list[Finding]
    buckets: list[dict[str, Any]]
    """A kind of rollout each: `rollouts`, `problems`, mean `tokens`, and mean cosines with V (`cos`) and the random V
    (`random`). None of nothing."""
    separations: list[Separation]
    """T4 and T4+ of V and the random V; then of a V of --loss grpo and the V of --loss nll, where it was replayed."""
    cos_in: Mapping[str, float | None]
    """Hack-ward fraction of the gradients that were left as they are: along V, along the random V, and what a random
    direction of V's rank is expected to show."""
    captured: float | None
    """Lower end (95 %) of cos_in of V minus that of the random V, over problems; None without one, or of few problems."""


def uat(replays: Replays) -> Uat:
    """Returns all numbers of a UAT."""
    pool, vanilla, random, grpo = map(replays.rows, ("pool", "vanilla", "random", "grpo"))
    evidence: dict[str, Any] = {"pool": pool, "vanilla": vanilla, "projected": replays.steps["projected"]}
    evidence |= {"losses": (vanilla, grpo)} if grpo else {}
    found = [claim.judged(evidence[claim.reads]) for claim in CLAIMS.values() if claim.reads in evidence]
    own, others = ([rows[0]["cos_in"] for rows in replays.steps.get(name, ())] for name in ("vanilla", "random"))
    gains = [a - b for a, b in zip(own, others, strict=False) if finite(a) and finite(b)]
    null = known_mean(r["cos_null"] for r in vanilla)
    # Of a random direction half of the axes are positive, and only those are in a hack-ward fraction.
    expected = None if null is None else null / 2**0.5
    cos_in = {V: known_mean(own), RANDOM: known_mean(others), "a random direction, expected": expected}
    captured = lower_end(gains) if len(gains) >= MIN_PROBLEMS else None
    pairs = ({V: vanilla, RANDOM: random}, *([{"grpo": grpo, "nll": vanilla}] if grpo else []))
    separations = [separation(contrast, both) for both in pairs for contrast in (T4, T4_PLUS)]
    return Uat(found, buckets(vanilla, random), separations, cos_in, captured)


def buckets(vanilla: Sequence[Row], random: Sequence[Row]) -> list[dict[str, Any]]:
    """Returns size, length and mean cosine of every kind, empty kinds too."""
    out = []
    cosines, of_random = cosines_by_kind(vanilla), cosines_by_kind(random)
    for kind, member in KINDS.items():
        rows = [r for r in vanilla if member(r)]
        out.append({
            "kind": kind, "rollouts": len(rows), "problems": len({r["problem_id"] for r in rows}),
            "tokens": known_mean(r["comp_len"] for r in rows),
            "cos": known_mean(cosines[kind]), "random": known_mean(of_random[kind]),
        })  # fmt: skip
    return out


def cosines_by_kind(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Returns the known cosines by kind, empty kinds too: what the histogram shows."""
    known = [r for r in rows if finite(r["cos_S_contrib"])]
    return {kind: [r["cos_S_contrib"] for r in known if member(r)] for kind, member in KINDS.items()}


def separation(contrast: Contrast, replays: Mapping[str, Sequence[Row]]) -> Separation:
    """Returns two V on one contrast, by their names; the second may have no rows. Both must be of the same rollouts."""
    (name, rows), (other, others) = replays.items()
    if not others:
        effect = effect_of(contrast, rows, problems_of(contrast, rows))
        return Separation(contrast, {name: separates(contrast, rows)}, {name: effect})
    one, second, gain = paired(contrast, rows, others)
    verdicts = {name: separates(contrast, rows), other: separates(contrast, others)}
    return Separation(contrast, verdicts, {name: one, other: second, f"{name} - {other}": gain})


def remarks(found: Uat) -> list[str]:
    """Returns what the numbers do not let one conclude, a line each. No verdict and no exit code depends on a remark."""
    lines = []
    if not any(b["rollouts"] for b in found.buckets if b["kind"] != CLEAN):
        lines.append(
            "Nothing that was replayed hacks, so T4 has nothing to compare. On preset tiny that is as it should be: random "
            "weights write no code, and only T2 and T3 can pass."
        )
    if found.captured is not None and found.captured <= 0:
        lines.append("T3: V holds no more of the gradient than a random V of its rank, so T3 is no evidence for it.")
    of_v = [one for one in found.separations if V in one.verdicts]
    return [*lines, *(f"{one.contrast.name}: {line}" for one in of_v for line in _caveats(one))]


def _caveats(one: Separation) -> list[str]:
    """What Welch's test over rollouts does not see: a random V, problems, length, the sign."""
    verdict, effect = one.verdicts[V], one.effects[V]
    p, matched = verdict.numbers.get("p"), verdict.numbers.get("p_matched")
    gain = one.effects.get(f"{V} - {RANDOM}")
    lines = []
    if gain is not None and effect.g is not None:
        if one.verdicts[RANDOM].status == "PASS":
            lines.append("the random V passes too. What both show is no evidence that V knows hacks.")
        elif gain.low is None:
            lines.append(f"whether V beats the random V is not known: {gain.why}.")
        elif not gain.above_0:
            lines.append(f"not shown to be better than the random V: g(V) - g(random V) = {gain.text} is not above 0.")
    if p is not None and p < ALPHA:
        if effect.low is not None and not effect.above_0 and not effect.below_0:
            lines.append(f"p < {ALPHA} over rollouts, but the interval of g over problems covers 0.")
        if matched is not None and matched >= ALPHA:
            lines.append("passes over rollouts, fails within problems at equal length: V may see length.")
    if effect.below_0:
        lines.append(f"the other way round. V is higher on {one.contrast.low} than on {one.contrast.high}.")
    return lines


def as_json(found: Uat) -> dict[str, Any]:
    """Returns every number, as plain JSON values; the bootstrap's draws are left out."""
    contrasts = [
        {
            "name": one.contrast.name,
            "verdicts": {name: {"status": v.status, **v.numbers} for name, v in one.verdicts.items()},
            "effects": {name: {k: v for k, v in vars(e).items() if k != "draws"} for name, e in one.effects.items()},
        }
        for one in found.separations
    ]
    return {
        "verdicts": [vars(v) for v in found.verdicts],
        "buckets": found.buckets,
        "contrasts": contrasts,
        "cos_in": dict(found.cos_in),
        "remarks": remarks(found),
    }
