"""Preference pairs on disk: what is written is read, and a file that is cut or of another version is refused."""

import re

import pytest

from projected_grpo.data.preferences import MAJORITY, Preferences, StoredPair, read_preferences, write_preferences
from projected_grpo.ledger.errors import BadInput

CHAT = (("system", "be brief"), ("user", "what now? ü"))
TEXTS = (
    StoredPair("a", 0, 5, 3, MAJORITY, CHAT, "read", "retry"),
    StoredPair("a", 0, 5, 1, "student over minority", CHAT, "retry", "quit"),
)
IDS = (
    StoredPair("b", 2, 3, 2, MAJORITY, (5, 6), (30, 31), (32,)),
    StoredPair("c", 0, 3, 3, MAJORITY, (7,), (8,), (9,)),
)


@pytest.mark.parametrize("name", ["p.jsonl", "p.jsonl.gz"])
@pytest.mark.parametrize(("pairs", "whose"), [(TEXTS, None), (IDS, "abc")])
def test_what_is_written_is_read(tmp_path, name, pairs, whose):
    path, told = tmp_path / name, Preferences(pairs, 4, 9, whose, {"n": 1})
    write_preferences(path, told)
    found = read_preferences(path)
    assert found == told
    assert (found.per_trace, found.sha256) == (0.5, told.sha256)
    before = path.read_bytes()
    write_preferences(path, found)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda t: t[:-1], "holds 1 pairs, its first line says 2"),
        (lambda t: [t[0].replace('"version": 1', '"version": 2'), *t[1:]], ":1: version: Input should be 1"),
        (
            lambda t: [t[0].replace('"pairs": 2', '"pairs": 3'), *t[1:], t[1]],
            "pair 2 (trace 'a', step 0) is there twice",
        ),
        (lambda t: t[1:], ":1: format: Field required"),
        (lambda _: [], ":1: format: Field required"),
        (lambda t: [t[0].replace('"traces": 4', '"traces": 0'), *t[1:]], ":1: traces: Input should be greater than"),
        (lambda t: [*t[:2], t[2].replace('"chosen"', '"choice"')], ":3: chosen: Field required"),
        (lambda t: [*t[:2], t[2].replace('"quit"', "[5]")], ":3: rejected: Input should be a valid string"),
        (lambda t: [*t[:2], t[2].replace('"content"', '"text"', 1)], ":3: prompt.0.content: Field required"),
    ],
)
def test_what_is_no_whole_file_of_pairs_is_one_line(tmp_path, edit, why):
    path = tmp_path / "p.jsonl"
    write_preferences(path, Preferences(TEXTS, 4, 9))
    path.write_text("".join(edit(path.read_text("utf-8").splitlines(keepends=True))), "utf-8")
    with pytest.raises(BadInput, match=re.escape(why)) as refused:
        read_preferences(path)
    assert "\n" not in str(refused.value)


def test_a_missing_and_a_torn_file_are_refused(tmp_path):
    with pytest.raises(BadInput, match="no such file; make one with `just trace-pairs`"):
        read_preferences(tmp_path / "none.jsonl")
    path = tmp_path / "p.jsonl.gz"
    write_preferences(path, Preferences(TEXTS, 4, 9))
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(BadInput, match="truncated or damaged gzip"):
        read_preferences(path)
