"""Preference pairs of N teachers' disagreement, by hand, and their statistics under a null and under an effect."""

import random

import pytest

from projected_grpo.channels.preference_pairs import Proposals, kl_from_random, pairs_of, random_pairs


def made(student, teachers, **more):
    return [(p.chosen, p.rejected, p.reason, p.votes) for p in pairs_of(Proposals("s", student, teachers), **more)]


def test_the_majority_is_chosen_over_a_student_that_differs():
    assert made("b", ["a", "a", "b"]) == [("a", "b", "majority over student", 2)]


def test_the_student_is_chosen_over_each_minority():
    assert made("a", ["c", "a", "a", "a", "a", "b", "b"]) == [
        ("a", "b", "student over minority", 2), ("a", "c", "student over minority", 1),
    ]  # fmt: skip


def test_a_student_between_majority_and_minority_has_both_pairs():
    assert made("x", ["a", "b", "a"]) == [
        ("a", "x", "majority over student", 2), ("x", "b", "student over minority", 1),
    ]  # fmt: skip


@pytest.mark.parametrize("teachers", [["a", "b"], ["a", "a", "b", "b"], ["a", "b", "c"], ["a", "a", "b", "c"]])
def test_half_of_the_teachers_are_no_majority(teachers):
    assert made("x", teachers) == made("a", teachers) == []


def test_the_order_of_the_teachers_decides_nothing():
    teachers = ["a", "b", "a", "c", "a", "a", "c"]
    shuffled = random.Random(1).sample(teachers, len(teachers))
    assert made("x", teachers) == made("x", shuffled)


def test_actions_are_the_same_by_the_key_and_the_first_one_stands_for_them():
    assert made("b", ["a ", "a", " a"], key=str.strip) == [("a ", "b", "majority over student", 3)]
    assert made("a", ["a ", "a", " a"], key=str.strip) == []


STEPS = [Proposals(0, "a", ["b", "b"]), Proposals(1, "a", ["a", "a"]), Proposals(2, "c", ["d", "e"])]


def test_random_pairs_are_of_two_actions_of_one_step_and_repeat_with_their_seed():
    drawn = random_pairs(STEPS, 200, seed=3)
    assert drawn == random_pairs(STEPS, 200, seed=3) != random_pairs(STEPS, 200, seed=4)
    assert {state for state, _, _ in drawn} == {0, 2}  # a step where all did the same has no pair
    assert {(one, other) for state, one, other in drawn if state == 0} == {("a", "b"), ("b", "a")}


def gauss(seed, n, mean=0.0):
    draw = random.Random(seed)
    return [draw.gauss(mean, 1) for _ in range(n)]


def test_two_samples_of_one_distribution_are_at_their_null():
    found = [kl_from_random(gauss(i, 100), gauss(1000 + i, 100), deals=99, seed=i) for i in range(40)]
    assert all(f.kl > 0 for f in found)  # a KL above 0 says nothing by itself
    assert sum(f.p <= 0.05 for f in found) <= 6  # 2 expected
    assert sum(f.kl for f in found) / 40 == pytest.approx(sum(f.null for f in found) / 40, rel=0.25)


def test_a_shift_of_one_standard_deviation_is_seen():
    found = kl_from_random(gauss(0, 100, 1.0), gauss(1, 100))
    assert (found.p, found.n) == (0.001, 100)
    assert found.kl > 3 * found.null


def test_kl_by_hand():
    # two bins, all of one sample in each: (20.5, .5) / 21 against (.5, 20.5) / 21: 20 / 21 ln 41.
    found = kl_from_random([1.0] * 20, [0.0] * 20, bins=2, deals=9)
    assert found.kl == pytest.approx(20 / 21 * 3.713572066704308)


def test_too_few_pairs_are_not_judged():
    assert kl_from_random(gauss(0, 19), gauss(1, 100)) is None
