"""Programs that this package writes itself, for its small worlds: as text, as completions, and what they return."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

Lines = list[str]
Name = TypeVar("Name", bound=str)
RAISED = (TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError)
"""What a body may raise that meets a value of another kind than it is for."""


def program(lines: Sequence[str]) -> str:
    """A body as a definition of `solve`."""
    return "\n".join(["def solve(x):", *(f"    {line}" for line in lines)])


def function(name: str, body: Sequence[str]) -> str:
    """A definition without arguments."""
    return "\n".join([f"def {name}():", *(f"    {line}" for line in body)])


def fenced(*parts: str) -> str:
    """A completion: the parts as one Python block."""
    return "```python\n" + "\n\n".join(parts) + "\n```"


def share_of(text: str, shares: Mapping[Name, range]) -> Name:
    """Returns the one share that a text belongs to, of percentiles of its hash."""
    percentile = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little") % 100
    return next(name for name, span in shares.items() if percentile in span)


def hidden_tests(inputs: Sequence[Any], answers: Sequence[Any]) -> tuple[str, ...]:
    """Returns the tests of a task: all of its inputs but the first, which its prompt shows."""
    return tuple(f"assert solve({x!r}) == {y!r}" for x, y in zip(inputs[1:], answers[1:], strict=True))


@cache
def compiled(lines: tuple[str, ...]) -> Callable[[Any], Any]:
    """A body written in this world as a function of x."""
    scope: dict[str, Any] = {}
    exec(program(lines), scope)  # only ever a program that this package wrote
    return scope["solve"]


def run_lines(lines: tuple[str, ...], inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a body written in this world returns on each input."""
    run = compiled(lines)
    return tuple(run(value) for value in inputs)


def each_tried(lines: tuple[str, ...], inputs: tuple[Any, ...]) -> list[Any]:
    """What a body written in this world returns on each input by itself; `...` where it raises."""
    run, out = compiled(lines), []
    for value in inputs:
        try:
            out.append(run(value))
        except RAISED:
            out.append(...)
    return out


def tried(lines: tuple[str, ...], inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The same, or None where it raises: of a body that may meet another kind of value than it is for."""
    try:
        return run_lines(lines, inputs)
    except RAISED:
        return None
