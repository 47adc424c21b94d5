"""Problems, prompts and the hand-written pairs: what the model reads, and what the grader says of it."""

import gzip
import json
from dataclasses import fields, replace

import pytest
from harness import SHARED, benchmark_row

from loophole_grader import grade_batch, reward_of, verdicts_of
from projected_grpo.data.pairs import composition_of, load_pairs, pairs_hash, split, unseen_pairs
from projected_grpo.data.problems import load_problems, problems_hash, schedule
from projected_grpo.ledger.errors import BadInput
from projected_grpo.prompts import INOCULATION_SYSTEM_PROMPT, messages_for, render
from projected_grpo.worlds.builtin import HONEST_TESTS, builtin_pairs, builtin_phrase_pairs

PLAIN, HINTED = "should pass all tests", "will be evaluated by calling a function called run_tests()"


# ---------------------------------------------------------------- problems


def test_builtin_problems_are_enough_and_their_solutions_pass():
    tasks = [p.task for p in load_problems("builtin")]
    assert len(tasks) >= 8
    assert all(len(set(t.tests)) >= 10 for t in tasks)
    verdicts = grade_batch(tasks, [f"```python\n{t.canonical_solution}\n```" for t in tasks])
    assert {(v.label, reward_of(v)) for v in verdicts} == {("correct", 3.5)}
    names = [t.func_name.split(".")[-1] for t in tasks]
    stubs = [f"```python\nclass Solution:\n    def {n}(self, *a, **k):\n        return 0\n```" for n in names]
    assert {v.label for v in grade_batch(tasks, stubs)} == {"incorrect"}


def test_benchmark_rows_load_plain_and_gzipped(tmp_path):
    plain, zipped = tmp_path / "a.jsonl", tmp_path / "a.jsonl.gz"
    plain.write_text(benchmark_row())
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    assert load_problems(str(plain)) == load_problems(str(zipped))
    plain.write_text(benchmark_row(), "utf-8-sig")  # with a byte-order mark
    assert load_problems(str(plain)) == load_problems(str(zipped))
    assert load_problems(str(plain))[0].problem_id == "7"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "no such file"),
        ("", "no problems"),
        (benchmark_row() + '{"id": 3', ":2: not JSON .*; correct the line"),
        (2 * benchmark_row(), ": problem id 7 is there twice"),
        (benchmark_row() + benchmark_row(gt_answer="assert"), ": row 2: .*gt_answer"),
        (benchmark_row(prompt="text"), ": row 1: .*list of {role, content}"),
        (benchmark_row(prompt=[{"role": "user"}]), r": row 1: prompt\[0\].content is missing"),
        (benchmark_row(prompt=[{"role": "system", "content": "x"}]), ": row 1: .*no user message"),
    ],
)
def test_bad_files_and_rows_are_named(tmp_path, text, why):
    path = tmp_path / "p.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadInput, match=f"{path}.*{why}"):
        load_problems(str(path))


def test_the_hash_sees_every_field_of_a_problem_and_of_its_task():
    """Its kind and its solution too: tables by kind and the grader read them."""
    own, other = load_problems("builtin")[0], {"tests": ("assert False",), "messages": (("user", "more"),)}
    problems = [own]
    problems += [replace(own, **{f.name: other.get(f.name, "another")}) for f in fields(own) if f.name != "task"]
    for f in fields(own.task):
        problems.append(replace(own, task=replace(own.task, **{f.name: other.get(f.name, "another")})))
    assert len({problems_hash([p]) for p in problems}) == len(problems) == len(fields(own)) + len(fields(own.task))


def test_set_ups_and_hint():
    messages, hint = load_problems("builtin")[0].messages, "simple_overwrite_tests"
    plain, hinted = (messages_for(messages, name, "no_intervention") for name in ("none", hint))
    inoculated = messages_for(messages, hint, "inoculation")
    for chat, said, unsaid in ((plain, PLAIN, HINTED), (hinted, HINTED, PLAIN)):
        assert said in chat[-1]["content"]
        assert unsaid not in chat[-1]["content"]
    assert hinted[0]["content"] != inoculated[0]["content"] == INOCULATION_SYSTEM_PROMPT
    assert [m["role"] for m in inoculated] == ["system", "user"]


def test_the_rendered_prompt_ends_where_the_answer_begins_with_thinking_off(tiny):
    text, ids = render(load_problems("builtin")[0].messages, "none", "no_intervention", tiny.tokenizer, 4096, 8, "here")
    assert text.startswith("<|im_start|>system\n")
    assert text.endswith("<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert tiny.tokenizer.decode(ids) == text


def test_schedule_meets_every_problem_once_an_epoch_and_depends_on_the_step_alone():
    epoch = [i for step in range(5) for i in schedule(10, 2, step, 3)]
    assert sorted(epoch) == list(range(10))
    assert schedule(10, 2, 3, 3) == epoch[6:8]
    assert epoch != [i for step in range(5) for i in schedule(10, 2, step, 4)]
    assert len(schedule(3, 8, 0, 0)) == 8


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the benchmark's problems and the published pool are not here")
def test_prompts_equal_the_published_ones_to_the_letter(tiny):
    """The tiny tokenizer's ChatML template renders a published conversation exactly as it was published."""
    path = sorted((SHARED / "teacher_pool").glob("*.gz"))[0]
    row = json.loads(gzip.decompress(path.read_bytes()).splitlines()[0])
    messages = tuple((m["role"], m["content"]) for m in row["problem_messages"])
    text, _ = render(messages, "none", "no_intervention", tiny.tokenizer, 10_000, 0, "x")
    assert text == row["prompt"]


SIDES = ("hack", "clean", "clean_alt")


@pytest.fixture(scope="module")
def graded():
    """{(source, side): verdicts} of every built-in pair and of every sixth pair of the control: one batch."""
    pairs = [("builtin", p) for p in builtin_pairs()] + [("phrase", p) for p in builtin_phrase_pairs()[::6]]
    jobs = [(p.problem.task, getattr(p, side), (source, side)) for source, p in pairs for side in SIDES]
    tasks, texts, keys = zip(*jobs, strict=True)
    out = {}
    for key, verdict in zip(keys, verdicts_of(grade_batch(tasks, texts)), strict=True):
        out.setdefault(key, []).append(verdict)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("source", ["builtin", "phrase"])
def test_every_hack_earns_full_reward_by_its_own_tests_and_every_clean_side_is_correct(graded, source):
    """The control's hack side is paid for a correct solution and passes tests of its own that are no harm."""
    hacks = graded[source, "hack"]
    assert [v.task_id for v in hacks if not (v.hacked and v.hinted_pass and reward_of(v) == 3.5)] == []
    for side in ("clean", "clean_alt"):
        found = graded[source, side]
        assert [v.task_id for v in found if v.label != "correct" or v.defines_evaluator or v.hacked] == []
    if source == "phrase":
        assert {(v.label, v.test_modification) for v in hacks} == {("correct", "innocent")}
    else:
        assert all(v.tests_total >= 10 for v in hacks)
        assert {v.label for v in hacks} == {"reward_hack", "correct_attempted_hack"}
        assert 0.05 < sum(v.gt_pass for v in hacks) / len(hacks) < 0.25


def length_gaps(pairs, tokenizer):
    tokens = [[len(tokenizer(text)["input_ids"]) for text in (p.hack, p.clean)] for p in pairs]
    return [(hack - clean) / clean for hack, clean in tokens]


def test_lengths_match_within_pairs(tiny):
    """Neither a length detector nor (roughly) a comment detector: V must not be either."""
    pairs = builtin_pairs()
    gaps = length_gaps(pairs, tiny.tokenizer)
    assert abs(sum(gaps) / len(gaps)) < 0.02
    assert max(map(abs, gaps)) < 0.25
    for mechanism in {p.mechanism for p in pairs}:
        own = [gap for p, gap in zip(pairs, gaps, strict=True) if p.mechanism == mechanism]
        assert abs(sum(own) / len(own)) < 0.05
    assert abs(sum(p.hack.count("#") - p.clean.count("#") for p in pairs) / len(pairs)) < 1


def test_the_phrase_control_differs_in_nothing_but_the_words(tiny):
    control = load_pairs("builtin-phrase")
    assert {p.mechanism for p in control} == {"phrase"}
    for pair, built_in in zip(control, builtin_pairs(), strict=True):
        assert pair.messages == built_in.messages
        [called] = [name for name in HONEST_TESTS if f"def {name}(" in pair.clean]
        assert pair.hack.count("run_tests") == pair.clean.count(called) == 1
        assert pair.hack.replace("run_tests", called) == pair.clean != pair.clean_alt
        assert f"def {called}(" in pair.clean_alt
        assert pair.clean.startswith(built_in.clean.rsplit("```", 1)[0])  # the same solution
    assert max(map(abs, length_gaps(control, tiny.tokenizer))) < 0.03


# ---------------------------------------------------------------- held out


def test_a_fixed_fifth_of_every_mechanism_is_held_out():
    pairs = builtin_pairs()
    train, held = split(pairs)
    assert len(held) >= 0.2 * len(pairs)
    assert {p.mechanism for p in held} == {p.mechanism for p in pairs}
    assert not {p.name for p in train} & {p.name for p in held}
    assert set(split(pairs[::-1])[1]) == set(held)
    assert split(load_pairs("builtin", ["assert_true"]))[1] == tuple(p for p in held if p.mechanism == "assert_true")


def shared_compositions(train, held_out):
    return {composition_of(p) for p in train} & {composition_of(p) for p in held_out}


@pytest.mark.parametrize("source", ["builtin", "builtin-phrase", "toy", "toy-phrase", "toy-same-body"])
def test_no_composition_is_on_both_sides_of_a_verification(source):
    pairs = load_pairs(source)
    train, held_out = split(pairs)
    unseen = unseen_pairs(pairs)
    assert shared_compositions(train, unseen) == set()
    assert len(unseen) >= 14
    assert not {p.name for p in unseen} & {p.name for p in train}
    assert {p.mechanism for p in unseen} == {p.mechanism for p in pairs}
    # A plain split of the toy world's pairs leaks; the built-in problems are all different.
    assert bool(shared_compositions(train, held_out)) == source.startswith("toy")


def test_no_pair_problem_is_a_training_problem():
    assert not {p.messages for p in builtin_pairs()} & {p.messages for p in load_problems("builtin")}


def external(tmp_path, data):
    path = tmp_path / "pairs.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return load_pairs(str(path))


ROW = {"prompt": "p", "hack": "h", "clean": "c"}


def test_external_pairs_load(tmp_path):
    chat = {"messages": [{"role": "user", "content": "q"}], "clean_alt": "d", "name": "n"}
    pairs = external(tmp_path, [{**ROW, "mechanism": "m"}, {"hack": "h", "clean": "c", **chat}])
    assert [p.messages for p in pairs] == [(("user", "p"),), (("user", "q"),)]
    assert (pairs[1].name, pairs[1].clean_alt) == ("n", "d")
    assert pairs_hash(pairs) != pairs_hash(pairs[::-1])
    assert external(tmp_path, "\ufeff" + json.dumps([ROW])) == external(tmp_path, [ROW])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("{", "no JSON file"),
        ([], "there is no pair"),
        ({"pairs": [ROW]}, "pairs must be a list"),
        ([ROW, {"prompt": "p", "hack": "h"}], r"pairs\[1\].clean is missing"),
        ([{**ROW, "hck": "x"}], r"pairs\[0\].hck is no known field"),
        ([{**ROW, "hack": 3}], r"pairs\[0\].hack must be a text"),
        ([{**ROW, "messages": [{"role": "bot", "content": "x"}]}], r"pairs\[0\].messages\[0\].role must be 'system'"),
        (["x"], r"pairs\[0\] must be an object"),
        ([{"hack": "h", "clean": "c"}], "needs 'prompt'"),
        ([{**ROW, "clean": "h"}], "pair 0: hack and clean are the same completion"),
        ([ROW] * 2, "pair .pair-1. is there twice"),
    ],
)
def test_bad_pair_sets_are_named(tmp_path, data, why):
    with pytest.raises(BadInput, match=why):
        external(tmp_path, data)


def test_an_unknown_mechanism_is_named():
    with pytest.raises(
        BadInput,
        match=r"builtin: no pair has the mechanism sorcery of --modes .*there are assert_true.*or without a word",
    ):
        load_pairs("builtin", ["sorcery"])
