"""Problems: the benchmark's rows, the built-in ones, and those of worlds that are made here."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from loophole_grader import Task, check_tests
from loophole_grader.verdict import ProblemError
from projected_grpo.config import OF_PAIRS
from projected_grpo.data.pairs import pool_pairs
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import check_once, content_hash, first_fault, read_jsonl
from projected_grpo.prompts import Message, chat_of, from_chat
from projected_grpo.records import Problem
from projected_grpo.worlds.registry import PROBLEMS

_PROMPT = TypeAdapter(list[Message])


def problem_from_row(row: Mapping[str, Any], where: str) -> Problem:
    """Returns one row of the benchmark's JSON lines as a problem. BadInput names file, line and field."""
    try:
        prompt = from_chat(_PROMPT.validate_python(row.get("prompt")))
        task = Task.from_row(row)
    except ValidationError as e:
        raise BadInput(f"{where}: {first_fault(e, 'prompt')}; give a list of {{role, content}} (docs/use.md)") from e
    except ValueError as e:
        raise BadInput(f"{where}: {e}") from e
    if "user" not in dict(prompt):
        raise BadInput(f"{where}: 'prompt' has no user message")
    return Problem(task.task_id, prompt, task, str(row.get("difficulty") or ""))


def load_problems(source: str) -> tuple[Problem, ...]:
    """Returns the problems of a name (worlds/registry.py), of a pool of pairs (`builtin-pairs`), or of a file of
    benchmark rows, .jsonl or .jsonl.gz.

    BadInput on a missing file, a torn line, a missing field, an empty file, an id that is there twice, and on tests
    that cannot be judged: of all problems, each by its row, problem and number."""
    if source.endswith(OF_PAIRS):
        return tuple(pair.problem for pair in pool_pairs(source.removesuffix(OF_PAIRS)) if pair.problem)
    path = PROBLEMS.get(source, Path(source))
    if not isinstance(path, Path):
        made = tuple(path())
        check_once(((f"problem id {p.problem_id}", p.problem_id) for p in made), source)
        return made
    problems = tuple(problem_from_row(row, f"{path}: row {i}") for i, row in enumerate(read_jsonl(path), 1))
    if not problems:
        raise BadInput(f"{path}: no problems in it; write one JSON object a line (docs/use.md)")
    check_once(((f"problem id {p.problem_id}", p.problem_id) for p in problems), path)
    try:
        check_tests([p.task for p in problems], {p.problem_id: f"{path}: row {i}" for i, p in enumerate(problems, 1)})
    except ProblemError as e:
        raise BadInput(str(e)) from e
    return problems


def check_problems(flag: str, source: str, hint: str, prompt_setup: str) -> None:
    """BadInput, before a model is loaded, for a source of problems that is not there or that load_problems refuses,
    and for a prompt that the hint does not fit."""
    if Path(source).is_file() or source.endswith(OF_PAIRS):
        for p in load_problems(source):
            chat_of(p, hint, prompt_setup, f"{source}: problem {p.problem_id}")
    elif isinstance(there := PROBLEMS.get(source), Path) and not there.exists():
        raise BadInput(f"{flag} {source}: {there} is not here; fetch it with `just download-model`")
    elif source not in PROBLEMS:
        raise BadInput(f"{flag} {source}: no such file; name one with problems, or one of {', '.join(PROBLEMS)}")


def problems_hash(problems: Sequence[Problem]) -> str:
    """Hash of all that the problems are: their solutions and kinds too, which the grader and tables by kind read."""
    return content_hash([asdict(p) for p in problems])


def schedule(n: int, per_step: int, step: int, seed: int | str) -> list[int]:
    """Which of `n` problems a step trains on: seeded shuffles one after the other, each problem once per epoch.

    A pure function of the step, so a resumed run meets the same problems.
    """
    out = []
    for index in range(step * per_step, (step + 1) * per_step):
        order = list(range(n))
        random.Random(f"{seed} epoch {index // n}").shuffle(order)
        out.append(order[index % n])
    return out
