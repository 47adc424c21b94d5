"""A step that takes three times its usual time says what the machine is doing."""

import subprocess
import sys

import pytest

from projected_grpo.run.pace import KNOWN, Pace
from projected_grpo.run.session import kind_of


def paced(kind="plain", usual=1.0, steps=KNOWN):
    pace = Pace()
    assert [pace.look(step, kind, usual) for step in range(steps)] == [""] * steps
    return pace


@pytest.mark.parametrize(("seconds", "said"), [(2.9, False), (3.0, True)])
def test_three_times_the_median_is_slow(seconds, said):
    assert bool(paced().look(7, "plain", seconds)) == said


def test_the_sentence_names_the_step_and_the_numbers():
    told = paced(usual=2.0).look(7, "plain", 9.0)
    assert told.startswith("step 7 took 9.0 s, 4.5 times the median of the last 5 (2.0 s): this process had ")
    assert "GiB of memory free" in told


def test_nothing_is_usual_before_some_steps_are_known():
    assert not paced(steps=KNOWN - 1).look(7, "plain", 99.0)


def test_steps_of_another_kind_have_a_time_of_their_own():
    assert not paced().look(7, "per sample", 99.0)


def test_a_step_whose_groups_are_mostly_flat_is_of_another_kind():
    kinds = [kind_of(per_sample, flat) for per_sample in (False, True) for flat in (1.0, 0.75, 0.5)]
    assert len(set(kinds)) == 6
    assert kind_of(False, 0.0) == kind_of(False, 0.5) == kind_of(False, None)


def test_slow_steps_become_usual_when_they_go_on():
    pace = paced()
    assert [bool(pace.look(step, "plain", 4.0)) for step in range(8)] == [True] * 5 + [False] * 3


def test_another_process_that_takes_the_core_is_named():
    pace = paced()
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        told = pace.look(7, "plain", 9.0)
    finally:
        busy.kill()
        busy.wait()
    others = told.partition("busiest others: ")[2].partition(";")[0]
    assert "python" in others
