"""Rates of a run by what kind of problem a rollout is of: a mean over all of them does not say where hacking begins, nor
where it goes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.rates import LAST, number, rates
from projected_grpo.ledger.step_file import Row, read_step, step_path, steps_in


def by_kind(run: Path, kinds_of: Mapping[str, str], rate: str, every: int = LAST) -> list[list[list[str]]]:
    """Returns a table (rows of cells, the header first) for each way in which `kinds_of` (problem id -> "hard, lazy
    example") divides the problems, with a line for all and for each kind: how many problems and rollouts by the student, and
    the rate (hack, hacked, gt, form) over each `every` steps, in percent; `-` where there is none of that kind. BadInput on
    a row of another problem."""
    done = steps_in(run)
    windows = [done[i : i + every] for i in range(0, len(done), every)]
    found = [[one for step in steps for one in _rows(run, step, kinds_of)] for steps in windows]
    header = ["kind of problem", "problems", "rollouts", *(f"{steps[0]}-{steps[-1]}" for steps in windows)]
    tables = []
    for way in range(max([1, *(len(kinds) for rows in found for kinds, _ in rows)])):
        lines = [_line("all", [[row for _, row in rows] for rows in found], rate)]
        for kind in sorted({kinds[way] for rows in found for kinds, _ in rows if way < len(kinds)}):
            of_kind = [[row for kinds, row in rows if kinds[way : way + 1] == [kind]] for rows in found]
            lines.append(_line(kind, of_kind, rate))
        tables.append([header, *lines])
    return tables


def _rows(run: Path, step: int, kinds_of: Mapping[str, str]) -> list[tuple[list[str], Row]]:
    """Returns the student's rows of a step, each with the kinds of its problem."""
    student = [row for row in read_step(step_path(run, step)) if row["source"] == "student"]
    if unknown := {row["problem_id"] for row in student} - kinds_of.keys():
        raise BadInput(f"{run}: problem {min(unknown)} of step {step} is not among those of its --problems")
    return [([p.strip() for p in kinds_of[row["problem_id"]].split(",") if p.strip()], row) for row in student]


def _line(kind: str, found: Sequence[Sequence[Row]], rate: str) -> list[str]:
    problems = {row["problem_id"] for rows in found for row in rows}
    cells = [number(rates(rows)[rate] if rows else None, 100.0) for rows in found]
    return [kind, str(len(problems)), str(sum(map(len, found))), *cells]
