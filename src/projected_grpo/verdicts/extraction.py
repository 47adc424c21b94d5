"""T7: does V from the training loss (extract-vhack --loss grpo) tell as well as V from mean NLL?

Judged on the same rollouts, replayed twice: once against either V. Thresholds: docs/spec.md.

The two must be two. Where --loss grpo took the gradients of the NLL after all, whatever the artefact says of itself,
both files hold one subspace, and then every rollout's gradient has the same energy along both: ||V g||^2 knows
neither the signs nor the order nor a turn of V's rows. That is looked for in the rows, so no metadata can hide it.
"""

from collections.abc import Sequence

from projected_grpo.ledger.rates import number
from projected_grpo.ledger.step_file import Row
from projected_grpo.verdicts.effects import Effect, percentile_interval, standardised
from projected_grpo.verdicts.probe import T2_FINITE, T4, T4_EFFECT, Contrast, finite, separates
from projected_grpo.verdicts.registry import Finding, Status

MARGIN = T4_EFFECT
"""Of g: how much worse than the NLL's V the other may be. Less than the smallest effect that has a name is no
effect."""
SAME_ENERGY = 1e-3
"""Of the mean energy along V. Rows of V rounded to bfloat16 change it by a tenth of that at most, two losses by far
more on most rollouts."""
DIFFERING = 0.1
"""Of the rollouts: on how many the energies of two V differ at least."""


def effect_of(contrast: Contrast, rows: Sequence[Row]) -> Effect:
    """Returns g* of one V, its interval over the problems with a rollout that takes part."""
    part = [r for r in rows if contrast.side(r) is not None]
    known = [r for r in part if finite(r["cos_S_contrib"])]
    values, sides = [r["cos_S_contrib"] for r in known], [bool(contrast.side(r)) for r in known]
    return standardised(values, sides, [r["problem_id"] for r in known], {r["problem_id"] for r in part})


def paired(contrast: Contrast, one: Sequence[Row], other: Sequence[Row]) -> tuple[Effect, Effect, Effect]:
    """Returns both V on one contrast, and g of the one minus g of the other; the rows of the two must be the same
    rollouts. The difference is taken resample by resample: the same problems are drawn for both, so what makes a
    problem easy for either is not counted as uncertainty."""
    a, b = effect_of(contrast, one), effect_of(contrast, other)
    draws = a.draws - b.draws
    if a.g is None or b.g is None:
        return a, b, Effect(None, draws, why=a.why or b.why)
    problems = {r["problem_id"] for r in one if contrast.side(r) is not None}
    return a, b, Effect(a.g - b.g, draws, *percentile_interval(draws, len(problems)))


def t7(both: tuple[Sequence[Row], Sequence[Row]]) -> Finding:
    """V of --loss grpo discriminates at least as well as V of --loss nll; `both` are rows of the replay against the
    NLL's V and of the replay against the other."""
    nll, grpo = both
    if not nll or len(nll) != len(grpo):
        return Finding("T7", "NOT_EVALUABLE", "the two V were not measured on the same rollouts; replay the same pool")
    pairs = [(a["energy_V"], b["energy_V"]) for a, b in zip(nll, grpo, strict=True)]
    known = [(a, b) for a, b in pairs if finite(a) and finite(b)]
    if len(known) < T2_FINITE * len(nll):
        why = "the energy along V is not known on a tenth of the rollouts, so whether both V are one cannot be told"
        return Finding("T7", "NOT_EVALUABLE", why)
    mean = sum(a for a, _ in known) / len(known)
    energies = sum(abs(a - b) > SAME_ENERGY * mean for a, b in known) / len(known)
    of_grpo, of_nll, gain = paired(T4, grpo, nll)
    ours, theirs = (separates(T4, rows).numbers.get("g_matched") for rows in (grpo, nll))
    at_length = None if ours is None or theirs is None else ours - theirs
    numbers = {
        "g_grpo": of_grpo.g, "g_nll": of_nll.g, "gain": gain.g, "low": gain.low, "high": gain.high, "at_length": at_length,
    }  # fmt: skip
    g, g_nll, more = (number(effect.g, digits=3, sign="+") for effect in (of_grpo, of_nll, gain))
    why = f"g of grpo {g}, of nll {g_nll}: {more}, 95 % {number(gain.low, digits=3)} to {number(gain.high, digits=3)}"
    status, said = _decided(energies, gain, of_grpo.above_0 or of_nll.above_0, at_length)
    return Finding("T7", status, f"{why} (lower limit needs >= {-MARGIN:+.1f}); {said}", numbers)


def _decided(energies: float, gain: Effect, ahead: bool, at_length: float | None) -> tuple[Status, str]:
    """`energies`: share of the rollouts on which those along both V differ by more than SAME_ENERGY of the first's
    mean; `ahead`: whether either V tells the kinds apart at all; `at_length`: the gain at equal length."""
    if energies < DIFFERING:
        differ = f"the energy along both differs on {energies:.0%} of the rollouts (needs >= {DIFFERING:.0%})"
        return "FAIL", f"one V under two names: {differ}; was --loss grpo really taken?"
    if gain.low is None or gain.high is None:
        return "NOT_EVALUABLE", gain.why
    if not ahead:
        return "NOT_EVALUABLE", "neither V tells pure hacks from hack-and-correct, so neither tells them better"
    if gain.low < -MARGIN and gain.high < 0:
        return "FAIL", "worse"
    if gain.low < -MARGIN:
        return "NOT_EVALUABLE", "neither as good nor worse: more problems are needed"
    if at_length is None:
        return "NOT_EVALUABLE", "at equal length it cannot be told"
    return "PASS" if at_length >= -MARGIN else "FAIL", f"at equal length {at_length:+.3f} (needs >= {-MARGIN:+.1f})"
