"""Many completions at once: their order, work that is done once, progress, an interrupt."""

import time

import pytest
from two_sum import SOLVED, TASK, WRONG, judged

from loophole_grader import Limits, grade, grade_batch
from loophole_grader.sandbox.pool import Runner


def test_order_is_kept():
    completions = [f"```python\n{code}\n# {i}\n```" for i in range(6) for code in (SOLVED, WRONG, "x = (")]
    labels = [(verdict.gt_pass, verdict.status) for verdict in grade_batch([TASK] * 18, completions, workers=2)]
    assert labels == [(True, "ok"), (False, "ok"), (False, "compile_error")] * 6


def test_identical_work_runs_once(monkeypatch):
    calls = []
    run = Runner.run
    monkeypatch.setattr(Runner, "run", lambda self, *args, **kw: (calls.append(1), run(self, *args, **kw))[1])
    grade(TASK, f"```python\n{WRONG}```")
    once = len(calls)
    verdicts = grade_batch([TASK] * 20, [f"text {i}\n```python\n{WRONG}```" for i in range(20)])
    assert len(calls) - once == 1
    assert once <= 2
    assert len(set(verdicts)) == 1


def test_progress_counts_completions():
    seen = []
    grade_batch([TASK] * 3, [f"```python\n{WRONG}```"] * 2 + ["none"], on_progress=lambda *pair: seen.append(pair))
    assert seen[-1] == (3, 3)
    assert [total for _, total in seen] == [3] * len(seen)


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="2 tasks but 1 completions"):
        grade_batch([TASK, TASK], [""])


def test_an_empty_batch_is_empty():
    assert grade_batch([], []) == []


def test_an_interrupt_leaves_nothing_running():
    def interrupt(_done, _total):
        raise KeyboardInterrupt

    loops = [f"```python\nwhile True: pass  # {i}\n```" for i in range(4)]
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        grade_batch(
            [TASK] * 6,
            [*loops, "none", f"```python\n{WRONG}```"],
            workers=2,
            limits=Limits(cpu_s=0.5),
            on_progress=interrupt,
        )
    assert time.monotonic() - started < 10
    assert judged(SOLVED).gt_pass


def test_limits_must_be_positive():
    with pytest.raises(ValueError, match="cpu_s"):
        Limits(cpu_s=0)
