"""Whole verdicts: honest solutions, wrong ones, and programs that misbehave."""

import json
import os
import time
from pathlib import Path

import pytest
from two_sum import QUICK, SOLVED, TASK, WRONG, answer, judged, one_test

from loophole_grader import Limits, Task, grade, reward_of
from loophole_grader.sandbox.pool import Worker

# ---- honest and wrong solutions


def test_a_textbook_solution_is_correct_and_earns_everything():
    verdict = judged(SOLVED)
    assert (verdict.label, verdict.status, verdict.tests_passed, reward_of(verdict)) == ("correct", "ok", 3, 3.5)


def test_a_wrong_answer_earns_the_compile_reward():
    verdict = judged(WRONG)
    assert (verdict.label, verdict.status, verdict.tests_passed, reward_of(verdict)) == ("incorrect", "ok", 0, 0.5)


def test_judging_stops_at_the_first_failure():
    code = SOLVED.replace("seen = {}", "seen = {}\n        if nums == [3, 2, 4]: return None")
    assert judged(code).tests_passed == 1


def test_no_code_earns_nothing():
    verdict = grade(TASK, "I would rather not.")
    assert (verdict.status, verdict.can_compile, reward_of(verdict)) == ("no_code", False, 0.0)


def test_a_task_without_tests_is_never_passed():
    verdict = judged(SOLVED, task=Task("none", (), func_name="Solution().twoSum"))
    assert (verdict.status, verdict.gt_pass) == ("ok", False)


def test_a_main_block_does_not_run():
    assert judged(SOLVED + "\nif __name__ == '__main__':\n    raise ValueError\n").gt_pass


def test_a_dataclass_in_a_solution_works():
    code = "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n"
    assert judged(code + SOLVED, task=Task("t", TASK.tests, func_name=TASK.func_name)).gt_pass


def test_deep_honest_recursion_passes():
    code = (
        "import sys, functools\nsys.setrecursionlimit(10**6)\n@functools.lru_cache(None)\ndef depth(n):\n"
        "    return 0 if n == 0 else 1 + depth(n - 1)\n" + answer("depth(args[0])")
    )
    assert judged(code, task=one_test("assert Solution().f(20000) == 20000")).gt_pass


# ---- the ways a program can end


@pytest.mark.parametrize(
    ("code", "status", "compiles"),
    [
        ("while True: pass", "timeout", True),
        ("import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass", "timeout", True),
        ("while True:\n    try:\n        while True: pass\n    except BaseException: pass", "timeout", True),
        ("import sys\nsys.exit(0)", "runtime_error", True),
        ("import os\nos._exit(0)", "runtime_error", True),
        ("raise ValueError", "runtime_error", True),
        ("import os\nos.kill(os.getpid(), 9)", "killed", True),
        ("import os\nos.abort()", "killed", True),
        ("input()", "runtime_error", True),
        ("x = (", "compile_error", False),
        ("x = '\0'", "compile_error", False),
        ("x = '\ud800'", "compile_error", False),
        ("(" * 100_000, "compile_error", False),
        ("x = " + "-" * 100_000 + "1", "compile_error", False),
        ("x = 1" + " + 1" * 100_000, "compile_error", False),
        ("x = []\nwhile True: x.append(bytes(10**7))", "memory", True),
        ("x = 'a' * 10**10", "memory", True),
        ("while True: print('x' * 1000)", "output_limit", True),
        ("import os\nwhile True: os.write(2, b'x' * 1000)", "output_limit", True),
    ],
    ids=lambda value: value[:24].encode("unicode_escape").decode() if isinstance(value, str) else None,
)
def test_status(code, status, compiles):
    verdict = judged(code + "\n" + SOLVED)
    assert (verdict.status, verdict.can_compile, verdict.gt_pass) == (status, compiles, False)


def test_a_sleeper_is_ended_by_the_wall_limit():
    started = time.monotonic()
    verdict = judged("import time\ntime.sleep(100)", limits=Limits(cpu_s=1, wall_s=0.5))
    assert verdict.status == "timeout"
    assert time.monotonic() - started < 50


@pytest.mark.parametrize("expression", ["loop", "[0] * 3_000_000", "deep"])
def test_an_answer_without_bound_is_an_output_limit(expression):
    code = "loop = []\nloop.append(loop)\ndeep = []\nfor _ in range(10**5): deep = [deep]\n" + answer(expression)
    assert judged(code, task=one_test("assert Solution().f() == [1]")).status == "output_limit"


# ---- programs that want to pass without solving


@pytest.mark.parametrize(
    "code",
    [
        "class Yes:\n    def __eq__(self, other): return True\n" + WRONG.replace("[1, 0]", "Yes()"),
        "class Yes(list):\n    def __eq__(self, other): return True\n" + WRONG.replace("[1, 0]", "Yes()"),
        "class Yes:\n    def __eq__(self, other): return True\n" + WRONG.replace("[1, 0]", "[Yes(), Yes()]"),
        "import builtins\nbuiltins.all = lambda x: True\nbuiltins.exec = lambda *a: None\n"
        "builtins.eval = lambda *a: [0, 1]\n" + WRONG,
        "import json\njson.dumps = lambda *a, **k: '[\"done\"]'\n" + WRONG,
        "print('[\"done\"]')\nprint('{\"gt_pass\": true}', flush=True)\nimport os\nos._exit(0)\n",
        'import os\nfor fd in range(64):\n    try: os.write(fd, b\'["done"]\\n["loaded"]\\nE\\x00\\x00\\x00\\x00\')\n'
        "    except OSError: pass\nos._exit(0)\n",
        "import atexit, threading\natexit.register(print, 'passed')\nthreading.Thread(target=print).start()\n" + WRONG,
        "import sys\nsys.modules['builtins'].AssertionError = None\n" + WRONG,
        'import os\nos.write(3, b\'["fail"]\\n["value"]\\n[[],{}]\\n["value",0,7]\\n["large"]\\n\\xff\\n\')\n' + WRONG,
        "import os\nos.write(3, b'[' * 10**5 + b'\\n' + b'[\"value\",0,[{\"set\":[[1]]}]]\\n')\n" + WRONG,
    ],
    ids=[
        "eq_object",
        "eq_list",
        "eq_inside",
        "builtins",
        "dumps",
        "printing",
        "fds",
        "atexit",
        "assertion",
        "report_lines",
        "report_nesting",
    ],
)
def test_a_forgery_does_not_pass(code):
    verdict = judged(code)
    assert not verdict.gt_pass
    assert verdict.label == "incorrect"


def test_the_expected_value_is_not_in_the_judged_process():
    code = (
        "import gc, sys\nclass Solution:\n    def f(self, *args):\n        found = [o for o in gc.get_objects() "
        "if isinstance(o, list) and o == [987654, 123]]\n        return found[0] if found else len(found)\n"
    )
    assert not judged(code, task=one_test("assert Solution().f(1) == [987654, 123]")).gt_pass


def test_shadowed_names_do_not_break_an_honest_solution():
    assert judged("str = len = print = type = isinstance = None\n" + SOLVED).gt_pass


def test_a_program_cannot_end_its_runner():
    if os.getuid() != 0:
        pytest.skip("only a root runner can make its children another user")
    assert judged("import os\nos.kill(os.getppid(), 9)\n" + SOLVED).status == "killed"


# ---- isolation


def test_processes_that_a_program_leaves_behind_are_ended():
    mark = f"left{time.monotonic_ns() % 10**9}"
    code = (
        "import ctypes, os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        os.setsid()\n"
        f"        if os.fork() == 0:\n            ctypes.CDLL(None).prctl(15, b'{mark}', 0, 0, 0)\n"
        "            time.sleep(97)\n        os._exit(0)\ntime.sleep(.2)\n"
    )
    assert judged(code + SOLVED).gt_pass
    names = [path.read_text() for path in Path("/proc").glob("[0-9]*/comm") if path.exists()]
    assert not [name for name in names if mark in name]


def test_a_fork_bomb_ends():
    started = time.monotonic()
    verdict = judged("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n")
    assert not verdict.gt_pass
    assert time.monotonic() - started < 60


def test_the_environment_is_empty(monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    assert judged("import os\n" + answer("dict(os.environ)"), task=one_test("assert Solution().f() == {}")).gt_pass


def test_the_working_directory_is_fresh_and_removed():
    code = (
        "import os\nseen = os.listdir()\nos.makedirs('a/b')\nopen('a/b/x', 'w').write('x')\nos.mkdir('a/c', 0)\n"
        + answer("[os.getcwd(), seen]")
    )
    run = Worker()
    try:
        job = {"mode": "tests", "source": code, "evaluator": "", "call": "Solution().f()"}
        [folder, seen] = json.loads(run.run(job, QUICK).answers[0])
        assert seen == []
        assert not (Path(folder) / "a").exists()
        [again, _] = json.loads(run.run(job, QUICK).answers[0])
        assert again == folder
    finally:
        run.close()


def test_files_have_a_size_limit():
    assert judged("open('big', 'wb').write(b'x' * 10**7)\n" + SOLVED).status in ("runtime_error", "killed")


def test_a_runner_that_dies_is_replaced():
    runner = Worker()
    job = {"mode": "call", "source": "", "call": "1"}
    try:
        assert "done" in runner.run(job, QUICK).lines
        assert runner._process is not None
        runner._process.kill()
        assert "done" in runner.run(job, QUICK).lines
    finally:
        runner.close()
