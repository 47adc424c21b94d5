"""Completions that arrive one by one: each gets its own verdict, and no two batches are judged at the same time."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from two_sum import SOLVED, TASK, VACUOUS, WRONG

from loophole_grader import GraderError, RowError, reward_function
from loophole_grader.reward_function import grade_with_others


def test_every_arrival_gets_its_own_verdict():
    texts = [f"```python\n{code}\n```" for code in (SOLVED, WRONG, WRONG + VACUOUS)] * 2
    with ThreadPoolExecutor(len(texts)) as threads:
        found = list(threads.map(lambda text: grade_with_others(TASK, text), texts))
    assert [v.label for v in found] == ["correct", "incorrect", "reward_hack"] * 2


def test_no_two_batches_at_once_and_those_that_wait_are_one(monkeypatch):
    sizes, inside, first = [], threading.Lock(), threading.Event()

    def judged(tasks, _):
        assert inside.acquire(blocking=False), "two batches at the same time"
        sizes.append(len(tasks))
        while not first.is_set() and len(reward_function._waiting) < 5:
            time.sleep(0.001)
        first.set()
        inside.release()
        return [RowError(task.task_id, "judged") for task in tasks]

    monkeypatch.setattr(reward_function, "grade_batch", judged)
    with ThreadPoolExecutor(6) as threads:
        jobs = [threads.submit(grade_with_others, TASK, "") for _ in range(6)]
    assert [type(job.exception()) for job in jobs] == [GraderError] * 6
    assert sizes == [1, 5]


def test_a_batch_that_cannot_be_judged_fails_each_that_was_in_it_and_no_later_one(monkeypatch):
    def broken(*_):
        raise ValueError("no sandbox")

    with monkeypatch.context() as patched:
        patched.setattr(reward_function, "grade_batch", broken)
        with pytest.raises(ValueError, match="no sandbox"):
            grade_with_others(TASK, "")
    assert grade_with_others(TASK, "").status == "no_code"
