"""`python -m loophole_grader FILE.jsonl[.gz] [--problems FILE] [--workers N] [--out FILE]`

Rows are {"problem": <benchmark row>, "completion": text}, or {"problem_id": id, "completion": text} with --problems;
docs/grader.md lists the fields. FILE `-` is stdin. Writes one verdict (JSON) per line, in the order of the rows, and nothing
at all if the input is wrong, a problem has tests that cannot be judged (all are listed) or the command is interrupted. A
row on which the grader or its problem failed is {"task_id": ..., "error": text}.
Exit code: 0; 2 for bad input, tests that cannot be judged and a missing layer under --require-isolation full; 1 if the
grader failed; 130 after Ctrl-C, 143 after SIGTERM.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loophole_grader import GraderError, IsolationError, RowError, Task, check_solutions, check_tests, grade_batch
from loophole_grader.problems import InputError, Problems, read_problems, read_rows, task_of
from loophole_grader.verdict import ProblemError


class TerminatedError(KeyboardInterrupt):
    """SIGTERM, which is to leave as little behind as Ctrl-C."""


def read_input(path: Path, problems: Problems | None) -> list[tuple[str, Task, str]]:
    """(place, task, completion) of every row. Raises InputError."""
    rows = []
    for place, row in read_rows(path):
        completion = row.get("completion")
        if not isinstance(completion, str):
            raise InputError(f'{place}: "completion" is {completion!r:.60}; give the completion\'s text as a string')
        rows.append((place, row_task(row, place, problems), completion))
    return rows


def row_task(row: Mapping[str, Any], place: str, problems: Problems | None) -> Task:
    """The task that a row gives or names. Raises InputError."""
    if "problem" in row:
        if not isinstance(row["problem"], dict):
            raise InputError(f'{place}: "problem" is {row["problem"]!r:.60}; give the benchmark row as an object')
        return task_of(row["problem"], place)
    if "problem_id" not in row:
        raise InputError(f'{place}: neither "problem" nor "problem_id" in {sorted(row)!r:.80}; add one of them')
    if problems is None:
        raise InputError(f"{place}: problem_id {row['problem_id']!r} cannot be looked up; add --problems FILE")
    task = problems.tasks.get(str(row["problem_id"]))
    if task is None:
        raise InputError(f"{place}: problem_id {row['problem_id']!r} is not in --problems; name the file that has it")
    return task


def show_progress(done: int, total: int) -> None:
    """One line, where somebody watches."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"\r{done} of {total} completions", end="\n" * (done == total), file=sys.stderr, flush=True)


def say(line: str) -> None:
    """Print it to stderr, if that is open and takes it."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(line, file=sys.stderr, flush=True)


def write(text: str, out: Path | None) -> None:
    """To a file or stdout. Raises OSError, after which nothing more goes to stdout, at the end of Python either."""
    if out is not None:
        out.write_text(text, encoding="utf-8")
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise InputError(f"stdout: {error}; name a file with --out") from None


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m loophole_grader", description="Grade completions.")
    made.add_argument(
        "file", type=Path, help="rows with problem (or problem_id) and completion, .jsonl[.gz]; - for stdin"
    )
    made.add_argument("--problems", type=Path, help="benchmark rows to look problem_id up in")
    made.add_argument(
        "--check-solutions",
        action="store_true",
        help="first judge the problems' own solutions; those that fail their tests, or hardly keep the limit, are named",
    )
    made.add_argument("--workers", type=int, help="sandboxes at a time (default: one per CPU)")
    made.add_argument("--out", type=Path, help="file for the verdicts (default: stdout)")
    made.add_argument(
        "--require-isolation",
        choices=("any", "full"),
        default="any",
        help="full: a layer of isolation that this host does not allow is an error (default: it is named, once)",
    )
    return made


def judge(args: argparse.Namespace) -> int:
    """Read, judge, write. Returns the exit code."""
    problems = None if args.problems is None else read_problems(args.problems)
    rows = read_input(args.file, problems)
    if args.out is None and sys.stdout is None:
        raise InputError("stdout is closed; name a file with --out")
    if args.out is not None and not args.out.parent.is_dir():
        raise InputError(f"--out {args.out}: the folder does not exist; make it first")
    tasks = list(dict.fromkeys(task for _, task, _ in rows))
    check_tests(tasks, {task.task_id: place for place, task, _ in rows} | dict(problems.places if problems else {}))
    if args.check_solutions:
        check_solutions(tasks, workers=args.workers)  # names them as warnings
    found = grade_batch(
        [task for _, task, _ in rows],
        [completion for *_, completion in rows],
        workers=args.workers,
        require_isolation=args.require_isolation,
        on_progress=show_progress,
    )
    text = "".join(json.dumps(one.to_json()) + "\n" for one in found)
    write(text, args.out)
    failed = [(place, one) for (place, *_), one in zip(rows, found, strict=True) if isinstance(one, RowError)]
    for place, one in failed:
        say(f"error: {place}: no verdict: {one.message}")
    return 1 if failed else 0


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    args = parser().parse_args(argv)
    try:
        return judge(args)
    except (OSError, ValueError, IsolationError, ProblemError) as error:  # InputError is a ValueError
        say(f"error: {error}")
        return 2
    except GraderError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt as error:
        number = signal.SIGTERM if isinstance(error, TerminatedError) else signal.SIGINT
        say(f"\nerror: interrupted: no verdict is written ({number.name})")
        return 128 + number


def _terminate(_number: int, _frame: object) -> None:
    raise TerminatedError


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(main())
