"""Do two kinds of rollouts differ at equal length, within problems? The statistics behind T4.

Rollouts of one problem are no independent draws, and the two kinds differ in length and come from different problems;
a Welch test over rollouts knows none of that. So: least squares of the value on the kind and a curve of the length,
with problem means removed, and a standard error clustered by problem. The curve is a natural cubic spline of 2 to 5
degrees of freedom, its knots evenly spaced in rank from the shortest rollout to the longest (Hastie, Tibshirani and
Friedman 2009, section 5.2.1): a parabola lets detectors of 1 / length and of a threshold pass for something else.

The standard error is CR2 and its degrees of freedom are Satterthwaite's, both under a working model of independent
equal errors (Bell and McCaffrey 2002; Pustejovsky and Tipton 2018, J. Bus. Econ. Stat. 36:672, whose theorem 2 lets
the absorbed means out of the adjustment). With X_g the demeaned regressors of problem g, M = (X'X)^-1 and c the unit
vector of `kind`:

    q_g = (I - X_g M X_g')^(-1/2) X_g M c        SE^2 = sum_g (q_g' e_g)^2
    P_gh = q_g' (I - H)_gh q_h                   df = (tr P)^2 / sum_gh P_gh^2

G - 1 degrees of freedom count every problem, those with one kind only included, though they say nothing about the
gap: with 5 to 8 mixed problems of 40 that test rejects about 8 % of true nulls at a nominal 5 %, where this one
rejects 5 % (tests/test_matched.py simulates it).

Student's t takes the noise for symmetric. Where it is strongly skewed and one kind is rare, t alone rejects up to 11
% of true nulls. So the same t is also ranked among those of permutations within problems: of the residuals on length
and problem (Freedman and Lane 1983), each divided by its standard error, which keeps the rank valid where the kinds'
noise differs (Janssen 1997). T4 asks for both."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, stats
from scipy.interpolate import CubicSpline

MIN_PROBLEMS = 5
"""With both kinds in them, for a standard error over problems to mean anything."""
MIN_DF = 2.0
"""Below it Satterthwaite's approximation says nothing."""
CURVE_DF, ROLLOUTS_A_DF = (2, 5), 10
"""Degrees of freedom of the curve of the length, at least and at most: one for ten rollouts beyond one a problem."""
RANK_EPS = 1e-9
DEPENDENT = 1e-6
"""Of the largest: what of a column the others do not give already, below which it is dropped."""
ROUNDING = 1e-12
"""Of the largest value: a standard error below it is rounding (2e-16 a value), not noise."""
PERMUTATIONS = 1999
"""The least p that they can show is 1 / 2000."""
Array = NDArray[np.float64]


class Matched(NamedTuple):
    """A difference at equal length: the gap in the unit of the values, its standard error clustered by problem (CR2),
    Satterthwaite's degrees of freedom (about the problems that inform the gap, less one), and one-sided p that the
    gap is above 0: by Student's t, and by the rank of t among those of PERMUTATIONS permutations within problems."""

    gap: float
    sem: float
    df: float
    p: float
    p_permuted: float


@dataclass(frozen=True)
class Design:
    """Which rollouts are compared, whatever their values: everything that a fit needs but y."""

    x: Array
    """[n, regressors], means of problems removed, the kind first; rows of one problem stand together."""
    normal: Array
    """(x'x)^-1."""
    rows: NDArray[np.int64]
    """[n], which rollout each row is."""
    starts: NDArray[np.int64]
    """[problems], where each problem's rows begin."""
    q: Array
    """[n], see above."""
    df: float

    @classmethod
    def of(cls, table: Array, groups: Sequence[Sequence[int]]) -> "Design | None":
        """From regressors [rollouts, 1 + columns], the kind first, and the rollouts of each problem. Of the other
        columns those are dropped that the data cannot separate from the rest. None where the kind cannot be separated
        from them."""
        centred = [table[list(members)] - table[list(members)].mean(0) for members in groups]
        x = np.concatenate(centred)
        if not (np.abs(x[:, 0]) > RANK_EPS).any():
            return None
        x = np.column_stack([x[:, 0], _independent(x[:, 1:])])
        if np.linalg.cond(x.T @ x) > 1 / RANK_EPS or len(x) - len(groups) - x.shape[1] < 1:
            return None
        normal = np.linalg.inv(x.T @ x)
        sizes = np.array([len(members) for members in groups])
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        q = np.concatenate([_adjusted(x[a : a + n], normal) for a, n in zip(starts, sizes, strict=True)])
        within = np.add.reduceat(q * q, starts)
        b = np.add.reduceat(x * q[:, None], starts)
        shared = np.einsum("gi,ij,gj->g", b, normal, b)
        square = (within**2).sum() - 2 * (within * shared).sum() + np.trace(np.linalg.matrix_power(normal @ b.T @ b, 2))
        df = float((within - shared).sum() ** 2 / square) if square > 0 else 0.0
        rows = np.array([i for members in groups for i in members])
        return cls(x, normal, rows, starts, q, df)

    def permuted_t(self, values: Array, permutations: int, rng: np.random.Generator) -> Array:
        """[permutations], t of values [rollouts] after their residuals on all but the kind were permuted within
        problems. What the other regressors explain moves neither gap nor residuals, so it need not be added again."""
        y, sizes = values[self.rows], np.diff([*self.starts, len(self.rows)])
        y = y - np.repeat(np.add.reduceat(y, self.starts) / sizes, sizes)
        others = self.x[:, 1:]
        residuals = y - others @ np.linalg.lstsq(others, y, rcond=None)[0]
        # Sorting by (problem, random number) is one permutation within each problem. From sorted residuals: a list of
        # the same rollouts in another order gives the same t.
        problem = np.repeat(np.arange(len(sizes)), sizes)
        residuals = residuals[np.lexsort((residuals, problem))]
        order = np.argsort(problem[:, None] + rng.random((len(y), permutations)), axis=0)
        shuffled = np.empty((len(values), permutations))
        shuffled[self.rows] = residuals[order]
        gap, sem = self.fit(shuffled)
        with np.errstate(divide="ignore", invalid="ignore"):  # pairs of equal gaps have no error
            return gap / sem

    def fit(self, values: Array) -> tuple[Array, Array]:
        """(gap, standard error) of every column of values [rollouts, columns]. Means of problems need no taking out:
        q and x have none."""
        y = values[self.rows]
        beta = self.normal @ (self.x.T @ y)
        sizes = np.diff([*self.starts, len(y)])
        y = y - np.repeat(np.add.reduceat(y, self.starts) / sizes[:, None], sizes, axis=0)
        scores = np.add.reduceat(self.q[:, None] * (y - self.x @ beta), self.starts)
        return beta[0], np.sqrt((scores**2).sum(0))


def _independent(x: Array) -> Array:
    """As many of the columns as there are directions in them."""
    r, order = linalg.qr(x, mode="r", pivoting=True)
    sizes = np.abs(np.diag(r))
    kept = order[: np.count_nonzero(sizes > max(DEPENDENT * sizes.max(initial=0.0), RANK_EPS))]
    return x[:, np.sort(kept)]


def curve(lengths: Array, df: int) -> Array:
    """[rollouts, up to df], a basis of the natural cubic splines of the lengths [rollouts] but for a constant. Fewer
    columns where lengths are the same: knots are lengths that occur, each once."""
    knots = np.unique(np.quantile(lengths, np.linspace(0, 1, df + 1), method="nearest"))
    if len(knots) < 2:
        return np.empty((len(lengths), 0))
    return CubicSpline(knots, np.eye(len(knots)), bc_type="natural")(lengths)[:, 1:]


def _adjusted(x: Array, normal: Array) -> Array:
    """q_g: (I - X M X')^(-1/2) X M c, by eigenvalues; a direction that this problem alone decides has no error left
    and is dropped (the generalised inverse)."""
    values, vectors = np.linalg.eigh(np.eye(len(x)) - x @ normal @ x.T)
    root = np.where(values > RANK_EPS, np.maximum(values, RANK_EPS) ** -0.5, 0.0)
    return vectors @ (root * (vectors.T @ (x @ normal[:, 0])))


def at_equal_length(
    values: Sequence[float], high: Sequence[bool], lengths: Sequence[int], problems: Sequence[str]
) -> tuple[int, Matched | None]:
    """How many problems hold both kinds, and whether `values` are higher where `high`; all four sequences are per
    rollout. None with fewer than MIN_PROBLEMS such problems, where length alone gives the kind, or from values
    without noise."""
    both, design = matched_design(high, lengths, problems)
    y = np.asarray(values, dtype=float)
    if design is None:
        return both, None
    # A shift changes nothing, and a sum of squares of small numbers rounds less.
    gap, sem = (float(x[0]) for x in design.fit((y - y.mean())[:, None]))
    if not (sem > ROUNDING * np.abs(y).max() and design.df >= MIN_DF):
        return both, None
    t = gap / sem
    drawn = design.permuted_t(y - y.mean(), PERMUTATIONS, np.random.default_rng(0))
    rank = float((1 + np.count_nonzero(drawn >= t)) / (1 + PERMUTATIONS))
    return both, Matched(gap, sem, design.df, float(stats.t.sf(t, design.df)), rank)


def matched_design(high: Sequence[bool], lengths: Sequence[int], problems: Sequence[str]) -> tuple[int, Design | None]:
    """(problems that hold both kinds, the design); no design where nothing can be estimated."""
    by_problem: dict[str, list[int]] = {}
    for i, problem in enumerate(problems):
        by_problem.setdefault(problem, []).append(i)
    both = sum(len({high[i] for i in members}) == 2 for members in by_problem.values())
    n = np.asarray(lengths, dtype=float)
    if both < MIN_PROBLEMS:
        return both, None
    groups = [members for members in by_problem.values() if len(members) > 1]
    df = int(np.clip((sum(map(len, groups)) - len(groups)) // ROLLOUTS_A_DF, *CURVE_DF))
    table = np.column_stack([np.asarray(high, dtype=float), curve(n, df)])
    return both, Design.of(table, groups)
