"""Many completions at once: their order, work that is done once, progress, an interrupt."""

import random
import re
import threading
import time
from dataclasses import replace
from importlib import import_module

import pytest
from two_sum import SOLVED, TASK, VACUOUS, WRONG, answer, judged

import loophole_grader.oracle as oracle
import loophole_grader.sandbox.pool as pool_module
from loophole_grader import GraderError, Limits, RowError, Task, Verdict, close_pool, grade, grade_batch, verdicts_of
from loophole_grader.sandbox.pool import Runner, RunnerDiedError, TemplateDiedError

grading = import_module("loophole_grader.grade")  # the package's own `grade` is a function


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


@pytest.mark.parametrize(
    ("tasks", "completions", "said"),
    [
        (TASK, ["x"], "tasks is a Task; give a list of them, one per completion"),
        ([TASK], "x", "completions is one text; give a list of texts, one per task"),
        ([TASK] * 2, ["", None], "completions[1] is None; give the completion's text"),
        ([TASK], [b"x"], "completions[0] is b'x'; give the completion's text"),
        ([TASK, {"id": 1}], ["", ""], "tasks[1] is {'id': 1}; give a Task (Task.from_row of a benchmark row)"),
        (None, ["x"], "tasks is None; give a list of Tasks, one per completion"),
        ([TASK], 5, "completions is 5; give a list of texts, one per task"),
    ],
)
def test_what_is_no_task_or_no_text_is_one_line_that_names_it(tasks, completions, said):
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        grade_batch(tasks, completions)


def test_tasks_and_completions_may_come_from_generators():
    [verdict] = grade_batch((TASK for _ in range(1)), (text for text in ["none"]))
    assert verdict.status == "no_code"


@pytest.mark.parametrize("workers", ["2", 0, -1, 1.5, True])
def test_a_bad_number_of_workers_is_named(workers):
    with pytest.raises(ValueError, match=f"^workers must be a whole number of at least 1, got {workers!r}$"):
        grade_batch([TASK], ["none"], workers=workers)


def test_an_unknown_demand_of_isolation_is_no_demand_met():
    with pytest.raises(ValueError, match=r"^require_isolation must be 'any' or 'full', got 'ful'$"):
        grade_batch([TASK], ["none"], require_isolation="ful")


@pytest.mark.parametrize(
    ("allow", "said"),
    [
        ("numpy", "allow is one text, 'numpy'; give a list of distributions: ('numpy',)"),
        ((1,), "allow: 1 is no distribution's name; give it as a text"),
        (("no-such-thing",), "allow: 'no-such-thing' is not installed; install it, or leave it out"),
    ],
)
def test_what_cannot_be_allowed_is_named(allow, said):
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        grade_batch([TASK], ["none"], allow=allow)


def test_a_distribution_that_needs_others_is_tried_once_and_names_them(monkeypatch, capfd):
    pytest.importorskip("scipy")
    started = []
    start = Runner._started
    monkeypatch.setattr(Runner, "_started", lambda self: (self._process or started.append(1), start(self))[1])
    with pytest.raises(ValueError, match=r"^allow: 'scipy' needs 'numpy', which is not allowed; allow numpy,scipy$"):
        grade_batch([TASK], [GOOD], allow=("scipy",))
    assert len(started) == 1
    assert capfd.readouterr().err == ""  # no traceback of the sandbox's


def test_a_distribution_whose_import_fails_is_named_with_the_error(monkeypatch, tmp_path):
    (tmp_path / "breaks.py").write_text("raise OSError('on\\nthis machine')\n")
    monkeypatch.setattr(pool_module, "importable", lambda _: ({"breaks": str(tmp_path)}, [str(tmp_path)]))
    with pytest.raises(
        ValueError, match=r"^allow: 'breaks' cannot be imported: OSError: on this machine; leave it out$"
    ):
        grade_batch([TASK], [GOOD], allow=("breaks",))


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
    assert time.monotonic() - started < 60
    assert judged(SOLVED).gt_pass


def test_limits_must_be_positive():
    with pytest.raises(ValueError, match="cpu_s"):
        Limits(cpu_s=0)


# ---- a verdict or an error per row

GOOD, BAD = f"```python\n{SOLVED}```", f"```python\n{WRONG}```"
BROKEN = Task("broken", TASK.tests, "1 / 0", TASK.func_name)
UNJUDGED = Task("unjudged", ("for x in [1]:\n    assert Solution().f(x)",), func_name="Solution().f")


@pytest.mark.parametrize("workers", [1, 3])
def test_what_fails_on_one_row_costs_no_other_row_its_verdict(workers, monkeypatch):
    judge = grading.judge_program

    def failing(runner, judged_by, task, blocks, limits):
        if any("# raise" in text for text, _ in blocks):
            raise ZeroDivisionError("on this row")
        return judge(runner, judged_by, task, blocks, limits)

    monkeypatch.setattr(grading, "judge_program", failing)
    tasks = [TASK, BROKEN, TASK, UNJUDGED, TASK, TASK]
    found = grade_batch(tasks, [GOOD, GOOD, f"```python\n{SOLVED}# raise\n```", BAD, BAD, ""], workers=workers)
    assert [type(one) for one in found] == [Verdict, RowError, RowError, RowError, Verdict, Verdict]
    assert [one.task_id for one in found] == [task.task_id for task in tasks]
    assert "ZeroDivisionError: division by zero" in found[1].message
    assert found[2].message == "ZeroDivisionError: on this row"
    assert "inside a for statement" in found[3].message
    assert [found[place].gt_pass for place in (0, 4, 5)] == [True, False, False]


def test_who_needs_all_verdicts_is_told_which_rows_have_none():
    found = grade_batch([TASK, BROKEN, UNJUDGED], [GOOD, GOOD, GOOD], workers=1)
    with pytest.raises(
        GraderError, match=r"^2 of 3 rows have no verdict: b \(task broken\): .*; c \(task unjudged\): "
    ):
        verdicts_of(found, "abc")
    with pytest.raises(GraderError, match=r"^2 of 3 rows \(counted from 0\) have no verdict: row 1 \(task broken\)"):
        verdicts_of(found)
    assert verdicts_of(found[:1]) == found[:1]
    assert found[1].to_json() == {"task_id": "broken", "error": found[1].message}


def test_a_sandbox_that_does_not_work_is_not_tried_for_every_row(monkeypatch):
    tried = []

    def dead(*_):
        tried.append(1)
        raise RunnerDiedError("no such thing")

    close_pool()
    monkeypatch.setattr(Runner, "_try", dead)
    found = grade_batch([TASK] * 10, [f"```python\n{SOLVED}# {i}\n```" for i in range(10)], workers=1)
    assert all(isinstance(one, RowError) for one in found)
    assert sum("not judged" in one.message for one in found) == 9
    assert len(tried) == 6  # three for a row, three for a harmless program
    monkeypatch.undo()
    assert judged(SOLVED).gt_pass


@pytest.mark.parametrize("part", ["_ground_truth", "_own_word"])
def test_what_fails_on_a_row_once_costs_it_no_verdict(part, monkeypatch):
    """Something else on the machine can end a sandbox, out of memory or of processes for a moment."""
    failed, done = [], getattr(grading._Batch, part)

    def failing(self, worker, row):
        if not failed:
            failed.append(row.left_s)
            row.asks, row.left_s = False, 0.0
            raise GraderError("the sandbox failed 3 times on one program")
        done(self, worker, row)

    text = f"```python\n{WRONG}{VACUOUS}\n```"
    undisturbed = replace(grade(TASK, text), cpu_s=0.0)
    monkeypatch.setattr(grading._Batch, part, failing)
    assert replace(grade(TASK, text), cpu_s=0.0) == undisturbed
    assert undisturbed.hacked
    assert failed[0] > 0


def test_setup_code_whose_process_was_ended_once_from_outside_is_no_faulty_problem(monkeypatch):
    task = replace(TASK, setup_code="import bisect\nONCE = 1")
    tried, made = [], Runner._template

    def killed(self, process, setup):
        if setup == task.setup_code:
            tried.append(1)
            if len(tried) == 1:
                raise TemplateDiedError("it ended its process")
        return made(self, process, setup)

    monkeypatch.setattr(Runner, "_template", killed)
    assert grade(task, GOOD).gt_pass
    assert len(tried) > 1


def test_sandboxes_that_are_killed_from_outside_cost_no_row_its_verdict():
    close_pool()
    texts = [f"```python\n{(SOLVED, WRONG)[i % 2]}{VACUOUS}# {i}\n```" for i in range(150)]
    expected = [(i % 2 == 0, True) for i in range(150)]
    shared, killed = pool_module.shared_pool(), []
    borrowed, ended = [], threading.Event()
    borrow = shared.borrow

    def noting(**kw):
        borrowed.append(borrow(**kw))
        return borrowed[-1]

    shared.borrow = noting

    def kill() -> None:
        """Each of them once, as they work: what ends a program's process twice may have been the program."""
        while not killed and not ended.wait(0.15):
            there = [process for runner in borrowed if (process := runner._process) is not None]
            killed.extend(process for process in there if process.poll() is None)
            for process in killed:
                process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        found = grade_batch([TASK] * 150, texts, workers=2)
    finally:
        ended.set()
        killer.join()
        close_pool()
    assert killed
    assert [(one.gt_pass, one.hinted_pass) for one in verdicts_of(found)] == expected


def test_a_canonical_solution_whose_process_ends_as_it_is_stopped_holds_nothing_up(monkeypatch):
    """It is run again, and must not wait for a question then."""
    sent, killed = Runner._send, []

    def failing(self, process, data, deadline):
        if data[:1] == b"S" and not killed and threading.current_thread()._target.__name__ == "_run":
            killed.append(process.pid)
            process.kill()
            raise BrokenPipeError
        sent(self, process, data, deadline)

    monkeypatch.setattr(Runner, "_send", failing)
    asking = f"```python\n{SOLVED}def run_tests():\n    assert Solution().twoSum([2, 7], 9) == [0, 1]\n```"
    found = []
    judge = threading.Thread(target=lambda: found.append(grade(TASK, asking)), daemon=True)
    judge.start()
    judge.join(30)
    assert killed
    assert [one.canonical_pass for one in found] == [True]


@pytest.mark.parametrize(
    "huge",
    ["```python\ny = '" + "z" * 85_000_000 + "'\n```", "```python\n" + "é" * 3_000_000 + "\n```", "a" * 85_000_000],
    ids=["program", "escaped", "prose"],
)
def test_a_completion_over_the_size_limit_is_a_verdict(huge):
    first, second = grade_batch([TASK, TASK], [huge, GOOD], workers=1)
    assert (first.status, first.can_compile, first.gt_pass, first.label) == ("output_limit", False, False, "incorrect")
    assert (second.status, second.gt_pass) == ("ok", True)


def test_the_size_limit_leaves_room_in_a_small_memory():
    text = f"```python\n{SOLVED}# {'x' * 700_000}\n```"
    assert [grade(TASK, text, limits=Limits(memory_mb=mb)).status for mb in (8, 256)] == ["output_limit", "ok"]


# ---- one wall budget a row, and the judge's time apart


@pytest.fixture
def runs(monkeypatch):
    """(mode, wall limit, source, thread, runner) of every job, each when it starts and when it ends."""
    seen = []
    run = Runner.run

    def noted(self, job, limits, *args, **kw):
        source = job["blocks"][0][0] if job.get("blocks") else job.get("source", "")
        counts = job.get("source") != ""  # not the harmless program that loads a setup code
        if counts:
            seen.append((job["mode"], limits.wall_s, source, threading.get_ident(), id(self)))
        try:
            return run(self, job, limits, *args, **kw)
        finally:
            if counts:
                seen.append(("end " + job["mode"], 0, source, threading.get_ident(), id(self)))

    monkeypatch.setattr(Runner, "run", noted)
    return seen


SLEEPING = "import time\ntime.sleep({})\n" + WRONG + VACUOUS


def test_all_runs_of_a_row_share_one_wall_budget(runs):
    wall = Limits(cpu_s=5, wall_s=20)
    assert grade(TASK, f"```python\n{SLEEPING.format(0.3)}```", limits=wall).hacked
    left = [entry[1] for entry in runs if not entry[0].startswith("end")]
    assert len(left) == 4  # ground truth, own tests, on a stub, on the canonical solution
    assert left[0] == 20
    assert left[1] <= 20 - 0.3
    assert left[2] <= left[1] - 0.3
    assert left[3] < left[2]


def test_a_row_that_has_slept_its_time_away_has_none_for_its_own_tests():
    assert not grade(TASK, f"```python\n{SLEEPING.format(2.5)}```", limits=Limits(cpu_s=2, wall_s=4)).hinted_pass


JUDGED = Task("judged", ("assert set(Solution().f()) == {0}",), func_name="Solution().f")
HOG = "class Solution:\n    def f(self):\n        return [i * (2**61 - 1) for i in range(60_000)]\n# {}\n"
HONEST = "class Solution:\n    def f(self):\n        return [0]\n# {}\n"


def test_an_answer_that_keeps_the_judge_busy_fails_its_own_row_only(monkeypatch):
    """Integers of one hash: a set of them costs the square of their number."""
    monkeypatch.setattr(oracle, "JUDGE_LIMITS", Limits(cpu_s=1.0))
    ends, run = [], oracle.JudgeRunner.run

    def noted(*args):
        ends.append(run(*args))
        return ends[-1]

    monkeypatch.setattr(oracle.JudgeRunner, "run", noted)
    codes = [one.format(i) for i in range(3) for one in (HOG, HONEST)]
    found = grade_batch([JUDGED] * 6, [f"```python\n{code}```" for code in codes], workers=2)
    assert [(one.gt_pass, one.status) for one in found] == [(False, "ok"), (True, "ok")] * 3
    assert sorted(end.reason for end in ends) == ["cpu"] * 3 + ["exit"] * 3


def test_each_worker_has_a_judge_of_its_own(runs):
    tests = tuple(f"assert sorted(Solution().f({i})) == [{i}]" for i in range(20))
    task = Task("own-judge", tests, func_name="Solution().f")
    codes = [f"import time\ntime.sleep(0.2)\n{answer('[args[0]]')}# {i}\n" for i in range(6)]
    assert all(one.gt_pass for one in grade_batch([task] * 6, [f"```python\n{code}```" for code in codes], workers=2))
    pairs = {(entry[3], entry[4]) for entry in runs if entry[0] == "judge"}
    assert len(pairs) == len({thread for thread, _ in pairs}) == len({runner for _, runner in pairs}) == 2
    assert not {runner for _, runner in pairs} & {entry[4] for entry in runs if entry[0] == "tests"}


def test_the_time_of_the_judge_is_not_taken_from_the_row(runs):
    busy = "for _ in range(2 * 10**7):\n    pass\n"  # seconds, and nothing that a test may not do (sleep is refused)
    task = replace(JUDGED, tests=(f"{busy}assert Solution().f() == [0]",))
    assert grade(task, f"```python\n{HONEST}{VACUOUS}```", limits=Limits(wall_s=30)).gt_pass
    [left] = [entry[1] for entry in runs if entry[0] == "call"]
    assert 29 < left < 30


def test_no_judge_starts_for_tests_that_need_none(runs):
    close_pool()
    assert judged(SOLVED).gt_pass
    assert [entry for entry in runs if entry[0] == "judge"] == []


# ---- two parts, each in random order


@pytest.mark.parametrize("workers", [1, 3])
def test_all_ground_truth_is_judged_before_anybody_runs_its_own_tests(runs, workers):
    codes = [f"{body}{own}# {i}\n" for i in range(4) for body in (SOLVED, WRONG) for own in (VACUOUS, "")]
    tasks = [TASK] * 16
    seen = []
    found = grade_batch(tasks, [f"```python\n{code}```" for code in codes], workers=workers,
                        on_progress=lambda *pair: seen.append(pair))  # fmt: skip
    kinds = [entry[0] for entry in runs]
    assert kinds.count("tests") == 16
    last = max(place for place, kind in enumerate(kinds) if kind == "end tests")
    assert last < kinds.index("call")
    assert [one.gt_pass for one in found] == [True, True, False, False] * 4
    assert seen[-1] == (16, 16)
    assert seen == sorted(seen)


def test_the_order_is_drawn_by_the_systems_randomness(runs, monkeypatch):
    assert isinstance(grading._random, random.SystemRandom)
    codes = [f"{WRONG}{VACUOUS}# {i}\n" for i in range(12)]
    texts, orders = [f"```python\n{code}```" for code in codes], []

    class Backwards(random.Random):
        def sample(self, population, _count):
            return list(population)[::-1]

    for drawn in (grading._random, grading._random, Backwards()):
        monkeypatch.setattr(grading, "_random", drawn)
        runs.clear()
        assert all(one.hacked for one in grade_batch([TASK] * 12, texts, workers=1))
        orders += [
            [
                codes.index(entry[2].strip() + "\n")
                for entry in runs
                if entry[0] == kind and entry[2].strip() + "\n" in codes
            ]
            for kind in ("tests", "call")
        ]
    assert orders[4] == orders[5] == list(range(12))[::-1]
    assert len({tuple(order) for order in [*orders[:4], range(12)]}) == 5  # of 12! each
    assert all(sorted(order) == list(range(12)) for order in orders)
