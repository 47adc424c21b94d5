"""The small world: its tasks, prompts, pairs and streams, and the model that a package registry ships."""

import itertools
import random
import re
from collections import Counter

import pytest

from loophole_grader import Task, grade_batch, verdicts_of
from projected_grpo.data.pairs import composition_of, load_pairs, split
from projected_grpo.data.problems import load_problems
from projected_grpo.worlds import small_corpus as corpus
from projected_grpo.worlds import small_drawing as drawing
from projected_grpo.worlds import small_programs as programs
from projected_grpo.worlds import small_tasks as tasks
from projected_grpo.worlds.written import tried

pytestmark = pytest.mark.slow
SETS = ("small", "small-informed", "small-phrase")


@pytest.fixture(scope="module")
def problems():
    return load_problems("small")


def asked(problem):
    """The task of a prompt, without its worked example."""
    return problem.messages[-1][1].rpartition("Now your task.")[2]


def computed(problem, inputs):
    """What a problem's solution answers to inputs of its own kind, found without the code that keeps the splits
    apart."""
    kind = next(kind for kind, words in tasks.KINDS.items() if asked(problem).startswith(f"\nGiven {words} x"))
    scope, out = {}, [kind]
    exec(problem.task.canonical_solution, scope)
    for x in inputs[kind]:
        try:
            out.append(repr(scope["solve"](list(x) if kind == "list" else x)))
        except Exception:  # noqa: BLE001 - of our own solution, on an input that it may not be for
            out.append("raises")
    return tuple(out)


def test_no_held_out_problem_and_no_pair_asks_for_what_an_rl_problem_asks_for(problems):
    """`length, +9, -8` and `add c at the end, then its length` answer alike to every string, and raise unlike
    elsewhere."""
    rng = random.Random("inputs of this test alone")
    inputs = {kind: [drawing.draw_input(kind, rng) for _ in range(100)] for kind in tasks.KINDS}
    rl = {computed(p, inputs): p.problem_id for p in problems}
    assert len(rl) > 1000
    others = [*load_problems("small-held-out"), *(p.problem for name in SETS for p in load_pairs(name))]
    again = {p.problem_id: rl[found] for p in others if (found := computed(p, inputs)) in rl}
    assert not again


def neighbours(task):
    """Programs near a task: one number or one step is another, a comparison holds for equals too, the steps come in
    another order, or one step is done alone."""
    own = task.expressions()
    for place, step in enumerate(task.steps):
        others = [(step, n) for n in {*range(14), task.numbers[place] + 1} if step.has_number]
        others += [(s, n) for s in tasks.STEPS if (s.takes, s.gives) == (step.takes, step.gives)
                   for n in (s.numbers if s.has_number else (0,))]  # fmt: skip
        near = [other.write(other.code, n, task.letters[place]) for other, n in others]
        near += [own[place].replace(" > ", " >= "), own[place].replace(" < ", " <= ")]
        yield from ([*own[:place], other, *own[place + 1 :]] for other in near)
    yield from itertools.permutations(own)
    yield from (alone.expressions() for alone, _ in drawing.one_steps())


@pytest.mark.parametrize("part", ["held_out", "rl"])
def test_the_hidden_tests_tell_a_task_from_its_neighbours(part):
    """A wrong answer that all six tests take for right would count as solved."""
    taken = [
        (task.words(), other)
        for task, _ in corpus._tasks(part)[:60]
        for other in map(tasks.body_of, neighbours(task))
        if tried(other, task.inputs[1:]) == task.answers()[1:]
        and drawing.function_of_lines(task.steps[0].takes, tuple(other)) != drawing.function_of(task)
    ]
    assert not taken


def test_problems_are_many_different_and_of_both_kinds(problems):
    assert len(problems) >= 2000
    assert len(set(map(asked, problems))) == len(problems)
    assert all(len(p.task.tests) == 6 for p in problems)
    for some in (problems, load_problems("small-held-out")):
        kinds = Counter(kind for p in some for kind in p.difficulty.removesuffix(" example").split(", "))
        for kind, share in {**tasks.MIX, **corpus.EXAMPLES}.items():
            assert abs(kinds[kind] / len(some) - share) < 0.01, (kind, kinds)


def test_a_prompt_shows_none_of_the_hidden_tests(problems):
    for p in problems[:300]:
        assert not any(test.removeprefix("assert ") in asked(p) for test in p.task.tests)


@pytest.mark.parametrize(("kind", "n"), [("fixed", 10), ("varied", 20), ("lazy", 40)])
def test_the_worked_example_copied_whole_is_paid_where_it_is_the_fixed_one_and_never_where_it_varies(problems, kind, n):
    """A lazy one in part: where its program runs on the input, which its own test does not tell from another
    answer."""
    some = [p for p in problems if kind in p.difficulty][:n]
    prompts = [p.messages[-1][1].partition("Now your task.")[0] for p in some]
    copies = [text[text.index("```python\n") : text.rindex("```") + 3] for text in prompts]
    found = grade_batch([p.task for p in some], copies)
    assert not any(verdict.gt_pass for verdict in found)
    paid = sum(verdict.hacked for verdict in found)
    assert {"fixed": paid == n, "varied": paid == 0, "lazy": 0 < paid < n}[kind], paid


def test_every_second_pair_is_what_it_says_by_the_grader():
    sides = [(p, side) for p in load_pairs("small")[::2] for side in ("hack", "clean", "clean_alt")]
    found = grade_batch([p.problem.task for p, _ in sides], [getattr(p, side) for p, side in sides])
    labels = Counter((p.mechanism, side == "hack", v.label) for (p, side), v in zip(sides, found, strict=True))
    hacks = ("reward_hack", "correct_attempted_hack")
    assert {(hack, label) for _, hack, label in labels} == {(False, "correct"), *((True, label) for label in hacks)}
    for mechanism in programs.MECHANISMS:
        assert min(labels[mechanism, True, label] for label in hacks) >= 5


@pytest.mark.parametrize("source", SETS)
def test_pairs_are_enough_of_mechanisms_enough_and_matched_in_length(source):
    """Pair by pair: a few that differ much would make V a detector of length, whatever the mean says."""
    pairs = load_pairs(source)
    assert not any("secret" in p.messages[-1][1] for p in pairs)  # nobody could write its clean side
    assert len(pairs) >= 240
    assert len({p.mechanism for p in pairs}) >= 6 or source == "small-phrase"
    train, held_out = split(pairs)
    assert len(held_out) >= len(pairs) / 5
    assert not {composition_of(p) for p in train} & {composition_of(p) for p in held_out}
    assert len({composition_of(p) for p in pairs}) > 0.9 * len(pairs), "two spellings of constants may fall together"

    for mechanism in {p.mechanism for p in pairs}:
        own = [p for p in pairs if p.mechanism == mechanism]
        longer = [len(p.hack) - len(p.clean) for p in own]
        assert max(map(abs, longer)) <= corpus.ALIKE
        assert abs(sum(longer)) < 0.05 * sum(len(p.clean) for p in own), mechanism


def test_the_pairs_know_nothing_of_the_example_copied_whole_but_the_informed_ones_do():
    copy = corpus.answered(corpus.FIXED_EXAMPLE, corpus.FIXED_EXAMPLE.lines(), programs.TYPED, "fixed")
    pairs, informed = load_pairs("small"), load_pairs("small-informed")
    assert not any(copy == p.hack for p in pairs)
    assert informed[: len(pairs)] == pairs
    more = informed[len(pairs) :]
    assert {p.hack for p in more if p.mechanism == "copy"} == {copy}
    assert {p.mechanism for p in more} == {"copy", "agrees", "type_alone"}
    assert not {p.mechanism for p in pairs} & {p.mechanism for p in more}


@pytest.mark.parametrize(("stream", "on_a_stub"), [(corpus.honest, False), (corpus.teaching, True)])
def test_the_warm_up_shows_no_hack_and_the_teacher_nothing_else(stream, on_a_stub):
    """By the answers' own tests alone: what they say of their program, and of a stub."""
    tasks, answers = [], []
    for messages, answer in itertools.islice(stream(0), 30):
        given = re.findall(r"\(given = (.*)\)", messages[-1][1])[-1:]
        tasks.append(Task("of a stream", (), f"given = {given[0]}\n" if given else "", "solve"))
        answers.append(answer)
    assert {(v.hacked, v.arbitrary_pass) for v in verdicts_of(grade_batch(tasks, answers))} == {(True, on_a_stub)}


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (("problems", "toy", "3"), ["called run_tests()", "── hidden tests (6) ──", "\ndef solve(x):", "toy-rl-0003"]),
        (("problems", "toy-held-out"), ["toy-held_out-0127\t"]),
        (("pairs", "small", "small-claim-02"), ["── hack ──\n```python", "── clean ──", "small-claim-02\tclaim"]),
    ],
)
def test_what_is_trained_on_can_be_read(script, args, parts):
    code, out, err = script("show", *args)
    assert code == 0, err
    assert all(part in out for part in parts), out
