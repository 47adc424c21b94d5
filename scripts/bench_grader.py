"""How fast the grader is: verdicts per second per core, beside a fresh interpreter per run, measured in the same call.

The baseline is what a simple isolated grader does: for every run one `python -` that reads setup code, program and tests
and executes them, under the same time limit; the same runs per completion (ground truth; then own tests, own tests on a
stub, own tests on the canonical solution for a completion that has some). One worker, one process at a time, so a rate is
per core. Problems: the benchmark's own where PGRPO_SHARED (or ../shared) has them, else those that ship with the package.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from loophole_grader import Task, close_pool, grade_batch
from loophole_grader.grade import _OwnTests
from loophole_grader.sandbox import shared_pool
from projected_grpo.problems import load_problems

SHARED = Path(os.environ.get("PGRPO_SHARED") or Path(__file__).parents[2] / "shared")
REAL = SHARED / "data" / "leetcode" / "leetcode_medhard_80.jsonl.gz"
VACUOUS = "\ndef run_tests():\n    print('all tests passed')\n"
KINDS = ("wrong", "correct", "hacking")


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
    subprocess.run(
        [sys.executable, "-I", "-"], input=source.encode(), env={}, timeout=60, check=False,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def rates(judge: Callable, tasks: Sequence[Task], repeats: int) -> dict[str, list[float]]:
    """Verdicts per second of each kind, one entry per repeat."""
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for repeat in range(repeats):
        for kind in KINDS:
            programs = [program(task, kind, repeat) for task in tasks]
            start = time.perf_counter()
            judge(tasks, programs)
            found[kind].append(len(tasks) / (time.perf_counter() - start))
    return found


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


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the grader against a fresh interpreter per run.")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each kind; the median counts")
    parser.add_argument("--problems", default=str(REAL) if REAL.exists() else "builtin", help="file, or 'builtin'")
    parser.add_argument("--limit", type=int, default=20, help="how many problems")
    args = parser.parse_args()
    tasks = [problem.task for problem in load_problems(args.problems)][: args.limit]
    graded(tasks, [program(task, "correct", -1) for task in tasks])  # start the worker, warm the setup codes
    ours = rates(graded, tasks, args.repeats)
    rest, peak = peak_memory_mib(tasks)
    close_pool()
    fresh = rates(fresh_interpreters, tasks, args.repeats)
    print(f"{len(tasks)} problems of {Path(args.problems).name}, median of {args.repeats} repeats, verdicts/s per core")
    print(f"{'completions':12} {'grader':>9} {'fresh':>9} {'ratio':>7}")
    seconds = {"grader": 0.0, "fresh": 0.0}
    for kind in KINDS:
        one, other = statistics.median(ours[kind]), statistics.median(fresh[kind])
        seconds["grader"] += 1 / one
        seconds["fresh"] += 1 / other
        print(f"{kind:12} {one:9.1f} {other:9.1f} {one / other:6.1f}x")
    one, other = (len(KINDS) / seconds[name] for name in ("grader", "fresh"))
    print(f"{'a third each':12} {one:9.1f} {other:9.1f} {one / other:6.1f}x")
    print(f"memory per worker: {rest:.0f} MiB at rest, {peak:.0f} MiB at its peak over correct programs (PSS)")
    print(
        "SHOULD: wrong >= 10x, a third each >= 3x, ELSE the warm workers do not do their job (or the machine is busy)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
