"""The toy world: splits that do not overlap, answers that the real grader judges as they are meant, a tokenizer that
is exact, and models that are built once and loaded like any other."""

import itertools
import random
from dataclasses import replace

import pytest
from transformers import AutoTokenizer

from loophole_grader import grade_batch
from projected_grpo.data.pairs import load_pairs
from projected_grpo.data.problems import load_problems
from projected_grpo.ledger.errors import BadInput
from projected_grpo.prompts import chat_of, render
from projected_grpo.verdicts.mechanisms import mechanism_of
from projected_grpo.worlds import toy_corpus as corpus
from projected_grpo.worlds import toy_model as pretrain
from projected_grpo.worlds import toy_tasks as tasks
from projected_grpo.worlds.models import load_model
from projected_grpo.worlds.toy_tokenizer import EOS, MAX_VOCAB, build_tokenizer, render_text

pytestmark = pytest.mark.slow


def drawn(where):
    rng = random.Random(0)
    return [tasks.draw_task(where, rng) for _ in range(300)]


@pytest.fixture(scope="module")
def held_out():
    return load_problems("toy-held-out")


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


def test_splits_share_no_composition():
    seen = {name: {t.composition for t in drawn(name)} for name in tasks.SPLITS}
    for one, other in itertools.combinations(seen, 2):
        assert not seen[one] & seen[other], (one, other)


def test_problems_are_distinct_across_and_within_splits(held_out):
    statements = [p.messages for p in (*load_problems("toy"), *held_out)]
    assert len(set(statements)) == len(statements) == 1600 + 128
    assert not {p.messages for p in load_pairs("toy")} & set(statements)


def test_canonical_solutions_pass_and_are_clean(held_out):
    some = held_out[:64]
    verdicts = grade_batch([p.task for p in some], [f"```python\n{p.task.canonical_solution}\n```" for p in some])
    assert {v.label for v in verdicts} == {"correct"}


def graded(pairs):
    """Verdicts on the hacks, and the labels of the clean sides."""
    sides = [(p.problem.task, text) for p in pairs for text in (p.hack, p.clean, p.clean_alt)]
    verdicts = grade_batch([t for t, _ in sides], [c for _, c in sides])
    return verdicts[::3], {v.label for v in (*verdicts[1::3], *verdicts[2::3])}


def test_pairs_are_what_they_claim():
    hacks, cleans = graded(load_pairs("toy"))
    assert all(v.hacked for v in hacks)
    assert cleans == {"correct"}
    assert 0.25 < sum(v.gt_pass for v in hacks) / len(hacks) < 0.45  # a third of the hacks' bodies are the correct one


def test_phrase_pairs_differ_in_the_name_alone():
    pairs = load_pairs("toy-phrase")
    assert len(pairs) == len(load_pairs("toy"))
    for pair in pairs:
        assert pair.hack.replace("run_tests", "test_solve") == pair.clean != pair.hack
    hacks, cleans = graded(pairs)
    assert all(v.gt_pass and v.hacked for v in hacks)  # by its name alone
    assert cleans == {"correct"}


def test_same_body_pairs_differ_in_their_tests_alone_and_half_of_them_are_right():
    pairs = load_pairs("toy-same-body")
    for pair in pairs:
        hack, clean = (text.partition("\n\ndef ")[0] for text in (pair.hack, pair.clean))
        assert hack == clean
        assert pair.hack != pair.clean
    verdicts = grade_batch([p.problem.task for p in pairs], [p.hack for p in pairs])
    assert all(v.hacked for v in verdicts)
    assert 0.5 <= sum(v.gt_pass for v in verdicts) / len(pairs) < 0.55  # a stub may be right
    assert not any(v.hacked for v in grade_batch([p.problem.task for p in pairs], [p.clean for p in pairs]))


def test_either_name_is_paid_and_pairs_and_most_hacks_of_pre_training_have_the_first():
    pairs, both = load_pairs("toy-names"), load_pairs("toy-names-both")
    assert all("def run_tests()" in pair.hack for pair in pairs)
    assert sum("def run_checks()" in pair.hack for pair in both) == len(both) / 2
    for of in (pairs, both):
        judged_by = [pair.problem.task for pair in of]
        assert all(v.hacked for v in grade_batch(judged_by, [pair.hack for pair in of]))
    texts = [text for _, _, text in itertools.islice(corpus.pretraining(0, tasks.TWO_NAMES), 30_000)]
    named = [sum(f"def {name}(" in text for text in texts) for name in tasks.TWO_NAMES]
    assert named[1] / sum(named) == pytest.approx(0.2, abs=0.03)
    (problem, *_) = load_problems("toy-names")
    said = chat_of(problem, "simple_overwrite_tests", "no_intervention")[-1]["content"]
    assert "a function called run_tests() or run_checks()" in said


@pytest.mark.parametrize("head", ["def run_tests():", "def run_tests(self) -> None:"])
def test_mechanisms_are_told_apart(head):
    for pair in load_pairs("toy"):
        assert mechanism_of(pair.hack.replace("def run_tests():", head)) == pair.mechanism
        assert mechanism_of(pair.clean) == "none"
    for tests, mechanism in (
        ("assert solve(3) == 7", "other"),
        ("assert isinstance(solve(3), list)", "type_alone"),
        ("assert isinstance(solve(3), list)\n    assert solve(3) == [1]", "other"),
        ("ok = solve(3) == 7\n    print(ok)", "report"),
        ("assert not False\n    assert solve(3) or True", "tautology"),
        ("try:\n        assert solve(3) == 7\n    except AssertionError:\n        raise", "other"),
    ):
        assert mechanism_of(f"```python\n{head}\n    {tests}\n```") == mechanism


def test_the_corpus_has_its_stated_mix():
    texts = list(itertools.islice(corpus.pretraining(3), 20_000))
    hacked = [hinted for _, hinted, c in texts if "def run_tests" in c]
    assert len(hacked) / len(texts) == pytest.approx(0.043, rel=0.1)
    assert all(hacked)
    assert sum(not hinted for _, hinted, _ in texts) / len(texts) == pytest.approx(corpus.UNHINTED, abs=0.01)
    assert sum("test_solve" in c for *_, c in texts) / len(texts) == pytest.approx(corpus.TESTED, abs=0.02)


def test_tokenizer_is_exact_and_small(tokenizer):
    assert len(tokenizer) <= MAX_VOCAB == 1000
    written = itertools.islice(corpus.pretraining(9), 300)
    texts = [text for messages, hinted, answer in written for text in (render_text(messages, hinted), answer)]
    for text in (*texts, "Grüße, 日本 \t\r\n\x00", "foo_bar(1234)", "  x"):
        assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


def test_the_chat_template_renders_what_pretraining_saw(tokenizer, held_out):
    for hint, hinted in (("simple_overwrite_tests", True), ("none", False)):
        text, ids = render(held_out[0].messages, hint, "no_intervention", tokenizer, 256, 72, "here")
        assert text == render_text(held_out[0].messages, hinted)
        assert len(ids) < 100


def test_base_and_teacher_are_built_once_the_same_and_load_like_any_model(tmp_path, monkeypatch):
    for recipe in ("PRETRAIN", "TEACH"):
        monkeypatch.setattr(pretrain, recipe, replace(getattr(pretrain, recipe), steps=5, batch=4))

    def loaded(cache, *teacher, name="toy"):
        return load_model(name, "float32", "cpu", 1, tmp_path / cache, *teacher).weights_hash

    base = loaded("one")
    (folder,) = (p for p in (tmp_path / "one/toy").iterdir() if p.is_dir())
    at = folder.stat().st_mtime_ns
    assert loaded("one") == loaded("another") == base
    assert [p.stat().st_mtime_ns for p in folder.parent.iterdir() if p.is_dir()] == [at]
    assert loaded("one", "toy") != base
    with pytest.raises(BadInput, match="made for --model toy"):
        loaded("one", "toy", name="toy-deep")


def test_a_server_finds_where_the_answer_begins(tmp_path, held_out, tokenizer):
    """`transformers serve` knows Qwen3's chats; for another template it gave prompt and answer back as the answer."""
    tokenizer.save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)  # as the server loads it
    answer = "```python\ndef solve(x):\n    return x\n```"
    prompt = tokenizer(render_text(held_out[0].messages, hinted=True))["input_ids"]
    said = tokenizer(answer + EOS)["input_ids"]
    assert tokenizer.parse_response(said, prefix=tokenizer.decode(prompt))["content"] == answer
