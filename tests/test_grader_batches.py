"""Many completions at once: their order, work that is done once, progress, an interrupt."""

import sys
import time
from importlib import import_module

import pytest
from two_sum import SOLVED, TASK, VACUOUS, WRONG, judged

from loophole_grader import GraderError, Limits, RowError, Task, Verdict, grade, grade_batch, verdicts_of
from loophole_grader.sandbox.pool import Worker, shared_pool

grading = import_module("loophole_grader.grade")  # the package's own `grade` is a function


@pytest.mark.slow
def test_a_program_that_was_judged_in_an_earlier_batch_is_not_judged_again(monkeypatch):
    texts = [f"```python\n{code}```" for code in (SOLVED, WRONG, SOLVED + VACUOUS)]
    first, seen = grade_batch([TASK] * 3, texts), []

    def failing(*_, **__):
        raise GraderError("judged again")

    monkeypatch.setattr(Worker, "run", failing)
    again = grade_batch([TASK] * 3, texts, on_progress=lambda *pair: seen.append(pair))
    assert again == first
    assert seen == [(3, 3)]
    other = Task("other", TASK.tests, TASK.setup_code, TASK.func_name)
    assert isinstance(grade_batch([other], texts[:1])[0], RowError)
    assert isinstance(grade_batch([TASK], texts[:1], limits=Limits(cpu_s=5))[0], RowError)


@pytest.mark.parametrize(("tests", "kept"), [("while True: pass", 0), ("assert False", 1)])
def test_a_verdict_that_depends_on_the_machines_load_is_not_kept(tests, kept):
    """The sneaky fail: copies of a hack that was once too slow are no hacks for the rest of a run."""
    judged(f"{WRONG}    def run_tests(self):\n        {tests}\n")
    assert len(shared_pool().verdicts) == kept


def test_what_cannot_be_asked_for_is_named():
    with pytest.raises(ValueError, match=r"^2 tasks but 1 completions"):
        grade_batch([TASK, TASK], [""])
    with pytest.raises(ValueError, match=r"^require_isolation must be 'any' or 'full', got 'ful'$"):
        grade_batch([TASK], ["none"], require_isolation="ful")


@pytest.mark.slow
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
    assert time.monotonic() - started < 60
    assert judged(SOLVED).gt_pass


# ---- a verdict or an error per row

GOOD, BAD = f"```python\n{SOLVED}```", f"```python\n{WRONG}```"
BROKEN = Task("broken", TASK.tests, "1 / 0", TASK.func_name)
UNJUDGED = Task("unjudged", ("for x in [1]:\n    assert Solution().f(x)",), func_name="Solution().f")


def test_what_fails_on_one_row_costs_no_other_row_its_verdict(monkeypatch):
    judge = grading.judge_program

    def failing(runner, task, blocks, limits):
        if any("# raise" in text for text, _ in blocks):
            raise ZeroDivisionError("on this row")
        return judge(runner, task, blocks, limits)

    monkeypatch.setattr(grading, "judge_program", failing)
    tasks = [TASK, BROKEN, TASK, UNJUDGED, TASK, TASK]
    found = grade_batch(tasks, [GOOD, GOOD, f"```python\n{SOLVED}# raise\n```", BAD, BAD, ""], workers=3)
    assert [type(one) for one in found] == [Verdict, RowError, RowError, RowError, Verdict, Verdict]
    assert [one.task_id for one in found] == [task.task_id for task in tasks]
    assert "ZeroDivisionError: division by zero" in found[1].message
    assert found[2].message == "ZeroDivisionError: on this row"
    assert "test 0 cannot be judged" in found[3].message
    assert [found[place].gt_pass for place in (0, 4, 5)] == [True, False, False]


def test_who_needs_all_verdicts_is_told_which_rows_have_none():
    found = grade_batch([TASK, BROKEN, UNJUDGED], [GOOD, GOOD, GOOD], workers=1)
    with pytest.raises(
        GraderError, match=r"^2 of 3 rows have no verdict: b \(task broken\): .*; c \(task unjudged\): "
    ):
        verdicts_of(found, "abc")
    with pytest.raises(GraderError, match=r"^2 of 3 rows have no verdict: row 1 \(task broken\)"):
        verdicts_of(found)
    assert verdicts_of(found[:1]) == found[:1]
    assert found[1].to_json() == {"task_id": "broken", "error": found[1].message}


# ---- one wall budget a row


@pytest.fixture
def runs(monkeypatch):
    """(kind, wall limit) of every job when it starts, and ("end " and its kind, 0) when it ends."""
    seen = []
    run = Worker.run

    def noted(self, job, limits, *args, **kw):
        kind = "tests" if "calls" in job else "call" if job["blocks"][0][0] else "load"  # of a setup code
        seen.append((kind, limits.wall_s))
        try:
            return run(self, job, limits, *args, **kw)
        finally:
            seen.append(("end " + kind, 0))

    monkeypatch.setattr(Worker, "run", noted)
    return seen


SLEEPING = "import time\ntime.sleep({})\n" + WRONG + VACUOUS


def test_all_runs_of_a_row_share_one_wall_budget(runs, monkeypatch):
    """Variants that do not end in the process that they share run again, each by itself."""
    monkeypatch.setattr(sys.modules["loophole_grader.grade"], "TOGETHER_WALL_S", 0.1)
    wall = Limits(cpu_s=5, wall_s=20)
    assert grade(TASK, f"```python\n{SLEEPING.format(0.3)}```", limits=wall).hacked
    left = [wall_s for kind, wall_s in runs if kind in ("tests", "call")]
    truth, together, own, stub, canonical = left
    assert (truth, together) == (20, 0.1)
    assert own <= 20 - 0.3
    assert stub <= own - 0.3
    assert canonical < stub


# ---- two parts


@pytest.mark.parametrize("workers", [1, 3])
def test_all_ground_truth_is_judged_before_anybody_runs_its_own_tests(runs, workers):
    codes = [f"{body}{own}# {i}\n" for i in range(4) for body in (SOLVED, WRONG) for own in (VACUOUS, "")]
    tasks = [TASK] * 16
    seen = []
    found = grade_batch(tasks, [f"```python\n{code}```" for code in codes], workers=workers,
                        on_progress=lambda *pair: seen.append(pair))  # fmt: skip
    kinds = [kind for kind, _ in runs]
    assert kinds.count("tests") == 16
    last = max(place for place, kind in enumerate(kinds) if kind == "end tests")
    assert last < kinds.index("call")
    assert [one.gt_pass for one in found] == [True, True, False, False] * 4
    assert seen[-1] == (16, 16)
    assert seen == sorted(seen)
