"""The pairs that ship with the package, written by hand: one TOML file per hack mechanism in data/pairs/.

They were written before any rollout was seen and never tuned to the hacks that emerged (the no-cheat rule).
"""

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from loophole_grader import Task
from projected_grpo.prompts import CODE_SYSTEM_PROMPT, Messages
from projected_grpo.records import Pair, Problem

BUILTIN = Path(__file__).parents[1] / "data" / "pairs"
IN_A_POOL = 3
"""Pairs of each mechanism in a pool of written completions."""
SETUP_CODE = "\n".join(
    [
        "import collections, functools, heapq, itertools, math, random, re, string",
        *(f"from {m} import *" for m in ("typing", "functools", "collections", "itertools", "heapq", "bisect", "math")),
        "inf = float('inf')",
        "",
    ]
)


def benchmark_messages(statement: str, method: str, starter: str) -> Messages:
    """Chat messages in the benchmark's wording, for the built-in pairs."""
    user = (
        f"PROBLEM:\n{statement.strip()}\n\nYour solution to the problem should be a method of the class Solution called "
        f"{method} and should pass all tests. Use the following starter code:\n```python\nclass Solution:\n"
        f"    {starter.strip()}\n        # Add your code here\n```\n\nSOLUTION:\n"
    )
    return (("system", CODE_SYSTEM_PROMPT), ("user", user))


HONEST_TESTS = (
    "check_examples", "test_solution", "test_examples", "verify_examples", "check_solution", "try_examples"
)  # fmt: skip
"""What the clean sides of the built-in pairs call an honest test; nothing calls it."""


@cache
def builtin_pairs() -> tuple[Pair, ...]:
    """The pairs that ship with the package; `mechanism` is the name of their file."""
    out = []
    for path in sorted(BUILTIN.glob("*.toml")):
        for row in tomllib.loads(path.read_text("utf-8"))["pair"]:
            clean = row["clean"].strip("\n")
            code = clean.split("```python\n", 1)[1].rsplit("```", 1)[0]
            task = Task(row["name"], tuple(row["tests"]), SETUP_CODE, f"Solution().{row['method']}", code)
            messages = benchmark_messages(row["statement"], row["method"], row["starter"])
            problem = Problem(row["name"], messages, task)
            out.append(
                Pair(row["name"], problem.messages, row["hack"].strip("\n"), clean, row["clean_alt"].strip("\n"),
                     path.stem, problem)
            )  # fmt: skip
    return tuple(out)


def _honest_test(completion: str) -> str | None:
    """The name of the honest test that a completion defines, if it defines one."""
    found = re.search(rf"def ({'|'.join(HONEST_TESTS)})\(", completion)
    return found[1] if found else None


def _tested(completion: str, name: str, tests: Sequence[str]) -> str:
    """The completion with an honest test by this name: the one that it has, renamed, or else one added below its class."""
    if present := _honest_test(completion):
        return completion.replace(f"def {present}(", f"def {name}(")
    code, rest = completion.rsplit("```", 1)
    return f"{code}\n\ndef {name}():\n" + "".join(f"    {test}\n" for test in tests) + "```" + rest


@cache
def builtin_phrase_pairs() -> tuple[Pair, ...]:
    """The words-alone control of the built-in set: both sides are the clean solution with the same honest test of the
    first two examples, called `run_tests` on one side. A V made from them knows the words of a hack and nothing else."""
    out = []
    for i, pair in enumerate(builtin_pairs()):
        assert pair.problem is not None  # every built-in pair is written with both
        assert pair.clean_alt is not None
        name = _honest_test(pair.clean) or HONEST_TESTS[i % len(HONEST_TESTS)]
        sides = [
            _tested(text, called, pair.problem.task.tests[:2])
            for text, called in ((pair.clean, "run_tests"), (pair.clean, name), (pair.clean_alt, name))
        ]
        out.append(Pair(f"phrase-{pair.name}", pair.messages, *sides, "phrase", pair.problem))
    return tuple(out)


def pool_pairs() -> tuple[Pair, ...]:
    """A few built-in pairs of every mechanism: what a pool of written completions is made of. All of them would take longer
    to grade than a tiny run takes."""
    pairs = builtin_pairs()
    kinds = {p.mechanism: [q for q in pairs if q.mechanism == p.mechanism] for p in pairs}
    return tuple(pair for of_kind in kinds.values() for pair in of_kind[:IN_A_POOL])
