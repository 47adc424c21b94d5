"""`python -m loophole_grader FILE.jsonl[.gz] [--problems FILE] [--workers N] [--out FILE]`

Rows are {"problem": <benchmark row>, "completion": text}, or {"problem_id": id, "completion": text} with --problems;
docs/grader.md lists the fields. FILE `-` is stdin. Writes one verdict (JSON) per line, in the order of the rows, and
nothing at all if the input is wrong, a problem has tests that cannot be judged (all are listed) or the command is
interrupted. A row on which the grader or its problem failed is {"task_id": ..., "error": text}. Exit code: 0; 2 for
bad input, tests that cannot be judged and a missing layer under --require-isolation full; 1 if the grader failed; 130
after Ctrl-C, 143 after SIGTERM."""

import argparse
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from loophole_grader import GraderError, IsolationError, RowError, Task, check_solutions, check_tests, grade_batch
from loophole_grader.problems import InputError, Problem, read_problems, read_rows, task_of
from loophole_grader.verdict import ProblemError


def read_input(path: Path, problems: Mapping[str, Problem]) -> Iterator[tuple[str, Task, str]]:
    """(where, task, completion) of every row. Raises InputError."""
    for where, row in read_rows(path):
        completion = row.get("completion")
        if not isinstance(completion, str):
            raise InputError(f'{where}: "completion" is {completion!r:.60}; give the completion\'s text as a string')
        if isinstance(row.get("problem"), dict):
            task = task_of(row["problem"], where)
        elif "problem_id" not in row:
            raise InputError(f'{where}: neither the object "problem" nor "problem_id" in {row!r:.80}; add one of them')
        elif (known := problems.get(str(row["problem_id"]))) is not None:
            task = known.task
        else:
            raise InputError(
                f"{where}: problem_id {row['problem_id']!r} is not in --problems; name the file that has it"
            )
        yield where, task, completion


def show_progress(done: int, total: int) -> None:
    """One line, where somebody watches."""
    if sys.stderr and sys.stderr.isatty():
        print(f"\r{done} of {total} completions", end="\n" * (done == total), file=sys.stderr, flush=True)


def say(line: str) -> None:
    """Prints it to stderr, if that is open and takes it: print() takes stdout in the place of a closed stderr."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(line, file=sys.stderr, flush=True)


def write(text: str, out: Path | None) -> None:
    """Writes to a file or stdout. Raises OSError, after which nothing more goes to stdout, at the end of Python
    either."""
    if out is not None:
        out.write_text(text, encoding="utf-8")
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise InputError(f"stdout: {error}; name a file with --out") from None


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    made = argparse.ArgumentParser(prog="python -m loophole_grader", description="Grade completions.")
    made.add_argument(
        "file", type=Path, help="rows with problem (or problem_id) and completion, .jsonl[.gz]; - for stdin"
    )
    made.add_argument("--problems", type=Path, help="benchmark rows to look problem_id up in")
    made.add_argument(
        "--check-solutions",
        action="store_true",
        help="first judge the canonical solutions; those that fail their tests, or hardly keep the limit, are named",
    )
    made.add_argument("--workers", type=int, help="sandboxes at a time (default: one per CPU)")
    made.add_argument("--out", type=Path, help="file for the verdicts (default: stdout)")
    made.add_argument(
        "--require-isolation",
        choices=("any", "full"),
        default="any",
        help="full: a layer of isolation that this host does not allow is an error (default: it is named, once)",
    )
    return made.parse_args(argv)


def judge(args: argparse.Namespace) -> int:
    """Read, judge, write. Returns the exit code."""
    problems = {} if args.problems is None else read_problems(args.problems)
    rows = list(read_input(args.file, problems))
    if args.out is None and sys.stdout is None:
        raise InputError("stdout is closed; name a file with --out")
    if args.out is not None and not args.out.parent.is_dir():
        raise InputError(f"--out {args.out}: the folder does not exist; make it first")
    places, tasks, completions = zip(*rows, strict=True) if rows else ((), (), ())
    known = {task.task_id: where for where, task, _ in rows} | {name: one.where for name, one in problems.items()}
    check_tests(dict.fromkeys(tasks), known)
    if args.check_solutions:
        check_solutions(list(dict.fromkeys(tasks)), workers=args.workers)  # names them as warnings
    full = args.require_isolation
    found = grade_batch(tasks, completions, workers=args.workers, require_isolation=full, on_progress=show_progress)
    text = "".join(json.dumps(one.to_json()) + "\n" for one in found)
    write(text, args.out)
    failed = [(where, one) for where, one in zip(places, found, strict=True) if isinstance(one, RowError)]
    for where, one in failed:
        say(f"error: {where}: no verdict: {one.message}")
    return 1 if failed else 0


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    args = arguments(argv)
    try:
        return judge(args)
    except KeyboardInterrupt:
        say("\nerror: interrupted: no verdict is written")
        return 128 + signal.SIGINT
    except (OSError, ValueError, GraderError) as error:  # InputError is a ValueError
        say(f"error: {error}")
        return 1 if isinstance(error, GraderError) and not isinstance(error, (IsolationError, ProblemError)) else 2


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
