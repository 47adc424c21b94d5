"""Two V on the same rollouts: the effect size of each, and their difference with an interval.

The difference is taken resample by resample (effects.py): the same problems are drawn for both, so that what makes a problem
easy to tell for either is not counted as uncertainty of which tells it better.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from projected_grpo.ledger.step_file import Row
from projected_grpo.verdicts.effects import Effect, Interval, percentile_interval, standardised
from projected_grpo.verdicts.probe import Contrast, finite


@dataclass(frozen=True)
class Paired:
    """Both V on one contrast."""

    one: Effect
    other: Effect
    gain: Effect
    """g of the one minus g of the other."""


def effect_of(contrast: Contrast, rows: Sequence[Row], among: Sequence[str]) -> Effect:
    """g* of one V, its interval over the problems in `among`."""
    part = [r for r in rows if contrast.side(r) is not None and finite(r["cos_S_contrib"])]
    return standardised(
        [r["cos_S_contrib"] for r in part],
        [bool(contrast.side(r)) for r in part],
        [r["problem_id"] for r in part],
        among,
    )


def problems_of(contrast: Contrast, rows: Sequence[Row]) -> list[str]:
    """Problems with a rollout that takes part: those that are drawn."""
    return sorted({r["problem_id"] for r in rows if contrast.side(r) is not None})


def paired(contrast: Contrast, one: Sequence[Row], other: Sequence[Row]) -> Paired:
    """Both V on one contrast. The rows of the two must be the same rollouts."""
    among = problems_of(contrast, one)
    a, b = effect_of(contrast, one, among), effect_of(contrast, other, among)
    draws = a.draws - b.draws
    if a.g is None or b.g is None:
        return Paired(a, b, Effect(None, Interval(why=a.interval.why or b.interval.why), draws))
    return Paired(a, b, Effect(a.g - b.g, percentile_interval(draws, len(among)), draws))
