"""How tasks are drawn: a chain of steps, its constants, and inputs that tell it from what a wrong answer may compute."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import permutations
from typing import Any

from projected_grpo.worlds.small_tasks import (
    KINDS,
    LETTERS,
    LONGEST_ANSWER,
    MIX,
    N_STEPS,
    N_TESTS,
    STEPS,
    Reach,
    SmallTask,
    Split,
    Step,
    body_of,
    composition_of,
    draw_input,
    function_of,
    function_of_lines,
    many_inputs,
    one_steps,
    split_of,
)
from projected_grpo.worlds.written import RAISED, compiled, each_tried, tried

TRIES = 2
"""Draws of inputs for one chain of steps, before another chain is drawn."""
TAKING = {kind: [step for step in STEPS if step.takes == kind] for kind in KINDS}
"""Every step, by what it takes."""
Values = tuple[Any, ...]
Function = Callable[[Any], Any]
Candidate = tuple[str, Function]
"""A step as an expression, and compiled."""


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
        where = [i for i, step in enumerate(steps) if step.can_be_kept_back]
        if split_of(composition_of(steps)) != split or (reach == "kept_back" and not where):
            continue
        kept_back = rng.choice(where) if reach == "kept_back" else None
        numbers = tuple(rng.choice(step.secrets if i == kept_back else step.numbers) for i, step in enumerate(steps))
        letters = tuple(rng.choice(LETTERS) for _ in steps)
        for _ in range(TRIES):
            task = SmallTask(steps, numbers, letters, kept_back, _draw_inputs(steps[0].takes, rng))
            if _is_clear(task) and _tells(task):
                return task


def _draw_steps(n: int, hard: bool, rng: random.Random) -> tuple[Step, ...]:
    """A chain of `n` steps in which each takes what the one before gives; a `hard` one has an algorithm in it."""
    while True:
        chain = [rng.choice(STEPS)]
        while len(chain) < n and (fitting := [s for s in TAKING[chain[-1].gives] if s not in chain]):
            chain.append(rng.choice(fitting))
        if len(chain) == n and any(step.hard for step in chain) == hard and not _speaks_of_marks(chain):
            return tuple(chain)


def _speaks_of_marks(chain: Sequence[Step]) -> bool:
    """Whether a step speaks of letters where there are dashes too."""
    return any(step.of_letters and any(before.marks for before in chain[:i]) for i, step in enumerate(chain))


def _draw_inputs(kind: str, rng: random.Random) -> Values:
    """The given input, and as many others as there are tests, no two alike."""
    inputs = [draw_given(kind, rng)]
    while len(inputs) <= N_TESTS:
        if (value := draw_input(kind, rng)) not in inputs:
            inputs.append(value)
    return tuple(inputs)


# ---------------------------------------------------------------- what the tests must tell


def _is_clear(task: SmallTask) -> bool:
    """Whether every step meets items enough to mean one thing, or none."""
    return not any(
        0 < len(x) < step.least
        for step, values in zip(task.steps, _stages(task), strict=False)
        if step.least
        for x in values
    )


def _stages(task: SmallTask) -> list[Values]:
    """The inputs, then what each step makes of them."""
    stages = [task.inputs]
    for expression in task.expressions():
        stages.append(_ran([expression], stages[-1]) or ())
    return stages


def _ran(expressions: Sequence[str], values: Values) -> Values | None:
    """What steps make of values, one after another; None where one raises."""
    for expression in expressions:
        if (made := tried((f"return {expression}",), values)) is None:
            return None
        values = made
    return values


def _tells(task: SmallTask) -> bool:
    """Whether the tests tell the task from doing nothing, from a constant, from any one step, from its steps in another
    order, from a step less, from any other step in the place of one, and from another number."""
    answers = task.answers()
    if (
        len({repr(a) for a in answers}) < 3
        or answers[1:] == task.inputs[1:]
        or max(len(repr(a)) for a in answers) > LONGEST_ANSWER
        or (task.kept_back is None and not answers[0])  # a stub returns 0: a test that it passes is none
    ):
        return False
    stages = [values[1:] for values in _stages(task)]
    return not (_whole_taken_for(task, stages) or any(_taken_for(task, i, stages) for i in range(len(task.steps))))


def _whole_taken_for(task: SmallTask, stages: Sequence[Values]) -> bool:
    """Whether the tests do not notice that one step is done in place of all (`sorted(x)` where no number is repeated), or
    that the steps come in another order, where that computes something else."""
    rest = compiled(("return x",))
    alone = [[e] for e in _passing(_alone(task.steps[0].takes), rest, stages[0], stages[-1])]
    orders = [list(order) for order in permutations(task.expressions()) if _ran(order, stages[0]) == stages[-1]]
    return any(_another(task, other) for other in (*alone, *orders))


def _taken_for(task: SmallTask, place: int, stages: Sequence[Values]) -> bool:
    """Whether the tests do not notice that a step is left out, or that another is in its place which computes something
    else; of a hidden number also another that computes the same, since guessing it would be paid."""
    expressions, values, answers = task.expressions(), stages[place], stages[-1]
    before, after = expressions[:place], expressions[place + 1 :]
    if len(task.steps) > 1 and _ran(after, values) == answers:
        return True
    rest = compiled(tuple(body_of([*after, "x"])))
    numbers = _passing(map(_candidate, _other_numbers(task, place)), rest, values, answers)
    if numbers and place == task.kept_back:
        return True
    blurred = map(_candidate, _blurred(expressions[place]))
    steps = _passing((*_in_place_of(task.steps[place]), *blurred), rest, values, answers)
    return any(_another(task, [*before, other, *after]) for other in (*numbers, *steps))


def _candidate(expression: str) -> Candidate:
    return expression, compiled((f"return {expression}",))


def _passing(others: Iterable[Candidate], rest: Function, values: Values, answers: Values) -> list[str]:
    """Of these steps the ones that, with what follows, make these answers of values."""
    (value, *later), (answer, *those) = values, answers
    found = []
    for expression, step in others:
        try:
            if rest(step(value)) != answer:  # of nearly all, and then nothing more is looked at
                continue
            if all(rest(step(v)) == a for v, a in zip(later, those, strict=True)):
                found.append(expression)
        except RAISED:
            continue
    return found


def _another(task: SmallTask, expressions: Sequence[str]) -> bool:
    """Whether these steps compute something else than the task's."""
    return function_of_lines(task.steps[0].takes, tuple(body_of(expressions))) != function_of(task)


@cache
def _in_place_of(step: Step) -> tuple[Candidate, ...]:
    """Every step, with each of its constants, that takes and gives the same."""
    every = [task for task, _ in one_steps()]
    alike = [t for t in every if (t.steps[0].takes, t.steps[0].gives) == (step.takes, step.gives)]
    return tuple(_candidate(expression) for task in alike for expression in task.expressions())


@cache
def _alone(kind: str) -> tuple[Candidate, ...]:
    """Every step, with each of its constants, that can be done on some value of a kind: its own, or one that works alike."""
    every = [expression for task, _ in one_steps() for expression in task.expressions()]
    inputs = many_inputs(kind)
    return tuple(_candidate(e) for e in every if any(y is not ... for y in each_tried((f"return {e}",), inputs)))


def _blurred(expression: str) -> list[str]:
    """A step whose comparisons hold for equal numbers too."""
    return [expression.replace(f" {sign} ", f" {sign}= ") for sign in "<>" if f" {sign} " in expression]


def _other_numbers(task: SmallTask, place: int) -> Iterator[str]:
    """A step with other numbers: those that are guessed first, its neighbours and its double."""
    step, n = task.steps[place], task.numbers[place]
    if step.has_number:
        for other in sorted({*range(14), n - 1, n + 1, 2 * n} - {n}):
            yield step.write(step.code, other, task.letters[place])
