"""Preference pairs of N teachers' disagreement, by hand; their statistics under a null and under an effect; their
file."""

import random
import re

import pytest

from projected_grpo.data.preferences import (
    MAJORITY,
    MINORITY,
    Preferences,
    StoredPair,
    read_preferences,
    write_preferences,
)
from projected_grpo.ledger.errors import BadInput
from projected_grpo.traces.record import Action
from projected_grpo.traces.votes import Replayed, kl_from_random, pairs_at, random_pair


def replayed(student, teachers):
    """A state at which token ids are the texts' letters."""
    first, *others = (Action(text, tuple(text), None, truncated=False) for text in (student, *teachers))
    return Replayed(("s",), first, others, "t", 0, "p")


def made(student, teachers):
    found = pairs_at(replayed(student, teachers))
    assert all((p.trace, p.step, p.teachers, p.prompt) == ("t", 0, len(teachers), ("s",)) for p in found)
    return [("".join(p.chosen), "".join(p.rejected), p.reason, p.votes) for p in found]


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


def test_actions_are_the_same_but_for_white_space_at_the_end_and_the_first_one_stands_for_them():
    assert made("b", ["a ", "a", "a\n"]) == [("a ", "b", MAJORITY, 3)]
    assert made("a", ["a ", "a", "a\n"]) == []


def test_random_pairs_are_of_two_actions_of_one_step_and_repeat_with_their_seed():
    step = replayed("a", ["b", "b"])
    drawn = [random_pair(step, f"{i}") for i in range(50)]
    assert drawn == [random_pair(step, f"{i}") for i in range(50)]
    assert set(drawn) == {((("s",), (one,)), (("s",), (other,))) for one, other in ("ab", "ba")}


def gauss(seed):
    draw = random.Random(seed)
    return [draw.gauss(0, 1) for _ in range(100)]


def test_two_samples_of_one_distribution_are_at_their_null():
    found = [kl_from_random(gauss(i), gauss(1000 + i), range(100)) for i in range(40)]
    assert all(f.kl > 0 for f in found)  # a KL above 0 says nothing by itself
    assert sum(f.p <= 0.05 for f in found) <= 6  # 2 expected
    assert sum(f.kl for f in found) / 40 == pytest.approx(sum(f.null for f in found) / 40, rel=0.25)


def test_kl_by_hand():
    # two of ten bins, all of one sample in each: (20.5, .5) / 25 against (.5, 20.5) / 25: 20 / 25 ln 41.
    assert kl_from_random([1.0] * 20, [0.0] * 20, range(20)).kl == pytest.approx(20 / 25 * 3.713572066704308)


def test_pairs_of_one_trace_are_not_independent():
    """A sneaky fail: three traces whose pairs repeat one another, taken as sixty observations."""
    ours, chance = [1.0 + i % 20 / 100 for i in range(60)], [i % 20 / 100 for i in range(60)]
    assert kl_from_random(ours, chance, range(60)).p == 0.001
    # one of eight deals is the real one
    assert kl_from_random(ours, chance, [i // 20 for i in range(60)]).p > 0.05


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
