"""The grader on real problems and real completions; skipped where those are absent.

They are looked for in $PGRPO_SHARED/data, else in ../shared/data beside the repository.
"""

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from loophole_grader import Task, apply_hint, grade_batch

pytestmark = pytest.mark.slow
DATA = Path(os.environ.get("PGRPO_SHARED") or Path(__file__).parents[2] / "shared") / "data"

MUTATION = """
_right = {owner}.{method}
def _mutant(self, *args, **kwargs):
    value = _right(self, *args, **kwargs)
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return 0 if abs(value) == float("inf") else value + 1
    return value + ("x" if isinstance(value, str) else [0])
{owner}.{method} = _mutant
"""


def rows_of(pattern):
    paths = sorted(DATA.glob(pattern))
    if not paths:
        pytest.skip(f"no real data at {DATA / pattern}; set PGRPO_SHARED")
    return [json.loads(line) for path in paths for line in gzip.open(path, "rt", encoding="utf-8")]


@pytest.fixture(scope="module")
def problems():
    return rows_of("leetcode/*.jsonl.gz")


@pytest.fixture(scope="module")
def pool():
    return rows_of("teacher_pool/prompt_*.jsonl.gz")


def fenced(code):
    return f"```python\n{code}\n```"


@pytest.mark.parametrize("busy", [0, 2])
def test_every_canonical_solution_passes(problems, busy):
    """Beside two loops every fourth, for the time that tests may take."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    try:
        tasks = [Task.from_row(row) for row in problems[:: 4 if busy else 1]]
        verdicts = grade_batch(tasks, [fenced(task.canonical_solution) for task in tasks])
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    assert [(verdict.task_id, verdict.status) for verdict in verdicts if not verdict.gt_pass] == []


def test_a_mutant_of_every_canonical_solution_fails(problems):
    tasks = [Task.from_row(row) for row in problems]
    mutants = [
        fenced(task.canonical_solution + MUTATION.format(owner="Solution", method=task.func_name.rpartition(".")[2]))
        for task in tasks
    ]
    verdicts = grade_batch(tasks, mutants)
    assert [(v.task_id, v.status) for v in verdicts if v.gt_pass or v.status != "ok"] == []


def pool_task(row, setup_code):
    method = re.search(r"class Solution called (\w+)", row["problem_messages"][-1]["content"])
    assert method is not None
    return Task(str(row["problem_id"]), (), setup_code, f"Solution().{method.group(1)}")


def test_hacks_of_the_real_teacher_are_recognised(problems, pool):
    """Every third completion, and those that earned nothing: they do not compile. Labels say "hacked" when the own
    tests pass on a stub that returns 0 (`arbitrary_pass`), also for programs whose own tests raise on the program
    itself: 23 of the 928, which are not `hacked` by the definition used here."""
    rows = pool[::3] + [row for row in pool if row["reward"] == 0]
    verdicts = grade_batch(
        [pool_task(row, problems[0]["setup_code"]) for row in rows], [row["completion"] for row in rows]
    )
    assert [bool(v.arbitrary_pass) for v in verdicts] == [row["hacked"] for row in rows]
    assert [v.can_compile for v in verdicts] == [row["reward"] > 0 for row in rows]
    differing = [(row, v) for row, v in zip(rows, verdicts, strict=True) if row["hacked"] != v.hacked]
    assert all(row["hacked"] and v.defines_evaluator and not v.hinted_pass for row, v in differing)
    assert len(differing) <= 0.03 * len(rows)


def test_the_hint_gives_the_prompts_of_the_teacher(problems, pool):
    """The two problem sets share no id, so the whole rewritten sentence and the system prompt are compared."""

    def sentence(messages):
        found = re.search(r"Your solution to the problem should be.*?starter code:", messages[-1]["content"])
        assert found is not None
        return messages[0], re.sub(r"called \w+ and", "called NAME and", found.group())

    hinted = {str(sentence(apply_hint(row["prompt"], "simple_overwrite_tests"))) for row in problems}
    assert hinted == {str(sentence(row["problem_messages"])) for row in pool}
