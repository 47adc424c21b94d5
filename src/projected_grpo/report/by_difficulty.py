"""Rates of a run by what kind of problem a rollout is of: a mean over all of them does not say where hacking begins, nor
where it goes."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.rates import rates
from projected_grpo.ledger.step_file import Row, read_step, step_path, steps_in

Table = list[list[str]]
"""Rows of cells, the first of them the header."""


def kinds_of(difficulty: str) -> list[str]:
    """The kinds that a problem's difficulty names: `hard, lazy example` are two."""
    return [part.strip() for part in difficulty.split(",") if part.strip()]


def by_difficulty(run: Path, difficulty_of: Mapping[str, str], every: int, rate: str) -> Table:
    """A line for each kind of problem: the number of its rollouts by the student, and the rate (hack, hacked, gt, form) over
    each `every` steps, in percent; `-` where there is none of that kind.

    BadInput when a row is of a problem that is not among these.
    """
    done = steps_in(run)
    windows = [done[i : i + every] for i in range(0, len(done), every)]
    found = [_rows_by_kind(run, steps, difficulty_of) for steps in windows]
    kinds = sorted({kind for rows in found for kind in rows}, key=lambda kind: (kind != "all", kind))
    header = ["kind", "rollouts", *(f"{steps[0]}-{steps[-1]}" for steps in windows)]
    lines = [
        [kind, str(sum(len(rows[kind]) for rows in found)), *(_percent(rows[kind], rate) for rows in found)]
        for kind in kinds
    ]
    return [header, *lines]


def _rows_by_kind(run: Path, steps: Sequence[int], difficulty_of: Mapping[str, str]) -> dict[str, list[Row]]:
    out: dict[str, list[Row]] = defaultdict(list)
    for step in steps:
        for row in (r for r in read_step(step_path(run, step)) if r["source"] == "student"):
            if row["problem_id"] not in difficulty_of:
                raise BadInput(f"{run}: problem {row['problem_id']} is not among these; name its --problems")
            for kind in ("all", *kinds_of(difficulty_of[row["problem_id"]])):
                out[kind].append(row)
    return out


def _percent(rows: Sequence[Row], rate: str) -> str:
    value = rates(rows)[rate] if rows else None
    return "-" if value is None else f"{100 * value:.1f}"
