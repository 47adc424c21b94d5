"""The problem's tests and setup code: what is read of a test, what is refused, and whose fault what is."""

import json
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from two_sum import SOLVED, TASK, WRONG, answer, judged, one_test

from loophole_grader import GraderError, Task, check_tests, grade_batch
from loophole_grader.oracle import read_test
from loophole_grader.verdict import Status
from projected_grpo.data.problems import load_problems
from projected_grpo.ledger.errors import BadInput

INF = float("inf")


@pytest.mark.parametrize(
    ("call", "value", "expected"),
    [
        ("f(x=[1, -2], s='a')", "[0, 1]", [0, 1]),
        ("f([1], -2.5)", "-3", -3),
        ("f()", "-inf", -INF),
        ("f(x=inf)", "[inf, (1, {'a': -inf}), {2}]", [INF, (1, {"a": -INF}), {2}]),
        ("f(x=None)", "True", True),
        ("f(b'x')", "1 + 2j", 1 + 2j),
    ],
)
def test_a_test_is_a_call_and_a_value(call, value, expected):
    assert read_test(f"assert Solution().{call} == {value}", "Solution().f")[:2] == (f"Solution().{call}", expected)
    assert read_test(f"assert {call} == {value}\n", "f")[:2] == (call, expected)


REFUSED = [
    "assert Solution().f(1)",
    "assert Solution().f(1) != 2",
    "assert Solution().f(1) == g(2)",
    "assert Solution().f(nums) == 2",
    "assert Solution().f(*[1]) == 2",
    "assert Solution().g(1) == 2",
    "assert 2 == Solution().f(1)",
    "assert Solution().f(1) == 2, 'why'",
    "x = 1\nassert Solution().f(1) == 2",
    "assert (",
]


@pytest.mark.parametrize("test", REFUSED)
def test_every_other_form_is_refused(test):
    with pytest.raises(ValueError, match=r"; write assert Solution\(\).f\(ARGUMENTS\) == VALUE in literals$"):
        read_test(test, "Solution().f")


def test_all_refused_tests_of_all_problems_are_listed_when_they_are_loaded(tmp_path):
    def row(name, *tests):
        prompt = [{"role": "user", "content": "p"}]
        return {"id": name, "prompt": prompt, "gt_answer": tests, "setup_code": "", "func_name": "Solution().f"}

    fine = "assert Solution().f(1) == 2"
    path = tmp_path / "problems.jsonl"
    rows = [row("a", fine, REFUSED[0], REFUSED[1]), row("b", fine), row("c", REFUSED[2])]
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    with pytest.raises(BadInput) as raised:
        load_problems(str(path))
    first, *lines = str(raised.value).splitlines()
    assert first == "3 faults in the problems:"
    assert [line.partition(" cannot")[0] for line in lines] == [
        f"{path}: row 1: task a: test 1", f"{path}: row 1: task a: test 2", f"{path}: row 3: task c: test 0"
    ]  # fmt: skip
    path.write_text(json.dumps(row("b", fine)) + "\n")
    assert len(load_problems(str(path))) == 1


def test_a_problem_whose_tests_are_unknown_is_graded():
    [verdict] = grade_batch([Task("bare", (), "", "Solution().f")], [f"```python\n{answer('1')}```"])
    assert (verdict.can_compile, verdict.gt_pass) == (True, False)


@pytest.mark.parametrize(("solution", "reason"), [("def (", "does not parse"), ("x = 1", "does not define Solution")])
def test_a_canonical_solution_that_could_not_stand_beside_own_tests_is_refused(solution, reason):
    with pytest.raises(GraderError, match=f"task bare: its canonical_solution {reason}"):
        check_tests([Task("bare", ("assert Solution().f(1) == 2",), "", "Solution().f", solution)])


IGNORES = "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)"


@pytest.mark.parametrize(
    ("setup", "why"), [("import os\nos._exit(0)", "its setup_code fails by itself"), (IGNORES, "")]
)
def test_setup_code_that_breaks_its_worker_gives_no_verdict_on_a_right_program(setup, why):
    task = Task("broken", TASK.tests, setup, TASK.func_name)
    broken, row = grade_batch([task, TASK], [f"```python\n{SOLVED}```"] * 2, workers=1)
    assert why in broken.message
    assert row.gt_pass


def test_setup_code_runs_once_and_every_program_starts_from_it():
    setup = "import random\nseen = []\nnumber = random.random()\nclass Base:\n    pass\n"
    code = "seen.append(1)\nBase.mark = 1\n" + answer("[len(seen), hasattr(Base, 'other')]") + "Base.other = 1\n#"
    task = one_test("assert Solution().f() == [1, True]", setup=setup)
    assert [judged(code + str(i), task=task).gt_pass for i in range(3)] == [True] * 3


FUTURE = "from __future__ import annotations\n"


@pytest.mark.parametrize(
    ("setup", "before", "right"),
    [
        ("", "# first\n" + FUTURE, True),
        ("x = 1", "'doc'\n" + FUTURE, True),
        (FUTURE, "from __future__ import division; " + FUTURE, True),
        (FUTURE, "", True),
        ("", "", False),
    ],
)
def test_a_future_import_holds_for_the_program_wherever_it_stands(setup, before, right):
    task = Task("future", TASK.tests, setup, TASK.func_name)
    assert judged(before + SOLVED.replace("nums,", "nums: NoSuchName,"), task=task).gt_pass == right


def test_a_megabyte_of_program_is_judged_and_more_is_not():
    room = (1 << 20) - len(json.dumps(f"```python\n{SOLVED}# \n```"))
    assert judged(SOLVED + "# " + "x" * room).gt_pass
    assert judged(SOLVED + "# " + "x" * (room + 1)).status == "output_limit"
    huge = [f"```python\ny = '{'z' * 85_000_000}\n```", f"```python\n{'é' * 3_000_000}\n```", "a" * 85_000_000]
    found = grade_batch([TASK] * 4, [*huge, f"```python\n{SOLVED}```"], workers=1)
    assert [(one.status, one.can_compile) for one in found] == [("output_limit", False)] * 3 + [("ok", True)]


@given(st.binary(max_size=200))
@settings(max_examples=40, deadline=None)
def test_no_report_that_a_program_writes_crashes_the_judge(report):
    code = f"import os\nos.write(3, {report!r})\n" + WRONG
    assert not judged(code).gt_pass


@given(st.text(st.characters(exclude_categories=()), max_size=80))
@settings(max_examples=40, deadline=None)
def test_no_program_crashes_the_judge(text):
    verdict = judged(WRONG + text)
    assert not verdict.gt_pass
    assert verdict.status in get_args(Status)
