"""How fast the grader is: verdicts per second per core, beside a fresh interpreter per run, measured in the same call.

Problems: the benchmark's own where PGRPO_SHARED (or ../shared) has them, else those that ship with the package. What the
baseline does stands in projected_grpo/bench/grading.py.
"""

import argparse
import sys
from pathlib import Path

from loophole_grader import close_pool
from projected_grpo.bench import grading


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the grader against a fresh interpreter per run.")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each kind; the median counts")
    default = str(grading.REAL) if grading.REAL.exists() else "builtin"
    parser.add_argument("--problems", default=default, help="file, or 'builtin'")
    parser.add_argument("--limit", type=int, default=20, help="how many problems")
    args = parser.parse_args()
    tasks = grading.tasks_of(args.problems, args.limit)
    timed = grading.timed_grading(tasks, args.repeats)
    rest, peak = grading.peak_memory_mib(tasks)
    close_pool()
    print(f"{len(tasks)} problems of {Path(args.problems).name}, median of {args.repeats} repeats, verdicts/s per core")
    print(f"{'completions':12} {'grader':>9} {'fresh':>9} {'ratio':>7}")
    for kind, (ours, fresh) in timed.items():
        one, other = ours.rate("completions"), fresh.rate("completions")
        print(f"{kind:12} {one:9.1f} {other:9.1f} {one / other:6.1f}x")
    print(f"memory per worker: {rest:.0f} MiB at rest, {peak:.0f} MiB at its peak over correct programs (PSS)")
    print(
        "SHOULD: wrong >= 10x, a third each >= 3x, ELSE the warm workers do not do their job (or the machine is busy)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
