"""Own tests beside the canonical solution, which is in another sandbox: the two ends that talk to each other.

In the process that runs a completion's tests a stand-in has the canonical solution's place (canonical.py writes it). What it
is asked, `asker` sends out as data: how its object was made, and every call on it so far, the last one with the answer that
is wanted. The other process, which runs trusted text only, makes that object, repeats the calls (`replay`) and sends back
the answer, and the arguments as the call left them. Neither code nor object of the one is ever in the other.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import values  # ty: ignore[import-not-found]  (run by the file's folder, not as part of the package)

MADE = "__init__"


def asker(ask: Callable[[list], dict], names: dict[str, Any]) -> Callable[[list, str, tuple, dict], Any]:
    """The function that the stand-in calls: (state, method, args, kwargs), where `state` is the list of all that was asked
    of this object before. Raises RuntimeError that names what the canonical solution raised. `ask` brings the reply."""
    lock = threading.Lock()

    def call(state: list, method: str, args: tuple, kwargs: dict) -> Any:
        asked = [method, values.encode(list(args)), values.encode(kwargs)]
        if method == MADE:
            state.append(asked)
            return None
        with lock:
            answer = ask([*state, asked])
        if "error" in answer:
            raise RuntimeError(answer["error"])
        state.append(asked)
        for argument, before, after in zip(args, asked[1], answer["args"], strict=True):
            if after != before:
                put(argument, values.rebuild(values.decode(after), names))
        return values.rebuild(values.decode(answer["value"]), names)

    return call


def put(argument: Any, now: Any) -> None:
    """Give an argument the contents that it has after the call."""
    if isinstance(argument, list):
        argument[:] = now
    elif isinstance(argument, (dict, set)):
        argument.clear()
        argument.update(now)
    elif isinstance(argument, deque):
        argument.clear()
        argument.extend(now)
    elif now is not None and hasattr(argument, "__dict__"):  # the first node of a list or tree
        argument.__dict__.update(now.__dict__)


def replay(owner: str, asked: list, names: dict[str, Any]) -> dict[str, Any]:
    """What the canonical solution, which `names` holds, answers to the last of these calls. `owner`: its class, or empty for
    functions. An exception is an answer, too."""
    thing = value = None
    args: list = []
    try:
        for method, coded, named in asked:
            args = [_plain(one, names) for one in values.decode(coded)]
            kwargs = {name: _plain(one, names) for name, one in values.decode(named).items()}
            function = names[owner] if method == MADE else getattr(thing, method) if owner else names[method]
            value = function(*args, **kwargs)
            thing = value if method == MADE else thing
        return {"value": values.encode(value), "args": values.encode(args)}
    except Exception as error:  # noqa: BLE001  whatever it raises on these arguments is its answer
        return {"error": type(error).__name__}


def _plain(value: Any, names: dict[str, Any]) -> Any:
    if values.contains_opaque(value):
        raise TypeError("an argument that is not plain data")
    return values.rebuild(value, names)
