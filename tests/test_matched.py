"""Differences at equal length within problems, pinned to statsmodels 0.14 (OLS on demeaned columns, cov_type="cluster",
use_t=True): t and half of the two-sided p."""

import pytest

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
    return at_equal_length(
        [v for *_, v in data], [h for _, h, *_ in data], [n for *_, n, _ in data], [str(p) for p, *_ in data]
    )


def test_equals_statsmodels():
    found = told(DATA)
    assert found.problems == 6
    assert found.t == pytest.approx(1.8977618764675892, rel=1e-9)
    assert found.p == pytest.approx(0.05809828545806428, rel=1e-9)


def test_does_not_depend_on_the_order_of_rows():
    assert told(DATA[::-1]).t == pytest.approx(told(DATA).t, rel=1e-9)


def test_constant_lengths_leave_the_kind_alone():
    # gaps .1, .2, .3, .4, .5 within pairs: mean .3, standard error of CR1 with G = 5, n = 10, k = 1:
    # sd(population) .1414 / sqrt(5) * sqrt(5/4 * 9/9) -> t = .3 / .0707 = 4.243
    data = [(i, h, 7, gap * h) for i, gap in enumerate((0.1, 0.2, 0.3, 0.4, 0.5)) for h in (True, False)]
    assert told(data).t == pytest.approx(4.2426, abs=1e-3)


def test_cannot_be_told_where_length_gives_the_kind():
    data = [(i, h, 20 if h else 10, 0.1 * h + 0.01 * i) for i in range(6) for h in (True, False)]
    assert (told(data).problems, told(data).t) == (6, None)


def test_cannot_be_told_from_few_problems():
    assert told(DATA[:12]).p is None


def test_lengths_of_the_sequences_must_agree():
    with pytest.raises(ValueError, match=r"shorter|longer"):
        at_equal_length([0.1] * 9, [True, False] * 5, [1] * 10, [str(i // 2) for i in range(10)])
