"""The encoding of answers: what equals a literal arrives, and everything else equals nothing."""

import contextlib
import json
import time
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loophole_grader.sandbox import values

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.binary(),
    st.text(st.characters(exclude_categories=())),
    st.complex_numbers(allow_nan=False),
)
hashables = st.recursive(scalars, lambda inner: st.one_of(st.tuples(inner, inner), st.frozensets(inner)), max_leaves=5)
plain = st.recursive(
    hashables,
    lambda inner: st.one_of(st.lists(inner), st.tuples(inner), st.sets(hashables), st.dictionaries(hashables, inner)),
    max_leaves=20,
)


def round_trip(value):
    return values.decode(json.loads(json.dumps(values.encode(value))))


def typed(value):
    """Equality of this implies equality of types too, at every level; a frozen set is a set."""
    if isinstance(value, (list, tuple)):
        return type(value), [typed(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return set, value
    if isinstance(value, dict):
        return dict, [(typed(key), typed(item)) for key, item in value.items()]
    return type(value), value if isinstance(value, complex) else repr(value)


@pytest.mark.slow
@given(plain)
@settings(max_examples=100, deadline=None)
def test_round_trip_is_the_identity_on_plain_data(value):
    assert typed(round_trip(value)) == typed(value)


class Liar(int):
    def __pos__(self):
        return 7

    __int__ = __index__ = __pos__
    __eq__ = lambda *_: True  # noqa: E731
    __hash__ = int.__hash__


class Pairs(list):
    __eq__ = lambda *_: True  # noqa: E731
    __hash__ = None


class Anything:
    val, next = 1, None
    __eq__ = lambda *_: True  # noqa: E731
    __hash__ = object.__hash__


TEXTS = {"b": 2, "a": 1}
EQUAL = [
    (1, True), (1.0, 1), (True, 1.0), (10**15, 1e15), (1 + 0j, 1), ({1}, frozenset({1})), ({1: {2}}, {True: {2.0}}),
    (Counter("aab"), {"b": 1, "a": 2}), (OrderedDict(TEXTS), {"a": 1, "b": 2}), (defaultdict(int, a=1), {"a": 1}),
    (bytearray(b"x"), b"x"), (IntEnum("E", "a").a, 1), (namedtuple("P", "x y")(1, 2), (1, 2)), (10**5000, 10**5000),
    ("\ud83d\ude00\ud800", "\ud83d\ude00\ud800"), (float("-inf"), float("-inf")), ({(1, 2): [3]}, {(1, 2): [3]}),
    (Decimal(3), 3), (Decimal("0.50"), 0.5), (Decimal("-0"), 0), (Decimal("1E+30"), 10**30), ([Decimal(1)], [1]),
    (Decimal("Infinity"), float("inf")), (Fraction(1, 2), 0.5), (Fraction(2**80), 2**80), ({Fraction(1, 2)}, {0.5}),
    (Liar(3), 3), ([Pairs([1])], [[1]]),
]  # fmt: skip


@pytest.mark.parametrize(("one", "expected"), EQUAL, ids=range(len(EQUAL)))
def test_what_equals_a_literal_arrives(one, expected):
    assert round_trip(one) == expected
    assert round_trip([one]) == [expected]


UNEQUAL = [
    ((), []), ([], ()), ({}, set()), ("1", 1), (None, 0), (b"x", "x"), ([1], [1, 2]), ({1, 2}, {1, 3}), ({1: 2}, {1: 3}),
    (Decimal("0.1"), 0.1), (Decimal("NaN"), 0), (Decimal("sNaN"), 0), (Decimal(1), "1"), (Fraction(1, 3), 1 / 3),
    (Decimal("1e999999999"), 1), (Fraction(2**40_000), 1), (object.__new__(Fraction), 0), (object(), 1), (print, 1),
    (TEXTS.keys(), ["b", "a"]), (TEXTS.items(), TEXTS), (TEXTS.values(), [2, 1]), (range(3), [0, 1, 2]),
    (iter([1]), [1]), (map(abs, [1]), [1]), ((x for x in iter(int, 1)), []), (deque([1]), [1]), (range(10**12), [0]),
    (Liar(3), 7), (Pairs([2]), [1]), (Anything(), 1), ([Anything()], [1]), ({Anything()}, {1}), ({1: Anything()}, {1: 1}),
    (float("nan"), float("nan")),
]  # fmt: skip


@pytest.mark.parametrize(("one", "expected"), UNEQUAL, ids=range(len(UNEQUAL)))
def test_everything_else_equals_nothing(one, expected):
    started = time.process_time()
    back = round_trip(one)
    assert back != expected
    assert back not in (0, 1, "1", [1], (1,), {1}, {1: 1}, None) or back == one
    assert time.process_time() - started < 1


HASHED_TO_0 = [{"int": hex(i * (2**61 - 1))} for i in range(1, 60_000)]


@pytest.mark.parametrize("tag", ["set", "dict"])
def test_members_that_share_a_hash_cost_no_time(tag):
    started = time.process_time()
    with pytest.raises(ValueError, match="same hash"):
        values.decode({tag: [[item, 0] for item in HASHED_TO_0] if tag == "dict" else HASHED_TO_0})
    assert time.process_time() - started < 3


TAGS = ["int", "str", "set", "dict", "tuple", "bytes", "complex", "opaque", "unknown"]
forged = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(max_size=5), st.floats()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.sampled_from(TAGS), inner)),
    max_leaves=10,
)


@pytest.mark.slow
@given(forged)
@settings(max_examples=100, deadline=None)
def test_decode_raises_what_the_judge_takes_for_a_wrong_answer(data):
    with contextlib.suppress(ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
        assert values.decode(data) != "what is expected"
