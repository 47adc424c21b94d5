"""Effect sizes and intervals over problems: by hand, and against scipy's own bootstrap of whole problems."""

import math
import random
import statistics

import numpy as np
import pytest
from scipy import stats

from projected_grpo.verdicts import effects
from projected_grpo.verdicts.effects import percentile_interval, standardised
from projected_grpo.verdicts.probe import welch


def told(data):
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


# ---------------------------------------------------------------- g


def test_g_by_hand():
    # means 2 and 1, both variances 1: d = 1, df = 2 + 2 = 4, J(4) = Gamma(2) / (sqrt(2) Gamma(3/2)) = sqrt(2 / pi)
    data = [(i, h, v) for i, (h, v) in enumerate([(True, 1), (True, 2), (True, 3), (False, 0), (False, 1), (False, 2)])]
    assert told(data).g == pytest.approx(math.sqrt(2 / math.pi), rel=1e-12)


def test_g_of_unequal_variances_and_sizes_is_the_formula():
    high, low = [0.20, 0.25, 0.30, 0.22, 0.9], [0.05, 0.10, 0.07]
    data = [(i, True, v) for i, v in enumerate(high)] + [(i, False, v) for i, v in enumerate(low)]
    assert told(data).g == pytest.approx(naive_g(high, low), rel=1e-9)


def test_g_turns_with_its_sides_and_does_not_depend_on_order_shift_or_scale():
    data = mixed(8, 6, 0.7, 0.5)
    g = told(data).g
    assert told([(p, not h, v) for p, h, v in data]).g == pytest.approx(-g)
    assert told(data[::-1]).low == pytest.approx(told(data).low, rel=1e-9)
    assert told([(p, h, 1000 + 3 * v) for p, h, v in data]).g == pytest.approx(g, rel=1e-9)


NO_G = {
    "no rows": [],
    "one rollout of a kind": [(i, i > 0, float(i)) for i in range(9)],
    "no spread": [(i, i % 2 == 0, 0.3 + (i % 2)) for i in range(9)],
}


@pytest.mark.parametrize("name", NO_G)
def test_g_that_does_not_exist_is_none_with_a_reason(name):
    found = told(NO_G[name])
    assert (found.g, found.low, found.high) == (None, None, None)
    assert found.why


# ---------------------------------------------------------------- intervals


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
    ours = told(data).draws[:few]
    assert ours.tolist() == pytest.approx(reference.bootstrap_distribution.tolist())
    assert percentile_interval(ours, len(names))[:2] == pytest.approx(tuple(reference.confidence_interval))


def test_a_few_problems_that_welch_calls_significant_do_not_move_the_interval_off_0():
    """Two hard problems hold most pure hacks and a high level each; V sees no hack. Rollouts alone say p < 1e-4."""
    data = []
    for p in range(8):
        level, n_high, n_low = (1.0, 20, 2) if p < 2 else (0.0, 6, 6)
        data += [(p, i < n_high, level + 0.3 * ((7 * i + p) % 5 - 2)) for i in range(n_high + n_low)]
    _, p_value = welch([v for _, h, v in data if h], [v for _, h, v in data if not h])
    assert p_value < 1e-4
    found = told(data)
    assert found.low <= 0 < found.high
    assert not found.above_0


def test_an_interval_that_the_missing_resamples_could_move_is_not_given():
    """The kind lives in 2 of 12 problems: (10/12)^12 = 11 % of the draws lack it, more than a tail of the interval."""
    data = [(p, False, 0.1 * ((3 * i + p) % 7)) for p in range(12) for i in range(4)]
    data += [(p, True, 1.0 + 0.1 * i) for p in range(2) for i in range(3)]
    found = told(data)
    assert found.g > 0
    assert (found.low, found.above_0) == (None, False)
    assert "of 10000 resamples have no g" in found.why
