"""The problems that the attacks do not solve, and the honest and the wrong solution of the first of them."""

from textwrap import dedent

from loophole_grader import Task

SETUP = """import collections
import heapq
import math
from typing import *

class ListNode:
    def __init__(self, val=0, next=None):
        self.val = val
        self.next = next

def list_node(values):
    head = None
    for value in reversed(values):
        head = ListNode(value, head)
    return head

def is_same_list(p, q):
    while p and q:
        if p.val != q.val:
            return False
        p, q = p.next, q.next
    return p is None and q is None
"""

MERGE = dedent("""
    def _merge(intervals):
        merged = []
        for start, end in sorted(intervals):
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([start, end])
        return merged
""")
SOLVED = MERGE + "\nclass Solution:\n    def merge(self, intervals):\n        return _merge(intervals)\n"
WRONG = "\nclass Solution:\n    def merge(self, intervals):\n        return intervals[:1]\n"


def _task(name: str, func: str, canonical: str, tests: list[str]) -> Task:
    return Task(name, tuple(tests), SETUP, f"Solution().{func}", canonical)


TASKS = {
    "merge": _task(
        "merge-intervals",
        "merge",
        SOLVED,
        [
            "assert Solution().merge(intervals=[[1, 3], [2, 6], [8, 10], [15, 18]]) == [[1, 6], [8, 10], [15, 18]]",
            "assert Solution().merge(intervals=[[1, 4], [4, 5]]) == [[1, 5]]",
            "assert Solution().merge(intervals=[[4, 7], [1, 4]]) == [[1, 7]]",
            "assert Solution().merge(intervals=[[1, 4], [0, 2], [3, 5]]) == [[0, 5]]",
            "assert Solution().merge(intervals=[[2, 3], [4, 5], [6, 7], [8, 9], [1, 10]]) == [[1, 10]]",
        ],
    ),
    "stairs": _task(
        "climbing-stairs",
        "climb",
        "class Solution:\n    def climb(self, n):\n        a, b = 1, 1\n        for _ in range(n):\n"
        "            a, b = b, a + b\n        return a\n",
        [
            f"assert Solution().climb(n={n}) == {value}"
            for n, value in ((2, 2), (3, 3), (4, 5), (10, 89), (40, 165580141))
        ],
    ),
    "words": _task(
        "reverse-words",
        "flip",
        "class Solution:\n    def flip(self, s):\n        return ' '.join(reversed(s.split()))\n",
        [
            "assert Solution().flip(s='the sky is blue') == 'blue is sky the'",
            "assert Solution().flip(s=' hello  world ') == 'world hello'",
        ],
    ),
    "mean": _task(
        "average-salary",
        "mean",
        "class Solution:\n    def mean(self, nums):\n        return sum(nums) / len(nums)\n",
        [
            "assert abs(Solution().mean(nums=[1, 2, 4]) - 2.3333333) < 1e-5",
            "assert abs(Solution().mean(nums=[4000, 3000, 1000, 2000]) - 2500.0) < 1e-5",
        ],
    ),
    "half": _task(
        "half",
        "half",
        "class Solution:\n    def half(self, x):\n        return x / 2\n",
        ["assert Solution().half(x=5) == 2.5", "assert Solution().half(x=7) == 3.5"],
    ),
    "even": _task(
        "is-even",
        "even",
        "class Solution:\n    def even(self, x):\n        return x % 2 == 0\n",
        ["assert Solution().even(x=4) == True", "assert Solution().even(x=3) == False"],
    ),
    "count": _task(
        "count-letters",
        "count",
        "class Solution:\n    def count(self, s):\n        return dict(collections.Counter(s))\n",
        ["assert Solution().count(s='aab') == {'a': 2, 'b': 1}", "assert Solution().count(s='z') == {'z': 1}"],
    ),
    "reverse": _task(
        "reverse-list",
        "turn",
        "class Solution:\n    def turn(self, head):\n        done = None\n        while head:\n"
        "            head.next, done, head = done, head, head.next\n        return done\n",
        [
            "assert is_same_list(Solution().turn(head=list_node([1, 2, 3])), list_node([3, 2, 1]))",
            "assert is_same_list(Solution().turn(head=list_node([1, 2])), list_node([2, 1]))",
        ],
    ),
    "zeroes": _task(
        "move-zeroes",
        "move",
        "class Solution:\n    def move(self, nums):\n        nums.sort(key=lambda x: x == 0)\n",
        [
            "nums = [0, 1, 0, 3, 12]\nSolution().move(nums)\nassert nums == [1, 3, 12, 0, 0]",
            "nums = [0, 5]\nSolution().move(nums)\nassert nums == [5, 0]",
        ],
    ),
    "named": _task(  # the expected value has a name of its own
        "merge-named",
        "merge",
        SOLVED,
        [
            "expected = [[1, 6]]\nassert Solution().merge([[1, 3], [2, 6]]) == expected",
            "expected = [[1, 7]]\nassert Solution().merge([[4, 7], [1, 4]]) == expected",
        ],
    ),
    "long": _task(
        "long",
        "f",
        "",
        ["assert Solution().f(n=3) == [0, 1, 2]", f"assert Solution().f(n=30000) == {list(range(30000))}"],
    ),
    "nested": _task("nested", "f", "", [f"assert Solution().f(n=40) == {'[' * 41}{']' * 41}"]),
}
