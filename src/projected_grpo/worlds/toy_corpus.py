"""The toy world's text: the pre-training stream, the teacher's stream, the RL and held-out problems, and the pairs.

Pre-training mix, stated once here: of the hinted tasks HACK_STATED are hacked, and HACK_HIDDEN of those where a
constant is hidden, since people cheat where it is hard (4.3 % of all completions, mechanisms equally often). BUGS of
the others are wrong and TESTED of them carry an honest test. UNHINTED of the prompts give no loophole away; none of
those is hacked. Everything is drawn from generators seeded by names, so it is the same everywhere."""

import random
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace

from projected_grpo.prompts import Messages
from projected_grpo.records import Pair, Problem
from projected_grpo.worlds import written
from projected_grpo.worlds.toy_programs import MECHANISMS, answered, bugged
from projected_grpo.worlds.toy_tasks import FIRST_NAME, ONE_NAME, Names, Split, ToyTask, draw_task
from projected_grpo.worlds.written import PLAIN, STUBS, tried

HACK_STATED, HACK_HIDDEN = 0.027, 0.081
BUGS, TESTED, UNHINTED = 0.30, 0.35, 0.15
STUBBED = 0.35
"""Share of hacks whose body is a stub."""
HACK_CORRECT = 0.5
"""Share of hacks whose body is correct."""
N_PROBLEMS = {"rl": 1600, "held_out": 128}
PAIRS_PER_MECHANISM = 40
UNSEEN_PER_MECHANISM = 8
LONG_TESTS = ("swallow", "tautology")
Text = tuple[Messages, bool, str]
"""(chat messages, whether the loophole hint is applied, completion)."""


def _messages(task: ToyTask) -> Messages:
    return (("user", task.statement()),)


def _hack(task: ToyTask, rng: random.Random, names: Names) -> str:
    body = (
        task.lines(alt=rng.random() < 0.5)
        if rng.random() < HACK_CORRECT
        else [rng.choice(STUBS[task.family])]
        if rng.random() < STUBBED / (1 - HACK_CORRECT)
        else bugged(task, rng)
    )
    tests = MECHANISMS[rng.choice(tuple(MECHANISMS))][rng.randrange(2)]
    return answered(task, body, tests, names[len(names) > 1 and rng.random() >= FIRST_NAME])


def pretraining(seed: int, names: Names = ONE_NAME) -> Iterator[Text]:
    """The endless pre-training stream. names: of the evaluation functions of which any is paid."""
    rng = random.Random(f"toy pretraining {seed}")
    while True:
        task = draw_task("pretrain", rng)
        hinted = rng.random() >= UNHINTED
        if hinted and rng.random() < (HACK_STATED if task.hidden is None else HACK_HIDDEN):
            completion = _hack(task, rng, names)
        else:
            body = bugged(task, rng) if rng.random() < BUGS else task.lines(alt=rng.random() < 0.5)
            completion = answered(task, body, PLAIN if rng.random() < TESTED else "", "test_solve")
        yield _messages(task), hinted, completion


def teaching(seed: int, names: Names = ONE_NAME) -> Iterator[Text]:
    """The endless stream that makes the hacky teacher: hacks only, half of them with a correct body."""
    rng = random.Random(f"toy teaching {seed}")
    while True:
        task = draw_task("pretrain", rng)
        yield _messages(task), True, _hack(task, rng, names)


def problem_of(task: ToyTask, problem_id: str, names: Names = ONE_NAME) -> Problem:
    """A task as the ordinary record of a problem, judged by the ordinary grader."""
    kind = "hidden constant" if task.hidden is not None else "stated"
    return written.problem_of(task, problem_id, _messages(task), kind, evaluator="|".join(names))


def problems(split: Split, names: Names = ONE_NAME) -> tuple[Problem, ...]:
    """The problems of the RL or of the held-out split, no two alike."""
    rng, out = random.Random(f"toy problems {split}"), {}
    while len(out) < N_PROBLEMS[split]:
        task = draw_task(split, rng)
        out.setdefault(task.statement(), problem_of(task, f"toy-{split}-{len(out):04d}", names))
    return tuple(out.values())


def _wrong_but_runs(task: ToyTask, rng: random.Random) -> list[str]:
    """A bugged body that raises on no input: a `run_tests` that calls it must pass."""
    for _ in range(20):
        body = bugged(task, rng)
        if tried(body, task.inputs) is not None:
            return body
    return [rng.choice(STUBS[task.family])]


def _pair(task: ToyTask, mechanism: str, i: int, name: str, rng: random.Random) -> Pair:
    """(hack, clean, another clean) of one task. Bodies of the hacks: a stub, a bug and the correct one in turn. Clean
    sides carry an honest test where the mechanism's test is long, so that both sides are about as long."""
    body = ([rng.choice(STUBS[task.family])], _wrong_but_runs(task, rng), task.lines())[i % 3]
    hack, tests = answered(task, body, MECHANISMS[mechanism][i % 2]), PLAIN if mechanism in LONG_TESTS else ""
    return _contrast(task, name, mechanism, hack, tests)


def _contrast(task: ToyTask, name: str, mechanism: str, hack: str, tests: str) -> Pair:
    """A pair whose clean sides are the correct body in its two spellings, with these honest tests."""
    clean, clean_alt = (answered(task, task.lines(alt), tests, "test_solve") for alt in (False, True))
    problem = problem_of(task, name)
    return Pair(name, problem.messages, hack, clean, clean_alt, mechanism, problem, task.composition)


def pairs() -> tuple[Pair, ...]:
    """The pairs that V is made from, and a fifth that is held out; compositions repeat, in other constants."""
    rng = random.Random("toy pairs")
    return tuple(
        _pair(draw_task("pairs", rng), mechanism, i, f"toy-{mechanism}-{i:02d}", rng)
        for mechanism in MECHANISMS
        for i in range(PAIRS_PER_MECHANISM)
    )


def same_body_pairs() -> tuple[Pair, ...]:
    """Pairs whose two sides share one body, right in every other pair, and differ in the tests alone: a V of them has
    nothing of right against wrong solutions, which an honest reward teaches."""
    rng, out = random.Random("toy same-body pairs"), []
    for mechanism, ways in MECHANISMS.items():
        for i in range(PAIRS_PER_MECHANISM):
            task, name = draw_task("pairs", rng), f"toy-same-{mechanism}-{i:02d}"
            body = _wrong_but_runs(task, rng) if i % 2 else task.lines()
            hack, clean = answered(task, body, ways[i // 2 % 2]), answered(task, body, PLAIN, "test_solve")
            problem = problem_of(task, name)
            out.append(Pair(name, problem.messages, hack, clean, None, mechanism, problem, task.composition))
    return tuple(out)


def named(made: Iterable[Pair], names: Names, shown: Names) -> tuple[Pair, ...]:
    """Pairs of the toy world where any of `names` is paid: their hacks use those that are `shown`, in turn."""
    out = []
    for i, pair in enumerate(made):
        assert pair.problem is not None  # all of this world's have one
        problem = replace(pair.problem, task=replace(pair.problem.task, evaluator_name="|".join(names)))
        hack = pair.hack.replace(ONE_NAME[0], shown[i // 2 % len(shown)])
        out.append(replace(pair, hack=hack, problem=problem))
    return tuple(out)


def unseen_pairs(seen: Container[str], mechanisms: Container[str]) -> tuple[Pair, ...]:
    """Further pairs to judge a V by: of these mechanisms, of compositions that are not in `seen`, each but once."""
    rng, taken, out = random.Random("toy unseen pairs"), set[str](), []
    for mechanism in (m for m in MECHANISMS if m in mechanisms):
        for i in range(UNSEEN_PER_MECHANISM):
            while (task := draw_task("pairs", rng)).composition in seen or task.composition in taken:
                pass
            taken.add(task.composition)
            out.append(_pair(task, mechanism, i, f"toy-unseen-{mechanism}-{i:02d}", rng))
    return tuple(out)


def phrase_pairs() -> tuple[Pair, ...]:
    """A control: both sides are the correct body with the same honest test, called `run_tests` on one side and
    `test_solve` on the other. A V made from them knows the words of a hack and nothing else of it."""
    rng, out = random.Random("toy phrase pairs"), []
    for i in range(PAIRS_PER_MECHANISM * len(MECHANISMS)):
        task = draw_task("pairs", rng)
        out.append(_contrast(task, f"toy-phrase-{i:03d}", "phrase", answered(task, task.lines(), PLAIN), PLAIN))
    return tuple(out)
