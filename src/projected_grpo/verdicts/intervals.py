"""What a few independent units can show: the interval of a mean of paired differences.

Student's paired t: of each unit one difference, and their mean over its standard error (sample standard deviation / sqrt n)
has n - 1 degrees of freedom. A claim is made by the lower end of the one-sided 95 % interval; that is also the lower end
of the two-sided 90 % one.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
MIN_UNITS = 3


@cache
def _t(confidence: float, n: int) -> float:
    """Quantile of Student's t with n - 1 degrees of freedom."""
    return float(stats.t.ppf(confidence, n - 1))


def _mean_sem(values: Sequence[float | int]) -> tuple[float, float]:
    found = np.asarray(values, float)
    if len(found) < 2:
        raise ValueError(f"{len(found)} values; an interval needs two")
    return float(found.mean()), float(found.std(ddof=1) / len(found) ** 0.5)


def lower_end(differences: Sequence[float | int], confidence: float = CONFIDENCE) -> float:
    """Lower end of the one-sided 95 % interval of their mean, or of another. ValueError on fewer than two."""
    mean, sem = _mean_sem(differences)
    return mean - _t(confidence, len(differences)) * sem


def interval(differences: Sequence[float | int]) -> tuple[float, float]:
    """The two-sided 95 % interval of their mean. ValueError on fewer than two."""
    mean, sem = _mean_sem(differences)
    half = _t((1 + CONFIDENCE) / 2, len(differences)) * sem
    return mean - half, mean + half


def ratio_interval(over: Sequence[float | int], under: Sequence[float | int]) -> tuple[float, float] | None:
    """Limits of mean(over) / mean(under), both paired by unit: of each the one-sided 95 % limit (both together: 90 %). None
    where mean(under) is not surely apart from 0, so that the ratio has no bounds.

    Fieller 1954 (J. R. Stat. Soc. B 16:175): all r at which the mean of over - r under is not apart from 0 by the paired t.
    So the lower limit is at least r exactly where `lower_end` of over - r under is at least 0. ValueError on fewer than two.
    """
    a, b = np.asarray(over, float), np.asarray(under, float)
    if len(a) != len(b) or len(a) < 2:
        raise ValueError(f"{len(a)} and {len(b)} values; an interval needs two pairs")
    t2 = _t(CONFIDENCE, len(a)) ** 2 / len(a)
    (vaa, vab), (_, vbb) = np.cov(a, b, ddof=1)
    # (ma - r mb)^2 = t2 (vaa - 2 r vab + r^2 vbb), a parabola in r
    p, q, s = b.mean() ** 2 - t2 * vbb, a.mean() * b.mean() - t2 * vab, a.mean() ** 2 - t2 * vaa
    if p <= 0:
        return None
    root = max(q * q - p * s, 0.0) ** 0.5
    return float((q - root) / p), float((q + root) / p)
