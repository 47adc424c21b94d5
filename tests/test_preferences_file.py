"""Preference pairs on disk: what is written is read, and a file that lies is refused in one line."""

import json
from dataclasses import replace

import pytest

from projected_grpo.groups.preferences import MAJORITY, MINORITY, StoredPair, read_preferences, write_preferences
from projected_grpo.ledger.errors import BadInput

CHAT = (("system", "be brief"), ("user", "what now? ü"))
TEXTS = (
    StoredPair("a", 0, 5, 3, MAJORITY, CHAT, "read", "retry"),
    StoredPair("a", 0, 5, 1, MINORITY, CHAT, "retry", "quit"),
)
IDS = (
    StoredPair("b", 2, 3, 2, MAJORITY, (5, 6), (30, 31), (32,)),
    StoredPair("c", 0, 3, 3, MAJORITY, (7,), (8,), (9,)),
)


@pytest.mark.parametrize("name", ["p.jsonl", "p.jsonl.gz"])
@pytest.mark.parametrize(("pairs", "whose"), [(TEXTS, None), (IDS, "abc")])
def test_what_is_written_is_read(tmp_path, name, pairs, whose):
    path = tmp_path / name
    digest = write_preferences(path, pairs, traces=4, steps=9, tokenizer_hash=whose, made_from={"n": 1})
    found = read_preferences(path)
    assert (found.pairs, found.traces, found.steps, found.tokenizer_hash) == (pairs, 4, 9, whose)
    assert (found.sha256, found.per_trace, found.made_from) == (digest, 0.5, {"n": 1})
    before = path.read_bytes()
    write_preferences(path, pairs, traces=4, steps=9, tokenizer_hash=whose, made_from={"n": 1})
    assert path.read_bytes() == before


def lines(tmp_path, pairs=TEXTS, **facts):
    path = tmp_path / "p.jsonl"
    write_preferences(path, pairs, **{"traces": 4, "steps": 9, **facts})
    return path, path.read_text("utf-8").splitlines(keepends=True)


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda t: t[:-1], "cut or edited"),
        (lambda t: [*t[:1], t[2], t[1]], "cut or edited"),
        (lambda t: [t[0], t[1].replace("read", "quit"), t[2]], "cut or edited"),
        (lambda t: [t[0].replace('"traces": 4', '"traces": 1'), *t[1:]], "cut or edited"),
        (lambda t: [t[0].replace('"version": 1', '"version": 2'), *t[1:]], "version 2, this version reads"),
        (lambda t: [t[0].replace("preference_pairs", "rollouts"), *t[1:]], "format 'projected_grpo.rollouts'"),
        (lambda t: t[1:], "format None"),
        (lambda _: ["[1]\n"], "a list, where a JSON object"),
        (lambda _: [""], "not JSON"),
    ],
)
def test_a_file_that_was_touched_is_refused(tmp_path, edit, why):
    path, text = lines(tmp_path)
    path.write_text("".join(edit(text)), "utf-8")
    with pytest.raises(BadInput, match=why) as refused:
        read_preferences(path)
    assert "\n" not in str(refused.value)
    assert "p.jsonl" in str(refused.value)


def test_a_missing_and_a_torn_file_are_refused(tmp_path):
    with pytest.raises(BadInput, match="no such file; make one with `just trace-pairs`"):
        read_preferences(tmp_path / "none.jsonl")
    path = tmp_path / "p.jsonl.gz"
    write_preferences(path, TEXTS, traces=4, steps=9)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(BadInput, match="cannot be read"):
        read_preferences(path)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"votes": 2}, "2 votes of 5 teachers give no pair 'majority over student'"),
        ({"votes": 6}, "6 votes of 5 teachers"),
        ({"reason": MINORITY}, "3 votes of 5 teachers give no pair 'student over minority'"),
        ({"reason": "the grader said so"}, "not made by the majority rule"),
        ({"rejected": "read"}, "prefers an action to itself"),
        ({"chosen": (1,), "rejected": "x"}, "list of token ids"),
        ({"prompt": ()}, "an empty prompt"),
        ({"step": -1}, "not made by the majority rule"),
        ({"votes": True}, "'votes' should be int"),
        ({"rejected": "read \n"}, "prefers an action to itself"),
        ({"rejected": ""}, "an empty action"),
        ({"rejected": "\ud800"}, "'rejected' holds half a surrogate pair"),
        ({"prompt": (("user", "\ud800"),)}, "'prompt' holds half a surrogate pair"),
        ({"prompt": (("wizard", "x"),)}, "role 'wizard'; there are system, user, assistant"),
        ({"prompt": (*CHAT, ("assistant", "x"))}, "the assistant speaks last"),
        ({"teachers": 1, "votes": 1}, "1 votes of 1 teachers"),
        ({"teachers": 10**400, "votes": 10**399}, "give no pair"),
    ],
)
def test_a_pair_that_no_vote_made_is_neither_written_nor_read(tmp_path, change, why):
    """A sneaky fail: pairs picked by ground truth, under the name of votes."""
    with pytest.raises(ValueError, match=why):
        lines(tmp_path, [replace(TEXTS[0], **change)])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "second",
    [
        {"reason": MAJORITY, "votes": 3, "chosen": "retry", "rejected": "read"},  # each preferred to the other
        {"votes": 1, "teachers": 7},
        {"chosen": "wait"},  # another student
        {"rejected": "read "},  # the majority's own action in the minority, too
        {"votes": 2, "rejected": "quit"},  # with the third pair below: 3 + 2 + 1 votes of 5
    ],
)
def test_a_step_that_no_one_vote_gives_is_refused(tmp_path, second):
    of_step = [TEXTS[0], replace(TEXTS[1], **second), replace(TEXTS[1], rejected="sleep")]
    lines(tmp_path, [TEXTS[0], TEXTS[1], of_step[2]])
    (tmp_path / "p.jsonl").unlink()
    with pytest.raises(ValueError, match="trace 'a', step 0: no one vote of its teachers gives its pairs"):
        lines(tmp_path, of_step)


def test_a_line_nested_too_deep_is_refused(tmp_path):
    path, text = lines(tmp_path)
    path.write_text(text[0] + "[" * 200_000)
    with pytest.raises(BadInput):
        read_preferences(path)
    path.write_text("[" * 200_000)
    with pytest.raises(BadInput, match="not JSON"):
        read_preferences(path)


@pytest.mark.parametrize(
    ("pairs", "facts", "why"),
    [
        ((), {}, "no pairs in it"),
        (TEXTS, {"tokenizer_hash": "abc"}, "texts have none"),
        (IDS, {}, "need a tokenizer_hash"),
        ((*TEXTS, *IDS), {"tokenizer_hash": "abc"}, "one of both kinds"),
        (IDS, {"tokenizer_hash": "abc", "traces": 1}, "says traces 1, its pairs are of 2"),
        (IDS, {"tokenizer_hash": "abc", "steps": 1}, "says steps 1, its pairs are of 2"),
    ],
)
def test_a_first_line_that_contradicts_the_pairs_is_refused(tmp_path, pairs, facts, why):
    with pytest.raises(ValueError, match=why):
        lines(tmp_path, pairs, **facts)


def test_an_unknown_key_is_refused_even_with_the_right_checksum(tmp_path):
    """A label smuggled into a line."""
    path, text = lines(tmp_path)
    row = {**json.loads(text[1]), "gt_pass": True}
    from projected_grpo.groups.preferences import _digest

    body = (json.dumps(row) + "\n" + text[2]).encode()
    header = {**json.loads(text[0])}
    header["sha256"] = _digest(header, body)
    path.write_bytes(json.dumps(header).encode() + b"\n" + body)
    with pytest.raises(BadInput, match=r"p\.jsonl:2: 'gt_pass' is missing or unknown"):
        read_preferences(path)
