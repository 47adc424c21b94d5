"""Do two kinds of rollouts differ at equal length, within problems? The statistics behind T4.

Rollouts of one problem are no independent draws, and the two kinds differ in length and come from different problems; a
Welch test over rollouts knows none of that. So: least squares of the value on (kind, length, length^2) with every
problem's own mean taken out, and a standard error clustered by problem. Source: Liang and Zeger 1986, with the CR1
correction and G - 1 degrees of freedom that Stata and statsmodels (OLS, cov_type="cluster") use; tests pin its numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

MIN_PROBLEMS = 5
"""With both kinds in them, for a standard error over problems to mean anything."""
RANK_EPS = 1e-9
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Matched:
    """A difference at equal length; all but `problems` are None where it cannot be told."""

    problems: int
    """Problems that hold both kinds."""
    gap: float | None = None
    """One-sided: that the gap is above 0."""
    """In the unit of the values."""
    sem: float | None = None
    """Its standard error, clustered by problem."""
    t: float | None = None
    p: float | None = None


def at_equal_length(
    values: Sequence[float], high: Sequence[bool], lengths: Sequence[int], problems: Sequence[str]
) -> Matched:
    """Whether `values` are higher where `high`; all four sequences are per rollout. ValueError when they differ in
    length. Cannot be told with fewer than MIN_PROBLEMS problems of both kinds, or where length alone gives the kind."""
    by_problem: dict[str, list[int]] = {}
    for i, problem in enumerate(problems):
        by_problem.setdefault(problem, []).append(i)
    both = sum(len({high[i] for i in members}) == 2 for members in by_problem.values())
    groups = [members for members in by_problem.values() if len(members) > 1]
    if both < MIN_PROBLEMS:
        return Matched(both)
    scaled = [n / max(*lengths, 1) for n in lengths]
    table = np.array([[float(h), n, n * n, v] for h, n, v in zip(high, scaled, values, strict=True)])
    centred = [table[members] - table[members].mean(0) for members in groups]
    varies = [j for j in range(3) if any(np.abs(g[:, j]).max() > RANK_EPS for g in centred)]
    return _fit([g[:, varies] for g in centred], [g[:, 3] for g in centred], both)


def _fit(x_groups: Sequence[Array], y_groups: Sequence[Array], both: int) -> Matched:
    """The first column's coefficient with its cluster-robust t."""
    x, y = np.concatenate(x_groups), np.concatenate(y_groups)
    n, k, g = len(y), x.shape[1], len(x_groups)
    normal = x.T @ x
    if n - g - k < 1 or np.linalg.cond(normal) > 1 / RANK_EPS:
        return Matched(both)
    inverse = np.linalg.inv(normal)
    beta = inverse @ x.T @ y
    scores = [xs.T @ (ys - xs @ beta) for xs, ys in zip(x_groups, y_groups, strict=True)]
    meat = np.stack([np.outer(s, s) for s in scores]).sum(0)
    variance = float((inverse @ meat @ inverse)[0, 0]) * g / (g - 1) * (n - 1) / (n - k)
    if not variance > 0:
        return Matched(both)
    gap, sem = float(beta[0]), variance**0.5
    return Matched(both, gap, sem, gap / sem, float(stats.t.sf(gap / sem, g - 1)))
