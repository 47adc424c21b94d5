"""Preference pairs on disk: what is written is read, and what is none is refused in one line."""

import json
import re

import pytest

from projected_grpo.data.preferences import MAJORITY, MINORITY, StoredPair, read_preferences, write_preferences
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
    write_preferences(path, pairs, traces=4, steps=9, tokenizer_hash=whose, made_from={"n": 1})
    found = read_preferences(path)
    assert (found.pairs, found.traces, found.steps, found.tokenizer_hash) == (pairs, 4, 9, whose)
    assert (found.per_trace, found.made_from) == (0.5, {"n": 1})
    before = path.read_bytes()
    write_preferences(path, pairs, traces=4, steps=9, tokenizer_hash=whose, made_from={"n": 1})
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda t: t[:-1], "says 2 pairs of 4 traces, 1 are there"),
        (lambda t: [t[0].replace('"version": 1', '"version": 2'), *t[1:]], "version 2, this version reads"),
        (lambda t: t[1:], "p.jsonl:1: "),
        (lambda t: [*t[:2], edited(t[2], gt_pass=True)], "p.jsonl:3: gt_pass: "),  # a label smuggled into a line
        (lambda t: [*t[:2], edited(t[2], rejected="retry")], "p.jsonl:3: prefers an action to itself"),
        (lambda t: [*t[:2], edited(t[2], prompt=[{"role": "assistant", "content": "x"}])], "the assistant speaks last"),
    ],
)
def test_what_is_no_file_of_pairs_is_one_line(tmp_path, edit, why):
    path = tmp_path / "p.jsonl"
    write_preferences(path, TEXTS, traces=4, steps=9)
    path.write_text("".join(edit(path.read_text("utf-8").splitlines(keepends=True))), "utf-8")
    with pytest.raises(BadInput, match=re.escape(why)) as refused:
        read_preferences(path)
    assert "\n" not in str(refused.value)


def edited(line, **changes):
    return json.dumps({**json.loads(line), **changes}) + "\n"


def test_a_missing_and_a_torn_file_are_refused(tmp_path):
    with pytest.raises(BadInput, match="no such file; make one with `just trace-pairs`"):
        read_preferences(tmp_path / "none.jsonl")
    path = tmp_path / "p.jsonl.gz"
    write_preferences(path, TEXTS, traces=4, steps=9)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(BadInput, match="truncated or damaged gzip"):
        read_preferences(path)
