"""The problem's tests: every form of assertion is judged outside, and a broken problem is named."""

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from two_sum import SOLVED, TASK, VACUOUS, WRONG, answer, judged, one_test

import loophole_grader.oracle as oracle
from loophole_grader import GraderError, Limits, Task, grade_batch
from loophole_grader.verdict import Status

# ---- forms of assertions

NODES = """class ListNode:
    def __init__(self, val=0, next=None):
        self.val, self.next = val, next
def list_node(values):
    head = None
    for value in reversed(values):
        head = ListNode(value, head)
    return head
def is_same_list(p, q):
    return p is q is None or (p is not None and q is not None and p.val == q.val and is_same_list(p.next, q.next))
"""


@pytest.mark.parametrize(
    ("test", "right", "wrong"),
    [
        ("assert Solution().f(1) == -inf", "float('-inf')", "0"),
        ("assert Solution().f(1) == float('inf')", "float('inf')", "0"),
        ("assert 3 == Solution().f(1)", "3", "4"),
        ("assert Solution().f(1) == {1: (2, {3})}", "{1: (2, {3})}", "{1: (2, [3])}"),
        ("assert Solution().f(1) == 1", "True", "False"),
        ("assert Solution().f(1) is True", "True", "1"),
        ("assert Solution().f(1)", "1", "0"),
        ("assert not Solution().f(1)", "0", "1"),
        ("assert abs(Solution().f(1) - 0.5) < 1e-5", "0.500001", "0.6"),
        ("assert 0 < Solution().f(1) < 2", "1", "2"),
        ("assert Solution().f(1) == Solution().f(2) == 4", "4", "5"),
        ("assert sorted(Solution().f(1)) == [1, 2]", "[2, 1]", "[2, 2]"),
        ("assert Solution().f(1) != 3", "4", "object()"),
        ("assert is_same_list(Solution().f(list_node([1, 2])), list_node([1, 2]))", "args[0]", "args[0].next"),
        ("assert is_same_list(Solution().f(1), list_node([1]))", "ListNode(1)", "[1]"),
        ("x = [3, 1]\nSolution().f(x)\nassert x == [1, 3]", "args[0].sort()", "args[0]"),
        ("r = Solution().f(2)\nassert abs(r - 4) < 0.1, 'far'", "4.01", "5"),
        ("x = [1, 2]\nk = Solution().f(x)\nassert k == 2 and x[:k] == [1, 2]", "len(args[0])", "1"),
    ],
)
def test_form_is_split_and_judged(test, right, wrong):
    task = one_test(test, setup=NODES)
    assert judged(answer(right), task=task).gt_pass
    assert not judged(answer(wrong), task=task).gt_pass


@pytest.mark.parametrize(
    ("test", "right", "wrong"),
    [
        ("assert Solution().f(1) == 3\nassert Solution().f(2) == 4", "args[0] + 2", "3"),
        ("x = []\nSolution().f(x)\nassert x == [1]\nSolution().f(x)\nassert x == [1, 1]", "args[0].append(1)", "0"),
        ("expected = [1, 2]\nassert Solution().f(1) == expected", "[1, 2]", "[1]"),
        ("eps = 0.1\nr = Solution().f(1)\nassert abs(r - 2) < eps", "2.05", "3"),
    ],
)
def test_a_test_of_several_statements_is_judged_by_each_assertion(test, right, wrong):
    assert judged(answer(right), task=one_test(test)).gt_pass
    assert not judged(answer(wrong), task=one_test(test)).gt_pass


@pytest.mark.parametrize(
    "test",
    [
        "assert abs(Solution().f(1) - 987654) == 0",
        "want = 987654\nassert Solution().f(1) == want",
        "want = list_node([987654])\nassert is_same_list(Solution().f(1), want)",
        "assert 987654 == Solution().f(1)",
    ],
)
def test_what_is_expected_is_in_no_part_that_the_sandbox_sees(test):
    [plan] = oracle.plans_of(one_test(test, setup=NODES))
    assert "987654" not in str((plan.prelude, plan.observed, plan.given))


@pytest.mark.parametrize(
    "test",
    [
        "assert all(Solution().f(x) == 3 for x in [1, 2])",
        "if Solution().f(1) != 3:\n    raise ValueError",
        "for x in (1, 2):\n    assert Solution().f(x) == 3",
        "f = Solution().f",
        "assert isinstance(Solution, type)",
    ],
)
def test_a_test_that_only_the_program_itself_could_judge_is_refused(test):
    with pytest.raises(GraderError, match="task one: test 0 cannot be judged outside"):
        judged(answer("3"), task=one_test(test))


def test_a_long_list_is_compared_by_the_recursive_helper():
    task = one_test("assert is_same_list(Solution().f(1), list_node(list(range(5000))))", setup=NODES)
    assert judged(answer("list_node(list(range(5000)))"), task=task).gt_pass


# ---- problems that are broken


def test_setup_code_that_fails_is_the_problems_fault():
    with pytest.raises(GraderError, match=r"broken.*ZeroDivisionError"):
        judged(SOLVED, task=Task("broken", TASK.tests, "1 / 0", TASK.func_name))


@pytest.mark.parametrize("setup", ["import sys\nsys.exit(0)", "x = (", "import no_such_module", "x = '\0'"])
def test_setup_code_may_fail_in_any_way(setup):
    with pytest.raises(GraderError, match="task broken: its setup_code fails by itself"):
        judged(SOLVED, task=Task("broken", TASK.tests, setup, TASK.func_name))
    assert judged(SOLVED).gt_pass


def test_setup_code_that_ends_its_process_is_a_grader_error():
    with pytest.raises(GraderError):
        judged(SOLVED, task=Task("broken", TASK.tests, "import os\nos._exit(0)", TASK.func_name))
    assert judged(SOLVED).gt_pass


def test_setup_code_runs_once_and_every_program_starts_from_it():
    setup = "import random\nseen = []\nnumber = random.random()\nclass Base:\n    pass\n"
    code = "seen.append(1)\nBase.mark = 1\n" + answer("[len(seen), hasattr(Base, 'other')]") + "Base.other = 1\n#"
    task = one_test("assert Solution().f() == [1, True]", setup=setup)
    assert [judged(code + str(i), task=task).gt_pass for i in range(3)] == [True] * 3


@pytest.mark.parametrize(
    ("setup", "compiles"), [("", True), ("'doc'", True), ("from __future__ import division", True), ("x = 1", False)]
)
def test_a_future_import_is_legal_where_it_is_in_one_piece_with_the_setup_code(setup, compiles):
    task = Task("future", TASK.tests, setup, TASK.func_name)
    assert judged("from __future__ import annotations\n" + SOLVED, task=task).can_compile is compiles


def test_more_setup_codes_than_are_kept_warm():
    tasks = [Task(str(i), (f"assert Solution().f() == {i}",), f"Y = {i}\n", "Solution().f") for i in range(12)]
    verdicts = grade_batch(tasks * 2, [f"```python\n{answer('Y')}# {i}\n```" for i in range(24)], workers=1)
    assert [verdict.gt_pass for verdict in verdicts] == [True] * 24


def test_ten_megabytes_of_program_are_judged():
    assert judged(SOLVED + "# " + "x" * 10**7).gt_pass
    assert judged(SOLVED + "y = '" + "z" * 10**7 + "'\n" + VACUOUS).status in ("ok", "memory", "compile_error")


def test_ten_megabytes_that_are_not_a_program_do_not_compile():
    assert judged("x = [" + "[" * 10**7, limits=Limits()).status in ("compile_error", "memory", "timeout")


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
    assert verdict.status != "sandbox_error"


def test_a_test_that_does_not_parse_is_the_problems_fault():
    with pytest.raises(GraderError, match=r"bad-test.*test 1"):
        judged(SOLVED, task=Task("bad-test", ("assert 1", "assert ("), "", TASK.func_name))
