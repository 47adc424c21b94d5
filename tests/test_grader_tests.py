"""The problem's tests: every form of assertion is judged outside, and a broken problem is named."""

import dataclasses
import json
import random
import re
from typing import get_args

import drawn_tests
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from two_sum import SOLVED, TASK, VACUOUS, WRONG, answer, judged, one_test

import loophole_grader.oracle as oracle
from loophole_grader import GraderError, Limits, RowError, Task, grade_batch, verdicts_of
from loophole_grader.verdict import Status
from projected_grpo.groups.pairs import builtin_pairs
from projected_grpo.groups.problems import load_problems

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
inf = float("inf")
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


def test_a_long_list_is_compared_by_the_recursive_helper():
    task = one_test("assert is_same_list(Solution().f(1), list_node(list(range(5000))))", setup=NODES)
    assert judged(answer("list_node(list(range(5000)))"), task=task).gt_pass


# ---- tests beyond a comparison with a literal

ANYTHING = """class Anything:
    def __getattr__(self, name):
        return lambda *args, **kwargs: True


class Solution:
    def f(self, *args):
        return globals().get("expected", Anything())
"""
SEEKING = """import gc, sys
class Solution:
    def f(self, *args):
        mark, frame, found = "".join(reversed("456789")), sys._getframe(1), []
        while frame is not None:
            found += [frame.f_locals, frame.f_globals]
            frame = frame.f_back
        found += [o for o in gc.get_objects() if isinstance(o, (list, tuple, dict, set))]
        for one in found:
            for value in list(one.values()) if isinstance(one, dict) else list(one):
                if mark in (str(value) if isinstance(value, (int, str, list, tuple)) else ""):
                    return int(mark)
        return 0
"""
EMPTYING = "class Solution:\n    def f(self, nums):\n        nums.clear()\n        return nums\n"
SORTING = answer("sorted(args[0])")
HELPERS = (
    NODES
    + """
class TreeNode:
    def __init__(self, val=0, left=None, right=None):
        self.val, self.left, self.right = val, left, right
"""
)
SORT_TESTS = [
    "nums, expected = [3, 1, 2], [1, 2, 3]\nassert Solution().f(nums) == expected",
    "expected: list = [1, 2, 3]\nassert Solution().f([3, 1, 2]) == expected",
    "nums = [3, 1, 2]\nexpected = sorted(nums)\nassert Solution().f(nums) == expected",
    "expected = []\nexpected.append(1)\nexpected += [2]\nexpected.append(3)\nassert Solution().f([3, 1, 2]) == expected",
    "expected = want = [1, 2, 3]\nassert Solution().f([3, 1, 2]) == want",
    "expected = []\nfor i in range(1, 4):\n    expected.append(i)\nassert Solution().f([3, 1, 2]) == expected",
    "expected = [i + 1 for i in range(3)]\nassert expected == Solution().f([3, 1, 2])",
    "assert {tuple(Solution().f([3, 1, 2]))}.issubset({(1, 2, 3)}) and len(Solution().f([3, 1, 2])) == 3",
    "r = Solution().f([3, 1, 2])\nassert r.index(3) == 2 and r.index(1) == 0 and r == [1, 2, 3]",
    "s = Solution()\nassert s.f([3, 1, 2]) == [1, 2, 3]",
    "s = Solution()\nr = s.f([3, 1, 2])\nassert len(r) == 3\nassert r == [1, 2, 3]\nassert s.f(r) == [1, 2, 3]",
    "def chk(r): return r == [1, 2, 3]\nassert chk(Solution().f([3, 1, 2]))",
    "chk = lambda r: r == [1, 2, 3]\nassert chk(Solution().f([3, 1, 2]))",
    "def made(n): return list(range(n, 0, -1))\nassert Solution().f(made(3)) == [1, 2, 3]",
    "nums = []\nfor i in (3, 1, 2): nums.append(i)\nkept = list(nums)\nr = Solution().f(nums)\nassert r == sorted(kept)",
    "for_all = [[3, 1, 2]]\na, b, c = Solution().f(*for_all)\nassert (a, b, c) == (1, 2, 3)",
    "r = Solution().f([3, 1, 2])\nfor a, b in zip(r, [1, 2, 3]):\n    assert a == b\nassert len(r) == 3",
    "r = Solution().f([3, 1, 2])\ntry: a = r.pop(0)\nexcept IndexError: a = None\nassert a == 1 and r == [2, 3]",
    "assert Solution().f(Solution().f([3, 1, 2])) == [1, 2, 3], 'twice'",
]


@pytest.mark.parametrize("test", SORT_TESTS)
def test_a_test_of_any_covered_form_is_passed_by_an_honest_program_and_by_no_other(test):
    task = one_test(test)
    assert judged(SORTING, task=task).gt_pass
    for code in (ANYTHING, EMPTYING, answer("args[0]")):
        assert not judged(code, task=task).gt_pass


@pytest.mark.parametrize(
    "test",
    [
        "assert Solution().f([3, 1, 2]).issubset({1, 2, 3})",
        "assert Solution().f([1]).startswith('a')",
    ],
)
def test_a_method_of_the_answer_runs_on_plain_data(test):
    assert not judged(ANYTHING, task=one_test(test)).gt_pass
    honest = {"issubset": "{1}", "startswith": "'abc'"}
    expression = next(value for key, value in honest.items() if key in test)
    assert judged(answer(expression), task=one_test(test)).gt_pass


@pytest.mark.parametrize(
    ("test", "right", "wrong"),
    [
        ("nums = [3, 1, 2]\nSolution().f(nums)\nassert nums == [1, 2, 3]", "args[0].sort()", "[1, 2, 3]"),
        ("nums = [3, 1, 2]\ns = Solution()\ns.f(nums)\nassert nums == sorted([3, 1, 2])", "args[0].sort()", "0"),
        ("x = [1, 1, 2]\nk = Solution().f(x)\nassert k == 2\nassert x[:k] == [1, 2]", "args[0].pop(0) + 1", "2"),
        ("x = [1, 1, 2]\nk = Solution().f(x)\nx = x[:k]\nassert sorted(x) == [1, 2]", "args[0].pop(0) + 1", "2"),
        ("b = [[1, 2], [3, 4]]\nSolution().f(b)\nassert b == [[2, 1], [4, 3]]", "[r.reverse() for r in args[0]]", "0"),
        ("a, b = [1], [2]\nSolution().f(a, b)\nassert a == [1, 2] and b == []", "args[0].append(args[1].pop())", "0"),
        ("a = [1]\nassert Solution().f(a) == 3\nassert a == [3]", "args[0].append(args[0].pop() + 2) or 3", "3"),
        ("h = list_node([1, 2])\nSolution().f(h)\nassert is_same_list(h, list_node([1, 5]))",
         "setattr(args[0].next, 'val', 5)", "0"),
        ("h = list_node([1, 2])\nassert is_same_list(Solution().f(h), list_node([2]))", "args[0].next", "args[0]"),
        ("t = TreeNode(1, TreeNode(2))\nassert Solution().f(t) == 2", "args[0].left.val", "1"),
        ("n = 4\nassert Solution().f(n) == n * n", "args[0] ** 2", "args[0]"),
        ("n, k = 4, 'ab'\nr = Solution().f(n, k)\nassert r == k * n", "args[1] * args[0]", "args[1]"),
        ("import random\nx = [random.random()]\nwant = x[0]\nassert Solution().f(x) == want", "args[0][0]", "0"),
        ("from math import floor\nassert Solution().f(floor(2.5)) == floor(2.5)", "args[0]", "3"),
        ("class Case:\n    n = 3\nassert Solution().f(Case.n) == 3", "args[0]", "4"),
        ("pass\n'a word'\nassert Solution.f(None, 1) == 1", "args[0]", "2"),
    ],
)  # fmt: skip
def test_arguments_are_passed_and_looked_at_afterwards(test, right, wrong):
    task = one_test(test, setup=HELPERS)
    assert judged(answer(right), task=task).gt_pass
    assert not judged(answer(wrong), task=task).gt_pass


CACHE = """class LRUCache:
    def __init__(self, size):
        self.size, self.kept = size, {}
    def get(self, key):
        if key not in self.kept:
            return -1
        self.kept[key] = self.kept.pop(key)
        return self.kept[key]
    def put(self, key, value):
        self.kept.pop(key, None)
        self.kept[key] = value
        if len(self.kept) > self.size:
            del self.kept[next(iter(self.kept))]
"""
CACHE_TEST = (
    "obj = LRUCache(2)\nobj.put(1, 1)\nobj.put(2, 2)\nassert obj.get(1) == 1\nobj.put(3, 3)\nassert obj.get(2) == -1\n"
    "other = LRUCache(1)\nother.put(4, obj.get(3))\nassert other.get(4) == 3 and obj.get(4) == -1\n"
)


def test_a_class_design_problem_is_judged_call_by_call():
    task = Task("design", (CACHE_TEST,), func_name="LRUCache")
    assert judged(CACHE, task=task).gt_pass
    assert not judged(CACHE.replace("> self.size", "> 9"), task=task).gt_pass
    assert not judged(ANYTHING.replace("Solution", "LRUCache"), task=task).gt_pass
    assert not judged("class LRUCache:\n    def __getattr__(s, n): return lambda *a: 1\n", task=task).gt_pass


def test_a_solution_may_be_a_function():
    task = Task("plain", ("r = sort_it([2, 1])\nr.append(3)\nassert r == [1, 2, 3]",), func_name="sort_it")
    assert judged("def sort_it(x): return sorted(x)", task=task).gt_pass
    lying = "class L(list):\n    def append(s, x): s[:] = [1, 2, 3]\ndef sort_it(x): return L([7])"
    assert not judged(lying, task=task).gt_pass


EXPOSED = [
    ("a, b = [1], [987654]\nassert Solution().f(a) == b", []),
    ("want: int = 987654\nassert Solution().f(1) == want", []),
    ("want = [987653 + 1]\nx = [1]\nassert Solution().f(x) == want", []),
    ("want = []\nwant.append(987654)\nassert chk(Solution().f(1), want)\ndef chk(a, b): return a == b", []),
    ("assert Solution().f(1) == 987654\nassert Solution().f(987654) == 2", [1]),
    ("assert Solution().f(1) + Solution().f(987654) == 987654", [1]),
    ("s = Solution(987654)\ns.f(3)\nassert s.f(1) == 987654", [0]),
]


@pytest.mark.parametrize(("test", "exchanges"), EXPOSED)
def test_a_value_is_in_the_sandbox_from_the_call_that_has_it_on(test, exchanges):
    setup = "def chk(a, b):\n    return a == b\n"
    plans = oracle.plans_of(one_test(test, setup=setup))
    assert [i for i, p in enumerate(plans) if "987654" in str((p.prelude, p.observed))] == exchanges
    assert not any(plan.given for plan in plans)


SOUGHT = [
    "a, b = 1, 987654\nassert Solution().f(a) == b",
    "want = [987653 + 1]\nx = [1]\nassert [Solution().f(x)] == want",
    "a, x = [], []\nfor i in range(2):\n    a.append(987652 + i)\n    x.append(i)\nassert Solution().f(x) == a[1] + 1",
    "x = [987655 - 1]\nwant = x.pop()\nassert Solution().f(x) == want",
    "def chk(r): return r == 987654\nassert chk(Solution().f(1))",
]


@pytest.mark.parametrize("test", SOUGHT)
def test_a_program_that_looks_everywhere_finds_no_expected_value(test):
    assert not judged(SEEKING, task=one_test(test)).gt_pass
    assert judged(answer("987654"), task=one_test(test)).gt_pass


def test_the_program_that_looks_everywhere_finds_what_is_there():
    """The sneaky fail of the test above: a search that could not find anything."""
    assert judged(SEEKING, task=one_test("assert Solution().f(987654) == 987654")).gt_pass


REFUSED = [
    ("assert all(Solution().f(x) == 3 for x in [1, 2])", 1, "while it runs"),
    ("x = 1\nif Solution().f(1) != 3:\n    raise ValueError\nassert x", 2, "inside a if statement"),
    ("for x in (1, 2):\n    assert Solution().f(x) == 3", 1, "inside a for statement"),
    ("def chk(x):\n    return Solution().f(x)\nassert chk(1) == 3", 1, "inside a function statement"),
    ("f = Solution().f\nassert f(1) == 3", 1, "itself"),
    ("s = Solution()\nassert chk(s)", 2, "'s' itself"),
    ("assert isinstance(Solution, type)", 1, "'Solution' itself"),
    ("class Solution:\n    pass\nassert Solution().f(1) == 3", 1, "own name"),
    ("a = [1]\nd = dict(k=lambda: a)\nassert Solution().f(a) == d['k']()", 3, "'d' in the same statement may read it"),
    ("a = [1]\nm = max([], default=lambda: a)\nassert Solution().f(a) == m()", 3, "'m' in the same statement may"),
    ("a = [1]\nm = list(map(lambda v: lambda: a, [1]))\nassert Solution().f(a) == m[0]()", 3, "'m' in the same"),
    ("s = [Solution()]\nassert s[0].f(1) == 3", 1, "itself"),
    ("s = Solution()\nassert s.size == 3", 2, "itself"),
    ("r = Solution().f(1)\nassert Solution().f(r + 1) == 3", 2, "computed from what the program had"),
    ("r = Solution().f(1)\nr.sort()\nassert Solution().f(r) == 3", 3, "a call after line 2"),
    ("s = Solution()\nassert s.f([s]) == 3", 2, "pass plain values"),
    ("assert (n := Solution().f(1)) == 3", 1, "out of sight"),
    ("from math import *\nassert Solution().f(floor(2.5)) == 2", 1, "out of sight"),
    ("x = 1\ndef add():\n    global x\n    x += 1\nassert Solution().f(x) == 2", 3, "out of sight"),
    ("Solution().f(1)", 1, "asserts nothing"),
    ("assert Solution().f(1) or Solution().f(2)", 1, "while it runs"),
    ("assert helper(3) == 4", 1, "'helper' is neither a builtin"),
    ("x = [1]\nassert Solution().f(x) == sorted(x)", 2, "in the same statement"),
    ("x = [1]\ndef chk(r): return r == sorted(x)\nassert chk(Solution().f(x))", 3, "in the same statement"),
    ("x = [1]\nr = Solution().f(x)\nassert r == sorted(x)", 3, "an argument that it could change"),
    ("x = [1]\nr = Solution().f(x)\nwant = sorted(x)\nassert r == want", 4, "an argument that it could change"),
    ("x = [1]\ndef chk(r): return r == x\nr = Solution().f(x)\nassert chk(r)", 4, "an argument that it could change"),
    ("x = [1]\nr = Solution().f(x)\nassert r - sum(x) == 0", 3, "an argument that it could change"),
    ("x = [1]\nr = Solution().f(x)\nassert all(a in x for a in r)", 3, "an argument that it could change"),
    ("x = [1]\nr = Solution().f(x)\nfor a in r:\n    assert a in x", 3, "an argument that it could change"),
    ("x = [1]\nr = Solution().f(x)\nassert 0 <= r <= len(x)", 3, "an argument that it could change"),
    ("x = [1]\nSolution().f(x)\nassert x == sorted(x)", 3, "an argument that it could change"),
    ("assert (", 1, "does not parse"),
    ("assert [v for u in [1] for v in Solution().f(u)] == [1]", 1, "while it runs"),
    ("assert [v for v in Solution().f(1) if Solution().f(v)] == [1]", 1, "while it runs"),
    ("n = 5\nmatch {1: 2}:\n    case {**n}: pass\nassert Solution().f(n) == 1", 2, "a match statement"),
    (f"assert Solution().f(0x{'f' * 5000}) == 1", 1, "a number that is too long"),
    (f"assert Solution().f(1) != 0x{'f' * 5000}", 1, "a number that is too long"),
    ("", 1, "asserts nothing"),
    ("assert Solution().f(one, 2) == 3", 1, "'one' is neither a builtin"),
    ("assert Solution().f(len(zzz)) == 3", 1, "'zzz' is neither a builtin"),
    ("s = Solution()\nassert s.f([i for i in (1, q)], k=2) == 3", 2, "'q' is neither a builtin"),
    ("s = Solution(size)\nassert s.f(1) == 3", 1, "'size' is neither a builtin"),
    ("assert Solution().f(later) == 3\nlater = 1", 1, "'later' is neither a builtin"),
    ("assert Solution().f(Solution().f(*rows)) == 3", 1, "'rows' is neither a builtin"),
    ("a = [1]\nb = id(a)\nassert id(Solution().f(a)) == b", 2, "'id' asks which object"),
    ("same = id\nassert same(Solution().f(1)) == 3", 1, "'id' asks which object"),
    ("a = [1]\nassert Solution().f(1) is a", 2, "Solution().f(1) is a' asks whether two are one object"),
    ("def chk(r): return r is not [1]\nassert chk(Solution().f(1))", 1, "asks whether two are one object"),
    ("assert Solution().f(1) is 'ab'", 1, "asks whether two are one object"),
    ("import operator as o\nassert not o.is_(Solution().f(1), [1])", 2, "asks whether two are one object"),
    ("from operator import is_not\nassert is_not(Solution().f(1), [1])", 1, "asks whether two are one object"),
    (
        "a = [3, 1]\ne = (i for i in a)\nassert Solution().f(a) == list(e)",
        3,
        "'e' in the same statement may read it; pass a copy: copy.deepcopy",
    ),
    (
        "import time\ntime.sleep(0)\nassert Solution().f(1) == 3",
        1,
        "'time' is a clock or random, another value each time; write a",
    ),
]


@pytest.mark.parametrize(("test", "line", "reason"), REFUSED)
def test_a_test_outside_the_grammar_is_refused_with_its_line_and_the_reason(test, line, reason):
    task = one_test(test, setup="import math")
    line_and_reason = rf"line {line}: .*{re.escape(reason)}"
    with pytest.raises(GraderError, match=f"task one: test 0 cannot be judged .*: {line_and_reason}"):
        oracle.check_tests([task])
    [found] = grade_batch([task], [f"```python\n{answer('3')}```"])
    assert isinstance(found, RowError)
    assert reason in found.message


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        (
            "from collections import defaultdict\nx = defaultdict(int)\nassert Solution().f(x) == 1",
            "holds a defaultdict",
        ),
        ("class P: pass\nx = [P()]\nassert Solution().f(x) == 1", "holds a P"),
        ("x = list_node([1])\nx.next = x\nassert Solution().f(x) == 1", "contains itself"),
        ("x = list_node([1])\nx.seen = 0\nassert Solution().f(x) == 1", "a ListNode has 'seen' beside val, next"),
        (
            "x = TreeNode(1)\nx.left = Sized(1)\nassert Solution().f([x]) == 1",
            "a TreeNode has 'size' beside val, left, right",
        ),
        ("x = list_node([{1: Exception}])\nassert Solution().f(x) == 1", "holds a type"),
        ("from collections import deque\nx = deque([1], maxlen=2)\nassert Solution().f(x) == 1", "a deque with maxlen"),
        ("x = [1] / 2\nassert Solution().f(x) == 1", "TypeError"),
        ("while True: pass\nx = [i for i in range(2)]\nassert Solution().f(x) == 1", "does not end"),
        ("import os\nx = os._exit(0)\nassert Solution().f(x) == 1", "ends the process"),
    ],
)
def test_an_argument_that_cannot_be_computed_or_shipped_is_refused(test, reason, monkeypatch):
    monkeypatch.setattr(oracle, "JUDGE_LIMITS", Limits(cpu_s=0.5))
    setup = HELPERS + "def Sized(x):\n    made = TreeNode(x)\n    made.size = 1\n    return made\n"
    task = one_test(test, setup=setup)
    with pytest.raises(GraderError, match=f"task one: test 0 cannot be judged outside the program: .*{reason}"):
        oracle.check_tests([task])


def test_an_expected_value_that_no_answer_can_equal_is_refused():
    expected = ("[" * 101 + "]" * 101, "[" * 102 + "]" * 102, "[0] * 2_000_000")
    tests = [f"assert Solution().f(1) == {value}" for value in expected]
    with pytest.raises(GraderError) as raised:
        oracle.check_tests([Task("large", tuple(tests), "", "Solution().f")])
    why = r"what is expected of Solution\(\).f\(1\) is nested more than 100 deep, or has more than 2,000,000 values; compare"
    assert [re.match(rf"task large: test \d .*: {why}", line) is None for line in str(raised.value).splitlines()] == [
        True, False, False
    ]  # fmt: skip


def test_a_million_numbers_are_judged_and_what_is_too_much_for_the_judge_is_an_output_limit(monkeypatch):
    test = one_test("r = Solution().f(1)\nassert len(r) == 10**6\nassert r == list(range(10**6))")
    assert judged(answer("list(range(10**6))"), task=test, limits=Limits()).gt_pass
    monkeypatch.setattr(oracle, "JUDGED_BYTES", 1000)
    found = judged(answer("list(range(10**6))"), task=test, limits=Limits())
    assert (found.gt_pass, found.status) == (False, "output_limit")


def test_nodes_with_slots_are_passed_by_name():
    setup = """class ListNode:
    __slots__ = ("val", "next")
    def __init__(self, val, next=None):
        self.val, self.next = val, next
"""
    task = one_test("h = ListNode(1, ListNode(2))\nassert Solution().f(h) == 2", setup=setup)
    oracle.check_tests([task])
    assert judged(answer("args[0].next.val"), task=task).gt_pass


def test_all_refused_tests_of_all_problems_are_listed_when_they_are_loaded(tmp_path):
    def row(name, *tests):
        prompt = [{"role": "user", "content": "p"}]
        return {"id": name, "prompt": prompt, "gt_answer": tests, "setup_code": "", "func_name": "Solution().f"}

    fine = "assert Solution().f(1) == 2"
    rows = [row("a", fine, REFUSED[0][0], REFUSED[1][0]), row("b", fine), row("c", REFUSED[2][0])]
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    with pytest.raises(GraderError) as raised:
        load_problems(str(path))
    lines = str(raised.value).splitlines()
    assert [line.partition(" cannot")[0] for line in lines] == [
        "3 tests", "task a: test 1", "task a: test 2", "task c: test 0"
    ]  # fmt: skip
    assert ["line 1" in lines[1], "line 2" in lines[2], "line 1" in lines[3]] == [True] * 3
    path.write_text(json.dumps(row("b", fine)) + "\n")
    assert len(load_problems(str(path))) == 1


@pytest.mark.parametrize("problem", ["toy", "toy-held-out", "builtin"])
def test_no_test_of_the_projects_own_problems_is_refused(problem):
    oracle.check_tests(p.task for p in load_problems(problem)[::16])


def test_no_test_of_the_builtin_pairs_is_refused():
    oracle.check_tests(pair.problem.task for pair in builtin_pairs() if pair.problem)


def test_a_helper_of_the_setup_code_that_calls_the_solution_is_refused():
    setup = (
        "def run(x):\n    return Solution().f(x)\ndef twice(x):\n    return 2 * run(x)\ndef same(x):\n    return x\n"
    )
    for helper in ("run", "twice"):
        with pytest.raises(GraderError, match=f"line 1: '{helper}' of the setup code calls the solution"):
            oracle.plans_of(one_test(f"assert {helper}(3) == 4", setup=setup))
    assert judged(answer("3"), task=one_test("assert same(Solution().f(3)) == same(3)", setup=setup)).gt_pass


# ---- as plain Python judges, with the program in the same process


@pytest.mark.parametrize(
    "test",
    [
        "assert Solution().f([i for i in (1, 2)], key=lambda v: v) is None",
        "assert type(Solution().f(1)) is list",
        "r = Solution().f(1)\nassert type(r) is type([]) and r is not None",
        "def same(p, q): return p is q is None or p == q\nassert same(Solution().f(1), [1])",
        "rows = [id for id in (1, 2)]\nassert Solution().f(rows) == [1]",
        "def take(id): return id\nassert Solution().f(take(1)) == [1]",
    ],
)
def test_what_only_looks_like_an_unknown_name_or_a_question_of_identity_is_accepted(test):
    oracle.plans_of(one_test(test))


def test_names_that_setup_code_may_bring_out_of_sight_are_taken_to_be_there():
    oracle.plans_of(one_test("assert Solution().f(whatever) == 1", setup="from no_such_module import *"))


@pytest.mark.parametrize(
    "tests",
    [
        ("assert 1 == 1",),
        ("x = 1\nassert x == 1", "assert True"),
        ("s = Solution()\nassert 1 == 1",),
        ("Solution().f(1)\nassert 1 == 1",),
    ],
)
def test_a_problem_whose_tests_look_at_nothing_of_the_program_is_refused(tests):
    task = Task("blind", tests, "", "Solution().f")
    with pytest.raises(
        GraderError, match=r"^task blind: no test calls the solution and looks at what it returns or changes"
    ):
        oracle.check_tests([task])
    [found] = grade_batch([task], [f"```python\n{answer('1')}```"])
    assert isinstance(found, RowError)
    oracle.check_tests([dataclasses.replace(task, tests=(*tests, "assert Solution().f(1) == 2"))])


KEEPING = "s.kept.extend(x)\n        return s.kept"
APPENDING = "[one.append(9) for one in s.kept]\n        s.kept = [x]"
GROWN = """def grown(values):
    out, todo = [], [values]
    for one in todo:
        out += one
    return out
def same(a, b): return a == b
"""
AS_PLAIN = [
    ("", "n = 3\nassert Solution().f(n + 1) == 4", "return x"),
    ("", "nums = [1, 2]\nassert Solution().f(nums[0]) == 1", "return x"),
    ("", "k = 'ab'\nassert Solution().f(f'{k}c') == 'abc'", "return x"),
    ("", "nums = [1, 2]\nexpected = 2\nassert Solution().f(len(nums)) == expected", "return x"),
    ("", "n = 3\nassert Solution().f([n]) == [3] and Solution().f(-n) == -3", "return x"),
    ("", "inf = 10**9\nassert Solution().f(1) == [1, inf]", "return [1, 10**9]"),
    ("inf = 10**9\n", "assert Solution().f(1) == inf", "return 10**9"),
    ("from math import *\n", "assert Solution().f(1) == inf", "return float('inf')"),
    ("nan = -1\n", "assert Solution().f(1) == nan", "return -1"),
    ("def set(): return 7\n", "assert Solution().f(1) == set()", "return 7"),
    ("", "a, a = 1, 2\nassert Solution().f(1) == a", "return 2"),
    ("", "a = b = (1, 2)\nassert Solution().f(b) == a", "return x"),
    ("", "x = [1]\nassert x.pop() == 1\nassert Solution().f(x) == 0", "return len(x)"),
    ("", "x = [1, 2]\nr = Solution().f(x.pop())\nassert (r, x) == (2, [1])", "return x"),
    ("", "x = [1]\nfor i in range(2):\n    x.append(i)\nassert Solution().f(x) == [1, 0, 1]", "return x"),
    ("", "fs = []\ndef add(): x.append(2)\nx = [1]\nfs.append(add)\nfs[0]()\nassert Solution().f(x) == 2", "return len(x)"),
    ("", "s = Solution()\nx = [i for i in (1, 2)]\ns.f(x)\nx = [3]\ns.f(x)\nassert s.f(x) == [1, 2, 3, 3]", KEEPING),
    ("", "s = Solution()\nr = s.f([1])\ns.f([2])\nassert r == [1, 2]", KEEPING),
    ("", "s = Solution()\na = [1]\ns.f(a)\ns.f([2])\nassert a == [1, 9]", APPENDING),
    ("", "s = Solution()\nassert [s.f([1]), s.f([2])] == [[1, 2], [1, 2]]", KEEPING),
    ("", "s = Solution()\nassert s.f([1]) == [1] and s.f([2]) == [1, 2]", KEEPING),
    ("", "x = [1]\nassert Solution().f(x) == [1] and x == [1]", "return x"),
    ("", "r = sorted(Solution().f([2, 1]))\nr.append(3)\nassert r == [1, 2, 3] and Solution().f(1) == 1", "return x"),
    ("", "a = [i * 7 % 5 for i in range(5)]\ne = sorted(a)\nassert Solution().f(a) == e", "return sorted(x)"),
    ("", "a = [2, 1]\ne = sum(v for v in a)\nassert Solution().f(a) == e", "return sum(x)"),
    ("", "a = [2, 3]\ne = sorted(map(lambda v: -v, a), key=lambda v: v)\nassert Solution().f(a) == e", "return [-3, -2]"),
    ("import copy\n", "a = [3, 1]\ne = (i for i in a)\nassert Solution().f(copy.deepcopy(a)) == list(e)", "return x"),
    ("import copy\n", "x = [3]\ndef g(r): return r == x\nassert g(Solution().f(copy.deepcopy(x)))", "return x"),
    ("from datetime import *\n", "assert Solution().f(date(2024, 2, 28)) == date(2024, 2, 29)",
     "return x + timedelta(1)"),
    ("", "assert all(v >= 0 for v in Solution().f([1]))", "return x"),
    ("", "assert [v * 2 for v in Solution().f([1, 2])] == [2, 4] and 2 in {v: 1 for v in Solution().f([2])}", "return x"),
    (
        GROWN,
        "assert same(Solution().f(grown([1, 2])), grown([1, 2]))\nassert same(Solution().f([1]), grown([1]))",
        "return x",
    ),
    ("", "s: Solution = Solution()\nr: list = s.f([1])\nassert r == [1] and s.f(2) == 2", "return x"),
    ("import string, math\nLET = string.ascii_lowercase\nR2 = math.sqrt(2)\nPI = math.pi\n",
     "assert Solution().f(LET + str(R2 < PI)) == LET + 'True'", "return x"),
    ("from collections import namedtuple\nPoint = namedtuple('Point', 'x y')\n",
     "assert Solution().f(Point(1, 2)) == (1, 2)", "return x"),
    ("import datetime as d\n", "a = [d.date(2024, 1, 1)]\ne = [d.timedelta(days=1)]\nassert Solution().f(a) == e",
     "return [d.date(2024, 1, 2) - x[0]]"),
]  # fmt: skip


@pytest.mark.parametrize(("setup", "test", "right"), AS_PLAIN)
def test_what_is_accepted_is_judged_as_in_one_process(setup, test, right):
    task = one_test(test, setup=setup)
    oracle.check_tests([task])
    for body in (right, "return float('inf')", "return 5"):
        code = f"class Solution:\n    def __init__(s): s.kept = []\n    def f(s, x):\n        {body}\n"
        plain = drawn_tests.passes(test.split("\n"), code, setup=setup)
        assert plain or body != right
        assert judged(code, task=task).gt_pass is plain


APART = [
    (
        "a = b = []\na.append(1)\nassert a == [1]\nr = Solution().f(b)\nassert a == [1]",
        "shares a list with 'a'.*deepcopy",
    ),
    ("nums = [2, 1]\nsame = nums\nSolution().f(nums)\nassert same == [1, 2]", "shares a list with 'same'.*deepcopy"),
    ("a = [0]\ng = [a, a]\nSolution().f(g)\nassert g == [[1], [1]]", "one list twice.*deepcopy"),
    ("a = [[1]]\nb = list(a)\nSolution().f(b)\nassert a == [[1]]", "shares what it holds with a list"),
    ("a = [1]\ndef kept(v=a): return v\nSolution().f(a)\nassert kept() == [1]", "shares what it holds with a tuple"),
    ("a = [1]\nSolution().f([a])\nassert a == [1]", "shares a list with 'a'"),
    ("h = list_node([1])\ng = [h, h]\nassert Solution().f(g) == 1", "one ListNode twice"),
    (
        "nums = [3, 1]\nSolution().f(nums)\nfor a, b in zip(nums, nums[1:]):\n    assert a <= b",
        "line 3: .*could change",
    ),
    ("nums = [3, 1]\nSolution().f(nums)\nassert all(a <= b for a, b in zip(nums, nums[1:]))", "line 3: .*could change"),
    ("TABLE.append(4)\nassert Solution().f(1) == 10", "line 1: 'TABLE' of the setup code.*in the test itself"),
    ("assert Solution().f(TABLE) == 10", "line 1: 'TABLE' of the setup code"),
    ("Solution().f(TABLE)\nassert TABLE == [1]", "line 1: 'TABLE' of the setup code"),
    ("x = [TABLE]\nassert Solution().f(x) == 10", "line 1: 'TABLE' of the setup code"),
    ("assert Solution().f(looked_up()) == 10", "line 1: 'looked_up' of the setup code"),
    ("assert Solution().f(next(ids)) == 0", "line 1: 'ids' of the setup code"),
    (
        "r = Solution().f(1)\nq = r\nSolution().f(2)\nassert q == [1]",
        "line 4: 'q' cannot be told here: the call of line 3",
    ),
    ("a = [1]\nr = Solution().f(a)\nr.append(1)\nassert a == [1]", "line 4: 'a' cannot be told here: line 3 may"),
    ("r = Solution().f(1)\nr[0].append(1)\nassert r == [[1]]", "line 3: 'r' cannot be told"),
    ("r = Solution().f(1)\nfor one in r:\n    one.append(1)\nassert r", "line 2: .*fresh copies"),
    ("r = Solution().f(1)\nassert Solution().f(2) == r", "line 2: 'r' is the program's and read in the same statement"),
    ("a = [1]\nassert Solution().f(a) is a", "line 2: "),
    ("a = [1]\nr = Solution().f(a)\nassert r is a", "line 3: .* asks whether two are one object"),
    ("assert sorted(Solution().f(1)) == sorted(Solution().f(2))", "line 1: .*bind each answer"),
    ("x = 0 and Solution().f(1)\nassert x == 0", "line 1: .*only while it runs"),
    ("assert not 2 < 1 < Solution().f(1)", "line 1: .*only while it runs"),
    ("c = [1]\nassert Solution().f(c) == Solution().f(c.pop())", "line 2: argument 'c.pop..' is computed"),
    ("it = iter([1])\nr = Solution().f(1)\nassert r == list(it)\nassert Solution().f(list(it)) == 1", "used it up"),
    ("assert Solution().f(1) == inf", "line 1: 'inf' is neither"),
    ("globals()['x'] = 1\nassert Solution().f(1) == x", "line 1: 'globals' reaches names out of sight"),
    ("import time\nassert Solution().f(time.time()) > 0", "'time' is a clock or random"),
    ("_answer0 = 3\nassert Solution().f(1) == _answer0", "line 1: it binds '_answer0'"),
    ("r = Solution().f(1)\nr.append(9)\nassert Solution().f(2) == [1]", "line 3: a call after line 2, .*fresh copy"),
    ("a = [1]\nSolution().f(a)\na[0] = 5\nassert Solution().f(2) == [1]", "line 4: a call after line 3"),
    ("a = [1]\ns = Solution(a)\na.append(5)\nassert s.f(2) == [1]", "line 4: a call after line 3"),
    ("Solution().f(1).append(5)\nassert Solution().f(2) == [1]", "line 2: a call after line 1"),
    ("assert Solution().f(1).pop() == 2 and Solution().f(2) == [1]", "line 1: a call after line 1"),
    ("r = Solution().f(1)\nassert pushed(r)\nassert Solution().f(2) == [1]", "line 3: a call after line 2"),
    ("r = Solution().f(1)\nlist.append(r, 1)\nassert Solution().f(2) == [1]", "line 3: a call after line 2"),
    ("r = Solution().f(1)\nx = list(map(list.sort, r))\nassert Solution().f(2) == [1]", "line 3: a call after line 2"),
    ("r = Solution().f(1)\nx = r.__iadd__\nassert Solution().f(2) == [1]", "line 3: a call after line 2"),
    ("r = Solution().f(1)\nr += [2]\ns = Solution()\nassert r == [1, 2]", "line 3: a call after line 2"),
    ("r = Solution().f(1)\ndel r[0]\nassert Solution().f(2) == [1]", "line 3: a call after line 2"),
    (
        "import heapq\nr = Solution().f(1)\nheapq.heapify(r)\nassert Solution().f(2) == [1]",
        "line 4: a call after line 3",
    ),
]
KEPT = (
    NODES.replace("inf =", "other =")
    + """import itertools
TABLE = [1]
ids = itertools.count()
def pushed(x):
    x.append(1)
    return x
def looked_up(): return TABLE
"""
)


@pytest.mark.parametrize(("test", "reason"), APART)
def test_what_could_be_judged_otherwise_than_in_one_process_is_refused(test, reason):
    with pytest.raises(GraderError, match=f"(?s)task one: test 0 cannot be judged outside the program: .*{reason}"):
        oracle.check_tests([one_test(test, setup=KEPT)])


HELPED = """import heapq, sys
from collections import *
EPS = 10
def close(a, b):
    heap = [a]
    return abs(heapq.heappop(heap) - b) < EPS
off = lambda x: x % EPS
"""


@pytest.mark.parametrize(
    ("test", "name"),
    [
        ("EPS = 1e-9\nassert close(Solution().f(1), 1.1)", "EPS"),
        ("EPS *= 1e-9\nassert off(Solution().f(1)) == 1", "EPS"),
        ("for EPS in range(3): pass\nassert Solution().f(off(1)) == 1", "EPS"),
        ("def abs(x): return 0\nassert close(Solution().f(1), 2)", "abs"),
        ("import math as heapq\nassert close(Solution().f(1), 2)", "heapq"),
    ],
)
def test_a_name_that_a_helper_of_the_setup_code_reads_may_not_be_bound_by_a_test(test, name):
    with pytest.raises(GraderError, match=f"line 1: it binds '{name}', which .*setup code reads.*another name"):
        oracle.check_tests([one_test(test, setup=HELPED)])


def test_names_that_helpers_bind_for_themselves_and_the_same_imports_may_be_bound():
    test = (
        "import heapq\nheap = a = x = 1\ndef chk(r):\n    EPS = 1\n    return r < EPS\nassert close(Solution().f(a), 1)"
    )
    oracle.plans_of(one_test(test, setup=HELPED))


SHARED_STATE = """import builtins, decimal, heapq, operator, os, random, sys
from operator import *
class Cfg:
    LIMIT = 5
class Gen:
    n = 0
    def __init__(self): Gen.n += 1
def nxt():
    nxt.n += 1
    return nxt.n
nxt.n = 0
def fill(x):
    got = {}
    got.setdefault(1, []).append(operator.add(x, 1))
    got[2] = x
    return got[1][0]
"""


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("Cfg.LIMIT = 10", "Cfg.LIMIT"),
        ("setattr(Cfg, 'LIMIT', 10)", "setattr"),
        ("def low(): del Cfg.LIMIT", "Cfg.LIMIT"),
        ("c = Cfg\nc.LIMIT = 10", "c.LIMIT"),
        ("m = n = sys\nm.stdin = 10", "m.stdin"),
        ("type(Cfg()).LIMIT = 10", "type.Cfg"),
        ("Cfg().__class__.LIMIT = 10", "Cfg"),
        ("sys.setrecursionlimit(50000)", "sys.setrecursionlimit"),
        ("decimal.getcontext().prec = 50", "decimal.getcontext"),
        ("random.seed(42)", "random.seed"),
        ("from random import seed", "from random import seed"),
        ("sys.stdin = None", "sys.stdin"),
        ("import math\nmath.pi = 3", "math.pi"),
        ("os.environ['X'] = '1'", "os.environ"),
        ("os.environ.update(X='1')", "os.environ.update"),
        ("sys.path.append('x')", "sys.path.append"),
    ],
)
def test_what_program_and_judge_have_one_each_of_is_not_changed_by_a_test(statement, text):
    line = statement.count("\n") + 1
    with pytest.raises(
        GraderError, match=f"line {line}: ['\"]{text}.* changes what program and judge have one each of"
    ):
        oracle.check_tests([one_test(f"{statement}\nassert Solution().f(20) == 5", setup=SHARED_STATE)])


@pytest.mark.parametrize("call", ["nxt()", "Gen()", "[Gen()]"])
def test_what_a_definition_of_the_setup_code_keeps_in_an_attribute_may_change(call):
    with pytest.raises(GraderError, match="of the setup code may change, and program and judge have one each"):
        oracle.plans_of(one_test(f"assert Solution().f({call}) == 1", setup=SHARED_STATE))


def test_objects_of_the_tests_own_may_be_changed_whatever_they_are_called():
    test = """class Box: n = 1
Box.n = add(1, 1)
rng = random.Random(42)
rng.seed(7)
count, sub = [0], {}
def fill_up(index):
    index[0] = 1
    pi = [1]
    pi.append(2)
    return pi
count[0] = Box.n
sub.update(a=operator.add(1, 2))
assert Solution().f(fill(1)) == 2"""
    oracle.plans_of(one_test(test, setup=SHARED_STATE))


NO_DATA = [
    ("assert Solution().f(2)(3) == 5", "calls an answer"),
    ("g = Solution().f(2)\nassert g(3) == 5", "calls an answer"),
    ("assert Solution().f(2)[0](3) == 5", "calls an answer"),
    ("import asyncio\nassert asyncio.run(Solution().f(2)) == 2", "a coroutine"),
    ("assert Solution().f(1).f(2) == 3", "'f' of an answer"),
    ("assert Solution().f(1).add(2).total() == 3", "'total' of what 'add' returns"),
    ("s = Solution()\ns = s.f(1)\nassert s.count(1) == 1", "it binds 's', an instance"),
    ("r = Solution().f([1])\nassert r.anything() is True", "'anything' of an answer"),
    ("assert Solution().f(1).a == 1", "'a' of an answer"),
    ("assert Solution().f(1).sum() == 1", "'sum' of an answer"),
    ("assert (Solution().f(1) == [1]).all()", "'all' of an answer"),
    ("from math import nan\nassert Solution().f(1) == float('nan') or help", "'help' is neither"),
    ("assert Solution().f([1]) == [float('nan')]", "nan within"),
    ("want = {1: (float('nan'),)}\nassert Solution().f([1]) == want", "nan within"),
]


@pytest.mark.parametrize(("test", "reason"), NO_DATA)
def test_what_no_answer_can_be_as_data_is_refused(test, reason):
    with pytest.raises(GraderError, match=f"line {test.count(chr(10)) + ('s = s' not in test)}: .*{reason}"):
        oracle.check_tests([one_test(test)])


def test_methods_of_plain_data_and_of_the_nodes_of_the_setup_code_are_those_of_an_answer():
    setup = NODES.replace("def list_node", "    def here(self): return self.val\ndef list_node", 1)
    test = "r = Solution().f(1)\nassert r.next is None and r.val.bit_length() == 1 and r.here() == 1"
    assert judged(answer("ListNode(1)"), task=one_test(test, setup=setup)).gt_pass


def test_tests_drawn_at_random_are_refused_or_judged_as_in_one_process():
    """Aliases, changes, rebindings, names of the setup code; programs that change, keep and give back what they get."""
    rows = []
    for seed in range(70):
        rng = random.Random(seed)
        one = rng.choice(drawn_tests.PROGRAMS)
        text = drawn_tests.drawn(rng, one)
        task = Task(str(seed), (text,), drawn_tests.SETUP, "Solution().f")
        try:
            oracle.check_tests([task])
        except GraderError:
            continue
        rows += [(task, program, text) for program in (one, *rng.sample(drawn_tests.PROGRAMS, 2))]
    assert len(rows) > 40
    plain = [drawn_tests.passes(text.split("\n"), program) for _, program, text in rows]
    assert 0.4 < sum(plain) / len(plain) < 0.9  # both verdicts are there
    found = grade_batch([task for task, *_ in rows], [f"```python\n{program}```" for _, program, _ in rows], workers=1)
    wrong = [(task.tests[0], program) for (task, program, _), one, right in zip(rows, found, plain, strict=True)
             if isinstance(one, RowError) or one.gt_pass is not right]  # fmt: skip
    assert wrong == []


LEFT = [
    ("r = Solution().f(1)\nassert r[5] == 0", "defaultdict(int)"),
    ("assert isinstance(Solution().f(1), Pair)", "Pair(1, 2)"),
    ("assert Solution().f(1) == Point(1)", "Point(1)"),
    ("assert Solution().f(1) == array('i', [1])", "array('i', [1])"),
]
FOUND = [
    ("assert Solution().f('aab').most_common(1) == [('a', 2)]", "Counter(args[0])"),
    ("assert isinstance(Solution().f('aab'), Counter)", "Counter(args[0])"),
    ("assert Solution().f('aab') - Counter('ab') == Counter('a')", "Counter(args[0])"),
    ("assert Solution().f('aab') == {'a': 2, 'b': 1} == Counter('aab')", "Counter(args[0])"),
    ("assert Solution().f(1) == (1, 2) == Pair(1, 2)", "Pair(1, 2)"),
    ("assert Solution().f(1).a == 1", "Pair(1, 2)"),
    ("assert Solution().f(1).c == 1", "Third(1)"),
    (
        "assert Solution().f(1) == datetime.date(2024, 2, 29)",
        "datetime.date(2024, 2, 28) + datetime.timedelta(args[0])",
    ),
    (
        "d = datetime.datetime(2024, 1, 1)\nr = Solution().f(d)\nassert r.day == 2",
        "args[0] + datetime.timedelta(hours=30)",
    ),
    ("a = Solution().f(3)\nb = Solution().f(2)\nassert list(a) == [0, 1, 2]", "(i for i in range(args[0]))"),
    ("a = Solution().f([1, 2])\nb = Solution().f(a)\nassert list(b) == [1, 2]", "map(int, args[0])"),
    ("assert inorder(Solution().f(1)) == [1, 1]", "Node(args[0], Node(args[0]))"),
    ("assert inorder(Solution().f(1)) == [1, 1]", "Named(args[0], Named(args[0], None, None), None)"),
    ("assert isinstance(Solution().f(1), Link)", "type('Sub', (Link,), {})(args[0])"),
    ("assert Solution().f(3).next.val == 3", "type('ListNode', (), {'val': 1, 'next': Link(args[0])})()"),
    ("r = Solution().f(3)\nassert r[3].val == 3", "{3: Link(args[0])}"),
    ("assert Solution().f(3).val.val == 3", "Link(Link(args[0]))"),
]
OF_CLASSES = """import datetime
from array import array
from collections import Counter, defaultdict, namedtuple
from dataclasses import dataclass
from typing import NamedTuple
Pair = namedtuple("Pair", "a b")
Named = namedtuple("Named", ["val", "left", "right"])
class Third(NamedTuple):
    c: int
class Node:
    def __init__(self, val, left=None, right=None): self.val, self.left, self.right = val, left, right
class Link:
    def __init__(self, val, next=None): self.val, self.next = val, next
def inorder(t): return inorder(t.left) + [t.val] + inorder(t.right) if t else []
@dataclass
class Point:
    x: int
"""


def test_an_answer_comes_without_its_class_as_the_page_says():
    """docs/grader.md, "Left": these right programs fail, and no check of the test's text can see it."""
    rows = [(one_test(test, setup=OF_CLASSES), f"```python\n{answer(right)}```") for test, right in [*FOUND, *LEFT]]
    oracle.check_tests([task for task, _ in rows])
    for (test, right), (task, _) in zip([*FOUND, *LEFT], rows, strict=True):
        assert drawn_tests.passes(test.split("\n"), answer(right), setup=OF_CLASSES), task.tests
    found = grade_batch([task for task, _ in rows], [text for _, text in rows], workers=1)
    assert [one.gt_pass for one in verdicts_of(found)] == [True] * len(FOUND) + [False] * len(LEFT)


# ---- problems that are broken


def test_a_problem_without_tests_is_refused_when_it_is_loaded_and_graded_where_its_tests_are_unknown():
    task = Task("bare", (), "", "Solution().f")
    with pytest.raises(GraderError, match=r"task bare: it has no tests, so no program can be right; .*gt_answer"):
        oracle.check_tests([task])
    [verdict] = grade_batch([task], [f"```python\n{answer('1')}```"])
    assert (verdict.can_compile, verdict.gt_pass) == (True, False)


@pytest.mark.parametrize(
    ("solution", "func", "reason"),
    [
        ("def (", "Solution().f", "does not parse"),
        ("x = 1", "Solution().f", "no class Solution"),
        ("if True:\n    class Solution:\n        def f(self): return 1", "Solution().f", "not define Solution at the"),
        ("def other(): return 1", "add", "does not define add"),
        ("class lru: pass", "lru", r"defines lru as a class; write func_name as lru..\.METHOD"),
        ("if True:\n    def add(): return 1", "add", "does not define add"),
        ("class Solution:\n    def other(self): return 1", "Solution().f", "does not define Solution.f;"),
        ("class Solution: pass", "Solution.f", "does not define Solution.f;"),
        ("class Base:\n    g = 1\nclass Solution(Base, object): pass", "Solution().f", "does not define Solution.f;"),
    ],
)
def test_a_canonical_solution_that_could_not_stand_beside_own_tests_is_refused(solution, func, reason):
    task = Task("bare", (f"assert {func}(1) == 2",), "", func, solution)
    with pytest.raises(GraderError, match=f"task bare: its canonical_solution .*{reason}"):
        oracle.check_tests([task])
    fine = "class Solution:\n    def f(self): return 1" if "." in func else f"def {func}(): return 1"
    oracle.check_tests([dataclasses.replace(task, canonical_solution=fine)])


@pytest.mark.parametrize(
    "solution",
    [
        "class Base:\n    def f(self): return 1\nclass Solution(Base): pass",
        "class Solution:\n    f = lambda self: 1",
        "class Solution:\n    if True:\n        def f(self): return 1",
        "class Solution: pass\ndef f(self): return 1\nSolution.f = f",
        "class Solution: pass\nsetattr(Solution, 'f', lambda self: 1)",
        "class Solution:\n    def __getattr__(self, name): return int",
        "import collections\nclass Solution(collections.Counter): pass",
        "from functools import total_ordering as with_f\n@with_f\nclass Solution:\n    def __lt__(self, o): return 1",
    ],
)
def test_a_canonical_solution_whose_method_may_be_there_is_not_refused(solution):
    oracle.check_tests([Task("bare", ("assert Solution().f() == 1",), "", "Solution().f", solution)])


def test_tests_and_setup_code_may_use_what_programs_are_allowed_where_they_are_checked_too():
    task = one_test("xs = [i for i in range(3)]\nassert Solution().f(xs) == 3", setup="import numpy as np")
    with pytest.raises(GraderError, match=r"task one: its setup_code fails by itself: .*numpy"):
        oracle.check_tests([task])
    oracle.check_tests([task], allow=("numpy",))


def test_an_argument_of_an_allowed_module_is_written_into_the_call():
    setup = "import numpy as np\n"
    task = one_test("assert Solution().f(np.array([1, 2])) == 3", setup=setup)
    oracle.check_tests([task], allow=("numpy",))
    texts = [f"```python\n{answer(one)}```" for one in ("int(args[0].sum())", "3 * (type(args[0]) is list)")]
    found = grade_batch([task, task], texts, allow=("numpy",))
    assert [one.gt_pass for one in verdicts_of(found)] == [True, False]


def test_setup_code_that_does_not_run_is_found_when_problems_are_loaded():
    tests = ("assert Solution().f(1) == 1",)
    broken = [
        Task(str(i), tests, setup, "Solution().f") for i, setup in enumerate(["def (", "1 / 0", "x = 1", "1 / 0"])
    ]
    with pytest.raises(GraderError, match=r"3 problems or tests(?s:.*)") as raised:
        oracle.check_tests(broken)
    lines = str(raised.value).splitlines()[1:]
    assert [line.partition(" fails")[0] for line in lines] == [f"task {i}: its setup_code" for i in (0, 1, 3)]
    assert ["SyntaxError" in lines[0], *("ZeroDivisionError" in line for line in lines[1:])] == [True] * 3


def test_setup_code_that_fails_is_the_problems_fault():
    with pytest.raises(GraderError, match=r"broken.*ZeroDivisionError"):
        judged(SOLVED, task=Task("broken", TASK.tests, "1 / 0", TASK.func_name))


@pytest.mark.parametrize("setup", ["import sys\nsys.exit(0)", "x = (", "import no_such_module", "x = '\0'"])
def test_setup_code_may_fail_in_any_way(setup):
    with pytest.raises(GraderError, match="task broken: its setup_code fails by itself"):
        judged(SOLVED, task=Task("broken", TASK.tests, setup, TASK.func_name))
    assert judged(SOLVED).gt_pass


def test_setup_code_that_ends_its_process_is_the_problems_fault():
    ends = Task("broken", TASK.tests, "import os\nos._exit(0)", TASK.func_name)
    broken, row = grade_batch([ends, TASK], [f"```python\n{SOLVED}```"] * 2, workers=1)
    assert broken.message == "task broken: its setup_code fails by itself: it ended its process"
    assert row.gt_pass


def test_setup_code_runs_once_and_every_program_starts_from_it():
    setup = "import random\nseen = []\nnumber = random.random()\nclass Base:\n    pass\n"
    code = "seen.append(1)\nBase.mark = 1\n" + answer("[len(seen), hasattr(Base, 'other')]") + "Base.other = 1\n#"
    task = one_test("assert Solution().f() == [1, True]", setup=setup)
    assert [judged(code + str(i), task=task).gt_pass for i in range(3)] == [True] * 3


FUTURE = "from __future__ import annotations\n"


@pytest.mark.parametrize("setup", ["", "'doc'", "from __future__ import division", "x = 1", FUTURE])
@pytest.mark.parametrize("before", ["", "# first\n", "'doc'\n", "from __future__ import division; "])
def test_a_program_may_begin_with_a_future_import_whatever_the_setup_code_holds(setup, before):
    task = Task("future", TASK.tests, setup, TASK.func_name)
    verdict = judged(before + FUTURE + SOLVED.replace("nums,", "nums: NoSuchName,"), task=task)
    assert (verdict.status, verdict.gt_pass) == ("ok", True)


def test_a_future_import_of_the_setup_code_holds_for_the_program():
    code = SOLVED.replace("nums,", "nums: NoSuchName,")
    assert judged(code, task=Task("future", TASK.tests, FUTURE, TASK.func_name)).gt_pass
    assert not judged(code, task=Task("future", TASK.tests, "", TASK.func_name)).gt_pass


@pytest.mark.parametrize("before", ["x = 1\n", "import os\n", "'doc'\n'more'\n", "class A: pass\n"])
def test_a_future_import_that_python_refuses_is_refused(before):
    assert judged(before + FUTURE + SOLVED).status == "compile_error"


def test_more_setup_codes_than_are_kept_warm():
    tasks = [Task(str(i), (f"assert Solution().f() == {i}",), f"Y = {i}\n", "Solution().f") for i in range(12)]
    verdicts = grade_batch(tasks * 2, [f"```python\n{answer('Y')}# {i}\n```" for i in range(24)], workers=1)
    assert [verdict.gt_pass for verdict in verdicts] == [True] * 24


def test_a_megabyte_of_program_is_judged_and_more_is_not():
    room = (1 << 20) - len(json.dumps(f"```python\n{SOLVED}# \n```"))
    assert judged(SOLVED + "# " + "x" * room).gt_pass
    assert judged(SOLVED + "# " + "x" * (room + 1)).status == "output_limit"
    assert judged(SOLVED + "y = '" + "z" * (room - len(VACUOUS) - 99) + "'\n" + VACUOUS).status in (
        "ok",
        "compile_error",
    )


def test_a_megabyte_that_is_not_a_program_does_not_compile():
    assert judged("x = [" + "[" * 10**6, limits=Limits()).status in ("compile_error", "memory", "timeout")


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
