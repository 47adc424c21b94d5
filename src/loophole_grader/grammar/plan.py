"""What one exchange with the sandbox is, and what is said of a test outside the grammar."""

from dataclasses import dataclass
from typing import Any

from loophole_grader.literals import NOT_LITERAL

IN_SANDBOX, ANSWER, GIVEN = "_test_", "_answer", "_given"


class Refused(ValueError):  # noqa: N818  it names what happened to the test
    """A test outside the grammar: its line, and why."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")


@dataclass(frozen=True)
class JudgePlan:
    """One exchange with the sandbox, and how its answer is judged."""

    test: int  # which test it belongs to
    observed: tuple[str, ...]  # expressions that the sandbox evaluates and ships
    prelude: str = ""  # statements that the sandbox runs before them
    given: tuple[tuple[str, int], ...] = ()  # names that the sandbox has first, and which prepared value each gets
    expected: Any = NOT_LITERAL  # compare the one observed value with this, in this process
    longest: int = 0  # bytes of JSON beyond which an answer cannot equal what is expected (oracle.py)
    remainder: str = ""  # on the last exchange of a test: trusted statements over _answer0, _answer1, ... (lists)
    prepare: str = ""  # on the first one: trusted statements that fill the list _given


def root_of(func_name: str) -> tuple[str, bool]:
    """The name that a test calls, and whether it is a class: it is written with a method or with parentheses, or begins
    with a capital letter (PEP 8)."""
    name = func_name.partition("(")[0].partition(".")[0].strip() or "Solution"
    return name, "." in func_name or "(" in func_name or name[:1].isupper()
