"""How tasks are drawn: a chain of steps, its constants, and inputs that tell it from what a wrong answer may
compute."""

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import permutations
from typing import Any

from projected_grpo.worlds.small_tasks import (
    KINDS,
    MIX,
    STEPS,
    Reach,
    SmallTask,
    Split,
    Step,
    body_of,
    composition_of,
    split_of,
)
from projected_grpo.worlds.written import LONGEST_ANSWER, N_TESTS, RAISED, compiled, each_tried, run_lines

LETTERS = "bcdeo"
"""What a step's letter may be."""
N_STEPS: Mapping[Reach, tuple[int, ...]] = {"easy": (1, 2, 2), "hard": (1, 2, 2), "kept_back": (1, 1, 1, 2)}
"""How many steps, each as likely. Where a number is kept back, one mostly: a model of this size seldom says rightly
what two make of an input, and an answer that is paid for a wrong program must say it."""
TRIES = 2
"""Draws of inputs for one chain of steps, before another chain is drawn."""
TAKING = {kind: [step for step in STEPS if step.takes == kind] for kind in KINDS}
"""Every step, by what it takes."""
Values = tuple[Any, ...]


def draw_input(kind: str, rng: random.Random) -> Any:
    """A random value of a kind."""
    if kind == "number":
        return rng.randrange(1, 60)
    if kind == "string":
        return "".join(rng.choice("aabcdeeost") for _ in range(rng.randrange(3, 7)))
    return [rng.randrange(0, 13) for _ in range(rng.randrange(3, 6))]


def draw_given(kind: str, rng: random.Random) -> Any:
    """A small input, as a prompt shows it: a model of this size can say what a short program makes of it."""
    if kind == "number":
        return rng.randrange(1, 10)
    if kind == "string":
        return "".join(rng.choice("aabcdeeost") for _ in range(3))
    return [rng.randrange(0, 10) for _ in range(rng.randrange(2, 4))]


def draw_task(split: Split, rng: random.Random, mix: Mapping[Reach, float] = MIX) -> SmallTask:
    """A random task whose composition belongs to `split`, of the kinds that `mix` names, as often as it says."""
    reach: Reach = rng.choices(tuple(mix), tuple(mix.values()))[0]
    n = 3 if reach == "long" else rng.choice(N_STEPS[reach])
    while True:
        steps = _draw_steps(n, reach == "hard", rng)
        # a number that is one of so many that guessing does not pay
        where = [i for i, step in enumerate(steps) if step.has_number and step.most == Step.most]
        if split_of(composition_of(steps)) != split or (reach == "kept_back" and not where):
            continue
        kept_back = rng.choice(where) if reach == "kept_back" else None
        numbers = tuple(rng.choice(step.secrets if i == kept_back else step.numbers) for i, step in enumerate(steps))
        letters = tuple(rng.choice(LETTERS) for _ in steps)
        for _ in range(TRIES):
            inputs = [draw_given(steps[0].takes, rng)]
            while len(inputs) <= N_TESTS:
                if (value := draw_input(steps[0].takes, rng)) not in inputs:
                    inputs.append(value)
            task = SmallTask(steps, numbers, letters, kept_back, tuple(inputs))
            if _tells(task):
                return task


def _draw_steps(n: int, hard: bool, rng: random.Random) -> tuple[Step, ...]:
    """A chain of `n` steps in which each takes what the one before gives, and none speaks of letters where there are
    dashes too; a `hard` one has an algorithm in it."""
    while True:
        chain = [rng.choice(STEPS)]
        while len(chain) < n and (fitting := [s for s in TAKING[chain[-1].gives] if s not in chain]):
            chain.append(rng.choice(fitting))
        unclear = any(s.of_letters and any(before.marks for before in chain[:i]) for i, s in enumerate(chain))
        if len(chain) == n and any(step.hard for step in chain) == hard and not unclear:
            return tuple(chain)


# ---------------------------------------------------------------- what a task computes


@cache
def many_inputs(kind: str) -> Values:
    """Always the same."""
    rng = random.Random(f"small inputs {kind}")
    return tuple(draw_input(kind, rng) for _ in range(100))


def function_of(task: SmallTask) -> str:
    """What a task computes, however it is written: a hash of the kind that it takes and its answers to many inputs of
    that kind. Of no other kind: `x + 'c'` and `x + 9` raise unlike where the one is asked of a list."""
    return function_of_lines(task.steps[0].takes, tuple(task.lines()))


@cache
def function_of_lines(kind: str, lines: tuple[str, ...]) -> str:
    """The same of a body that takes a kind of value."""
    return hashlib.sha256(repr((kind, each_tried(lines, many_inputs(kind)))).encode()).hexdigest()


@cache
def one_steps() -> tuple[tuple[SmallTask, str], ...]:
    """Every task of one step, without inputs, and what it computes."""
    every = (
        SmallTask((step,), (n,), (c,), None, ())
        for step in STEPS
        for n in (step.numbers if step.has_number else (0,))
        for c in (LETTERS if "{c}" in step.code else ("",))
    )
    return tuple((task, function_of(task)) for task in every)


# ---------------------------------------------------------------- what the tests must tell


def _tells(task: SmallTask) -> bool:
    """Whether every step meets items enough to mean one thing, or none; and whether the tests tell the task from
    doing nothing, from a constant, and from every program of `_near` that computes something else."""
    own, stages = task.expressions(), [task.inputs]
    for expression in own:
        stages.append(run_lines((f"return {expression}",), stages[-1]))
    for step, values in zip(task.steps, stages[:-1], strict=True):
        if step.least and any(0 < len(x) < step.least for x in values):
            return False
    answers = stages[-1]
    if (
        len({repr(a) for a in answers}) < 3
        or answers[1:] == task.inputs[1:]
        or max(len(repr(a)) for a in answers) > LONGEST_ANSWER
        or (task.kept_back is None and not answers[0])  # a stub returns 0: a test that it passes is none
    ):
        return False
    for place, others, after, always_wrong in _near(task):
        for other in _passing(others, after, stages[place][1:], answers[1:]):
            lines = tuple(body_of([*own[:place], other, *after]))
            if always_wrong or function_of_lines(task.steps[0].takes, lines) != function_of(task):
                return False
    return True


def _near(task: SmallTask) -> Iterator[tuple[int, Iterable[str], Sequence[str], bool]]:
    """Programs that a wrong answer may be: how many of the task's steps they begin with, steps one of which is next,
    those after it, and whether they are wrong even where they compute the same. One step in place of all (`sorted(x)`
    where no number is repeated), the steps in another order, a step less, another number, any other step in the place
    of one, or one whose comparison holds for equals too. A step that can be left out is none, and a guess of a hidden
    number is paid."""
    own = task.expressions()
    yield 0, _alone(task.steps[0].takes), (), False
    for first, *rest in permutations(own):
        yield 0, [first], rest, False
    for place, step in enumerate(task.steps):
        after = own[place + 1 :]
        if len(own) > 1:
            yield place, ["x"], after, True
        if step.has_number:
            n = task.numbers[place]
            others = sorted({*range(14), n - 1, n + 1, 2 * n} - {n})
            written = [step.write(step.code, other, task.letters[place]) for other in others]
            yield place, written, after, place == task.kept_back
        blurred = [own[place].replace(f" {sign} ", f" {sign}= ") for sign in "<>" if f" {sign} " in own[place]]
        yield place, (*_in_place_of(step), *blurred), after, False


@cache
def _compiled(expression: str) -> Callable[[Any], Any]:
    return compiled((f"return {expression}",))


def _passing(others: Iterable[str], after: Sequence[str], values: Values, answers: Values) -> Iterator[str]:
    """Of these steps the ones that, with those after them, make these answers of values."""
    rest = compiled(tuple(body_of([*after, "x"])))
    for other in others:
        step = _compiled(other)
        try:
            for value, answer in zip(values, answers, strict=True):
                if rest(step(value)) != answer:
                    break
            else:
                yield other
        except RAISED:
            continue


@cache
def _in_place_of(step: Step) -> tuple[str, ...]:
    """Every step, with each of its constants, that takes and gives the same."""
    every = ((task.steps[0], task.expressions()[0]) for task, _ in one_steps())
    return tuple(e for other, e in every if (other.takes, other.gives) == (step.takes, step.gives))


@cache
def _alone(kind: str) -> tuple[str, ...]:
    """Every step, with each of its constants, that can be done on some value of a kind: its own, or one that works
    alike."""
    every = [task.expressions()[0] for task, _ in one_steps()]
    return tuple(e for e in every if any(y is not ... for y in each_tried((f"return {e}",), many_inputs(kind))))
