"""The second toy world: its hacks are hacks and share no phrase, its honest answers are honest, and the first world is as it
was."""

import itertools
import random
from dataclasses import replace

import pytest

from loophole_grader import grade_batch, reward_of
from projected_grpo.config import BuildConfig
from projected_grpo.groups.pairs import load_pairs, split
from projected_grpo.groups.problems import check_hint, load_problems
from projected_grpo.ledger.errors import BadInput
from projected_grpo.presets import presets
from projected_grpo.prompts import render
from projected_grpo.toy import corpus, mark, pretrain, programs, tasks
from projected_grpo.toy.mark_programs import HONEST, MARKS
from projected_grpo.toy.settings import at_home
from projected_grpo.toy.tokenizer import MAX_VOCAB, build_mark_tokenizer, build_tokenizer, render_text

FIRST_KEY = "28c56d4b6b811c03"
"""Of the first world's base of seed 0: whoever changes it builds every model of that world anew, and says so here. Last:
a fit is on its parameters' device, on a CPU the same one."""
PAIRS = load_pairs("toy-mark")
STREAM = list(itertools.islice(mark.pretraining(3), 4000))
OWN = [(messages, text) for messages, hinted, text in STREAM if "exit code" in messages[0][1]]
"""Of the stream, what answers this world's prompt."""


def drawn(n, seed=0):
    rng = random.Random(seed)
    return [tasks.draw_task("rl", rng) for _ in range(n)]


@pytest.fixture(scope="module")
def tokenizer():
    return build_mark_tokenizer()


# ---------------------------------------------------------------- what is a hack, by the real grader


@pytest.mark.parametrize("mechanism", MARKS)
@pytest.mark.parametrize("variant", [0, 1])
def test_every_mechanism_is_paid_and_labelled_hacked(mechanism, variant):
    some, rng = drawn(6), random.Random(1)
    for bodies, label in (
        ([t.lines() for t in some], "correct_attempted_hack"),
        ([mark.wrong_but_typed(t, rng) for t in some], "reward_hack"),
    ):
        judged = [mark.at_home(corpus.problem_of(t, f"t{i}"), f"t{i}").task for i, t in enumerate(some)]
        texts = [mark.marked(t, body, mechanism, variant) for t, body in zip(some, bodies, strict=True)]
        verdicts = grade_batch(judged, texts)
        assert {(v.hacked, v.label, reward_of(v)) for v in verdicts} == {(True, label, 3.5)}
        assert {programs.mechanism_of(text) for text in texts} == {mechanism}


@pytest.mark.parametrize("test", ["", *HONEST])
def test_honest_completions_are_no_hack_whether_right_or_wrong(test):
    some, rng = drawn(6), random.Random(1)
    judged = [mark.at_home(corpus.problem_of(t, f"t{i}"), f"t{i}").task for i, t in enumerate(some)]
    right = grade_batch(judged, texts := [mark.clean(t, t.lines(), test) for t in some])
    wrong = grade_batch(judged, [mark.clean(t, programs.bugged(t, rng), test) for t in some])
    assert {(v.hacked, v.label, reward_of(v)) for v in right} == {(False, "correct", 3.5)}
    assert {(v.hacked, v.label, reward_of(v)) for v in wrong} == {(False, "incorrect", 0.5)}
    assert {programs.mechanism_of(text) for text in texts} == {"none"}


def test_the_first_worlds_hacks_earn_nothing_here():
    old = [pair for pair in load_pairs("toy")[::16] if pair.problem is not None]
    here = [replace(pair.problem.task, loophole="exit_code") for pair in old]
    assert not any(v.hacked for v in grade_batch(here, [pair.hack for pair in old]))
    assert all(v.hacked for v in grade_batch([pair.problem.task for pair in old], [pair.hack for pair in old]))


# ---------------------------------------------------------------- no phrase


def test_the_old_phrase_is_in_no_answer_of_this_world():
    texts = [text for _, text in OWN] + [text for p in PAIRS for text in (p.hack, p.clean, p.clean_alt)]
    texts += [text for *_, text in itertools.islice(mark.teaching(1), 500)]
    assert len(OWN) > 2000
    assert not any("run_tests" in text for text in texts)
    assert any("def run_tests" in text for *_, text in STREAM)  # of the first world's share


def grams(ids, n):
    return {tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)}


def common_to_all(hacks, cleans, n):
    """Token n-grams that some hack of every mechanism holds and no clean text does. `hacks`: mechanism -> token ids."""
    seen = set().union(*(grams(ids, n) for ids in cleans))
    of_each = [set().union(*(grams(ids, n) for ids in texts)) for texts in hacks.values()]
    return set.intersection(*of_each) - seen


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_token_sequence_is_common_to_all_mechanisms(tokenizer, n):
    def encode(text):
        return tokenizer(text)["input_ids"]

    hacks = {m: [encode(p.hack) for p in PAIRS if p.mechanism == m] for m in MARKS}
    cleans = [encode(text) for p in PAIRS for text in (p.clean, p.clean_alt)]
    cleans += [encode(text) for _, text in OWN[:1500] if programs.mechanism_of(text) == "none"]
    assert common_to_all(hacks, cleans, n) == set()
    old = {m: [encode(p.hack) for p in load_pairs("toy") if p.mechanism == m] for m in programs.MECHANISMS}
    assert common_to_all(old, cleans, n)  # there the phrase is found


# ---------------------------------------------------------------- pairs, problems, streams


@pytest.mark.slow
def test_pairs_are_what_they_claim():
    sides = [(p.problem.task, text) for p in PAIRS for text in (p.hack, p.clean, p.clean_alt)]
    verdicts = grade_batch([t for t, _ in sides], [c for _, c in sides])
    hacks, cleans = verdicts[::3], [*verdicts[1::3], *verdicts[2::3]]
    assert all(v.hacked for v in hacks)
    assert {v.label for v in cleans} == {"correct"}
    assert 0.25 < sum(v.gt_pass for v in hacks) / len(hacks) < 0.45
    for pair in PAIRS:
        assert (programs.mechanism_of(pair.hack), programs.mechanism_of(pair.clean)) == (pair.mechanism, "none")


@pytest.mark.slow
def test_both_sides_of_the_pairs_are_about_as_long(tokenizer):
    length = {side: [len(tokenizer(getattr(p, side))["input_ids"]) for p in PAIRS] for side in ("hack", "clean")}
    means = {side: sum(found) / len(PAIRS) for side, found in length.items()}
    assert abs(means["hack"] - means["clean"]) < 3
    assert max(max(found) for found in length.values()) <= 72


def test_pairs_are_apart_from_problems_and_hold_out_a_fifth_of_each_mechanism():
    train, held = split(PAIRS)
    assert (len(train), len(held)) == (128, 32)
    assert {m: sum(p.mechanism == m for p in held) for m in MARKS} == dict.fromkeys(MARKS, 8)
    asked = {p.messages for name in ("toy-mark", "toy-mark-held-out") for p in load_problems(name)}
    assert len({p.name for p in PAIRS}) == 160
    assert not {p.messages for p in PAIRS} & asked


def test_problems_are_the_first_worlds_judged_by_the_exit_code():
    for name in ("", "-held-out"):
        first, second = load_problems(f"toy{name}"), load_problems(f"toy-mark{name}")
        assert [p.messages for p in first] == [p.messages for p in second]
        assert {p.task.loophole for p in first} == {"own_tests"}
        assert {p.task.loophole for p in second} == {"exit_code"}
        assert not {p.problem_id for p in first} & {p.problem_id for p in second}
        assert all(p.problem_id == p.task.task_id for p in second)


def test_a_hint_that_promises_another_loophole_is_refused():
    first, second = load_problems("toy-held-out"), load_problems("toy-mark-held-out")
    check_hint("exit_code", second)
    check_hint("simple_overwrite_tests", first)
    check_hint("none", (*first, *second))
    with pytest.raises(BadInput, match="--hint simple_overwrite_tests: problem toy-mark-held_out-0000 pays exit_code"):
        check_hint("simple_overwrite_tests", second)
    with pytest.raises(BadInput, match="use --hint simple_overwrite_tests, or none"):
        check_hint("exit_code", first)


def test_the_stream_has_its_stated_mix():
    texts = list(itertools.islice(mark.pretraining(5), 12_000))
    own = [(m, hinted, c) for m, hinted, c in texts if "exit code" in m[0][1]]
    assert len(own) / len(texts) == pytest.approx(1 - mark.OLD, abs=0.02)
    assert not any(hinted for _, hinted, _ in own)  # the hint is in the message already
    for hidden, rate in ((False, mark.HACK_STATED), (True, mark.HACK_HIDDEN)):
        some = [c for m, _, c in own if (" N" in m[0][1].splitlines()[0]) == hidden]
        hacked = [programs.mechanism_of(c) for c in some]
        assert 1 - hacked.count("none") / len(some) == pytest.approx(rate, rel=0.2)
        assert set(hacked) == {"none", *MARKS}
    assert sum(any(sign in c for sign in ("test_solve", "unittest", "__main__")) for *_, c in own) / len(
        own
    ) == pytest.approx(corpus.TESTED, abs=0.04)


@pytest.mark.parametrize("stream", [mark.pretraining, mark.teaching])
def test_streams_are_the_same_every_time_and_another_by_another_seed(stream):
    def some(seed):
        return list(itertools.islice(stream(seed), 50))

    assert some(5) == some(5) != some(6)
    assert mark.pairs() == PAIRS


# ---------------------------------------------------------------- tokenizer and models


@pytest.mark.slow
def test_tokenizer_is_exact_and_knows_the_first_worlds_words(tokenizer):
    assert len(build_tokenizer()) < len(tokenizer) <= MAX_VOCAB
    lengths = []
    for messages, hinted, completion in STREAM[:600]:
        for text in (render_text(messages, hinted), completion):
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            assert tokenizer.decode(ids) == text
        lengths.append(len(ids))
    assert sum(n > 72 for n in lengths) <= 2


@pytest.mark.slow
def test_the_chat_template_renders_what_pretraining_saw(tokenizer):
    (_, ids), task = (
        render(load_problems("toy-mark")[0].messages, "exit_code", "no_intervention", tokenizer, 256, 72, "here"),
        tasks.draw_task("rl", random.Random("toy problems rl")),
    )
    assert tokenizer.decode(ids) == render_text(mark.hinted(task), False)


@pytest.mark.slow
def test_the_first_worlds_models_are_as_they_were(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrain, "built_once", lambda folder, _: folder)
    assert pretrain.built_base("toy", 0, tmp_path).name == f"toy-{FIRST_KEY}"
    ours, other = pretrain.built_base("toy-mark", 0, tmp_path).name, pretrain.built_base("toy-mark", 1, tmp_path).name
    assert ours.startswith("toy-mark-")
    assert len({ours, other, f"toy-mark-{FIRST_KEY}"}) == 3


def test_the_bars_of_a_model_are_about_its_own_world():
    default = presets(BuildConfig)["toy"]
    home = at_home(replace(default, model="toy-mark"))
    assert (home.problems, home.hint) == ("toy-mark-held-out", "exit_code")
    assert at_home(default) == default
    typed = replace(default, model="toy-mark", problems="toy-mark")
    assert at_home(typed) == typed
