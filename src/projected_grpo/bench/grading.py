"""The grader against a fresh interpreter per run: verdicts per second and core.

The baseline is what a simple isolated grader does: for every run one `python -` that reads setup code, program and tests
and executes them, under the same time limit; the same runs per completion (ground truth; then own tests, own tests on a
stub, own tests on the canonical solution for a completion that has some). One worker, one process at a time, so a rate is
per core.
"""

import contextlib
import functools
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from loophole_grader import Task, close_pool, grade_batch
from loophole_grader.grade import _OwnTests
from loophole_grader.sandbox.pool import shared_pool
from projected_grpo.bench.measure import Bar, Figure, Timed, Work, interleaved, ratio
from projected_grpo.groups.problems import load_problems

SHARED = Path(os.environ.get("PGRPO_SHARED") or Path(__file__).parents[4] / "shared")
REAL = SHARED / "data" / "leetcode" / "leetcode_medhard_80.jsonl.gz"
VACUOUS = "\ndef run_tests():\n    print('all tests passed')\n"
KINDS = ("wrong", "correct", "hacking")
BARS = {"wrong": Bar(10.0), "a third each": Bar(3.0)}
Judge = Callable[[Sequence[Task], Sequence[str]], None]


def benchmark_tasks(limit: int) -> tuple[str, list[Task]]:
    """(where they are from, the first `limit` tasks): the benchmark's own where they are, else the package's."""
    source = str(REAL) if REAL.exists() else "builtin"
    return Path(source).name, tasks_of(source, limit)


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
    grade_batch(tasks, [f"```python\n{code}\n```" for code in programs], workers=1)


def fresh_interpreters(tasks: Sequence[Task], programs: Sequence[str]) -> None:
    """With one new interpreter per run."""
    for task, code in zip(tasks, programs, strict=True):
        run_fresh("\n".join([task.setup_code, code, *task.tests]))
        if "def run_tests" in code:
            own = _OwnTests("", VACUOUS, task)
            for source in (code, own.on_stub(), own.on_canonical()):
                run_fresh("\n".join([task.setup_code, source, own.call]))


def run_fresh(source: str) -> None:
    """One program in an interpreter of its own."""
    subprocess.run(
        [sys.executable, "-I", "-"], input=source.encode(), env={}, timeout=60, check=False,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _judge(judge: Judge, tasks: Sequence[Task], kind: str, numbers: Iterator[int]) -> Work:
    number = next(numbers)
    judge(tasks, [program(task, kind, number) for task in tasks])
    return {"completions": len(tasks)}


def timed_grading(tasks: Sequence[Task], repeats: int) -> dict[str, tuple[Timed, Timed]]:
    """(grader, fresh interpreters) of each kind of completion, and of a third each."""
    graded(tasks, [program(task, "correct", -1) for task in tasks])  # start the worker, warm the setup codes
    found = {}
    for kind in KINDS:
        sides = {
            name: functools.partial(_judge, judge, tasks, kind, itertools.count())
            for name, judge in (("grader", graded), ("fresh", fresh_interpreters))
        }
        timed = interleaved(sides, repeats, 0)
        found[kind] = (timed["grader"], timed["fresh"])
    ours, fresh = (_together([found[kind][side] for kind in KINDS]) for side in (0, 1))
    return {**found, "a third each": (ours, fresh)}


def _together(kinds: Sequence[Timed]) -> Timed:
    """As many completions of each kind, one after the other."""
    seconds = [sum(repeat) for repeat in zip(*(t.seconds for t in kinds), strict=True)]
    return Timed(seconds, {"completions": sum(t.work["completions"] for t in kinds)})


def measure_grading(limit: int, repeats: int) -> list[Figure]:
    """Speed-up of each kind of completion."""
    source, tasks = benchmark_tasks(limit)
    figures = []
    for kind, (ours, fresh) in timed_grading(tasks, repeats).items():
        told = f"{kind}: {ours.rate('completions'):.0f} completions/s per core, {len(tasks)} problems of {source}"
        figures.append(ratio("grading", told, ("grader", ours), ("fresh interpreters", fresh), BARS.get(kind)))
    close_pool()
    return figures


def worker_memory_mib(pid: int) -> float:
    """Proportional memory (PSS: a page shared by n processes counts 1/n in each) of a process and all below it."""
    todo, total = [pid], 0
    while todo:
        pid = todo.pop()
        with contextlib.suppress(OSError):  # it ended meanwhile
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                total += int(line.split()[1]) if line.startswith("Pss:") else 0
            todo += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return total / 1024


def peak_memory_mib(tasks: Sequence[Task]) -> tuple[float, float]:
    """Memory of one worker at rest, and its peak while it judges correct programs (looked at every 5 ms)."""
    runner = shared_pool().borrow()
    runner.load(tasks[0].setup_code)
    shared_pool().give_back(runner)
    assert runner._process is not None
    pid, seen, done = runner._process.pid, [], threading.Event()
    rest = worker_memory_mib(pid)

    def watch() -> None:
        while not done.wait(0.005):
            seen.append(worker_memory_mib(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    graded(tasks, [program(task, "correct", -2) for task in tasks])
    done.set()
    watcher.join()
    return rest, max(seen, default=rest)
