"""Differences at equal length within problems: the estimate against least squares with problem dummies, standard
error and degrees of freedom against their definitions written out with full matrices, and rejections of true nulls by
simulation. Effect sizes and intervals over problems: by hand, and against scipy's own bootstrap of whole problems."""

import math
import random
import re
import statistics

import numpy as np
import pytest
from harness import ROOT
from matched_worlds import LENGTHS, POWER, SKEWED, WORLDS, length_rejection, permuted_rejection, rejection
from scipy import linalg, stats

from projected_grpo.verdicts import effects
from projected_grpo.verdicts.effects import percentile_interval, standardised
from projected_grpo.verdicts.probe import welch
from projected_grpo.verdicts.statistics import at_equal_length

# (problem, high, length, value), six problems of four rollouts
DATA = [
    (0, True, 10, 0.07), (0, True, 14, 0.178), (0, False, 20, 0.05), (0, False, 28, 0.116),
    (1, True, 11, 0.132), (1, False, 14, 0.088), (1, False, 17, 0.124), (1, False, 20, 0.08),
    (2, True, 12, 0.234), (2, True, 15, 0.14), (2, False, 18, 0.136), (2, False, 21, 0.102),
    (3, True, 13, 0.266), (3, False, 17, 0.134), (3, False, 23, 0.196), (3, False, 31, 0.182),
    (4, True, 14, 0.228), (4, True, 17, 0.264), (4, False, 20, 0.17), (4, False, 23, 0.266),
    (5, True, 15, 0.23), (5, False, 18, 0.226), (5, False, 21, 0.192), (5, False, 24, 0.298),
]  # fmt: skip


def told(data):
    """(problems of both kinds, the difference)."""
    return at_equal_length(
        [v for *_, v in data], [h for _, h, *_ in data], [n for *_, n, _ in data], [str(p) for p, *_ in data]
    )


def natural(x, knots):
    """Natural cubic splines by truncated powers, but for the constant: Hastie, Tibshirani, Friedman 2009, (5.4),
    (5.5)."""
    z, k = (x - knots[0]) / (knots[-1] - knots[0]), (knots - knots[0]) / (knots[-1] - knots[0])
    d = [(np.maximum(z - a, 0) ** 3 - np.maximum(z - k[-1], 0) ** 3) / (k[-1] - a) for a in k[:-1]]
    return np.column_stack([z, *(one - d[-1] for one in d[:-1])])


def by_definition(data):
    """(gap, SE, df) with a dummy per problem and n x n matrices, nothing absorbed: CR2 and Satterthwaite's degrees of
    freedom as Pustejovsky and Tipton 2018 define them, for OLS and a working model of independent equal errors."""
    names = sorted({p for p, *_ in data})
    n, g = len(data), len(names)
    length = np.array([float(d[2]) for d in data])
    df = min(5, max(2, (n - g) // 10))
    knots = np.array(sorted({np.sort(length)[round(i * (n - 1) / df)] for i in range(df + 1)}))
    dummies = np.array([[float(p == name) for name in names] for p, *_ in data])
    x = np.column_stack([[float(h) for _, h, *_ in data], natural(length, knots), dummies])
    y = np.array([v for *_, v in data])
    m = np.linalg.inv(x.T @ x)
    keep = np.eye(n) - x @ m @ x.T
    error, vectors = keep @ y, []
    for name in names:
        own = np.array([p == name for p, *_ in data])
        root = linalg.pinvh(linalg.sqrtm(keep[np.ix_(own, own)]).real, atol=1e-6)
        vectors.append(keep[:, own] @ root @ x[own] @ m[:, 0])
    scores = [v @ error for v in vectors]  # keep is idempotent: v = keep q, and keep error = error
    p = np.array([[a @ b for b in vectors] for a in vectors])
    assert p.shape == (g, g)
    return float((m @ x.T @ y)[0]), float(np.sqrt(np.sum(np.square(scores)))), float(np.trace(p) ** 2 / (p**2).sum())


ONE_KIND = [
    (10 + i, i % 2 == 0, 10 + (7 * j + i) % 13, 0.1 + 0.01 * ((3 * i + 5 * j) % 11))
    for i in range(30)
    for j in range(4)
]
"""Thirty problems more, of one kind each: they say something about length, nothing about the gap."""


@pytest.mark.parametrize("data", [DATA, DATA + ONE_KIND], ids=["six problems", "and thirty of one kind"])
def test_gap_error_and_degrees_of_freedom_are_as_they_are_defined(data):
    problems, found = told(data)
    assert problems == 6
    assert found.df < 7  # not 35
    assert (found.gap, found.sem, found.df) == pytest.approx(by_definition(data), rel=1e-6)
    assert found.p == pytest.approx(float(stats.t.sf(found.gap / found.sem, found.df)))


def test_permutations_give_the_p_of_all_permutations():
    """Five pairs with gaps -.01 to .5 at one length: 32 signs, of which 2 give a t as high as this one."""
    data = [(i, h, 7, gap * h) for i, gap in enumerate((-0.01, 0.2, 0.3, 0.4, 0.5)) for h in (True, False)]
    assert told(data)[1].p_permuted == pytest.approx(2 / 32, abs=0.015)


def test_cannot_be_told_where_length_gives_the_kind_or_from_few_problems():
    data = [(i, h, 20 if h else 10, 0.1 * h + 0.01 * i) for i in range(6) for h in (True, False)]
    assert [told(rows) for rows in (data, DATA[:12])] == [(6, None), (3, None)]


# ---------------------------------------------------------------- true nulls, by simulation


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_true_nulls_are_rejected_as_often_as_the_test_says(world):
    assert 0.03 <= rejection(world)["matched"] <= 0.07  # 2000 draws: a standard error of .005
    if world in (WORLDS["noise differs between kinds"], WORLDS["all of it"]):  # kinds differ in noise or effect
        assert 0.03 <= permuted_rejection(world)["permuted"] <= 0.075  # 600 draws: .009


@pytest.mark.slow
@pytest.mark.parametrize("world", SKEWED.values(), ids=SKEWED)
def test_true_nulls_with_skewed_noise_are_rejected_no_more_often(world):
    assert 0.02 <= permuted_rejection(world)["both"] <= 0.075


@pytest.mark.slow
@pytest.mark.parametrize("detector", LENGTHS)
def test_a_detector_of_length_is_not_taken_for_one_of_the_kind(detector):
    """By a parabola of the length all three were, in 53 to 100 % of the draws."""
    assert length_rejection(detector) <= 0.08  # 150 draws: a standard error of .018


@pytest.mark.slow
@pytest.mark.parametrize("name", POWER)
def test_the_power_table_in_the_spec_is_what_the_simulation_gives(name):
    row = re.search(rf"^\| {re.escape(name)} \|(.*)\|$", (ROOT / "docs/spec.md").read_text("utf-8"), re.MULTILINE)
    power = [rejection(POWER[name], g=g, draws=100)["passes"] for g in (0.2, 0.3, 0.5, 0.8)]
    assert [float(cell) for cell in row[1].split("|")] == pytest.approx(power, abs=0.02)


# ---------------------------------------------------------------- effect sizes, intervals over problems


def effect(data):
    """(problem, high, value) rows, every problem among those that may be drawn."""
    problems = [str(p) for p, *_ in data]
    return standardised([float(v) for *_, v in data], [h for _, h, _ in data], problems, problems)


def naive_g(high, low):
    """The formula as it is written down, with the standard library."""
    a, b = statistics.variance(high), statistics.variance(low)
    m, n = len(high), len(low)
    df = (m - 1) * (n - 1) * (a + b) ** 2 / ((n - 1) * a**2 + (m - 1) * b**2)
    j = math.gamma(df / 2) / (math.sqrt(df / 2) * math.gamma((df - 1) / 2))
    return (statistics.mean(high) - statistics.mean(low)) / math.sqrt((a + b) / 2) * j


def mixed(problems, rollouts, gap, between, seed=0):
    """Both kinds in every problem: a shared level per problem, a gap between the kinds, noise of variance 1."""
    rng = random.Random(seed)
    out = []
    for p in range(problems):
        level = rng.gauss(0, between)
        out += [(p, i % 2 == 0, level + gap * (i % 2 == 0) + rng.gauss(0, 1)) for i in range(rollouts)]
    return out


def test_g_is_the_formula_which_is_right_by_hand():
    # means 2 and 1, both variances 1: d = 1, df = 2 + 2 = 4, J(4) = Gamma(2) / (sqrt(2) Gamma(3/2)) = sqrt(2 / pi)
    assert naive_g([1, 2, 3], [0, 1, 2]) == pytest.approx(math.sqrt(2 / math.pi), rel=1e-12)
    for high, low in (([1, 2, 3], [0, 1, 2]), ([0.20, 0.25, 0.30, 0.22, 0.9], [0.05, 0.10, 0.07])):
        rows = [*((True, v) for v in high), *((False, v) for v in low)]
        assert effect([(i, h, v) for i, (h, v) in enumerate(rows)]).g == pytest.approx(naive_g(high, low), rel=1e-9)


ONE_ROW_A_PROBLEM = [(p, p % 2 == 0, v) for p, (_, _, v) in enumerate(mixed(40, 1, 0, 0))]


@pytest.mark.parametrize("data", [ONE_ROW_A_PROBLEM, mixed(9, 6, 0.6, 1)], ids=["one row a problem", "six"])
def test_the_interval_is_scipys_bootstrap_of_whole_problems(data):
    """scipy draws indices of problems, and g is computed from the drawn rows anew, by the standard library."""
    names = sorted({str(p) for p, *_ in data})

    def g(drawn):
        rows = [(h, v) for i in drawn for p, h, v in data if str(p) == names[int(i)]]
        return naive_g([v for h, v in rows if h], [v for h, v in rows if not h])

    few = 400
    reference = stats.bootstrap(
        (np.arange(len(names)),), g, n_resamples=few, method="percentile", vectorized=False,
        rng=np.random.default_rng(effects.SEED),
    )  # fmt: skip
    ours = effect(data).draws[:few]
    assert ours.tolist() == pytest.approx(reference.bootstrap_distribution.tolist())
    assert percentile_interval(ours, len(names))[:2] == pytest.approx(tuple(reference.confidence_interval))


def test_a_few_problems_that_welch_calls_significant_do_not_move_the_interval_off_0():
    """Two hard problems hold most pure hacks and a high level each; V sees no hack. Rollouts alone say p < 1e-4."""
    data = []
    for p in range(8):
        level, n_high, n_low = (1.0, 20, 2) if p < 2 else (0.0, 6, 6)
        data += [(p, i < n_high, level + 0.3 * ((7 * i + p) % 5 - 2)) for i in range(n_high + n_low)]
    assert welch([v for _, h, v in data if h], [v for _, h, v in data if not h])[1] < 1e-4
    found = effect(data)
    assert (found.low <= 0 < found.high, found.above_0) == (True, False)


def test_an_interval_that_the_missing_resamples_could_move_is_not_given():
    """The kind lives in 2 of 12 problems: (10/12)^12 = 11 % of the draws lack it, more than a tail of the
    interval."""
    data = [(p, False, 0.1 * ((3 * i + p) % 7)) for p in range(12) for i in range(4)]
    data += [(p, True, 1.0 + 0.1 * i) for p in range(2) for i in range(3)]
    found = effect(data)
    assert found.g > 0
    assert (found.low, found.above_0) == (None, False)
    assert "of 10000 resamples have no g" in found.why
