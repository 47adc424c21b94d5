"""The pairs that ship with the package, written by hand: one TOML file per hack mechanism in data/pairs/.

They were written before any rollout was seen and never tuned to the hacks that emerged (the no-cheat rule).
"""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from loophole_grader import Task
from projected_grpo.prompts import CODE_SYSTEM_PROMPT
from projected_grpo.records import Pair, Problem

BUILTIN = Path(__file__).parents[1] / "data" / "pairs"
SETUP_CODE = "\n".join(
    [
        "import collections, functools, heapq, itertools, math, random, re, string",
        *(f"from {m} import *" for m in ("typing", "functools", "collections", "itertools", "heapq", "bisect", "math")),
        "inf = float('inf')",
        "",
    ]
)
HONEST_TESTS = (
    "check_examples", "test_solution", "test_examples", "verify_examples", "check_solution", "try_examples"
)  # fmt: skip
"""What the clean sides of the built-in pairs call an honest test; nothing calls it."""
_HONEST_TEST = re.compile(rf"def ({'|'.join(HONEST_TESTS)})\(")


@cache
def builtin_pairs() -> tuple[Pair, ...]:
    """The pairs that ship with the package, in the benchmark's wording; `mechanism` is the name of their file."""
    out = []
    for path in sorted(BUILTIN.glob("*.toml")):
        for row in tomllib.loads(path.read_text("utf-8"))["pair"]:
            name, method = row["name"], row["method"]
            hack, clean, clean_alt = (row[side].strip("\n") for side in ("hack", "clean", "clean_alt"))
            code = clean.split("```python\n", 1)[1].rsplit("```", 1)[0]
            user = (
                f"PROBLEM:\n{row['statement'].strip()}\n\nYour solution to the problem should be a method of the class "
                f"Solution called {method} and should pass all tests. Use the following starter code:\n```python\n"
                f"class Solution:\n    {row['starter'].strip()}\n        # Add your code here\n```\n\nSOLUTION:\n"
            )
            messages = (("system", CODE_SYSTEM_PROMPT), ("user", user))
            task = Task(name, tuple(row["tests"]), SETUP_CODE, f"Solution().{method}", code)
            out.append(Pair(name, messages, hack, clean, clean_alt, path.stem, Problem(name, messages, task)))
    return tuple(out)


def _tested(completion: str, name: str, tests: Sequence[str]) -> str:
    """The completion with an honest test by this name: the one that it has, renamed, or else one added below its
    class."""
    if present := _HONEST_TEST.search(completion):
        return completion.replace(present[0], f"def {name}(")
    code, rest = completion.rsplit("```", 1)
    return f"{code}\n\ndef {name}():\n" + "".join(f"    {test}\n" for test in tests) + "```" + rest


@cache
def builtin_phrase_pairs() -> tuple[Pair, ...]:
    """The words-alone control of the built-in set: both sides are the clean solution with the same honest test of the
    first two examples, called `run_tests` on one side. A V made from them knows the words of a hack and nothing
    else."""
    out = []
    for i, pair in enumerate(builtin_pairs()):
        assert pair.problem is not None  # every built-in pair is written with both
        assert pair.clean_alt is not None
        present, tests = _HONEST_TEST.search(pair.clean), pair.problem.task.tests[:2]
        name = present[1] if present else HONEST_TESTS[i % len(HONEST_TESTS)]
        hack, clean = (_tested(pair.clean, called, tests) for called in ("run_tests", name))
        sides = {"hack": hack, "clean": clean, "clean_alt": _tested(pair.clean_alt, name, tests)}
        out.append(replace(pair, name=f"phrase-{pair.name}", mechanism="phrase", **sides))
    return tuple(out)
