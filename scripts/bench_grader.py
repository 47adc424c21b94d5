"""How fast the grader is: verdicts per second per core, beside a fresh interpreter per run, measured in the same call.

Problems: the benchmark's own where PGRPO_SHARED (or ../shared) has them, else those that ship with the package. What the
baseline does stands in projected_grpo/bench/grading.py.
"""

import argparse
import contextlib
import statistics
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from loophole_grader import Task, close_pool
from loophole_grader.sandbox.pool import shared_pool


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
    from projected_grpo.bench.grading import graded, program

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
    parser.add_argument("--problems", help="file, or 'builtin'; left out, the benchmark's where they are, else builtin")
    parser.add_argument("--limit", type=int, default=20, help="how many problems")
    args = parser.parse_args()
    from projected_grpo.bench import grading  # brings torch, whose clock times both sides
    from projected_grpo.bench.measure import rates

    source = args.problems or grading.SOURCE
    tasks = grading.tasks_of(source, args.limit)
    timed = grading.timed_grading(tasks, args.repeats)
    rest, peak = peak_memory_mib(tasks)
    close_pool()
    print(f"{len(tasks)} problems of {Path(source).name}, median of {args.repeats} repeats, verdicts/s per core")
    print(f"{'completions':12} {'grader':>9} {'fresh':>9} {'ratio':>7}")
    for kind, sides in timed.items():
        one, other = (statistics.median(rates(side, "completions")) for side in sides)
        print(f"{kind:12} {one:9.1f} {other:9.1f} {one / other:6.1f}x")
    print(f"memory per worker: {rest:.0f} MiB at rest, {peak:.0f} MiB at its peak over correct programs (PSS)")
    print(
        "SHOULD: wrong >= 10x, a third each >= 3x, ELSE the warm workers do not do their job (or the machine is busy)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
