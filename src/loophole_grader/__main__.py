"""`python -m loophole_grader FILE.jsonl[.gz] [--problems FILE] [--workers N] [--out FILE]`

Rows are {"problem": <benchmark row>, "completion": text}, or {"problem_id": id, "completion": text} with --problems;
docs/grader.md lists the fields. FILE `-` is stdin. Writes one verdict (JSON) per line, in the order of the rows, and nothing
at all if the input is wrong, a problem has tests that cannot be judged (all are listed) or the command is interrupted: no
verdict is complete before all programs have met ground truth. A row on which the grader or its problem failed is
{"task_id": ..., "error": text}.
Exit code: 0; 2 for bad input, tests that cannot be judged and a missing layer under --require-isolation full; 1 if the
grader failed; 130 after Ctrl-C, 143 after SIGTERM.
"""

import argparse
import itertools
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loophole_grader import GraderError, IsolationError, RowError, Task, check_solutions, check_tests, grade_batch
from loophole_grader.problems import STDIN, InputError, Problems, read_problems, read_rows, task_of
from loophole_grader.verdict import ProblemError

STDOUT = STDIN
SHOWN_IDS = 3  # of the problems that are known, where one is not


class Ended(KeyboardInterrupt):
    """SIGTERM, which is to leave as little behind as Ctrl-C."""


@dataclass
class Rows:
    """The input, row by row."""

    places: list[str] = field(default_factory=list)  # "file:line"
    tasks: list[Task] = field(default_factory=list)
    completions: list[str] = field(default_factory=list)


def read_input(path: Path, problems: Problems | None) -> Rows:
    """All rows. Raises InputError."""
    rows = Rows()
    for place, row in read_rows(path):
        if "gt_answer" in row and not {"problem", "problem_id"} & row.keys():
            raise InputError(
                f'{place}: the benchmark row itself; put it under "problem", and the text beside it under "completion"'
            )
        completion = row.get("completion")
        if not isinstance(completion, str):
            raise InputError(f'{place}: "completion" is {completion!r:.60}; give the completion\'s text as a string')
        rows.places.append(place)
        rows.completions.append(completion)
        rows.tasks.append(_row_task(row, place, problems))
    return rows


def _row_task(row: Mapping[str, Any], place: str, problems: Problems | None) -> Task:
    if isinstance(row.get("problem"), dict):
        return task_of(row["problem"], place)
    if "problem" in row:
        raise InputError(f'{place}: "problem" is {row["problem"]!r:.60}; give the benchmark row as an object')
    if "problem_id" not in row:
        raise InputError(f'{place}: neither "problem" nor "problem_id" in {sorted(row)!r:.80}; add one of them')
    if isinstance(row["problem_id"], bool) or not isinstance(row["problem_id"], (str, int)):
        raise InputError(f'{place}: "problem_id" must be text or a whole number, got {row["problem_id"]!r:.60}')
    if problems is None:
        raise InputError(f"{place}: problem_id {row['problem_id']!r} cannot be looked up; add --problems FILE")
    if str(row["problem_id"]) not in problems.tasks:
        known = problems.tasks
        some = ", ".join(itertools.islice(known, SHOWN_IDS)) + (", ..." if len(known) > SHOWN_IDS else "")
        raise InputError(
            f"{place}: problem_id {row['problem_id']!r} is not in --problems {problems.source}, whose {len(known)} ids are "
            f"{some}; name the file that has it"
        )
    return problems.tasks[str(row["problem_id"])]


def check_paths(file: Path, problems: Path | None, out: Path | None) -> None:
    """Before anything is judged: whether the verdicts can go where they are to go. Raises InputError."""
    if file == STDIN and problems == STDIN:
        raise InputError("-, --problems -: stdin is read once; name a file for one of the two")
    if out is None or out == STDOUT:
        return
    try:
        if out.is_dir():
            raise InputError(f"--out {out}: it is a folder; name a file in it")
        if out.exists():
            for path in (file, problems):
                if path is not None and path != STDIN and path.exists() and out.samefile(path):
                    raise InputError(f"--out {out}: it is the file that is read; name another one")
        elif not (folder := out.resolve().parent).is_dir():
            raise InputError(f"--out {out}: the folder {folder} does not exist; make it first")
    except (OSError, RuntimeError) as error:  # a loop of links, a folder that may not be looked into
        raise InputError(f"--out {out}: cannot be written ({error}); name another file") from None


def write_whole(path: Path, text: str) -> None:
    """Write to a temporary name beside the file, then rename: a reader never sees half of it. What a link points to is
    replaced, not the link; what is no regular file (a device, a pipe) is written to as it stands."""
    temporary = None
    try:
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
            return
        target = path.resolve()
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(target)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise InputError(f"--out {path}: cannot be written ({error}); name a file in a folder that exists") from None


def write_stdout(text: str) -> None:
    """A reader that has seen enough (`| head`) is no error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@dataclass
class Progress:
    """How far the judging is, shown where somebody watches."""

    total: int = 0
    done: int = 0
    shown: bool = False

    def __call__(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        if sys.stderr.isatty():
            self.shown = True
            print(f"\r{done} of {total} completions", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the line."""
        if self.shown:
            print(file=sys.stderr)
            self.shown = False


def _workers(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of workers; give 1 or more")
    return int(text)


def _file(text: str) -> Path:
    """Looked at before it is a path, which has no slash at its end."""
    if os.path.basename(text) in ("", ".", ".."):  # noqa: PTH119  a path's name is that of its last part
        raise argparse.ArgumentTypeError(f"{text!r} is the name of a folder; name a file in it")
    return Path(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m loophole_grader", description="Grade completions.")
    parser.add_argument(
        "file", type=Path, help="rows with problem (or problem_id) and completion, .jsonl[.gz]; - for stdin"
    )
    parser.add_argument("--problems", type=Path, help="benchmark rows to look problem_id up in")
    parser.add_argument(
        "--check-solutions",
        action="store_true",
        help="first judge the problems' own solutions; those that fail their tests, or hardly keep the limit, are named",
    )
    parser.add_argument("--workers", type=_workers, help="sandboxes at a time (default: one per CPU)")
    parser.add_argument("--out", type=_file, help="file for the verdicts (default, and -: stdout)")
    parser.add_argument(
        "--require-isolation",
        choices=("any", "full"),
        default="any",
        help="full: a layer of isolation that this host does not allow is an error (default: it is named, once)",
    )
    return parser


def _judged(args: argparse.Namespace, progress: Progress) -> tuple[list[str], list]:
    """The place of every row, and its verdict or error."""
    check_paths(args.file, args.problems, args.out)
    problems = None if args.problems is None else read_problems(args.problems)
    rows = read_input(args.file, problems)
    progress.total = len(rows.tasks)
    tasks = list(dict.fromkeys(rows.tasks))
    places = {task.task_id: place for task, place in zip(rows.tasks, rows.places, strict=True)}
    check_tests(tasks, places | dict(problems.places if problems else {}))
    if args.check_solutions:
        check_solutions(tasks, workers=args.workers)  # names them as warnings
    found = grade_batch(
        rows.tasks,
        rows.completions,
        workers=args.workers,
        require_isolation=args.require_isolation,
        on_progress=progress,
    )
    return rows.places, found


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    args = _parser().parse_args(argv)
    progress = Progress()
    try:
        try:
            places, found = _judged(args, progress)
        finally:
            progress.end()
        text = "".join(json.dumps(one.to_json()) + "\n" for one in found)
        if args.out is None or args.out == STDOUT:
            write_stdout(text)
        else:
            write_whole(args.out, text)
    except (InputError, IsolationError, ProblemError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except GraderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as error:
        number = signal.SIGTERM if isinstance(error, Ended) else signal.SIGINT
        print(
            f"error: interrupted after {progress.done} of {progress.total} completions: no verdict is written "
            f"({number.name})",
            file=sys.stderr,
        )
        return 128 + number
    failed = [(place, one) for place, one in zip(places, found, strict=True) if isinstance(one, RowError)]
    for place, one in failed:
        print(f"error: {place}: no verdict: {one.message}", file=sys.stderr)
    return 1 if failed else 0


def _end(_number: int, _frame: object) -> None:
    raise Ended


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    sys.exit(main())
