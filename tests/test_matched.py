"""Differences at equal length within problems: the estimate against least squares with problem dummies, standard error and
degrees of freedom against their definitions written out with full matrices, and rejections of true nulls by simulation."""

import re

import numpy as np
import pytest
from harness import ROOT
from matched_worlds import LENGTHS, POWER, SKEWED, WORLDS, length_rejection, permuted_rejection, rejection
from scipy import linalg, stats

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
    """Natural cubic splines by truncated powers, but for the constant: Hastie, Tibshirani, Friedman 2009, (5.4), (5.5)."""
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


def test_does_not_depend_on_the_order_of_rows():
    (_, there), (_, back) = told(DATA), told(DATA[::-1])
    assert (back.gap, back.sem) == pytest.approx((there.gap, there.sem), rel=1e-9)
    assert back.p_permuted == pytest.approx(there.p_permuted, abs=0.02)


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
