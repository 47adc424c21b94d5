"""The encoding of answers: identity on plain data, refusal of everything else."""

import json
import math
import time
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal, localcontext
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
    st.decimals(allow_nan=False, min_value=-(10**50), max_value=10**50),
    st.fractions(),
)
hashables = st.recursive(scalars, lambda inner: st.one_of(st.tuples(inner, inner), st.frozensets(inner)), max_leaves=5)
plain = st.recursive(
    hashables,
    lambda inner: st.one_of(
        st.lists(inner), st.tuples(inner), st.sets(hashables), st.dictionaries(hashables, inner), st.builds(deque)
    ),
    max_leaves=20,
)


def round_trip(value):
    return values.decode(json.loads(json.dumps(values.encode(value))))


def typed(value):
    """Equality of this implies equality of types too, at every level."""
    if isinstance(value, (list, tuple, deque)):
        return type(value), [typed(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return type(value), value
    if isinstance(value, dict):
        return dict, [(typed(key), typed(item)) for key, item in value.items()]
    return type(value), repr(value)


@pytest.mark.slow
@given(plain)
@settings(max_examples=300, deadline=None)
def test_round_trip_is_the_identity_on_plain_data(value):
    assert typed(round_trip(value)) == typed(value)


@pytest.mark.slow
@given(plain, plain)
@settings(max_examples=300, deadline=None)
def test_matching_is_the_equality_of_the_decoded_value(value, other):
    for one, expected in ((value, other), (value, value), ([value, other], [other, value])):
        data = json.loads(json.dumps(values.encode(one)))
        assert values.matches(data, expected) == (values.decode(data) == expected)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (1, True), (1.0, 1), (True, 1.0), (10**30, 1e30), (1 + 0j, 1), ({1}, frozenset({1})), ({1: {2}}, {True: {2.0}}),
        (Counter("aab"), {"b": 1, "a": 2}), ((), ()), ([], ()), ({}, set()), ("1", 1), (None, 0), (b"x", "x"),
        (Decimal(3), 3), (Decimal("0.50"), 0.5), (Decimal("0.1"), 0.1), (Decimal("-0"), 0), (Decimal("1E+30"), 10**30),
        (Decimal("Infinity"), float("inf")), (Decimal("NaN"), float("nan")), (Decimal(1), True), (Decimal(1), 1 + 0j),
        (Decimal(1), "1"), (Decimal(1), None), (Decimal(1), [1]), ([Decimal(1)], [1]), ({Decimal(1)}, {1}),
        ({Decimal("0.5"): Fraction(1, 3)}, {0.5: Fraction(1, 3)}), (Decimal("0.5"), Fraction(1, 2)),
        (Fraction(1, 2), 0.5), (Fraction(6, 2), 3), (Fraction(1, 3), 1 / 3), (Fraction(1, 2), Decimal("0.5")),
        (Fraction(1, 2), 0.5 + 0j), (Fraction(2**80, 3), 2**80 / 3), (Fraction(2**80), 2**80), (Fraction(0), False),
        ({Fraction(1, 2), Fraction(2)}, {0.5, 2.0}), (Fraction(1), "1"), (3, Decimal(3)), (0.5, Fraction(1, 2)),
        ({(1, 2): [3]}, {(1, 2): [3]}), ({1, 2}, {1, 3}), ({1: 2}, {1: 3}), ([1], [1, 2]), (object(), 1),
    ],
)  # fmt: skip
def test_matching_agrees_with_python_on(one, expected):
    assert values.matches(json.loads(json.dumps(values.encode(one))), expected) == (one == expected)


HASHED_TO_0 = [{"int": hex(i * (2**61 - 1))} for i in range(1, 60_000)]


@pytest.mark.parametrize("tag", ["set", "frozenset", "dict"])
def test_members_that_share_a_hash_cost_no_time(tag):
    items = [[item, 0] for item in HASHED_TO_0] if tag == "dict" else HASHED_TO_0
    started = time.process_time()
    for expected in ([1], {1}, {1: 2}, set(range(59_999)), dict.fromkeys(range(59_999))):
        assert not values.matches({tag: items}, expected)
    with pytest.raises(ValueError, match="same hash"):
        values.decode({tag: items})
    assert time.process_time() - started < 3


@pytest.mark.slow
@given(st.data())
@settings(max_examples=200, deadline=None)
def test_matching_never_raises_on_forged_data(data):
    assert values.matches(data.draw(forged), data.draw(plain)) in (True, False)


TAGS = ["int", "str", "set", "dict", "tree", "chain", "bytes", "complex", "opaque", "decimal", "fraction", "unknown"]
forged = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(max_size=5), st.floats()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.sampled_from(TAGS), inner)),
    max_leaves=10,
)


@given(forged)
@settings(max_examples=300, deadline=None)
def test_decode_raises_only_value_error_on_forged_data(data):
    try:
        decoded = values.decode(data)
    except ValueError:
        return
    values.contains_opaque(decoded)


@pytest.mark.parametrize(
    "value",
    [float("inf"), float("-inf"), -0.0, 10**5000, -(2**63), "\ud83d\ude00\ud800", True],
    ids=["inf", "-inf", "-0.0", "huge", "-2**63", "surrogates", "True"],
)
def test_awkward_values_survive(value):
    back = round_trip(value)
    assert (type(back), str(back) if isinstance(back, float) else back) == (
        type(value),
        str(value) if isinstance(value, float) else value,
    )


def test_nan_survives():
    assert math.isnan(round_trip(float("nan")))


@pytest.mark.parametrize(
    ("value", "base"),
    [
        (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (defaultdict(int, a=1), {"a": 1}),
        (IntEnum("E", "a").a, 1),
        (bytearray(b"x"), b"x"),
    ],
)
def test_subclasses_are_shipped_by_their_base_value(value, base):
    back = round_trip(value)
    assert (type(back), back) == (type(base), base)


def test_a_subclass_cannot_lie_about_its_value():
    class Liar(int):
        def __pos__(self):
            return 7

        __int__ = __index__ = __pos__

        def __eq__(self, other):
            return True

        __hash__ = int.__hash__

    assert round_trip([Liar(3)]) == [3]


def test_a_subclass_cannot_lie_about_its_decimal_or_fraction():
    class Liar(Decimal):
        def as_tuple(self):
            return Decimal(7).as_tuple()

        __str__ = __repr__ = lambda _: "7"
        __eq__ = lambda *_: True  # noqa: E731
        __hash__ = Decimal.__hash__

    class Half(Fraction):
        numerator = denominator = 7
        __eq__ = lambda *_: True  # noqa: E731
        __hash__ = Fraction.__hash__

    assert values.encode([Liar(3), Half(1, 2)]) == [{"decimal": "3"}, {"fraction": [1, 2]}]


def test_no_code_of_a_class_runs_while_its_value_is_encoded():
    calls = []

    class Meta(type(Fraction)):
        def __subclasscheck__(cls, other):
            calls.append(other)
            return True

        __instancecheck__ = __subclasscheck__

        def __eq__(cls, other):
            calls.append(other)
            return True

        __hash__ = type.__hash__

    class Sub(Fraction, metaclass=Meta):
        pass

    class Other(metaclass=Meta):
        pass

    calls.clear()
    assert values.encode([Sub(1, 2), Other()]) == [{"fraction": [1, 2]}, {"opaque": "Other"}]
    assert calls == []


def fraction_of(numerator, denominator):
    """With these very parts, as only a program that wants to cheat makes one."""
    made = object.__new__(Fraction)
    made._numerator, made._denominator = numerator, denominator
    return made


class Yes(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


@pytest.mark.parametrize(
    "value",
    [
        Decimal("1e999999999"), Decimal("-1e-999999999"), Decimal("1e10001"), Decimal(10) ** 9 * Decimal("1e9999"),
        Decimal("1" * 10_001), Decimal("0e-10001"), Fraction(2**40_000), Fraction(1, 2**40_000), object.__new__(Fraction),
        fraction_of(Yes(1), 1), fraction_of(1.0, 1), fraction_of([1], 1), fraction_of(True, 1),
    ],
    ids=range(13),
)  # fmt: skip
def test_a_number_that_would_be_huge_or_is_none_is_opaque(value):
    coded = values.encode(value)
    assert coded == {"opaque": type(value).__name__}
    assert not any(values.matches(coded, expected) for expected in (0, 1, 1.0, True, float("inf"), [1]))


def test_digits_up_to_the_limit_are_plain_data():
    for value in (Decimal("1e9900"), Decimal("1e-9900"), Decimal("7" * 9_999), Fraction(10**9_999, 3)):
        assert round_trip(value) == value
    assert values.matches(values.encode(Decimal("1e9900")), 10**9900)
    assert values.matches(values.encode(Fraction(10**9_999)), 10**9_999)


@pytest.mark.parametrize(
    "data",
    [
        {"decimal": "1E+999999999"}, {"decimal": "1E+999999"}, {"decimal": " 3 "}, {"decimal": "3_0"}, {"decimal": "٣"},
        {"decimal": "1" * 20_000}, {"decimal": 3}, {"decimal": ["3"]}, {"decimal": ""}, {"decimal": "inf"},
        {"fraction": [3, 0]}, {"fraction": [6, 2]}, {"fraction": [-3, -1]}, {"fraction": [3]}, {"fraction": [3, 1, 1]},
        {"fraction": "31"}, {"fraction": [3.0, 1]}, {"fraction": [True, True]},
        {"fraction": [{"int": "0x" + "f" * 99_999}, 1]},
        {"fraction": {"3": 1}}, {"fraction": [[3], 1]}, {"fraction": None},
    ],
)  # fmt: skip
def test_a_forged_number_equals_nothing_and_is_refused(data):
    started = time.process_time()
    assert not any(values.matches(data, expected) for expected in (3, 3.0, 1, True, float("inf"), {3: 3}, {3}))
    with pytest.raises(ValueError):  # noqa: PT011  whatever it says
        values.decode(data)
    with pytest.raises(ValueError):  # noqa: PT011
        values.decode({"set": [data]})
    assert time.process_time() - started < 1


def test_what_the_judge_does_with_the_largest_number_is_cheap():
    """int, hash, comparison and rounding: what a helper of a test may do."""
    started = time.process_time()
    for text in ("9" * 99 + "E+9800", "9" * 9_999, "9E-9900"):
        value = values.decode({"decimal": text})
        assert hash(value) is not None
        assert int(value) != 1
        assert value != 1.5
        assert value != Fraction(1, 3)
    parts = [values.encode(10**9_999 + 1), values.encode(3**20_000)]
    value = values.decode({"fraction": parts})
    assert int(value) != 1
    assert abs(value - Fraction(1, 2)) != round(value, 5)
    assert time.process_time() - started < 1


def test_a_signalling_nan_matches_nothing_and_ends_nothing():
    coded = values.encode([Decimal("sNaN"), Decimal("NaN")])
    assert coded == [{"decimal": "sNaN"}, {"decimal": "NaN"}]
    assert not values.matches(coded, [1, 1])
    assert not values.matches({"set": coded[:1]}, {1})
    with pytest.raises(ValueError, match="not an encoded value"):
        values.decode({"set": coded[:1]})


def test_the_context_of_a_program_changes_no_number():
    with localcontext() as context:
        context.prec, context.capitals = 2, 0
        coded = values.encode([Decimal("3.14159265"), Decimal("1E+30"), Decimal("-Infinity")])
    assert [values.decode(item) for item in coded] == [Decimal("3.14159265"), Decimal(10**30), Decimal("-Infinity")]


def test_objects_are_opaque():
    back = round_trip([object(), range(3), (i for i in [1])])
    assert all(isinstance(item, values.Opaque) for item in back)
    assert values.contains_opaque(back)


def test_a_container_that_contains_itself_is_too_large():
    loop = []
    loop.append(loop)
    with pytest.raises(values.TooLargeError):
        values.encode(loop)


def test_too_many_values_are_too_large():
    with pytest.raises(values.TooLargeError):
        values.encode([0] * (values.MAX_NODES + 1))


class ListNode:
    def __init__(self, val=0, following=None):
        self.val, self.next = val, following


class TreeNode:
    def __init__(self, val=0, left=None, right=None):
        self.val, self.left, self.right = val, left, right


CLASSES = {"ListNode": ListNode, "TreeNode": TreeNode}


def test_a_long_linked_list_is_rebuilt():
    head = None
    for val in range(50_000):
        head = ListNode(val, head)
    node, seen = values.rebuild(round_trip(head), CLASSES), []
    while node:
        seen.append(node.val)
        node = node.next
    assert seen == list(range(50_000))[::-1]


def test_a_tree_is_rebuilt():
    tree = TreeNode(1, TreeNode(2, None, TreeNode(4)), TreeNode(3))
    back = values.rebuild(round_trip(tree), CLASSES)
    assert (back.val, back.left.val, back.left.left, back.left.right.val, back.right.val) == (1, 2, None, 4, 3)


def test_a_linked_list_that_contains_itself_is_too_large():
    node = ListNode(1)
    node.next = node
    with pytest.raises(values.TooLargeError):
        values.encode(node)
