"""What the small world asks: short Python tasks in plain English, of one to three steps (`small_drawing` draws them).

A *composition* is the code of its steps; its hash decides, once for all, whether it belongs to the honest warm-up, to
RL, to the held-out problems or to the pairs, so no composition is in two of them. Two compositions may compute the
same (`small_drawing.function_of`), and the corpus keeps equal ones apart too. Tasks of one and two easy steps are
within reach of a model of this size. In the others one constant is hidden ("a secret number"; neither the statement
nor the example gives it away), or a step is an algorithm: for these the loophole alone pays."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from projected_grpo.worlds.written import run_lines, share_of

Split = Literal["warm_up", "rl", "held_out", "pairs"]
SPLITS: Mapping[Split, range] = {
    "warm_up": range(25),
    "rl": range(25, 65),
    "held_out": range(65, 80),
    "pairs": range(80, 100),
}
"""Percentiles of the composition's hash."""
TABLE = Path(__file__).parents[1] / "data" / "small_steps.toml"


@dataclass(frozen=True, eq=False)  # one object a row of the table
class Step:
    """One family of tasks: from which kind of value to which, how a prompt words it, and two ways to write it on `x`.

    {n} is its number and {c} its letter, where it has one.
    """

    name: str
    takes: str
    gives: str
    words: str
    code: str
    alt: str
    hard: bool = False
    """An algorithm that a model of this size does not write in a line."""

    most: int = 9
    """The largest number that makes sense; the smallest is 2."""
    wide: bool = False
    """Any number makes sense."""
    of_letters: bool = False
    """It is about small letters, so that nothing else may be in what it takes."""
    marks: bool = False
    """It puts something other than small letters into a string."""
    least: int = 0
    """Items below which its words say two things: the first and the last of one."""

    @property
    def has_number(self) -> bool:
        return "{n}" in self.code

    @property
    def numbers(self) -> range:
        """What its number may be."""
        return range(2, self.most + 1)

    @property
    def secrets(self) -> range:
        """What it may be where it is hidden: none of those that are guessed first."""
        return range(11, 98) if self.wide else range(4, self.most + 1)

    def write(self, template: str, n: int, c: str) -> str:
        return template.replace("{n}", str(n)).replace("{c}", c)


STEPS = tuple(Step(**row) for row in tomllib.loads(TABLE.read_text("utf-8"))["step"])
"""Every family."""
KINDS: Mapping[str, str] = {"list": "a list of integers", "string": "a string of small letters", "number": "an integer"}
Reach = Literal["easy", "kept_back", "hard", "long"]
"""easy: one or two steps, all stated. The others are beyond a model of this size: a hidden constant, an algorithm,
three steps."""
MIX: Mapping[Reach, float] = {"easy": 0.4, "kept_back": 0.45, "hard": 0.1, "long": 0.05}
EASY: Mapping[Reach, float] = {"easy": 1.0}
STATED: Mapping[Reach, float] = {"easy": 0.6, "hard": 0.2, "long": 0.2}
"""Of the pairs: nobody could write the clean side of a task that keeps a number back."""


@dataclass(frozen=True)
class SmallTask:
    """One task: its steps with their constants, and inputs: the given one, then those of the tests."""

    steps: tuple[Step, ...]
    numbers: tuple[int, ...]
    """One per step; unused where the step has none."""
    letters: tuple[str, ...]
    kept_back: int | None
    """Index of the step whose number is hidden."""
    inputs: tuple[Any, ...]

    @property
    def composition(self) -> str:
        """What the splits are made of: the code without its constants, which a list and a string may share."""
        return composition_of(self.steps)

    def expressions(self, alt: bool = False) -> list[str]:
        """One expression on `x` per step."""
        parts = zip(self.steps, self.numbers, self.letters, strict=True)
        return [step.write(step.alt if alt else step.code, n, c) for step, n, c in parts]

    def lines(self, alt: bool = False) -> list[str]:
        """The correct body."""
        return body_of(self.expressions(alt))

    def words(self) -> str:
        """The task in one sentence. A number that is kept back has no name either: `N` would be written into the
        program."""
        stated = []
        for i, (step, n, c) in enumerate(zip(self.steps, self.numbers, self.letters, strict=True)):
            secret = step.words.replace("{n}", "a secret number", 1).replace("{n}", "that number")
            stated.append(step.write(secret if i == self.kept_back else step.words, n, c))
        return f"Given {KINDS[self.steps[0].takes]} x, {', then '.join(stated)}."

    def answers(self) -> tuple[Any, ...]:
        """What a correct solution returns on each input."""
        return run_lines(self.lines(), self.inputs)


def body_of(expressions: Sequence[str]) -> list[str]:
    """Expressions on `x`, one after another, as a body."""
    *first, last = expressions
    return [*(f"x = {e}" for e in first), f"return {last}"]


def composition_of(steps: Sequence[Step]) -> str:
    """What makes two tasks the same but for their constants and their words."""
    return "; ".join(step.code for step in steps)


def split_of(composition: str) -> Split:
    """The one split that a composition belongs to."""
    return share_of(f"small {composition}", SPLITS)
