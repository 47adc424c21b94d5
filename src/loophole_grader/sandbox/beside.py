"""Own tests beside the canonical solution, which is in another sandbox: the two ends that talk to each other.

In the process that runs a completion's tests a stand-in has the canonical solution's place (canonical.py writes it). What it
is asked, `Asker` sends out as data. The other process, which runs trusted text only, holds the objects that were made
(`Replay`); it does what is asked and sends back the value, and every argument that the call changed. Neither code nor object
of the one is ever in the other.

All that one question holds is one table of objects, each a row [tag, content], in which they name each other by number: what
is one object here is one object there, a cycle is a cycle, and an answer that is one of the arguments is that argument.
"""

import builtins
import json
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from typing import Any

import values  # ty: ignore[import-not-found]  (run by the file's folder, not as part of the package)

MOST_BYTES = (4 << 20) - 100  # of a question or an answer, as JSON: below what the trusted process passes on (pool.py)
TOO_LARGE: dict = {}  # in the place of a question or an answer (as in canonical.py)
ATOMS = (bool, int, float, complex, str, bytes, bytearray, Decimal, Fraction)
CONTAINERS: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "deque": deque}
VIEWS = (type({}.keys()), type({}.values()), type({}.items()))
FIXED = ("tuple", "frozenset", "range", "iter")  # rows that no call changes


# ---------------------------------------------------------------- objects as rows


def node_class(value: Any, classes: set[str]) -> str:
    """Under which of these names an object of setup code's classes travels, or ""."""
    return next((base.__name__ for base in type(value).__mro__ if base.__name__ in classes), "")


def fields_of(node: Any) -> dict[str, Any]:
    """The attributes of an object, those in slots too."""
    slots = [name for base in type(node).__mro__ for name in _slots(base)]
    return {name: getattr(node, name) for name in slots if hasattr(node, name)} | getattr(node, "__dict__", {})


def _slots(base: type) -> tuple[str, ...]:
    named = vars(base).get("__slots__", ())
    return tuple(name for name in ((named,) if isinstance(named, str) else named) if name[:2] != "__")


class Packed:
    """Objects as rows; they are numbered as they are met."""

    def __init__(self, classes: set[str], made: Callable[[Any], int | None], met: list | None = None) -> None:
        """`classes`: names of the classes whose objects travel by their attributes; `made`: the number of an instance of the
        solution, or None; `met`: objects that have numbers already."""
        self.classes, self.made, self.left = classes, made, values.MAX_NODES
        self.objects = list(met or [])
        self.numbers = {id(one): number for number, one in enumerate(self.objects)}

    def of(self, value: Any) -> Any:
        """A value inside a row. Raises TooLargeError."""
        self.left -= 1
        if self.left < 0:
            raise values.TooLargeError("too many values in one call")
        if value is None or isinstance(value, ATOMS) or type(value).__module__ == "numpy":
            return values.encode(value)
        if (number := self.made(value)) is not None:
            return {"made": number}
        if (number := self.numbers.get(id(value))) is None:
            number = self.numbers[id(value)] = len(self.objects)
            self.objects.append(value)
        return {"at": number}

    def rows(self, before: list | None = None) -> list:
        """A row for each object, those that are met on the way too. `before`: rows that the first ones had."""
        rows: list = []
        while len(rows) < len(self.objects):
            old = before[len(rows)] if before and len(rows) < len(before) else None
            rows.append(old if old and old[0] in FIXED else self.row(self.objects[len(rows)]))
        return rows

    def row(self, value: Any) -> list:
        if isinstance(value, dict):
            return ["dict", [[self.of(key), self.of(one)] for key, one in dict.items(value)]]
        if isinstance(value, range):
            return ["range", [self.of(one) for one in (value.start, value.stop, value.step)]]
        for tag, kind in CONTAINERS.items():
            if isinstance(value, kind):
                return [tag, [self.of(one) for one in kind.__iter__(value)]]
        if name := node_class(value, self.classes):
            return ["node", name, [[field, self.of(one)] for field, one in fields_of(value).items()]]
        if isinstance(value, VIEWS):
            return ["list", [self.of(one) for one in value]]
        if isinstance(value, Iterator):  # a generator, a map, ...: what it gives, which it then has given
            return ["iter", [self.of(one) for one in value]]
        return ["opaque", type(value).__name__[:80]]


class Unpacked:
    """Rows as objects again. Objects that are there already (`met`, the first numbers) get the contents of their rows."""

    def __init__(
        self, rows: dict[int, list], names: dict[str, Any], classes: set[str], made: Callable[[int], Any], met: list
    ) -> None:
        """`names`: the module that has the classes. Raises what rows raise that `Packed` does not write."""
        self.rows, self.made = rows, made
        self.objects: dict[int, Any] = dict(enumerate(met))
        for number, (tag, content, *_) in rows.items():
            if number >= len(met) and tag == "node":
                if content not in classes:
                    raise ValueError(f"no class {content}")
                self.objects[number] = object.__new__(names[content])
            elif number >= len(met) and tag not in FIXED:
                self.objects[number] = self.empty(tag, content)
        for last in (False, True):  # sets and dicts last: their members are whole then
            for number, (tag, *content) in rows.items():
                if tag not in FIXED and (tag in ("set", "dict")) is last:
                    self.fill(self.objects[number], tag, content)

    def empty(self, tag: str, content: Any) -> Any:
        return self.opaque(str(content)) if tag == "opaque" else {} if tag == "dict" else CONTAINERS[tag]()

    def opaque(self, kind: str) -> Any:
        return values.Opaque(kind)

    def of(self, coded: Any) -> Any:
        if not isinstance(coded, dict):
            return values.decode(coded)
        if "made" in coded:
            return self.made(coded["made"])
        if "opaque" in coded:
            return self.opaque(str(coded["opaque"]))
        if "at" not in coded:
            return values.decode(coded)
        number = coded["at"]
        if number not in self.objects:
            tag, content = self.rows[number]
            inner = [self.of(one) for one in content]
            self.objects[number] = range(*inner) if tag == "range" else iter(inner) if tag == "iter" else (
                CONTAINERS[tag](inner))  # fmt: skip
        return self.objects[number]

    def fill(self, thing: Any, tag: str, content: list) -> None:
        """Give an object the contents that its row says; one that is of another kind here keeps its own."""
        if tag == "node":
            for field, one in content[1]:
                if field[:2] == "__":
                    raise ValueError(f"no attribute of a node: {field}")
                object.__setattr__(thing, field, self.of(one))
        elif tag == "list" and isinstance(thing, list):
            thing[:] = [self.of(one) for one in content[0]]
        elif tag == "dict" and isinstance(thing, dict):
            items = [(self.of(key), self.of(one)) for key, one in content[0]]
            thing.clear()
            thing.update(items)
        elif tag in ("set", "deque") and isinstance(thing, (set, deque)):
            inner = [self.of(one) for one in content[0]]
            thing.clear()
            thing.update(inner) if isinstance(thing, set) else thing.extend(inner)


# ---------------------------------------------------------------- beside the tests


class Token:
    """The number of an object that the other process holds; says so when nobody needs it here any more."""

    def __init__(self, number: int, gone: list[int]) -> None:
        self.number, self.gone = number, gone

    def __del__(self) -> None:
        self.gone.append(self.number)


class StandIn:
    """What stand-ins derive from."""


class Asker:
    """What stand-ins ask through. One for a run; safe for threads."""

    base = StandIn

    def __init__(self, ask: Callable[[dict], dict], names: dict[str, Any], classes: list[str]) -> None:
        """`ask` brings the reply to a question; `names`: the module; `classes`: whose objects travel by their attributes."""
        self.ask, self.names, self.classes = ask, names, set(classes)
        self.lock = threading.RLock()
        self.things: dict[int, Any] = {}  # instances within the call that is on its way
        self.makes: list[list] = []  # not yet sent
        self.gone: list[int] = []
        self.count = 0

    @contextmanager
    def asking(self) -> Generator[None, None, None]:
        """For one thread at a time. Says so where there is too much data to ask, and raises TooLargeError."""
        with self.lock:
            try:
                yield
            except values.TooLargeError:
                self.ask(TOO_LARGE)  # which ends the program
                raise

    def make(self, thing: Any, args: tuple, kwargs: dict) -> None:
        """A stand-in's __init__."""
        with self.asking():
            packed = Packed(self.classes, self.number_of)
            root = packed.of([list(args), kwargs])
            self.makes.append([self.count, packed.rows(), root])
            vars(thing)["_token"] = Token(self.count, self.gone)
            self.count += 1

    def number_of(self, value: Any) -> int | None:
        if not isinstance(value, StandIn):
            return None
        if "_token" not in vars(value):  # of a class whose __init__ does not call that of the solution
            self.make(value, (), {})
        number = vars(value)["_token"].number
        self.things[number] = value
        return number

    def call(self, thing: Any, name: str, args: tuple, kwargs: dict) -> Any:
        """What a method (of the class, or a function, where `thing` is None) returns or raises."""
        return self.asked({"name": name, "called": True}, thing, [list(args), kwargs])

    def get(self, thing: Any, name: str) -> Any:
        """The value of an attribute, or a function that calls it."""
        if name[:2] == "__":
            raise AttributeError(name)
        found = self.asked({"name": name, "called": False}, thing, None)
        return self.caller(thing, name) if found is CALLED else found

    def caller(self, thing: Any, name: str) -> Callable[..., Any]:
        def function(*args: Any, **kwargs: Any) -> Any:
            return self.call(thing, name, args, kwargs)

        function.__name__ = function.__qualname__ = name
        return function

    def member(self, name: str, is_method: bool) -> "Member":
        return Member(self, name, is_method)

    def asked(self, question: dict, thing: Any, arguments: Any) -> Any:
        with self.asking():
            things: dict[int, Any] = {}
            self.things = things
            packed = Packed(self.classes, self.number_of)
            of = None if thing is None else self.number_of(thing)
            root = packed.of(arguments)
            rows = packed.rows()
            makes, self.makes = self.makes, []
            gone, self.gone[:] = list(self.gone), []
            answer = self.ask({**question, "of": of, "rows": rows, "root": root, "make": makes, "gone": gone})
            if "error" in answer:
                raise raised(*answer["error"])
            if answer.get("callable"):
                return CALLED
            found = Unpacked(dict(answer["rows"]), self.names, self.classes, things.__getitem__, packed.objects)
            return found.of(answer["value"])


CALLED = object()  # an attribute that is called, not read


class Member:
    """A name of the solution's class: a method, or an attribute, which may be either."""

    def __init__(self, asker: Asker, name: str, is_method: bool) -> None:
        self.asker, self.name, self.is_method = asker, name, is_method

    def __get__(self, thing: Any, owner: Any = None) -> Any:
        return (self.asker.caller if self.is_method else self.asker.get)(thing, self.name)


def raised(kind: str, args: Any) -> Exception:
    """The exception that the canonical solution raised, where Python has its class."""
    found = vars(builtins).get(kind)
    if isinstance(found, type) and issubclass(found, Exception):
        try:
            return found(*values.decode(args))
        except Exception:  # noqa: BLE001  UnicodeDecodeError and the like want other arguments
            pass
    return RuntimeError(kind)


# ---------------------------------------------------------------- beside the canonical solution


class Replay:
    """The canonical solution, which `names` holds, and the objects of it that were made."""

    def __init__(self, job: dict, names: dict[str, Any]) -> None:
        """`job`: "owner", the solution's class, or empty for functions; "functions", which those are; "classes"."""
        self.owner, self.functions, self.classes = job["owner"], set(job["functions"]), set(job["classes"])
        self.names = names
        self.things: dict[int, Any] = {}

    def answer(self, text: str) -> str:
        """The reply to one question, both as JSON. Whatever the solution raises is an answer, too."""
        try:
            reply = json.dumps(self.answered(json.loads(text)))
        except values.TooLargeError:
            return json.dumps(TOO_LARGE)
        except Exception as error:  # noqa: BLE001  as above; the question may be no question
            return json.dumps({"error": described(error)})
        return reply if len(reply) <= MOST_BYTES else json.dumps(TOO_LARGE)

    def answered(self, question: dict) -> dict:
        for number, rows, root in question["make"]:
            self.things[number] = self.made(rows, root)
        for number in question["gone"]:
            self.things.pop(number, None)
        objects = self.unpacked(question["rows"])
        arguments = objects.of(question["root"])
        found = self.found(question["of"], question["name"])
        if not question["called"]:
            if callable(found):
                return {"callable": True}
            value, before = found, []
        else:
            value, before = found(*arguments[0], **arguments[1]), question["rows"]
        packed = Packed(self.classes, self.number_of, [objects.of({"at": number}) for number in range(len(before))])
        coded = packed.of(value)
        rows = [
            [number, row]
            for number, row in enumerate(packed.rows(before))
            if number >= len(before) or not same(row, before[number])
        ]
        return {"value": coded, "rows": rows}

    def made(self, rows: list, root: Any) -> Any:
        """An instance; if the solution makes none, the exception, for who uses it."""
        try:
            args, kwargs = self.unpacked(rows).of(root)
            return self.names[self.owner](*args, **kwargs)
        except Exception as error:  # noqa: BLE001  whatever it is
            return Unmade(error)

    def unpacked(self, rows: list) -> Unpacked:
        return Plain(dict(enumerate(rows)), self.names, self.classes, self.thing, [])

    def thing(self, number: int) -> Any:
        if isinstance(found := self.things[number], Unmade):
            raise found.error
        return found

    def number_of(self, value: Any) -> int | None:
        if not self.owner or not isinstance(value, self.names[self.owner]):
            return None
        return next((number for number, one in self.things.items() if one is value), None)

    def found(self, of: int | None, name: str) -> Any:
        """What a name stands for: of an instance, of the class, or a function of the module. Nothing else of the module, and
        nothing of Python's own, can be named."""
        if not self.owner:
            if name not in self.functions:
                raise AttributeError(name)
            return self.names[name]
        if name[:2] == "__":
            raise AttributeError(name)
        return getattr(self.names[self.owner] if of is None else self.thing(of), name)


class Plain(Unpacked):
    """Rows without anything that is no plain data."""

    def opaque(self, kind: str) -> Any:
        raise TypeError(f"an argument that is not plain data: {kind}")


def same(row: list, before: list) -> bool:
    """Whether a call has left an object as it was. A set's members may come in another order."""
    if row[0] == "set" == before[0]:
        return sorted(map(json.dumps, row[1])) == sorted(map(json.dumps, before[1]))
    return row == before


class Unmade:
    """In the place of an instance whose __init__ raised."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def described(error: Exception) -> list:
    """An exception as data: the nearest class of Python's own, and its arguments, or its text."""
    kind = next(base for base in type(error).__mro__ if vars(builtins).get(base.__name__) is base)
    try:
        coded = values.encode(list(error.args))
        if (
            type(error) is kind
            and len(json.dumps(coded)) < MOST_BYTES
            and not values.contains_opaque(values.decode(coded))
        ):
            return [kind.__name__, coded]
    except Exception:  # noqa: BLE001  no plain data
        pass
    return [kind.__name__, [values.encode(str(error)[:1000])]]
