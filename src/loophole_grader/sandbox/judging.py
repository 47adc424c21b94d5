"""What the second process does: trusted text only, on data that was computed elsewhere.

Used by `child.py` inside the runner, found there by its file alone.
"""

import gc
import json
import random
from collections import deque
from datetime import date, datetime, timedelta
from types import FrameType

import values  # ty: ignore[import-not-found]  (run by the file's folder, not as part of the package)

PLAIN = (type(None), bool, int, float, complex, str, bytes, date, datetime, timedelta)
APART, WRITTEN = "use copy.deepcopy, or write it out", "write it into the call"
CONTAINERS = (list, tuple, set, frozenset, deque)
NODES = {"ListNode": ("val", "next"), "TreeNode": ("val", "left", "right")}


def judge(item: list, names: dict) -> object:
    """One item of a job: ["judge", statements, answers], true if they hold on `_answer0`, `_answer1`, ..., each a list
    with the values of one exchange; ["prepare", statements], {"values": what they put into `_given`} or {"error": text}.
    Every item starts from the same random numbers, so that what was prepared is what is judged."""
    kind, text, *answers = item
    random.seed(0)
    return prepared(text, dict(names)) if kind == "prepare" else holds(text, answers[0], dict(names))


def holds(text: str, answers: list[str], scope: dict) -> bool:
    """Whether a test, with data in the place of its calls, ends without an error."""
    try:
        for number, answer in enumerate(answers):
            decoded = [values.decode(one) for one in json.loads(answer)]
            if values.contains_opaque(decoded):
                return False
            scope[f"_answer{number}"] = [values.rebuild(one, scope) for one in decoded]
        exec(compile(text, "<test>", "exec"), scope)
    except Exception:  # noqa: BLE001  an answer of the wrong kind makes the benchmark's helpers raise
        return False
    return True


class Given(list):
    """Values for the sandbox, each coded as it is at this moment."""

    def __init__(self, scope: dict) -> None:
        self.scope, self.classes = scope, dict(scope)

    def take(self, value: object, own: str, dead: list[str]) -> None:
        """One more. `own`: the name that has it, or ""; `dead`: names that the test does not mention any more."""
        for name in dead:
            self.scope.pop(name, None)
        coded = values.encode(value)
        for one in (value, values.rebuild(values.decode(coded), self.classes)):
            check_plain(one)
        check_unshared(value, self.scope, own)
        self.append(coded)


def check_unshared(value: object, scope: dict, own: str) -> None:
    """Raises ValueError where what a program could change in a value is also in it a second time, or has another name: as
    data it arrives apart."""
    graph, todo = {id(value): value}, [value]
    while todo:
        for part in parts_of(todo.pop()):
            if id(part) in graph and changeable(part):
                raise ValueError(f"an argument holds one {type(part).__name__} twice; {APART}")
            if id(part) not in graph:
                graph[id(part)] = part
                todo.append(part)
    inner = list(filter(changeable, graph.values()))
    mine = {id(graph), id(inner), *graph, *(id(vars(item)) for item in inner if hasattr(item, "__dict__"))}
    for holder in gc.get_referrers(*inner) if inner else ():
        if holder is scope:
            check_names(scope, graph, own, id(value))
        elif id(holder) not in mine and not isinstance(holder, FrameType):
            raise ValueError(f"an argument shares what it holds with a {type(holder).__name__}; {APART}")


def check_names(scope: dict, graph: dict, own: str, whole: int) -> None:
    for name, item in scope.items():
        if id(item) in graph and changeable(item) and (name != own or id(item) != whole):
            raise ValueError(f"an argument shares a {type(item).__name__} with {name!r}; {APART}")


def changeable(item: object) -> bool:
    """Whether a program could change it or something in it."""
    if isinstance(item, (tuple, frozenset)):
        return any(map(changeable, item))
    return not isinstance(item, PLAIN)


def parts_of(item: object) -> list:
    if isinstance(item, dict):
        return [*item.keys(), *item.values()]
    if isinstance(item, CONTAINERS):
        return list(item)
    return [] if isinstance(item, PLAIN) else list(attributes_of(item).values())


def attributes_of(item: object) -> dict:
    """What an object has, in slots or not."""
    slots = [name for one in type(item).__mro__ for name in getattr(one, "__slots__", ()) if hasattr(item, name)]
    return {**getattr(item, "__dict__", {}), **{name: getattr(item, name) for name in slots}}


def prepared(text: str, scope: dict) -> dict:
    """The values that a test's own statements compute for the program."""
    scope["_given"] = given = Given(scope)
    try:
        exec(compile(text, "<test>", "exec"), scope)
    except Exception as error:  # noqa: BLE001  the test's fault, whatever it is
        return {"error": f"{type(error).__name__}: {error}"[:200]}
    return {"values": list(given)}


def check_plain(value: object) -> None:
    """Raises ValueError for what does not survive as data: a subclass, an object, a bound of a deque, a node inside a dict
    or one that has more than its own attributes."""
    todo = [value]
    while todo:
        item = todo.pop()
        kind = type(item)
        if kind in PLAIN:
            continue
        if kind.__name__ in NODES:
            own = NODES[kind.__name__]
            if more := attributes_of(item).keys() - {*own}:
                raise ValueError(f"a {kind.__name__} has {min(more)!r} beside {', '.join(own)}; {WRITTEN}")
        elif kind is not dict and kind not in CONTAINERS:
            raise ValueError(f"an argument holds a {kind.__name__}, which is no plain data; {WRITTEN}")
        elif isinstance(item, deque) and item.maxlen is not None:
            raise ValueError(f"an argument holds a deque with maxlen, which does not arrive; {WRITTEN}")
        todo += parts_of(item)
