"""`python -m loophole_grader FILE.jsonl[.gz] [--problems FILE] [--workers N] [--out FILE]`

Rows are {"problem": <benchmark row>, "completion": text}, or {"problem_id": id, "completion": text} with --problems.
Writes one verdict (JSON) per line, in the order of the rows, and nothing at all if the input is wrong or a problem has tests
that cannot be judged (all are listed). A row on which the grader or its problem failed is {"task_id": ..., "error": text}.
Exit code: 0; 2 for bad input and for a missing layer under --require-isolation full; 1 if the grader or a problem failed.
"""

import argparse
import gzip
import json
import os
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loophole_grader import GraderError, IsolationError, RowError, Task, check_tests, grade_batch
from loophole_grader.sandbox.pool import importable


class InputError(ValueError):
    """Bad input: the message names the value, the place and the mend."""


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """("file:line", object) of every line that is not blank. Raises InputError."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield f"{path}:{number}", _parse_row(line, f"{path}:{number}")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); give a JSON lines file, plain or .gz") from None


def _parse_row(line: str, place: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: {line.strip()[:60]!r} is not JSON ({error}); write one object per line") from None
    if not isinstance(row, dict):
        raise InputError(f"{place}: {line.strip()[:60]!r} is not an object; write {{...}}, one per line")
    return row


def read_problems(path: Path) -> dict[str, Task]:
    """Tasks by id from benchmark rows. Raises InputError, for two rows of one id too."""
    tasks: dict[str, Task] = {}
    for place, row in read_rows(path):
        task = _task(row, place)
        if task.task_id in tasks:
            raise InputError(f"{place}: id {task.task_id!r} stands twice; keep one row per problem")
        tasks[task.task_id] = task
    return tasks


def _task(row: Mapping[str, Any], place: str) -> Task:
    try:
        return Task.from_row(row)
    except ValueError as error:
        raise InputError(f"{place}: {error}; give the whole benchmark row") from None


def read_input(path: Path, problems: Mapping[str, Task] | None) -> tuple[list[Task], list[str]]:
    """Tasks and completions, row by row. Raises InputError."""
    tasks, completions = [], []
    for place, row in read_rows(path):
        completion = row.get("completion")
        if not isinstance(completion, str):
            raise InputError(f'{place}: "completion" is {completion!r:.60}; give the completion\'s text as a string')
        completions.append(completion)
        tasks.append(_row_task(row, place, problems))
    return tasks, completions


def _row_task(row: Mapping[str, Any], place: str, problems: Mapping[str, Task] | None) -> Task:
    if isinstance(row.get("problem"), dict):
        return _task(row["problem"], place)
    if "problem" in row:
        raise InputError(f'{place}: "problem" is {row["problem"]!r:.60}; give the benchmark row as an object')
    if "problem_id" not in row:
        raise InputError(f'{place}: neither "problem" nor "problem_id" in {sorted(row)!r:.80}; add one of them')
    if isinstance(row["problem_id"], bool) or not isinstance(row["problem_id"], (str, int)):
        raise InputError(f'{place}: "problem_id" must be text or a whole number, got {row["problem_id"]!r:.60}')
    if problems is None:
        raise InputError(f"{place}: problem_id {row['problem_id']!r} cannot be looked up; add --problems FILE")
    if str(row["problem_id"]) not in problems:
        raise InputError(f"{place}: problem_id {row['problem_id']!r} is not in --problems; check that both files fit")
    return problems[str(row["problem_id"])]


def write_whole(path: Path, text: str) -> None:
    """Write to a temporary name beside the file, then rename: a reader never sees half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(f"--out {path}: cannot be written ({error}); name a file in a folder that exists") from None


def _workers(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of workers; give 1 or more")
    return int(text)


def _distributions(text: str) -> tuple[str, ...]:
    names = tuple(name for name in text.split(",") if name)
    try:
        importable(names)
    except ValueError as error:
        raise InputError(f"--allow {text}: {error}") from None
    return names


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m loophole_grader", description="Grade completions.")
    parser.add_argument("file", type=Path, help="rows with problem (or problem_id) and completion, .jsonl or .jsonl.gz")
    parser.add_argument("--problems", type=Path, help="benchmark rows to look problem_id up in")
    parser.add_argument("--allow", default="", help="distributions that programs may import, as numpy,sortedcontainers")
    parser.add_argument("--workers", type=_workers, help="sandboxes at a time (default: one per CPU)")
    parser.add_argument("--out", type=Path, help="file for the verdicts (default: stdout)")
    parser.add_argument(
        "--require-isolation",
        choices=("any", "full"),
        default="any",
        help="full: a layer of isolation that this host does not allow is an error (default: it is named, once)",
    )
    args = parser.parse_args(argv)
    try:
        problems = None if args.problems is None else read_problems(args.problems)
        tasks, completions = read_input(args.file, problems)
        if args.out is not None and not args.out.parent.is_dir():
            raise InputError(f"--out {args.out}: the folder {args.out.parent} does not exist; make it first")
        check_tests(dict.fromkeys(tasks))
        allow = _distributions(args.allow)
        found = grade_batch(
            tasks, completions, workers=args.workers, require_isolation=args.require_isolation, allow=allow
        )
        text = "".join(json.dumps(one.to_json()) + "\n" for one in found)
        if args.out is None:
            sys.stdout.write(text)
        else:
            write_whole(args.out, text)
    except (InputError, IsolationError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except GraderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    failed = [(number, one) for number, one in enumerate(found, 1) if isinstance(one, RowError)]
    for number, one in failed:
        print(f"error: row {number} has no verdict: {one.message}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
