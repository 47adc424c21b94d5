"""T7: does V from the training loss (extract-vhack --loss grpo) tell as well as V from mean NLL?

Judged on the same rollouts, replayed twice: once against either V. Thresholds: docs/spec.md.

The two must be two. Where --loss grpo took the gradients of the NLL after all, whatever the artefact says of itself, both
files hold one subspace, and then every rollout's gradient has the same energy along both: ||V g||^2 knows neither the signs
nor the order nor a turn of V's rows. That is looked for in the rows, so no metadata can hide it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from projected_grpo.ledger.rates import number
from projected_grpo.ledger.step_file import Row
from projected_grpo.verdicts.effects import Effect, Interval, percentile_interval, standardised
from projected_grpo.verdicts.probe import T2_FINITE, T4, T4_EFFECT, Contrast, finite, separates
from projected_grpo.verdicts.registry import Finding, Status

MARGIN = T4_EFFECT
"""Of g: how much worse than the NLL's V the other may be. Less than the smallest effect that has a name is no effect."""
SAME_ENERGY = 1e-3
"""Of the mean energy along V. Rows of V rounded to bfloat16 change it by a tenth of that at most, two losses by far more on
most rollouts."""
DIFFERING = 0.1
"""Of the rollouts: on how many the energies of two V differ at least."""
ONE_V = "one V under two names"


@dataclass(frozen=True)
class Paired:
    """Two V on one contrast."""

    one: Effect
    other: Effect
    gain: Effect
    """g of the one minus g of the other."""


def effect_of(contrast: Contrast, rows: Sequence[Row], among: Sequence[str]) -> Effect:
    """Returns g* of one V, its interval over the problems in `among`."""
    part = [r for r in rows if contrast.side(r) is not None and finite(r["cos_S_contrib"])]
    values, sides = [r["cos_S_contrib"] for r in part], [bool(contrast.side(r)) for r in part]
    return standardised(values, sides, [r["problem_id"] for r in part], among)


def problems_of(contrast: Contrast, rows: Sequence[Row]) -> list[str]:
    """Returns the problems with a rollout that takes part: those that are drawn."""
    return sorted({r["problem_id"] for r in rows if contrast.side(r) is not None})


def paired(contrast: Contrast, one: Sequence[Row], other: Sequence[Row]) -> Paired:
    """Returns both V on one contrast; the rows of the two must be the same rollouts. The difference is taken resample by
    resample: the same problems are drawn for both, so what makes a problem easy for either is not counted as uncertainty."""
    among = problems_of(contrast, one)
    a, b = effect_of(contrast, one, among), effect_of(contrast, other, among)
    draws = a.draws - b.draws
    if a.g is None or b.g is None:
        return Paired(a, b, Effect(None, Interval(why=a.interval.why or b.interval.why), draws))
    return Paired(a, b, Effect(a.g - b.g, percentile_interval(draws, len(among)), draws))


def differing(nll: Sequence[Row], grpo: Sequence[Row]) -> float | None:
    """Share of rollouts on which the energies along two V differ by more than SAME_ENERGY of the first's mean. None where a
    tenth of the rollouts lack one."""
    both = [(a["energy_V"], b["energy_V"]) for a, b in zip(nll, grpo, strict=True)]
    both = [(a, b) for a, b in both if finite(a) and finite(b)]
    if not both or len(both) < T2_FINITE * len(nll):
        return None
    mean = sum(a for a, _ in both) / len(both)
    return sum(abs(a - b) > SAME_ENERGY * mean for a, b in both) / len(both)


def t7(both: tuple[Sequence[Row], Sequence[Row]]) -> Finding:
    """V of --loss grpo discriminates at least as well as V of --loss nll; `both` are rows of the replay against the NLL's V
    and of the replay against the other."""
    nll, grpo = both
    name = "T7"
    if not nll or len(nll) != len(grpo):
        return Finding(name, "NOT_EVALUABLE", "the two V were not measured on the same rollouts; replay the same pool")
    energies = differing(nll, grpo)
    if energies is None:
        why = "the energy along V is not known on a tenth of the rollouts, so whether both V are one cannot be told"
        return Finding(name, "NOT_EVALUABLE", why)
    found = paired(T4, grpo, nll)
    tests = {loss: separates(T4, rows).numbers for loss, rows in (("nll", nll), ("grpo", grpo))}
    numbers = {
        "n": len(nll), "energies_differ": energies,
        "g_grpo": found.one.g, "g_nll": found.other.g, "gain": found.gain.g,
        "low": found.gain.interval.low, "high": found.gain.interval.high,
        **{f"{what}_{loss}": numbers.get(what) for loss, numbers in tests.items() for what in ("t", "g_matched")},
    }  # fmt: skip
    if energies < DIFFERING:
        why = (
            f"{ONE_V}: of {len(nll)} rollouts the energy along both differs on {energies:.0%} (needs >= {DIFFERING:.0%}); "
            "two losses give two V; was --loss grpo really taken?"
        )
        return Finding(name, "FAIL", why, numbers)
    return Finding(name, *_judged(found, numbers), numbers)


def _judged(found: Paired, numbers: dict[str, float | int | None]) -> tuple[Status, str]:
    low, high = found.gain.interval.low, found.gain.interval.high
    matched = [numbers["g_matched_grpo"], numbers["g_matched_nll"]]
    if low is None or high is None:
        return "NOT_EVALUABLE", f"{_told(found)}: {found.gain.interval.why}"
    why = f"{_told(found)}, lower limit needs >= {-MARGIN:+.1f}"
    if not (found.one.interval.above_0 or found.other.interval.above_0):
        return "NOT_EVALUABLE", f"{why}; neither V tells pure hacks from hack-and-correct, so neither tells them better"
    if low < -MARGIN:
        worse = "worse" if high < 0 else "neither as good nor worse: more problems are needed"
        return "FAIL" if high < 0 else "NOT_EVALUABLE", f"{why}: {worse}"
    if matched[0] is None or matched[1] is None:
        return "NOT_EVALUABLE", f"{why}; at equal length it cannot be told"
    at_length = matched[0] - matched[1]
    why += f"; at equal length {at_length:+.3f} (needs >= {-MARGIN:+.1f}{': not met' if at_length < -MARGIN else ''})"
    return "FAIL" if at_length < -MARGIN else "PASS", why


def _told(found: Paired) -> str:
    low, high = found.gain.interval.low, found.gain.interval.high
    limits = "no interval" if low is None or high is None else f"95 % {low:+.3f} to {high:+.3f}"
    g = [number(effect.g, digits=3, sign="+") for effect in (found.one, found.other, found.gain)]
    return f"g of grpo {g[0]}, of nll {g[1]}: {g[2]} ({limits})"
