"""Values as plain text: what crosses the boundary between a judged program and the judge.

`encode` runs inside the judged process, `decode` outside it. What arrives is plain data, or made of it by classes of this
page: no code of an answer's class runs outside the sandbox, and an answer gains nothing that a program could not send as
plain data.

- Plain data survives exactly: None, bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict,
  OrderedDict, Counter, deque, range, Decimal, Fraction, date, datetime without a time zone, timedelta, and subclasses of
  these, shipped by their base value; of a named tuple the names of its fields, too.
- What is == to one of these by the standard library arrives as that: a UserList as a list, a Mapping as a dict, a view of a
  dict or another Set as a view in its order; as does a SortedList where that is allowed.
- What equals nothing but can be iterated arrives as what it yields: the values of a dict, and every iterator, a
  generator or one of the program's own, that has no truth or == of its own.
- A numpy scalar arrives as a number, an array as an `Array`: like numpy's, its == has a truth for one element only.
- Objects with `val` and `next`, or `val`, `left` and `right`, arrive as linked list or binary tree, whatever their class:
  these attributes are read as a test would read them, be they slots, properties or the class's own.
  With them come the names of their classes, by which the judge takes a class of its own.

Every other object becomes `OPAQUE`, on which no method of the judged program can act and which passes no test; so does a
container whose class has an == of its own. And so does a Decimal or Fraction of more than MAX_DIGITS digits, the zeros of
its exponent counted: ten characters, 1e999999999, would be a number of 400 MB as soon as a test takes its int.

Used both as a module of the package and, imported by its file alone, inside the runner: standard library only, no
relative imports.
"""

import re
import sys
from collections import Counter, OrderedDict, UserList, UserString, deque
from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, Mapping, Sequence, Set, ValuesView
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from types import MappingProxyType
from typing import Any

MAX_NODES = 2_000_000  # values in one answer, containers and their members
MAX_CHARS = 16 << 20  # characters of text in one answer
MAX_DEPTH = 100  # nesting of containers
MAX_COLLISIONS = 100  # members of a set with the same hash
MAX_NAMES = 8  # of classes, of a node
MAX_DIGITS = 10_000  # of a Decimal, written out in full, and of numerator and denominator of a Fraction
_JSON_INT = 1 << 63  # larger integers travel as hex: decimal conversion is limited to 4300 digits

_FRACTION_BITS = int(MAX_DIGITS * 3.3219280948873623)  # log2(10)
_DECIMAL = re.compile(r"-?(?:\d+(?:\.\d+)?(?:E(?P<exponent>[+-]\d{1,6}))?|Infinity|s?NaN\d*)", re.ASCII | re.IGNORECASE)

_type, _issubclass, _len, _id, _list, _dict, _getattr, _islice = type, issubclass, len, id, list, dict, getattr, islice
_bases, _members, _name = (type.__dict__[name].__get__ for name in ("__mro__", "__dict__", "__name__"))
_KEYS, _ITEMS, _VALUES = (type(view) for view in ({}.keys(), {}.items(), {}.values()))
_numerator, _denominator = (Fraction.__dict__[name].__get__ for name in ("_numerator", "_denominator"))
_decimal_text, _decimal_match = Decimal.__str__, _DECIMAL.fullmatch
_most = deque.__dict__["maxlen"].__get__
_zone = datetime.__dict__["tzinfo"].__get__
_span = tuple(timedelta.__dict__[name].__get__ for name in ("days", "seconds", "microseconds"))
_date_text, _datetime_text, _date_of, _datetime_of = (
    date.isoformat,
    datetime.isoformat,
    date.fromisoformat,
    datetime.fromisoformat,
)


class TooLargeError(ValueError):
    """The value is larger or deeper than an answer may be, or contains itself."""


@dataclass(frozen=True)
class Opaque:
    """Stands for an object that is not plain data; `type_name` is only for messages."""

    type_name: str


@dataclass(frozen=True)
class Chain:
    """A linked list by its values, head first; `names`: of the head's class and those it derives from."""

    values: tuple[Any, ...]
    names: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Tree:
    """A binary tree in preorder; None marks an absent child, a 1-tuple holds a node's value. `names`: as of a Chain."""

    preorder: tuple[tuple[Any] | None, ...]
    names: tuple[str, ...] = field(default=(), compare=False)


class Named(tuple):
    """A named tuple: its items are also attributes."""

    def __new__(cls, items: Iterable[Any], names: Iterable[str] = ()) -> "Named":
        made = super().__new__(cls, items)
        made.__dict__.update(zip(names, made, strict=False))
        return made


class Node:
    """A node of a class that the judge does not have."""


class Array(Sequence):
    """A numpy array of at least one dimension, by its items: numbers, or arrays of one dimension less."""

    def __init__(self, items: tuple[Any, ...]) -> None:
        self.items = items

    def __getitem__(self, place: Any) -> Any:
        return Array(self.items[place]) if isinstance(place, slice) else self.items[place]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    def tolist(self) -> list[Any]:
        return [item.tolist() if isinstance(item, Array) else item for item in self.items]

    def __eq__(self, other: object) -> bool:
        """Raises ValueError, as the truth of numpy's comparison does, but for one element on both sides."""
        return _one(self) == _one(other)

    def __bool__(self) -> bool:
        return bool(_one(self))

    __hash__ = None


def _one(value: Any) -> Any:
    """The one element of nested arrays, lists and tuples."""
    while isinstance(value, (Array, list, tuple)):
        if len(value) != 1:
            raise ValueError("the truth value of an array with more or less than one element is ambiguous")
        value = value[0]
    return value


class Once(Iterator):
    """What an iterator of the program's would yield."""

    def __init__(self, items: list[Any]) -> None:
        self.items, self._left = items, iter(items)

    def __next__(self) -> Any:
        return next(self._left)


class _Budget:
    def __init__(self) -> None:
        self.nodes, self.chars = MAX_NODES, MAX_CHARS

    def take(self, nodes: int = 1, chars: int = 0) -> None:
        self.nodes -= nodes
        self.chars -= chars
        if self.nodes < 0 or self.chars < 0:
            raise TooLargeError("answer too large")

    def begin(self, members: int) -> None:
        """A container, whose members count as they are met: one that has too many is not read at all."""
        self.take()
        if members > self.nodes:
            raise TooLargeError("answer too large")


def encode(value: Any) -> Any:
    """The value as JSON-able data. Raises TooLargeError. Plain data is read past all that its class could override; other
    objects answer by their own code, which could as well send other data."""
    return _encode(value, 0, _Budget())


def _encode(value: Any, depth: int, budget: _Budget) -> Any:
    if depth > MAX_DEPTH:
        raise TooLargeError("answer too deep, or it contains itself")
    kind = _type(value)
    if value is None or kind is bool:
        budget.take()
        return value
    if _issubclass(kind, int):
        return _encode_int(int.__pos__(value), budget)
    if _issubclass(kind, str):
        return _encode_str(str.__str__(value), budget)
    if _issubclass(kind, (float, complex, bytes, bytearray)):
        return _encode_scalar(value, kind, budget)
    for base, items_of, tag in _DICTS:
        if _issubclass(kind, base):
            budget.begin(dict.__len__(value))
            items = _list(items_of(value))
            return {tag: [[_encode(k, depth + 1, budget), _encode(v, depth + 1, budget)] for k, v in items]}
    for base, tag in _SEQUENCES:
        if _issubclass(kind, base):
            budget.begin(base.__len__(value))
            coded = [_encode(item, depth + 1, budget) for item in base.__iter__(value)]
            if base is deque and (most := _most(value)) is not None:
                return {"bounded": [most, coded]}
            if base is tuple and (names := _fields(kind, budget)):
                return {"named": [names, coded]}
            return {tag: coded} if tag else coded
    if _issubclass(kind, Decimal):
        return _encode_decimal(value, budget)
    if _issubclass(kind, (date, timedelta)):
        return _encode_time(value, kind, budget)
    # Not issubclass: Fraction is an abstract base class, which asks the classes that derive from it.
    if any(base is Fraction for base in _bases(kind)):
        return _encode_fraction(value, budget)
    return _encode_object(value, kind, depth, budget)


# An OrderedDict and a Counter compare otherwise than a dict.
_DICTS = ((OrderedDict, OrderedDict.items, "ordered"), (Counter, dict.items, "counter"), (dict, dict.items, "dict"))
_SEQUENCES = ((list, ""), (tuple, "tuple"), (set, "set"), (frozenset, "frozenset"), (deque, "deque"))


def _fields(kind: type, budget: _Budget) -> list[str]:
    """What a named tuple's class calls its items."""
    found = next((members["_fields"] for one in _bases(kind) if "_fields" in (members := _members(one))), None)
    return _short(found, budget) if _type(found) is tuple else []


def _short(names: Iterable[Any], budget: _Budget) -> list[str]:
    found = [str(name)[:80] for name in names]
    budget.take(0, sum(map(_len, found)))
    return found


def _encode_int(value: int, budget: _Budget) -> Any:
    if -_JSON_INT < value < _JSON_INT:
        budget.take()
        return value
    budget.take(1, value.bit_length() // 4)
    return {"int": hex(value)}


def _encode_str(value: str, budget: _Budget) -> Any:
    budget.take(1, _len(value))
    try:
        value.encode()
    except UnicodeEncodeError:  # two lone surrogates in a row would be joined into one character by JSON
        return {"str": value.encode("utf-8", "surrogatepass").hex()}
    return value


def _encode_scalar(value: Any, kind: type, budget: _Budget) -> Any:
    budget.take()
    if _issubclass(kind, float):
        return float.__pos__(value)
    if _issubclass(kind, complex):
        return {"complex": [complex.real.__get__(value), complex.imag.__get__(value)]}
    base, tag = (bytes, "bytes") if _issubclass(kind, bytes) else (bytearray, "bytearray")
    budget.take(0, 2 * base.__len__(value))
    return {tag: base.hex(value)}


def _encode_decimal(value: Decimal, budget: _Budget) -> Any:
    text = _decimal_text(value)
    budget.take(1, _len(text))
    return {"decimal": text} if _fits(text) else {"opaque": "Decimal"}


def _fits(text: str) -> bool:
    """Whether this is a Decimal as it prints itself, of no more than MAX_DIGITS digits without an exponent."""
    matched = _decimal_match(text) if _len(text) <= MAX_DIGITS else None
    return matched is not None and abs(int(matched["exponent"] or 0)) + _len(text) <= MAX_DIGITS


def _encode_time(value: Any, kind: type, budget: _Budget) -> Any:
    budget.take(1, 40)
    if _issubclass(kind, timedelta):
        return {"timedelta": [part(value) for part in _span]}
    if not _issubclass(kind, datetime):
        return {"date": _date_text(value)}
    # A zone is an object of its own, whose code would run.
    return {"datetime": _datetime_text(value)} if _zone(value) is None else {"opaque": "datetime"}


def _encode_fraction(value: Fraction, budget: _Budget) -> Any:
    try:
        parts = [_numerator(value), _denominator(value)]
    except AttributeError:  # made past its constructor
        parts = []
    budget.take()
    if not parts or not all(_type(part) is int and part.bit_length() <= _FRACTION_BITS for part in parts):
        return {"opaque": "Fraction"}
    return {"fraction": [_encode_int(part, budget) for part in parts]}


def _encode_object(value: Any, kind: type, depth: int, budget: _Budget) -> Any:
    number, array, sorted_list, sorted_set = _libraries()
    if _derives(kind, number):  # np.int64(3) == 3
        return _encode(number.item(value), depth + 1, budget)
    if _derives(kind, array):
        return _encode_array(array.tolist(value), array.ndim.__get__(value), depth + 1, budget)
    if _derives(kind, sorted_list):
        return _encode(_list(value), depth + 1, budget)
    if _derives(kind, sorted_set):
        return _encode_items("keys", value, depth, budget)
    for tag, belongs in _ITERATED:
        if belongs(kind):
            return _encode_items(tag, value, depth, budget)
    plain = _as_plain(value, kind)
    if plain is not value:
        return _encode(plain, depth + 1, budget)
    if kind is range and not _is_too_long(value):
        budget.take(1 + _len(value))
        return {"range": [_encode_int(part, budget) for part in (value.start, value.stop, value.step)]}
    if node := _encode_node(value, kind, depth, budget):
        return node
    budget.take()
    return {"opaque": str(_name(kind))[:80]}


def _is_too_long(value: range) -> bool:
    return abs(value.stop - value.start) > MAX_NODES * abs(value.step)


def _libraries() -> tuple[Any, ...]:
    """Types of packages that programs may be allowed, where a program uses them; whatever it puts in their place only
    makes its answer data."""
    wanted = (
        ("numpy", "generic"),
        ("numpy", "ndarray"),
        ("sortedcontainers", "SortedList"),
        ("sortedcontainers", "SortedSet"),
    )
    found = (getattr(sys.modules.get(package), name, None) for package, name in wanted)
    return tuple(one if isinstance(one, type) else None for one in found)


def _encode_array(items: Any, dimensions: int, depth: int, budget: _Budget) -> Any:
    if not dimensions or depth > MAX_DEPTH:
        return _encode(items, depth, budget)
    budget.begin(_len(items))
    return {"array": [_encode_array(item, dimensions - 1, depth + 1, budget) for item in items]}


def _encode_items(tag: str, value: Any, depth: int, budget: _Budget) -> Any:
    budget.take()
    coded = []
    for item in value:  # an iterator without an end stops at the budget
        if tag == "items":
            key, item = item
            coded.append([_encode(key, depth + 1, budget), _encode(item, depth + 1, budget)])
        else:
            coded.append(_encode(item, depth + 1, budget))
    return {tag: coded}


def _derives(kind: type, base: type) -> bool:
    """Not issubclass, where `base` is an abstract class, which asks the classes that derive from it."""
    return any(one is base for one in _bases(kind))


def _compares_by(kind: type, base: type) -> bool:
    """Whether a class has the == of `base`."""
    found = (members["__eq__"] for one in _bases(kind) if "__eq__" in (members := _members(one)))
    return next(found, None) is _members(base)["__eq__"]


def _is_iterator(kind: type) -> bool:
    """Whether a class is an iterator's, without a truth or an equality of its own."""
    own = {name for one in _bases(kind) if one is not object for name in _members(one)}
    return own >= {"__iter__", "__next__"} and own.isdisjoint({"__eq__", "__len__", "__bool__"})


def yielded(value: Any) -> list[Any] | None:
    """What an iterator yields; None of what is none. Raises TooLargeError."""
    if not _is_iterator(_type(value)):
        return None
    items = _list(_islice(value, MAX_NODES))
    if _len(items) == MAX_NODES:
        raise TooLargeError("an iterator without an end")
    return items


_ITERATED: tuple[tuple[str, Callable[[type], bool]], ...] = (
    ("items", lambda kind: _issubclass(kind, _ITEMS) or (_derives(kind, ItemsView) and _compares_by(kind, Set))),
    ("keys", lambda kind: _issubclass(kind, _KEYS) or _compares_by(kind, Set)),
    ("values", lambda kind: _issubclass(kind, _VALUES) or _derives(kind, ValuesView)),
    ("once", _is_iterator),
)


def _as_plain(value: Any, kind: type) -> Any:
    """What a container of the standard library compares as; the value itself if it is none."""
    if kind is MappingProxyType or _compares_by(kind, Mapping):
        return _dict(value.items())
    if _compares_by(kind, UserList) or _compares_by(kind, UserString):
        return value.data
    return value


def _encode_node(value: Any, kind: type, depth: int, budget: _Budget) -> dict | None:
    """A node and all that hangs on it; None for what is none."""
    name, kinds = _name(kind), map(_name, _bases(kind)[:MAX_NAMES])
    try:
        _read(value, "val")
        listed, branched = _has(value, "next"), _has(value, "left") and _has(value, "right")
        if name == "TreeNode" or (branched and not listed):
            nodes, names = _preorder(value, budget), _short(kinds, budget)
            return {"tree": [names, [node and [_encode(node[0], depth + 1, budget)] for node in nodes]]}
        if name == "ListNode" or (listed and not branched):
            nodes, names = _chain(value, budget), _short(kinds, budget)
            return {"chain": [names, [_encode(item, depth + 1, budget) for item in nodes]]}
    except _NoNodeError:
        pass
    except TooLargeError:
        if name in ("ListNode", "TreeNode"):
            raise
    return None


class _NoNodeError(Exception):
    """An attribute that a node has is not there."""


def _read(node: Any, name: str) -> Any:
    """An attribute as a test would read it: of the instance, a slot, a property, of the class."""
    try:
        return _getattr(node, name)
    except Exception:  # noqa: BLE001  a property may raise whatever it likes
        raise _NoNodeError from None


def _has(node: Any, name: str) -> bool:
    try:
        _read(node, name)
    except _NoNodeError:
        return False
    return True


def _chain(head: Any, budget: _Budget) -> list[Any]:
    values, seen, node = [], {}, head
    while node is not None:
        if _id(node) in seen:
            raise TooLargeError("a linked list that contains itself")
        budget.take()
        seen[_id(node)] = node  # kept: a property may make its node as it is read
        values.append(_read(node, "val"))
        node = _read(node, "next")
    return values


def _preorder(root: Any, budget: _Budget) -> list[tuple[Any] | None]:
    nodes: list[tuple[Any] | None] = []
    stack = [root]
    while stack:
        node = stack.pop()
        budget.take()  # a tree that contains itself ends here
        if node is None:
            nodes.append(None)
            continue
        nodes.append((_read(node, "val"),))
        stack += [_read(node, "right"), _read(node, "left")]
    return nodes


def decode(data: Any) -> Any:
    """The value that `encode` was given; nodes as Chain or Tree, other objects as Opaque.

    Raises ValueError for anything that `encode` does not produce: the sender is not trusted.
    """
    try:
        return _decode(data, 0, _Budget())
    except (TypeError, KeyError, IndexError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"not an encoded value: {type(error).__name__}: {error}") from None


def _decode(data: Any, depth: int, budget: _Budget) -> Any:
    if depth > MAX_DEPTH + 1:
        raise ValueError("encoded value too deep")
    budget.take()
    if isinstance(data, list):
        return [_decode(item, depth + 1, budget) for item in data]
    if not isinstance(data, dict):
        return data
    [(tag, body)] = data.items()
    if tag in _DECODE_TEXT:
        value = _DECODE_TEXT[tag](body)
        if isinstance(value, range):  # a short text, and as long as a test makes it
            budget.take(_len(value))
        return value
    if tag in _DECODE_ITEMS:
        return _DECODE_ITEMS[tag](_decode(item, depth + 1, budget) for item in body)
    if tag in _DECODE_DICT:
        keys = _apart([_decode(key, depth + 1, budget) for key, _ in body])
        made = dict(zip(keys, [_decode(v, depth + 1, budget) for _, v in body], strict=True))
        return _DECODE_DICT[tag](made)
    if tag == "bounded":
        most, items = body
        return deque([_decode(item, depth + 1, budget) for item in items], most)
    if tag == "named":
        names, items = body
        return Named([_decode(item, depth + 1, budget) for item in items], map(str, names))
    if tag in ("chain", "tree"):
        names, items = body
        names = tuple(map(str, names))
        if tag == "chain":
            return Chain(tuple(_decode(item, depth + 1, budget) for item in items), names)
        return Tree(tuple(item and (_decode(item[0], depth + 1, budget),) for item in items), names)
    raise ValueError(f"unknown tag {tag!r}")


def _decode_decimal(body: str) -> Decimal:
    if not _fits(body):
        raise ValueError("not an encoded Decimal")
    return Decimal(body)


def _decode_fraction(body: list) -> Fraction:
    """Lowest terms only, as every Fraction has them: the sizes then bound all that is done with it."""
    parts = [decode(part) for part in body]
    if len(parts) != 2 or not all(type(part) is int and part.bit_length() <= _FRACTION_BITS for part in parts):
        raise ValueError("not an encoded Fraction")
    value = Fraction(*parts)
    if value.denominator != parts[1]:
        raise ValueError("a Fraction that is not in lowest terms")
    return value


def _decode_date(body: str) -> date:
    value = _date_of(body)
    if _date_text(value) != body:
        raise ValueError("not an encoded date")
    return value


def _decode_datetime(body: str) -> datetime:
    value = _datetime_of(body)
    if _zone(value) is not None or _datetime_text(value) != body:
        raise ValueError("not an encoded datetime")
    return value


def _decode_timedelta(body: list) -> timedelta:
    if len(body) != 3 or not all(type(part) is int for part in body):
        raise ValueError("not an encoded timedelta")
    value = timedelta(*body)
    if [part(value) for part in _span] != body:
        raise ValueError("not an encoded timedelta")
    return value


def _decode_range(body: list) -> range:
    made = range(*(decode(part) for part in body))
    if _is_too_long(made):
        raise ValueError("a range that is too long")
    return made


_DECODE_TEXT = {
    "int": lambda body: int(body, 16),
    "str": lambda body: bytes.fromhex(body).decode("utf-8", "surrogatepass"),
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "complex": lambda body: complex(float(body[0]), float(body[1])),
    "opaque": lambda body: Opaque(str(body)),
    "decimal": _decode_decimal,
    "fraction": _decode_fraction,
    "range": _decode_range,
    "date": _decode_date,
    "datetime": _decode_datetime,
    "timedelta": _decode_timedelta,
}
_DECODE_DICT = {"dict": dict, "ordered": OrderedDict, "counter": Counter, "items": dict.items}
_DECODE_ITEMS = {
    "tuple": tuple,
    "set": lambda items: set(_apart(list(items))),
    "frozenset": lambda items: frozenset(_apart(list(items))),
    "deque": deque,
    "keys": lambda items: dict.fromkeys(_apart(list(items))).keys(),
    "values": lambda items: dict(enumerate(items)).values(),
    "array": lambda items: Array(tuple(items)),
    "once": lambda items: Once(list(items)),
}


def _apart(members: list[Any]) -> list[Any]:
    """The members of a set, or keys. Raises ValueError where many share one hash: a set of those costs the square of
    its size, and only who wants that makes one."""
    if len(members) > MAX_COLLISIONS and max(Counter(map(hash, members)).values()) > MAX_COLLISIONS:
        raise ValueError("too many members with the same hash")
    return members


def matches(data: Any, expected: Any) -> bool:
    """Whether encoded data stands for a value that equals `expected` (plain data) by Python's ==.

    Walks along the expected value, so its size bounds the work whatever the sender wrote: sets and dicts of the
    sender's are never built, only looked up in those expected. Equal to `decode(data) == expected` for whatever
    `encode` produces; anything else, and a comparison that raises (a signalling NaN's), is no match.
    """
    try:
        return _matches(data, expected)
    except (TypeError, ValueError, KeyError, IndexError, ArithmeticError, RecursionError):
        return False


def _matches(data: Any, expected: Any) -> bool:
    if isinstance(data, dict) and "array" in data:
        return _matches(_one_of(data), _one(expected))
    if isinstance(expected, list):
        return isinstance(data, list) and _all_match(data, expected)
    if isinstance(expected, tuple):
        return isinstance(data, dict) and _all_match(data["named"][1] if "named" in data else data["tuple"], expected)
    if isinstance(expected, deque):
        return isinstance(data, dict) and _all_match(
            data["bounded"][1] if "bounded" in data else data["deque"], expected
        )
    if isinstance(expected, (set, frozenset)):
        return isinstance(data, dict) and _same_set(data, expected)
    if isinstance(expected, dict):
        return isinstance(data, dict) and _same_dict(data, expected)
    if isinstance(data, list):
        return False
    if not isinstance(data, dict):
        return data == expected
    [(tag, body)] = data.items()
    if tag not in _DECODE_TEXT or tag == "opaque" or len(body) > 2 * MAX_CHARS:
        return False
    return _DECODE_TEXT[tag](body) == expected


def _one_of(data: Any) -> Any:
    """The one element of a coded array; see Array. Raises ValueError."""
    while isinstance(data, dict) and "array" in data:
        [data] = data["array"]
    return data


def _all_match(items: Any, expected: Collection[Any]) -> bool:
    return (
        isinstance(items, list)
        and len(items) == len(expected)
        and all(_matches(item, one) for item, one in zip(items, expected, strict=True))
    )


def _same_set(data: dict, expected: Collection[Any]) -> bool:
    [(tag, items)] = data.items()
    if tag == "items":
        tag, items = "keys", [{"tuple": pair} for pair in items]
    if tag not in ("set", "frozenset", "keys") or len(items) != len(expected):
        return False
    found = set()
    for item in items:
        value = decode(item)
        if value not in expected:
            return False
        found.add(value)
    return len(found) == len(expected)


def _same_dict(data: dict, expected: dict) -> bool:
    [(tag, items)] = data.items()
    if tag not in ("dict", "ordered", "counter") or len(items) != len(expected):
        return False
    found = set()
    for item, value in items:
        key = decode(item)
        if key not in expected or not _matches(value, expected[key]):
            return False
        found.add(key)
    return len(found) == len(expected)


def contains_opaque(value: Any) -> bool:
    """Whether an object that is not plain data is anywhere in a decoded value."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Opaque):
            return True
        if isinstance(item, dict):
            stack += [*item.keys(), *item.values()]
        elif isinstance(item, (list, tuple, set, frozenset, deque, Array, _KEYS, _ITEMS, _VALUES)):
            stack += item
        elif isinstance(item, Once):
            stack += item.items
        elif isinstance(item, Chain):
            stack += item.values
        elif isinstance(item, Tree):
            stack += [node[0] for node in item.preorder if node is not None]
    return False


def rebuild(value: Any, classes: dict[str, Any]) -> Any:
    """A decoded value with each Chain and Tree built again, of the class among `classes` that has a name of theirs and their
    attributes, or of `Node`: those at the top, inside lists, tuples and values of dicts, and inside nodes. Raises ValueError
    for a tree that is none, and what such a class raises."""
    if isinstance(value, Chain):
        node_class, head = _node_class(value.names, ("val", "next"), classes), None
        for item in reversed(value.values):
            node = object.__new__(node_class)
            node.val, node.next = rebuild(item, classes), head
            head = node
        return head
    if isinstance(value, Tree):
        return _build_tree(value, classes)
    if type(value) in (list, tuple):
        return type(value)(rebuild(item, classes) for item in value)
    if isinstance(value, Named):
        return Named([rebuild(item, classes) for item in value], vars(value))
    if type(value) in (dict, OrderedDict):
        return type(value)((key, rebuild(item, classes)) for key, item in value.items())
    return value


def _node_class(names: tuple[str, ...], wanted: tuple[str, ...], classes: dict[str, Any]) -> Any:
    found = (classes.get(name) for name in names)
    return next((one for one in found if isinstance(one, type) and _has_attributes(one, wanted)), Node)


def _has_attributes(kind: type, wanted: tuple[str, ...]) -> bool:
    """Whether a class of trusted text has these, or its constructor speaks of them."""
    code = getattr(kind.__init__, "__code__", None)
    return {*dir(kind), *(code.co_names if code else ())}.issuperset(wanted)


def _build_tree(tree: Tree, classes: dict[str, Any]) -> Any:
    """Preorder to nodes without recursion: each open slot is (parent, side)."""
    node_class = _node_class(tree.names, ("val", "left", "right"), classes)
    root, slots = None, [(None, "")]
    for item in tree.preorder:
        if not slots:
            raise ValueError("tree with too many nodes")
        parent, side = slots.pop()
        node = None
        if item is not None:
            node = object.__new__(node_class)
            node.val, node.left, node.right = rebuild(item[0], classes), None, None
            slots += [(node, "right"), (node, "left")]
        if parent is None:
            root = node
        else:
            setattr(parent, side, node)
    if slots:
        raise ValueError("tree with missing nodes")
    return root
