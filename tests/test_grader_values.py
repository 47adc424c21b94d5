"""The encoding of answers: identity on plain data, refusal of everything else."""

import copy
import json
import math
import time
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, UserString, defaultdict, deque, namedtuple
from collections.abc import KeysView, MutableSet
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from enum import IntEnum
from fractions import Fraction
from itertools import pairwise, permutations, repeat, starmap, takewhile, zip_longest
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loophole_grader import Task, grade_batch
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
        (date(2024, 2, 29), date(2024, 2, 29)), (date(2024, 2, 29), date(2024, 3, 1)), (date(2024, 2, 29), "2024-02-29"),
        (datetime(2024, 2, 29), date(2024, 2, 29)), (datetime(2024, 2, 29, 1), datetime(2024, 2, 29, 1)),
        (timedelta(1), timedelta(hours=24)), (timedelta(-1, 3, 4), timedelta(-1, 3, 5)), ({date.min}, {date.min}),
        (timedelta(0), 0), (timedelta.max, timedelta.max), (datetime.max, datetime.max), (1, timedelta(1)),
        ({(1, 2): [3]}, {(1, 2): [3]}), ({1, 2}, {1, 3}), ({1: 2}, {1: 3}), ([1], [1, 2]), (object(), 1),
    ],
)  # fmt: skip
def test_matching_agrees_with_python_on(one, expected):
    assert values.matches(json.loads(json.dumps(values.encode(one))), expected) == (one == expected)


class Ordered(MutableSet):
    """A set in the order of its members, as many write one."""

    def __init__(self, members):
        self.members = list(members)

    def __contains__(self, one):
        return one in self.members

    def __iter__(self):
        return iter(self.members)

    def __len__(self):
        return len(self.members)

    def add(self, one):
        self.members.append(one)

    discard = add


TEXTS = {"b": 2, "a": 1}
CONTAINERS = [
    (UserList([1, [2]]), [1, [2]]), (UserList([1]), [2]), (UserList([1]), (1,)), ([UserList([1])], [[1]]),
    (UserString("ab"), "ab"), (UserDict(TEXTS), TEXTS), (UserDict(TEXTS), {"a": 1}),
    (ChainMap({1: 2}, {3: 4}), {1: 2, 3: 4}),
    (MappingProxyType(TEXTS), TEXTS), (TEXTS.keys(), {"a", "b"}), (TEXTS.keys(), frozenset("ab")), (TEXTS.keys(), {"a"}),
    (TEXTS.keys(), ["b", "a"]), (TEXTS.items(), {("a", 1), ("b", 2)}), (TEXTS.items(), {("a", 1), ("b", 3)}),
    (TEXTS.items(), TEXTS), (TEXTS.values(), [2, 1]), (KeysView(TEXTS), {"a", "b"}),
    (ChainMap(TEXTS).items(), {("a", 1), ("b", 2)}), (OrderedDict(TEXTS).keys(), {"b", "a"}), (Ordered("ab"), {"a", "b"}),
    (Ordered("ab"), ["a", "b"]), (range(3), [0, 1, 2]), (iter([1]), [1]),
    (map(abs, [1]), [1]), (Counter("a").keys(), {"a"}),
    (np.array([1]), [1]), (np.array([1]), 1), (np.array([[1]]), [[1]]), (np.array([1]), (1,)), (np.array([1]), [2]),
    ([np.array([1])], [[1]]), (np.array(["a"]), ["a"]), (np.array(3), 3), (np.array([None]), None),
]  # fmt: skip


@pytest.mark.parametrize(("one", "expected"), CONTAINERS, ids=range(len(CONTAINERS)))
def test_matching_agrees_with_python_on_what_is_no_plain_data(one, expected):
    assert values.matches(json.loads(json.dumps(values.encode(one))), expected) == bool(one == expected)


@pytest.mark.parametrize("one", [[1, 2], [[1, 2]], [[1], [1]]], ids=str)
def test_an_array_of_several_elements_has_no_truth_here_either(one):
    for expected in (one, 1, [1], [[1]], []):
        with pytest.raises(ValueError, match=r"ambiguous|broadcast"):
            bool(np.array(one) == expected)
        assert not values.matches(values.encode(np.array(one)), expected)
        with pytest.raises(ValueError, match="ambiguous"):
            bool(round_trip(np.array(one)) == expected)
    assert not values.matches(values.encode(np.array([])), [])


class Down:
    """An iterator of a program's own."""

    def __init__(self, number):
        self.number = number

    def __iter__(self):
        return self

    def __next__(self):
        if not self.number:
            raise StopIteration
        self.number -= 1
        return self.number


@pytest.mark.parametrize("wrap", [list, sorted, len, sum, max, set, lambda x: [*reversed(list(x))]])
@pytest.mark.parametrize(
    "made",
    [
        lambda: np.array([3, 1, 2]), lambda: UserList([3, 1, 2]), lambda: dict.fromkeys([3, 1, 2]).keys(),
        lambda: {1: 3, 2: 4}.values(),
        lambda: range(4), lambda: (x for x in (3, 1)), lambda: map(abs, [-3, 1]), lambda: Ordered([3, 1, 2]),
        lambda: Counter([3, 1, 3]).keys(), lambda: filter(None, [3, 0, 1]), lambda: iter({3: 1}),
        lambda: permutations([3, 1, 2]), lambda: takewhile(bool, [3, 1, 0]), lambda: starmap(pow, [(3, 2), (2, 1)]),
        lambda: repeat(3, 2), lambda: zip_longest([3], [1, 2]), lambda: map(sum, pairwise([3, 1, 2])), lambda: Down(3),
    ],
    ids=range(18),
)  # fmt: skip
def test_what_a_test_wraps_is_what_it_would_be_in_the_program(made, wrap):
    try:
        expected = wrap(made())
    except TypeError:
        with pytest.raises(TypeError):
            wrap(round_trip(made()))
    else:
        assert wrap(round_trip(made())) == expected


def test_rows_and_items_are_what_they_would_be_in_the_program():
    array = round_trip(np.array([[3, 1], [2, 4]]))
    assert sorted(map(tuple, array)) == [(2, 4), (3, 1)]
    assert [list(row) for row in array[1:]] == [[2, 4]]
    assert (array.tolist(), array[0][1], len(array)) == ([[3, 1], [2, 4]], 1, 2)
    assert sorted({2: [1], 1: [2]}.items()) == sorted(round_trip({2: [1], 1: [2]}.items())) == [(1, [2]), (2, [1])]


def test_an_iterator_without_an_end_is_too_large():
    with pytest.raises(values.TooLargeError):
        values.encode(x for x in iter(int, 1))


def test_no_more_is_decoded_than_is_encoded(monkeypatch):
    """A range is thirty characters, and two million numbers as soon as a test sorts it."""
    monkeypatch.setattr(values, "MAX_NODES", 100)
    most = {"range": [0, 99, 1]}
    assert len(values.decode(most)) == 99
    with pytest.raises(ValueError, match="too large"):
        values.decode([most, most])


def test_an_iterator_is_opaque_that_has_a_truth_or_equality_of_its_own():
    for name in ("__eq__", "__bool__", "__len__"):
        value = type("Own", (Down,), {name: lambda *_: True})(1)
        assert round_trip(value) == values.Opaque("Own")


def test_an_object_inside_an_iterable_is_seen():
    for value in (iter([print]), {1: print}.values(), {1: print}.items(), np.array([print]), {print: 1}.keys()):
        assert values.contains_opaque(round_trip(value))


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


TAGS = [
    "range",
    "keys",
    "items",
    "values",
    "array",
    "once",
    "int",
    "str",
    "set",
    "dict",
    "tree",
    "chain",
    "bytes",
    "bytearray",
    "bounded",
    "named",
    "counter",
    "ordered",
    "complex",
    "opaque",
    "decimal",
    "fraction",
    "date",
    "datetime",
    "timedelta",
    "unknown",
]
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
        (type("Own", (Counter,), {})("aab"), Counter("aab")),
        (type("Own", (OrderedDict,), {})(a=1), OrderedDict(a=1)),
        (defaultdict(int, a=1), {"a": 1}),
        (IntEnum("E", "a").a, 1),
    ],
)
def test_subclasses_are_shipped_by_their_base_value(value, base):
    back = round_trip(value)
    assert (type(back), back) == (type(base), base)


def test_a_counter_and_an_ordered_dict_compare_as_they_do_in_python():
    zero, moved = Counter(b=1, a=0), OrderedDict(a=1, b=2)
    moved.move_to_end("a")
    assert round_trip(zero) == Counter("b")
    assert round_trip(moved) == OrderedDict(b=2, a=1) != OrderedDict(a=1, b=2)
    assert list(round_trip(moved)) == ["b", "a"]
    assert values.matches(values.encode([zero, moved]), [{"a": 0, "b": 1}, {"a": 1, "b": 2}])
    assert not values.matches(values.encode(zero), {"b": 1})


@pytest.mark.parametrize("value", [bytearray(b"x"), deque([1, 2], 2), deque(maxlen=0), deque([1])], ids=repr)
def test_what_can_be_changed_comes_as_what_it_was(value):
    """By its class, and by how much it holds: a test may add to it."""
    back = round_trip(value)
    assert (type(back), repr(back)) == (type(value), repr(value))
    assert values.matches(values.encode(value), value)


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


class Day(date):
    """A day that lies."""

    year = month = day = 7
    __eq__ = lambda *_: True  # noqa: E731
    __hash__ = date.__hash__
    isoformat = __str__ = __repr__ = lambda *_: "0007-07-07"


class Span(timedelta):
    days = seconds = microseconds = 7


def test_dates_arrive_by_their_own_value_and_those_with_a_zone_do_not():
    for value in (date(1, 2, 3), datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(2024, 1, 2), timedelta(-3, 5, 7)):
        assert (type(round_trip(value)), round_trip(value)) == (type(value), value)
    assert values.encode([Day(2024, 1, 2), Span(1, 2, 3)]) == [{"date": "2024-01-02"}, {"timedelta": [1, 2, 3]}]
    assert values.encode(datetime(2024, 1, 2, tzinfo=UTC)) == {"opaque": "datetime"}


@pytest.mark.parametrize(
    "data",
    [
        {"date": "2024-02-30"}, {"date": 3}, {"date": "20240102"}, {"datetime": "2024-01-02T03:04:05+00:00"},
        {"datetime": ["2024"]}, {"datetime": "2024-01-02"}, {"timedelta": [1, 2]}, {"timedelta": [True, 0, 0]},
        {"timedelta": [10**12, 0, 0]}, {"timedelta": [1.5, 0, 0]}, {"timedelta": "123"}, {"timedelta": [0, 86400, 0]},
    ],
)  # fmt: skip
def test_a_forged_date_equals_nothing_and_is_refused(data):
    assert not any(values.matches(data, one) for one in (date(2024, 1, 2), datetime(2024, 1, 2), timedelta(1), 3))
    with pytest.raises(ValueError, match=r"encoded|date|day"):
        values.decode(data)


class Equal(UserList):
    def __eq__(self, other):
        return True

    __hash__ = None


def test_objects_are_opaque():
    back = round_trip([object(), range(10**12), Equal([1]), print, int])
    assert all(isinstance(item, values.Opaque) for item in back)
    assert values.contains_opaque(back)


def test_a_container_that_contains_itself_is_too_large():
    loop = []
    loop.append(loop)
    with pytest.raises(values.TooLargeError):
        values.encode(loop)


def test_too_many_values_are_too_large():
    with pytest.raises(values.TooLargeError):
        values.encode([0] * values.MAX_NODES)


def test_every_value_counts_once(monkeypatch):
    monkeypatch.setattr(values, "MAX_NODES", 100)
    for value in ([0] * 99, dict.fromkeys(range(49)), range(96)):
        assert round_trip(value) == value


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


# ---- nodes by what they answer to


class Slotted:
    __slots__ = ("next", "val")

    def __init__(self, val, following=None):
        self.val, self.next = val, following


class Computed:
    """Its value is a property; what follows is made as it is read."""

    def __init__(self, number):
        self.number = number

    @property
    def val(self):
        return self.number

    @property
    def next(self):
        return Computed(self.number - 1) if self.number > 1 else None


class Last:
    val, next = 1, None


class Branch:
    def __init__(self, val, left=None, right=None):
        self.val, self.left, self.right = val, left, right


class Half:
    val = 1

    @property
    def next(self):
        raise AttributeError("next")


class Named(NamedTuple):
    val: int
    next: "Named | None"


class Both:
    val, next, left, right = 1, None, None, None


def test_a_chain_is_what_has_a_value_and_a_next_one():
    for head in (Slotted(3, Slotted(2, Last())), Computed(3), ListNode(3, Slotted(2, Computed(1)))):
        assert round_trip(head) == values.Chain((3, 2, 1))
    assert round_trip(type("MyNode", (Slotted,), {})(1)) == values.Chain((1,))
    assert (
        round_trip([Branch(1, Branch(2)), TreeNode(1, Branch(2))]) == [values.Tree(((1,), (2,), None, None, None))] * 2
    )


def test_a_node_is_rebuilt_of_the_class_of_its_name_or_of_a_plain_one():
    for one, kind in (
        (Slotted(1), Slotted), (Branch(1), Branch), (type("Sub", (Slotted,), {})(1), Slotted), (Last(), Last),
        (type("Both", (), {"val": 1, "next": None})(), Both), (type("Half", (), {"val": 1, "next": None})(), values.Node),
        (type("Once", (), {"val": 1, "next": None})(), values.Node),
    ):  # fmt: skip
        classes = (
            dict.fromkeys(["Half"]) | {"Once": print} | {each.__name__: each for each in (Slotted, Branch, Last, Both)}
        )
        node = values.rebuild(round_trip(one), classes)
        assert (type(node), node.val) == (kind, 1)


def test_a_named_tuple_is_a_tuple_whose_items_have_names():
    """So it may be a node, too; the name of a method may be a field's."""
    value = namedtuple("Own", "val next count")(2, Named(1, None), 7)
    for back in (round_trip(value), values.rebuild(round_trip([value]), {})[0], copy.deepcopy(round_trip(value))):
        assert back == value == (2, (1, None), 7)
        assert (back.val, back.next.val, back.next.next, back.count) == (2, 1, None, 7)
    assert values.matches(values.encode(value), (2, (1, None), 7))
    assert not values.matches(values.encode(value), (2, (1, None), 8))


def test_nodes_in_dicts_and_nodes_are_rebuilt():
    back = values.rebuild(round_trip({1: [ListNode(ListNode(3))]}), CLASSES)
    assert back[1][0].val.val == 3


def test_what_a_test_could_not_read_to_its_end_is_no_chain():
    unset = ListNode(1)
    del unset.next
    circle = Slotted(1)
    circle.next = circle
    for value in (Half(), Both(), unset, ListNode(1, Half()), ListNode(1, 7), circle, Branch(1, 2)):
        assert isinstance(round_trip(value), values.Opaque)


NODES = """from typing import *
class ListNode:
    def __init__(self, val=0, next=None): self.val, self.next = val, next
def list_node(values):
    head = None
    for v in reversed(values): head = ListNode(v, head)
    return head
def is_same_list(p, q):
    while p and q:
        if p.val != q.val: return False
        p, q = p.next, q.next
    return p is None and q is None
"""
REVERSED = "class Solution:\n    def f(self, head):\n        done = None\n        while head:\n"
IN_PLACE = REVERSED + "            head.next, done, head = done, head, head.next\n        return done\n"
NEW = REVERSED + "            done, head = Node(head.val, done), head.next\n        return done\n"
OWN_NODES = {
    "slots": "class ListNode:\n    __slots__ = ('val', 'next')\n    def __init__(self, val=0, next=None):\n"
    "        self.val = val\n        self.next = next\n" + IN_PLACE,
    "slots of a dataclass": "from dataclasses import dataclass\n@dataclass(slots=True)\nclass ListNode:\n    val: int = 0\n"
    "    next: 'Optional[ListNode]' = None\n" + IN_PLACE,
    "property": "class ListNode:\n    def __init__(self, val=0, next=None):\n        self._v, self.next = val, next\n"
    "    @property\n    def val(self): return self._v\n" + IN_PLACE,
    "subclass": "class Node(ListNode):\n    pass\n" + NEW,
    "class of its own": "class Node:\n    def __init__(self, val, next):\n        self.val, self.next = val, next\n"
    + NEW,
    "mixed": NEW.replace("done = None", "done, Node = None, lambda *a: Mine(*a) if a[1] else ListNode(*a)")
    + "class Mine:\n    def __init__(self, val, next):\n        self.val, self.next = val, next\n",
}


def test_honest_nodes_of_any_class_are_judged_by_their_values():
    tests = ("assert is_same_list(Solution().f(head=list_node([1, 2, 3])), list_node([3, 2, 1]))",)
    task, programs = Task("nodes", tests, NODES, "Solution().f"), list(OWN_NODES.values())
    programs += [program.replace("self, head):\n", "self, head):\n        head = head.next\n") for program in programs]
    found = grade_batch([task] * len(programs), [f"```python\n{program}```" for program in programs])
    assert [v.status for v in found] == ["ok"] * len(programs)
    assert [v.label for v in found] == ["correct"] * len(OWN_NODES) + ["incorrect"] * len(OWN_NODES)


def test_arrays_are_judged_as_their_test_takes_them():
    rows = [
        ("sorted(Solution().f(n=[2, 1])) == [1, 2]", True), ("list(Solution().f(n=[2, 1])) == [2, 1]", True),
        ("Solution().f(n=[1]) == [1]", True), ("Solution().f(n=[1]) == [2]", False),
        ("Solution().f(n=[2, 1]) == [2, 1]", False),
        ("sorted(Solution().f(n=[2, 1])) == [2, 1]", False), ("len(Solution().f(n=[2, 1])) == 2", True),
    ]  # fmt: skip
    tasks = [Task("arrays", (f"assert {test}",), "", "Solution().f") for test, _ in rows]
    program = "```python\nimport numpy as np\nclass Solution:\n    def f(self, n):\n        return np.array(n)\n```"
    found = grade_batch(tasks, [program] * len(rows), allow=("numpy",))
    assert [v.gt_pass for v in found] == [right for _, right in rows]
