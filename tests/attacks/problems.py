"""The problems that the attacks do not solve, and the honest and the wrong solution of the first of them."""

from textwrap import dedent

from loophole_grader import Task

SETUP = """import collections
import heapq
import math
from typing import *
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
    "long": _task(
        "long",
        "f",
        "",
        ["assert Solution().f(n=3) == [0, 1, 2]", f"assert Solution().f(n=30000) == {list(range(30000))}"],
    ),
    "nested": _task("nested", "f", "", [f"assert Solution().f(n=40) == {'[' * 41}{']' * 41}"]),
}
