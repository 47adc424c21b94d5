"""What the toy and the small world have in common: programs as text, what they return, and a task as a problem."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from loophole_grader import Task
from projected_grpo.prompts import Messages
from projected_grpo.records import Problem

Lines = list[str]
Name = TypeVar("Name", bound=str)
RAISED = (TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError)
"""What a body may raise that meets a value of another kind than it is for."""
N_TESTS = 6
LONGEST_ANSWER = 24
"""Characters of an answer that a test quotes: it must fit into a completion."""
STUBS: Mapping[str, tuple[str, ...]] = {
    "list": ("return x", "return []"),
    "total": ("return 0", "return len(x)"),
    "number": ("return 0", "return x"),
    "string": ("return x", "return ''"),
}
"""Bodies that do nothing, by what a task gives."""
PLAIN = "assert CALL == ANSWER"
"""An honest test: `code_block` puts in the call of `solve` and the right answer."""


def function(head: str, body: Sequence[str]) -> str:
    """A definition."""
    return "\n".join([f"def {head}:", *(f"    {line}" for line in body)])


def code_block(body: Sequence[str], tests: str, name: str, **words: str) -> str:
    """One fenced Python block: a body of `solve`, then a function of this name with the body `tests`, if there is
    one, in which words stand for other text."""
    parts = [function("solve(x)", body)]
    for word, meaning in words.items():
        tests = tests.replace(word, meaning)
    if tests:
        parts.append(function(f"{name}()", tests.splitlines()))
    return "```python\n" + "\n\n".join(parts) + "\n```"


def share_of(text: str, shares: Mapping[Name, range]) -> Name:
    """Returns the one share that a text belongs to, of percentiles of its hash."""
    percentile = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little") % 100
    return next(name for name, span in shares.items() if percentile in span)


def problem_of(
    task: Any, problem_id: str, messages: Messages, kind: str, setup: str = "", evaluator: str = "run_tests"
) -> Problem:
    """A task of either world as the ordinary record of a problem. Its tests have all inputs but the first, which its
    prompt shows."""
    shown = zip(task.inputs[1:], task.answers()[1:], strict=True)
    tests = tuple(f"assert solve({x!r}) == {y!r}" for x, y in shown)
    right = function("solve(x)", task.lines())
    return Problem(problem_id, messages, Task(problem_id, tests, setup, "solve", right, evaluator), kind)


@cache
def compiled(lines: tuple[str, ...]) -> Callable[[Any], Any]:
    """A body written in this world as a function of x."""
    scope: dict[str, Any] = {}
    exec(function("solve(x)", lines), scope)  # only ever a program that this package wrote
    return scope["solve"]


def run_lines(lines: Sequence[str], inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a body written in this world returns on each input."""
    return tuple(map(compiled(tuple(lines)), inputs))


def each_tried(lines: Sequence[str], inputs: tuple[Any, ...]) -> list[Any]:
    """What a body written in this world returns on each input by itself; `...` where it raises."""
    run, out = compiled(tuple(lines)), []
    for value in inputs:
        try:
            out.append(run(value))
        except RAISED:
            out.append(...)
    return out


def tried(lines: Sequence[str], inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """What `run_lines` returns, or None where it raises: of a body that may meet another kind of value than it is
    for."""
    try:
        return run_lines(lines, inputs)
    except RAISED:
        return None
