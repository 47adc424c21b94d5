"""How far two kinds of rollouts, or two arms, lie apart, and how sure that is.

Effect size: Hedges' g* for unequal variances, (mean_high - mean_low) / sqrt((s_high^2 + s_low^2) / 2), times the
small-sample correction J(df) = Gamma(df/2) / (sqrt(df/2) Gamma((df-1)/2)), about 1 - 3 / (4 df - 1) (Hedges 1981),
with df = (n_high - 1)(n_low - 1)(s_high^2 + s_low^2)^2 / ((n_low - 1) s_high^4 + (n_high - 1) s_low^4). The SD is the
unweighted average of both variances because pooling assumes that they are equal, which the Welch test does not.
Source: Delacre, Lakens, Ley, Liu and Leys 2021, "Why Hedges' g*_s based on the non-pooled standard deviation should
be reported with Welch's t-test".

Intervals: percentile bootstrap that draws whole problems with replacement (rollouts of one problem are not
independent), with a fixed seed, so that the same files give the same digits. A resample in which a side has fewer
than two rollouts has no g; such resamples are counted, and an interval that they could move is not given.

Of independent replicates: Student's paired t. Of each replicate one difference, and their mean over its standard
error (sample standard deviation / sqrt n) has n - 1 degrees of freedom. A claim is made by the lower end of the
one-sided 95 % interval; that is also the lower end of the two-sided 90 % one."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from projected_grpo.verdicts.statistics import MIN_PROBLEMS

RESAMPLES = 10_000
SEED = 41
TAIL = 0.025
"""What a 95 % interval leaves out on each side."""
ROUNDING = 1e-7
"""Spread below this share of the largest value is rounding of the sums of squares, not spread."""
CONFIDENCE, MIN_REPLICATES = 0.95, 3
"""Of an interval over replicates."""
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Effect:
    """g with its 95 % percentile interval and the bootstrap draws behind it, one per resample, NaN where there is no
    g."""

    g: float | None
    draws: Array
    low: float | None = None
    high: float | None = None
    """None with `low` where there is no interval."""
    why: str = ""
    """Why there is none."""

    @property
    def above_0(self) -> bool:
        """False where there is no interval."""
        return self.low is not None and self.low > 0

    @property
    def below_0(self) -> bool:
        return self.high is not None and self.high < 0

    @property
    def text(self) -> str:
        limits = "[-]" if self.low is None or self.high is None else f"[{self.low:+.2f}, {self.high:+.2f}]"
        return "-" if self.g is None else f"{self.g:+.2f} {limits}"


def percentile_interval(draws: Array, problems: int) -> tuple[float | None, float | None, str]:
    """The middle 95 % of the draws that exist, or why there is none: too few problems, or more draws without g than
    one tail of the interval holds. They could lie anywhere, and so could its limit."""
    missing = int(np.isnan(draws).sum())
    if problems < MIN_PROBLEMS:
        return None, None, f"{problems} problems; at least {MIN_PROBLEMS} are needed"
    if missing > TAIL * len(draws):
        return None, None, f"{missing} of {len(draws)} resamples have no g"
    low, high = np.nanquantile(draws, [TAIL, 1 - TAIL])
    return float(low), float(high), ""


def standardised(
    values: Sequence[float], high: Sequence[bool], problems: Sequence[str], among: Collection[str]
) -> Effect:
    """Hedges' g* of `values` where `high` against the others, with its interval over problems; the first three per
    rollout.

    `among`: every problem that may be drawn, those of the rollouts included. Calls with the same `among` draw the
    same resamples, so their draws may be subtracted one by one."""
    names = sorted(set(among))
    if not values:
        return Effect(None, np.full(RESAMPLES, np.nan), why="no rollouts")
    index = {name: i for i, name in enumerate(names)}
    x = np.asarray(values, dtype=float)
    x = x - x.mean()  # g does not change, and sums of squares of small numbers round less
    sums = np.zeros((len(names), 2, 3))
    for problem, on_high, value in zip(problems, high, x, strict=True):
        sums[index[problem], 0 if on_high else 1] += (1.0, value, value**2)
    scale = float(np.abs(x).max())
    g = float(_g(sums.sum(0, keepdims=True), scale)[0])
    shape = (RESAMPLES, len(names))
    picked = np.random.default_rng(SEED).integers(0, len(names), shape) + len(names) * np.arange(RESAMPLES)[:, None]
    drawn = (
        np.bincount(picked.ravel(), minlength=picked.size).reshape(shape).astype(float)
    )  # how often each problem was
    draws = _g(np.einsum("bp,pst->bst", drawn, sums), scale)
    if np.isnan(g):
        return Effect(None, draws, why="g needs 2 rollouts on each side, and spread")
    return Effect(g, draws, *percentile_interval(draws, len(names)))


def hedges_g(high: Sequence[float], low: Sequence[float]) -> float | None:
    """g* of two samples, as above; None where it does not exist."""
    x = np.array([*high, *low], dtype=float)
    x = x - x.mean()
    split = (x[: len(high)], x[len(high) :])
    sums = np.array([[len(side), side.sum(), (side**2).sum()] for side in split])
    g = float(_g(sums, float(np.abs(x).max())))
    return None if np.isnan(g) else g


def _g(sums: Array, scale: float) -> Array:
    """g* from (n, sum, sum of squares) of both sides, [..., 2, 3]; NaN where it does not exist."""
    n, total, square = sums[..., 0], sums[..., 1], sums[..., 2]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = total / n
        s2 = np.maximum(square - n * mean**2, 0.0) / (n - 1)
        sd = np.sqrt(s2.mean(-1))
        df = (n - 1).prod(-1) * s2.sum(-1) ** 2 / ((n - 1)[..., ::-1] * s2**2).sum(-1)
        correction = np.exp(special.gammaln(df / 2) - special.gammaln((df - 1) / 2)) / np.sqrt(df / 2)
        g = (mean[..., 0] - mean[..., 1]) / sd * correction
    exists = (n >= 2).all(-1) & (sd > ROUNDING * scale) & (df > 1)
    return np.where(exists, g, np.nan)


# ---------------------------------------------------------------- over replicates


def lower_end(differences: Sequence[float | int]) -> float:
    """Lower end of the one-sided 95 % interval of their mean."""
    return interval(differences, CONFIDENCE)[0]


def interval(differences: Sequence[float | int], each_way: float = (1 + CONFIDENCE) / 2) -> tuple[float, float]:
    """The interval of the mean of two or more differences, `each_way` the confidence of either end; by default the
    two-sided 95 % interval."""
    t = float(special.stdtrit(len(differences) - 1, each_way))
    mean, half = float(np.mean(differences)), t * float(stats.sem(differences))
    return mean - half, mean + half
