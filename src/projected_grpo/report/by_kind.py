"""Rates of a run by what kind of problem a rollout is of: a mean over all of them does not say where hacking begins, nor
where it goes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.rates import LAST, number, rates
from projected_grpo.ledger.step_file import Row, iter_run


def by_kind(run: Path, kinds_of: Mapping[str, str], rate: str, every: int = LAST) -> list[list[list[str]]]:
    """Returns a table (rows of cells, the header first) for each way in which `kinds_of` (problem id -> "hard, lazy
    example") divides the problems, with a line for all and for each kind: how many problems and rollouts by the student, and
    the rate (hack, hacked, gt, form) over each `every` steps, in percent; `-` where there is none of that kind. Rollouts of
    other problems, as of a teacher's pool, are in no line; BadInput where all are."""
    steps = [
        [row for row in rows if row["source"] == "student" and row["problem_id"] in kinds_of] for rows in iter_run(run)
    ]
    if not any(steps):
        raise BadInput(f"{run}: no rollout is of its --problems; all are of its --teacher-pool's")
    starts = range(0, len(steps), every)
    windows = [[row for rows in steps[i : i + every] for row in rows] for i in starts]
    kinds = {name: [part.strip() for part in of.split(",") if part.strip()] for name, of in kinds_of.items()}
    seen = [kinds[name] for name in sorted({row["problem_id"] for rows in windows for row in rows})]
    header = ["kind of problem", "problems", "rollouts", *(f"{i}-{min(i + every, len(steps)) - 1}" for i in starts)]
    tables = []
    for way in range(max([1, *map(len, seen)])):
        lines = [_line("all", windows, rate)]
        for kind in sorted({of[way] for of in seen if way < len(of)}):
            of_kind = [[r for r in rows if kinds[r["problem_id"]][way : way + 1] == [kind]] for rows in windows]
            lines.append(_line(kind, of_kind, rate))
        tables.append([header, *lines])
    return tables


def _line(kind: str, windows: Sequence[Sequence[Row]], rate: str) -> list[str]:
    problems = {row["problem_id"] for rows in windows for row in rows}
    cells = [number(rates(rows)[rate] if rows else None, 100.0) for rows in windows]
    return [kind, str(len(problems)), str(sum(map(len, windows))), *cells]
