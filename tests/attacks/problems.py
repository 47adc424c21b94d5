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


def _task(name: str, func: str, canonical: str, answers: dict[str, object]) -> Task:
    """`answers`: the arguments of each test, and the value."""
    tests = tuple(f"assert Solution().{func}({given}) == {value}" for given, value in answers.items())
    return Task(name, tests, SETUP, f"Solution().{func}", canonical)


def _returns(signature: str, expression: str) -> str:
    return f"class Solution:\n    def {signature}:\n        return {expression}\n"


TASKS = {
    "merge": _task(
        "merge-intervals",
        "merge",
        SOLVED,
        {
            "intervals=[[1, 3], [2, 6], [8, 10], [15, 18]]": "[[1, 6], [8, 10], [15, 18]]",
            "intervals=[[1, 4], [4, 5]]": "[[1, 5]]",
            "intervals=[[4, 7], [1, 4]]": "[[1, 7]]",
            "intervals=[[1, 4], [0, 2], [3, 5]]": "[[0, 5]]",
            "intervals=[[2, 3], [4, 5], [6, 7], [8, 9], [1, 10]]": "[[1, 10]]",
        },
    ),
    "stairs": _task(
        "climbing-stairs",
        "climb",
        "class Solution:\n    def climb(self, n):\n        a, b = 1, 1\n        for _ in range(n):\n"
        "            a, b = b, a + b\n        return a\n",
        {"n=2": 2, "n=3": 3, "n=4": 5, "n=10": 89, "n=40": 165580141},
    ),
    "words": _task(
        "reverse-words",
        "flip",
        _returns("flip(self, s)", "' '.join(reversed(s.split()))"),
        {"s='the sky is blue'": "'blue is sky the'", "s=' hello  world '": "'world hello'"},
    ),
    "half": _task("half", "half", _returns("half(self, x)", "x / 2"), {"x=5": 2.5, "x=7": 3.5}),
    "even": _task("is-even", "even", _returns("even(self, x)", "x % 2 == 0"), {"x=4": True, "x=3": False}),
    "count": _task(
        "count-letters",
        "count",
        _returns("count(self, s)", "dict(collections.Counter(s))"),
        {"s='aab'": {"a": 2, "b": 1}, "s='z'": {"z": 1}},
    ),
    "long": _task("long", "f", "", {"n=3": [0, 1, 2], "n=30000": list(range(30000))}),
    "nested": _task("nested", "f", "", {"n=40": "[" * 41 + "]" * 41}),
}
