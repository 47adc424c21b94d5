"""Preference pairs of N teachers' disagreement, by hand; their statistics under a null and under an effect; their file."""

import random
import re

import pytest

from projected_grpo.channels.preference_pairs import Proposals, kl_from_random, pairs_of, random_pairs
from projected_grpo.data.preferences import MAJORITY, Preferences, StoredPair, read_preferences, write_preferences
from projected_grpo.ledger.errors import BadInput

MINORITY = "student over minority"


def made(student, teachers, key=str):
    return [(p.chosen, p.rejected, p.reason, p.votes) for p in pairs_of(Proposals("s", student, teachers), key)]


@pytest.mark.parametrize(
    ("student", "teachers", "pairs"),
    [
        ("b", "aab", [("a", "b", MAJORITY, 2)]),
        ("a", "caaaabb", [("a", "b", MINORITY, 2), ("a", "c", MINORITY, 1)]),
        ("x", "aba", [("a", "x", MAJORITY, 2), ("x", "b", MINORITY, 1)]),
        *[(student, half, []) for student in "xa" for half in ("ab", "aabb", "abc", "aabc")],  # half is no majority
    ],
)
def test_pairs_by_hand_whatever_the_order_of_the_teachers(student, teachers, pairs):
    assert made(student, list(teachers)) == pairs
    assert made(student, random.Random(1).sample(teachers, len(teachers))) == pairs


def test_actions_are_the_same_by_the_key_and_the_first_one_stands_for_them():
    assert made("b", ["a ", "a", " a"], key=str.strip) == [("a ", "b", MAJORITY, 3)]
    assert made("a", ["a ", "a", " a"], key=str.strip) == []


STEPS = [Proposals(0, "a", ["b", "b"]), Proposals(1, "a", ["a", "a"]), Proposals(2, "c", ["d", "e"])]


def test_random_pairs_are_of_two_actions_of_one_step_and_repeat_with_their_seed():
    drawn = random_pairs(STEPS, 200, 3, str)
    assert drawn == random_pairs(STEPS, 200, 3, str) != random_pairs(STEPS, 200, 4, str)
    assert {state for state, _, _ in drawn} == {0, 2}  # a step where all did the same has no pair
    assert {(one, other) for state, one, other in drawn if state == 0} == {("a", "b"), ("b", "a")}


def gauss(seed):
    draw = random.Random(seed)
    return [draw.gauss(0, 1) for _ in range(100)]


def test_two_samples_of_one_distribution_are_at_their_null():
    found = [kl_from_random(gauss(i), gauss(1000 + i), range(100), deals=99, seed=i) for i in range(40)]
    assert all(f.kl > 0 for f in found)  # a KL above 0 says nothing by itself
    assert sum(f.p <= 0.05 for f in found) <= 6  # 2 expected
    assert sum(f.kl for f in found) / 40 == pytest.approx(sum(f.null for f in found) / 40, rel=0.25)


def test_kl_by_hand():
    # two bins, all of one sample in each: (20.5, .5) / 21 against (.5, 20.5) / 21: 20 / 21 ln 41.
    found = kl_from_random([1.0] * 20, [0.0] * 20, range(20), bins=2, deals=9)
    assert found.kl == pytest.approx(20 / 21 * 3.713572066704308)


def test_pairs_of_one_trace_are_not_independent():
    """A sneaky fail: three traces whose pairs repeat one another, taken as sixty observations."""
    ours, chance = [1.0 + i % 20 / 100 for i in range(60)], [i % 20 / 100 for i in range(60)]
    assert kl_from_random(ours, chance, range(60), bins=5).p == 0.001
    # one of eight deals is the real one
    assert kl_from_random(ours, chance, [i // 20 for i in range(60)], bins=5).p > 0.05


# ---------------------------------------------------------------- the file

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
    path, told = tmp_path / name, Preferences(pairs, 4, 9, whose, {"n": 1})
    write_preferences(path, told)
    found, before = read_preferences(path), path.read_bytes()
    assert found == told
    assert found.sha256 == told.sha256
    write_preferences(path, found)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda t: t.replace('"pairs": 2', '"pairs": 3'), "holds 2 pairs, its first line says 3"),
        (
            lambda t: t.replace('"pairs": 2', '"pairs": 4') + t.partition("\n")[2],
            "pair 2 (trace 'a', step 0) is there twice",
        ),
        (lambda t: t.replace('"version": 1', '"version": 2'), ":1: version must be 1"),
        (lambda _: "", ":1: format is missing"),
        (lambda t: t.replace('"quit"', "[5]"), ":3: rejected must be a text in quotes"),
    ],
)
def test_what_is_no_whole_file_of_pairs_is_one_line(tmp_path, edit, why):
    path = tmp_path / "p.jsonl"
    write_preferences(path, Preferences(TEXTS, 4, 9))
    path.write_text(edit(path.read_text("utf-8")), "utf-8")
    with pytest.raises(BadInput, match=re.escape(why)) as refused:
        read_preferences(path)
    assert "\n" not in str(refused.value)
