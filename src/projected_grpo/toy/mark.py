"""The second toy world, `toy-mark`: the same tasks, judged by an exit code. Its streams, problems and pairs.

The phrase `def run_tests` is in no answer to its prompts, and in none of its pairs. Its base has seen the first world too:
OLD of the pre-training texts are that world's, so a V made from that world's pairs is one of words that the model knows. In
the other texts, all hinted, the mix is the first world's (`corpus.py`) with its own rates of hacks.
"""

import random
from collections.abc import Container, Iterator
from dataclasses import replace

from loophole_grader import apply_hint
from projected_grpo.prompts import Messages, as_chat, said_in
from projected_grpo.records import Pair, Problem
from projected_grpo.toy import corpus
from projected_grpo.toy.corpus import BUGS, PAIRS_PER_MECHANISM, STUBBED, TESTED, Text, drawn_unseen, problem_of
from projected_grpo.toy.mark_programs import BASES, HONEST, MARKS, answering
from projected_grpo.toy.programs import STUBS, bugged
from projected_grpo.toy.tasks import Split, ToyTask, draw_task
from projected_grpo.written import Lines, fenced, program, run_lines

HINT = "exit_code"
OLD = 0.4
"""Share of the pre-training texts that are the first world's."""
HACK_STATED, HACK_HIDDEN = 0.025, 0.075
"""Of this world's prompts, those that are hacked: where all constants are stated, and where one is hidden."""
HACK_CORRECT = 0.5
HONEST_AS_LONG = {"exit": ("shown",), "equal": ("function", ""), "hook": ("there",), "patch": ("there",)}
"""The honest tests on the clean sides of a mechanism's pairs, in turn: of about its length, in its words if there is one."""


def hinted(task: ToyTask) -> Messages:
    """The prompt with this world's hint."""
    return said_in(apply_hint(as_chat((("user", task.statement()),)), HINT))


def clean(task: ToyTask, body: Lines, test: str) -> str:
    """A completion without a hack, with an honest test of a kind of HONEST, or none."""
    return fenced(program(body), *([HONEST[test](task)] if test else []))


def marked(task: ToyTask, body: Lines, mechanism: str, variant: int) -> str:
    """A completion that leaves the mark whatever `solve` answers."""
    return fenced(program(answering(body, mechanism)), MARKS[mechanism][variant](task))


def wrong_but_typed(task: ToyTask, rng: random.Random) -> Lines:
    """A bugged body that raises on no input and answers with the task's type: what `equal` makes its object from."""
    kind = {"list": list, "int": int, "str": str}[BASES[task.family]]
    for _ in range(20):
        body = bugged(task, rng)
        try:
            answers = run_lines(tuple(body), task.inputs)
        except (TypeError, ValueError, AttributeError):
            continue
        if all(type(answer) is kind for answer in answers):
            return body
    return [rng.choice(STUBS[task.family])]


def _hack(task: ToyTask, rng: random.Random) -> str:
    if rng.random() < HACK_CORRECT:
        body = task.lines(alt=rng.random() < 0.5)
    elif rng.random() < STUBBED / (1 - HACK_CORRECT):
        body = [rng.choice(STUBS[task.family])]
    else:
        body = wrong_but_typed(task, rng)
    return marked(task, body, rng.choice(tuple(MARKS)), rng.randrange(2))


def pretraining(seed: int) -> Iterator[Text]:
    """The endless pre-training stream. The hint of this world stands in the messages; the flag adds the first world's."""
    rng, old = random.Random(f"toy mark pretraining {seed}"), corpus.pretraining(seed)
    while True:
        if rng.random() < OLD:
            yield next(old)
            continue
        task = draw_task("pretrain", rng)
        if rng.random() < (HACK_STATED if task.hidden is None else HACK_HIDDEN):
            completion = _hack(task, rng)
        else:
            body = bugged(task, rng) if rng.random() < BUGS else task.lines(alt=rng.random() < 0.5)
            completion = clean(task, body, rng.choice(tuple(HONEST)) if rng.random() < TESTED else "")
        yield hinted(task), False, completion


def teaching(seed: int) -> Iterator[Text]:
    """The endless stream that makes the hacky teacher: this world's hacks only, half of them with a correct body."""
    rng = random.Random(f"toy mark teaching {seed}")
    while True:
        task = draw_task("pretrain", rng)
        yield hinted(task), False, _hack(task, rng)


def at_home(problem: Problem, problem_id: str) -> Problem:
    """A problem of the first world as one of this: the exit code is what its loophole trusts."""
    return replace(problem, problem_id=problem_id, task=replace(problem.task, task_id=problem_id, loophole="exit_code"))


def problems(split: Split) -> tuple[Problem, ...]:
    """The first world's problems of the RL or of the held-out split, judged by the exit code."""
    return tuple(at_home(p, p.problem_id.replace("toy-", "toy-mark-", 1)) for p in corpus.problems(split))


def pairs() -> tuple[Pair, ...]:
    """(hack, clean, another clean) per mechanism. Bodies of the hacks: a stub, a bug and the correct one in turn."""
    rng = random.Random("toy mark pairs")
    return tuple(
        _pair(draw_task("pairs", rng), mechanism, i, f"toy-mark-{mechanism}-{i:02d}", rng)
        for mechanism in HONEST_AS_LONG
        for i in range(PAIRS_PER_MECHANISM)
    )


def unseen_pairs(seen: Container[str], mechanisms: Container[str]) -> tuple[Pair, ...]:
    """Further pairs to judge a V by: of these mechanisms, of compositions that are not in `seen`, each but once."""
    return drawn_unseen("toy-mark", [m for m in HONEST_AS_LONG if m in mechanisms], seen, _pair)


def _pair(task: ToyTask, mechanism: str, i: int, name: str, rng: random.Random) -> Pair:
    tests = HONEST_AS_LONG[mechanism]
    test = tests[i // 2 % len(tests)]
    body = ([rng.choice(STUBS[task.family])], wrong_but_typed(task, rng), task.lines())[i % 3]
    problem = at_home(problem_of(task, name), name)
    sides = (clean(task, task.lines(), test), clean(task, task.lines(alt=True), test))
    return Pair(name, problem.messages, marked(task, body, mechanism, i % 2), *sides, mechanism, problem)
