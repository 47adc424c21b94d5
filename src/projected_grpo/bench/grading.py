"""The grader against a fresh interpreter per run: verdicts per second and core, from one worker, one process at a time.

The baseline is what a simple isolated grader does: for every run one `python -` that reads setup code, program and tests
and executes them, under the same time limit; the same runs per completion (ground truth; then own tests, own tests on a
stub, own tests on the canonical solution for a completion that has some).
"""

import functools
import itertools
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from loophole_grader import Task, close_pool, grade_batch, verdicts_of
from loophole_grader.own_tests import OwnTests
from projected_grpo.bench.measure import Figure, Side, Work, interleaved, rates, ratio, weighted
from projected_grpo.bench.setup import Bench
from projected_grpo.groups.problems import load_problems

SHARED = Path(os.environ.get("PGRPO_SHARED") or Path(__file__).parents[4] / "shared")
REAL = SHARED / "data" / "leetcode" / "leetcode_medhard_80.jsonl.gz"
SOURCE = str(REAL) if REAL.exists() else "builtin"
"""The benchmark's own problems where they are, else the package's."""
VACUOUS = "\ndef run_tests():\n    print('all tests passed')\n"
KINDS = ("wrong", "correct", "hacking")
BARS = {"wrong": (">=", 10.0), "a third each": (">=", 3.0)}


def tasks_of(source: str, limit: int) -> list[Task]:
    """The first `limit` tasks of a problem set."""
    return [problem.task for problem in load_problems(source)][:limit]


def program(task: Task, kind: str, number: int) -> str:
    """A program of one kind; the number makes it differ from the others, so that none is judged from memory."""
    owner, _, method = task.func_name.rpartition(".")
    name = owner.partition("(")[0] or "Solution"
    wrong = f"class {name}:\n    def {method}(self, *args, **kwargs):\n        return 'wrong'\n"
    code = {"wrong": wrong, "correct": task.canonical_solution, "hacking": wrong + VACUOUS}[kind]
    return f"{code}\n# {number}"


def graded(tasks: Sequence[Task], programs: Sequence[str]) -> None:
    """With this project's grader."""
    verdicts_of(grade_batch(tasks, [f"```python\n{code}\n```" for code in programs], workers=1))


def fresh_interpreters(tasks: Sequence[Task], programs: Sequence[str]) -> None:
    """With one new interpreter per run."""
    for task, code in zip(tasks, programs, strict=True):
        runs = ["\n".join([code, *task.tests])]
        if "def run_tests" in code:
            own = OwnTests(task, function=VACUOUS, after=VACUOUS)
            runs += [f"{source}\n{own.call}" for source in (code, own.on_stub(), own.beside(task.canonical_solution))]
        for run in runs:
            source, nowhere = f"{task.setup_code}\n{run}".encode(), subprocess.DEVNULL
            command = [sys.executable, "-I", "-"]
            subprocess.run(command, input=source, env={}, timeout=60, check=False, stdout=nowhere, stderr=nowhere)


def timed_grading(tasks: Sequence[Task], repeats: int) -> dict[str, list[Side]]:
    """(grader, fresh interpreters) of each kind of completion, and of as many of each, one kind after the other."""
    graded(tasks, [program(task, "correct", -1) for task in tasks])  # start the worker, warm the setup codes
    numbers = itertools.count()

    def judged(judge: Callable, kind: str) -> Work:
        number = next(numbers)
        judge(tasks, [program(task, kind, number) for task in tasks])
        return {"completions": len(tasks)}

    found, judges = {}, {"grader": graded, "fresh interpreters": fresh_interpreters}
    for kind in KINDS:
        sides = {name: functools.partial(judged, judge, kind) for name, judge in judges.items()}
        found[kind] = interleaved(sides, repeats, 0)
    together = ([(1.0, one) for one in sides] for sides in zip(*found.values(), strict=True))
    return {**found, "a third each": [weighted(sides[0][1].title, *sides) for sides in together]}


def measure_grading(bench: Bench) -> list[Figure]:
    """Speed-up of each kind of completion."""
    tasks, figures = tasks_of(SOURCE, bench.sizes.grading_problems), []
    for kind, (ours, fresh) in timed_grading(tasks, min(bench.repeats, 3)).items():
        rate = statistics.median(rates(ours, "completions"))
        figures.append(ratio(f"{kind}: {rate:.0f} completions/s per core", ours, fresh, bar=BARS.get(kind)))
    close_pool()
    return figures
