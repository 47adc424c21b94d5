"""The ways a program can end, and a worker."""

import pytest
from two_sum import QUICK, SOLVED, answer, judged, one_test

from loophole_grader import Task
from loophole_grader.oracle import judge_program
from loophole_grader.sandbox.pool import Worker


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


def test_the_environment_is_empty(monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    assert judged("import os\n" + answer("dict(os.environ)"), task=one_test("assert Solution().f() == {}")).gt_pass


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
