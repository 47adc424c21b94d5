"""Problems from JSON lines of benchmark rows: what a program is judged against, and the chat that asks for it.

read_problems(Path("builtin"))      tasks by id; `builtin` are the twelve problems that ship with the grader
read_prompted("rows.jsonl")         each task with its chat messages, the hint put in
"""

import gzip
import json
import logging
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from loophole_grader.grade import grade_batch
from loophole_grader.hints import apply_hint
from loophole_grader.oracle import check_tests
from loophole_grader.sandbox.pool import DEFAULT_LIMITS, Limits
from loophole_grader.verdict import Task, verdicts_of

BUILTIN = Path(__file__).with_name("problems.jsonl")
STDIN = Path("-")
SHARE = 0.5  # of the CPU limit: a solution that takes more hardly keeps it
_log = logging.getLogger("loophole_grader")


class InputError(ValueError):
    """Bad input: the message names the value, where it is, and the fix."""


class Problem(NamedTuple):
    """A row of a file, read."""

    task: Task
    where: str  # "file:line"
    row: Mapping[str, Any]


class Prompted(NamedTuple):
    """A task, and the chat that asks for it."""

    task: Task
    messages: list[dict[str, str]]


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """("file:line", object) of every line that is not blank. Raises InputError."""
    name = "stdin" if path == STDIN else str(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(0 if path == STDIN else path, "rb") as file:  # noqa: PTH123
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError):
                    row = None
                if not isinstance(row, dict):
                    start = line[:60].decode(errors="replace").strip()
                    raise InputError(f"{name}:{number}: {start!r} is no JSON object; write {{...}}, one per line")
                yield f"{name}:{number}", row
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{name}: cannot be read ({error}); give JSON lines, plain or in a file .gz") from None


def task_of(row: Mapping[str, Any], where: str) -> Task:
    """The task of a benchmark row. Raises InputError."""
    try:
        return Task.from_row(row)
    except ValueError as error:
        raise InputError(f"{where}: {error}; give the whole benchmark row") from None


def read_problems(path: Path) -> dict[str, Problem]:
    """Problems by their id from benchmark rows; `builtin`, where no file has that name, come with the grader. Raises
    InputError, for two rows of one id too."""
    found: dict[str, Problem] = {}
    for where, row in read_rows(BUILTIN if path == Path("builtin") and not path.exists() else path):
        task = task_of(row, where)
        if task.task_id in found:
            raise InputError(f"{where}: id {task.task_id!r} stands twice; keep one row per problem")
        found[task.task_id] = Problem(task, where, row)
    return found


def read_prompted(source: str | Path = "builtin", hint: str = "simple_overwrite_tests") -> list[Prompted]:
    """Tasks with their chats, in the order of the file; `builtin` as in read_problems.

    InputError, naming file and line, for a row without a chat and a chat that the hint does not fit; GraderError for
    tests that cannot be judged."""
    problems = read_problems(Path(source))
    if not problems:
        raise InputError(f"{source}: no problems in it; give JSON lines of benchmark rows")
    found = [Prompted(task, _messages(row, hint, where, task.evaluator_name)) for task, where, row in problems.values()]
    check_tests([task for task, _ in found], {name: problem.where for name, problem in problems.items()})
    return found


def _messages(row: Mapping[str, Any], hint: str, where: str, evaluator: str) -> list[dict[str, str]]:
    try:
        chat = [{"role": message["role"], "content": message["content"]} for message in row["prompt"]]
        if not chat or not all(isinstance(text, str) for message in chat for text in message.values()):
            raise TypeError
    except (LookupError, TypeError):
        raise InputError(f"{where}: 'prompt' must be a list of {{role, content}} messages, each a text") from None
    try:
        return apply_hint(chat, hint, evaluator)
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None


def check_solutions(tasks: Sequence[Task], *, limits: Limits = DEFAULT_LIMITS, workers: int | None = None) -> list[str]:
    """Judge every canonical solution as a completion. One line, also logged as a warning, for each that does not pass
    its tests, or passes them with more than half of the CPU limit: a right program that is a little slower would
    fail.

    Raises GraderError for problems on which the grader fails: their setup code, mostly."""
    known = [task for task in tasks if task.canonical_solution]
    texts = [f"```python\n{task.canonical_solution}\n```" for task in known]
    found = []
    for one in verdicts_of(grade_batch(known, texts, limits=limits, workers=workers)):
        cpu = f"{one.cpu_s:.1f} of {one.cpu_limit_s:.1f} CPU s"
        if not one.gt_pass:
            passes = f"passes {one.tests_passed} of {one.tests_total} tests ({one.status}, {cpu})"
        elif one.cpu_s > SHARE * one.cpu_limit_s:
            passes = f"takes {cpu}; a right program that takes twice as long is judged a timeout"
        else:
            continue
        found.append(f"task {one.task_id}: its canonical solution {passes}")
        _log.warning(found[-1])
    return found
