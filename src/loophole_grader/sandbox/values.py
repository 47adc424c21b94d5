"""Values as plain text: what crosses the boundary between a judged program and the judge.

`encode` runs inside the judged process, `decode` outside it. Tests compare with literals, so what can equal a literal
arrives: None, bool, int, float, complex, str, bytes, list, tuple, set and dict, with their subclasses by their base
value; a Decimal or Fraction that equals a number; and all of these nested. Every other object arrives as one that
equals nothing. No code of an answer's class runs outside the sandbox.

Used both as a module of the package and, imported by its file alone, inside the runner: standard library only, no
relative imports.
"""

from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import Any

MAX_COLLISIONS = 100  # members of a set with the same hash
_JSON_INT = 1 << 63  # larger integers travel as hex: decimal conversion is limited to 4300 digits

# Looked up before the program starts, which may replace the builtins.
_type, _issubclass, _list, _int, _float = type, issubclass, list, int, float
_name = type.__dict__["__name__"].__get__
_mro = type.__dict__["__mro__"].__get__
_real, _imag = complex.real.__get__, complex.imag.__get__
_any, _Error = any, Exception
_SEQUENCES = ((list, ""), (tuple, "tuple"), (set, "set"), (frozenset, "set"))


def encode(value: Any) -> Any:
    """The value as JSON-able data. Plain data is read past all that its class could override."""
    kind = _type(value)
    if value is None or kind is bool:
        return value
    if _issubclass(kind, int):
        number = int.__pos__(value)
        return number if -_JSON_INT < number < _JSON_INT else {"int": hex(number)}
    if _issubclass(kind, str):
        text = str.__str__(value)
        # JSON would join two lone surrogates in a row into one character.
        return text if text.isascii() else {"str": text.encode("utf-8", "surrogatepass").hex()}
    if _issubclass(kind, float):
        return float.__pos__(value)
    if _issubclass(kind, complex):
        return {"complex": [_real(value), _imag(value)]}
    if _issubclass(kind, (bytes, bytearray)):
        return {"bytes": (bytes if _issubclass(kind, bytes) else bytearray).hex(value)}
    if _issubclass(kind, dict):
        return {"dict": [[encode(k), encode(v)] for k, v in _list(dict.items(value))]}
    for base, tag in _SEQUENCES:
        if _issubclass(kind, base):
            coded = [encode(item) for item in _list(base.__iter__(value))]
            return {tag: coded} if tag else coded
    # Not issubclass: Fraction is an abstract base class, which asks the classes that derive from it.
    if _any(base is Decimal or base is Fraction for base in _mro(kind)) and (number := _number(value)) is not None:
        return encode(number)
    return {"opaque": str(_name(kind))[:80]}


def _number(value: Decimal | Fraction) -> float | int | None:
    """The float or integer that equals it, if there is one of a size that a float has."""
    try:
        near = _float(value)
        if near == value:
            return near
        return whole if near - near == 0 and (whole := _int(value)) == value else None
    except _Error:  # a signalling NaN, a fraction beyond all floats
        return None


def decode(data: Any) -> Any:
    """A value that equals what `encode` was given. Raises ValueError, TypeError, KeyError, ArithmeticError or
    RecursionError for anything that `encode` does not produce: the sender is not trusted, but its size is bounded by
    who calls this."""
    if isinstance(data, list):
        return [decode(item) for item in data]
    if not isinstance(data, dict):
        return data
    [(tag, body)] = data.items()
    return _DECODED[tag](body)


def _apart(members: list[Any]) -> list[Any]:
    """The members of a set, or keys. Raises ValueError where many share one hash: a set of those costs the square of
    its size, and only who wants that makes one."""
    if len(members) > MAX_COLLISIONS and max(Counter(map(hash, members)).values()) > MAX_COLLISIONS:
        raise ValueError("too many members with the same hash")
    return members


_DECODED = {
    "int": lambda body: int(body, 16),
    "str": lambda body: bytes.fromhex(body).decode("utf-8", "surrogatepass"),
    "bytes": bytes.fromhex,
    "complex": lambda body: complex(*body),
    "opaque": lambda _: object(),
    "tuple": lambda body: tuple(map(decode, body)),
    "set": lambda body: frozenset(_apart(list(map(decode, body)))),
    "dict": lambda body: dict(
        zip(_apart([decode(key) for key, _ in body]), [decode(value) for _, value in body], strict=True)
    ),
}
