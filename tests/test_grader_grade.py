"""Whole verdicts: honest solutions, wrong ones, and programs that misbehave."""

import json
from pathlib import Path

import pytest
from two_sum import QUICK, SOLVED, answer, judged, one_test

from loophole_grader import Task
from loophole_grader.oracle import judge_program
from loophole_grader.sandbox.pool import Worker

# ---- honest and wrong solutions


def test_a_main_block_does_not_run():
    assert judged(SOLVED + "\nif __name__ == '__main__':\n    raise ValueError\n").gt_pass


# ---- the ways a program can end


@pytest.mark.parametrize(
    ("code", "status", "compiles"),
    [
        ("while True: pass", "timeout", True),
        ("import sys\nsys.exit(0)", "runtime_error", True),
        ("raise ValueError", "runtime_error", True),
        ("import os\nos.kill(os.getpid(), 9)", "killed", True),
        ("input()", "runtime_error", True),
        ("x = (", "compile_error", False),
        ("x = '\0'", "compile_error", False),
        ("x = " + "-" * 100_000 + "1", "compile_error", False),
        ("x = []\nwhile True: x.append(bytes(10**7))", "memory", True),
        ("x = 'a' * 10**10", "memory", True),
        ("while True: print('x' * 1000)", "output_limit", True),
    ],
    ids=lambda value: value[:24].encode("unicode_escape").decode() if isinstance(value, str) else None,
)
def test_status(code, status, compiles):
    verdict = judged(code + "\n" + SOLVED)
    assert (verdict.status, verdict.can_compile, verdict.gt_pass) == (status, compiles, False)


# ---- isolation


def test_the_environment_is_empty(monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    assert judged("import os\n" + answer("dict(os.environ)"), task=one_test("assert Solution().f() == {}")).gt_pass


def test_the_working_directory_is_fresh_and_removed():
    code = (
        "import os\nseen = os.listdir()\nos.makedirs('a/b')\nopen('a/b/x', 'w').write('x')\nos.mkdir('a/c', 0)\n"
        + answer("[os.getcwd(), seen]")
    )
    found = []
    run = Worker()
    try:
        job = {"blocks": [[code, True]], "evaluator": "run_tests", "calls": ["Solution().f()"]}
        for _ in range(2):
            run.run(job, QUICK, lambda _, answer: found.append(json.loads(answer)))
            assert not (Path(found[-1][0]) / "a").exists()
        assert found[0] == found[1]
        assert found[0][1] == []
    finally:
        run.close()


def test_a_right_program_whose_runner_dies_between_two_tests_is_right():
    task = Task("twelve", tuple(f"assert f({i}) == {i}" for i in range(12)), "", "f")
    worker, seen = Worker(), []

    class Dying:
        """Loses its worker after some answers, once."""

        def run(self, job, limits, on_answer, setup):
            def answered(index, answer):
                seen.append(index)
                if seen == [0, 1, 2, 3]:
                    raise OSError("the pipe to the worker is broken")
                return on_answer(index, answer)

            return worker.run(job, limits, answered, setup)

    try:
        _, _, right = judge_program(Dying(), task, (("def f(x):\n    return x", True),), QUICK)
    finally:
        worker.close()
    assert right
    assert len(seen) > 12, "it was run again"


def test_a_runner_that_dies_is_replaced():
    runner = Worker()
    job = {"blocks": [["", True]], "call": "1", "variants": [None]}
    try:
        assert "done" in runner.run(job, QUICK).lines
        assert runner._process is not None
        runner._process.kill()
        assert "done" in runner.run(job, QUICK).lines
    finally:
        runner.close()
