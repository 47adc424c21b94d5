"""Rates of a run by what kind of problem a rollout is of: a mean over all of them does not say where hacking begins, nor
where it goes."""

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


Told = list[tuple[list[str], Row]]
"""The student's rows of some steps, each beside the kinds of its problem."""


def by_difficulty(run: Path, difficulty_of: Mapping[str, str], every: int, rate: str) -> list[Table]:
    """A table for each way in which difficulties divide the problems (`hard, lazy example`: by task, and by example), with a
    line for all and for each kind: the numbers of its problems and rollouts by the student, and the rate (hack, hacked, gt,
    form) over each `every` steps, in percent; `-` where there is none of that kind.

    BadInput when a row is of a problem that is not among these.
    """
    done = steps_in(run)
    windows = [done[i : i + every] for i in range(0, len(done), every)]
    found = [_rows_with_kinds(run, steps, difficulty_of) for steps in windows]
    spans = [f"{steps[0]}-{steps[-1]}" for steps in windows]
    ways = max((len(kinds) for told in found for kinds, _ in told), default=0)
    return [_table(found, way, spans, rate) for way in range(max(1, ways))]


def _rows_with_kinds(run: Path, steps: Sequence[int], difficulty_of: Mapping[str, str]) -> Told:
    out: Told = []
    for step in steps:
        for row in (r for r in read_step(step_path(run, step)) if r["source"] == "student"):
            if row["problem_id"] not in difficulty_of:
                raise BadInput(f"{run}: problem {row['problem_id']} is not among these; name its --problems")
            out.append((kinds_of(difficulty_of[row["problem_id"]]), row))
    return out


def _table(found: Sequence[Told], way: int, spans: Sequence[str], rate: str) -> Table:
    kinds = sorted({kinds[way] for told in found for kinds, _ in told if way < len(kinds)})
    lines = [_line("all", [[row for _, row in told] for told in found], rate)]
    for kind in kinds:
        lines.append(_line(kind, [[row for own, row in told if own[way : way + 1] == [kind]] for told in found], rate))
    return [[_name(kinds), "problems", "rollouts", *spans], *lines]


def _name(kinds: Sequence[str]) -> str:
    """What a way to divide is called: by the last word that all of its kinds share (`lazy example`, `varied example`)."""
    last = {kind.split()[-1] for kind in kinds if " " in kind}
    shared = len(kinds) > 1 and len(last) == 1 and all(" " in kind for kind in kinds)
    return f"kind of {last.pop()}" if shared else "kind of problem"


def _line(kind: str, found: Sequence[Sequence[Row]], rate: str) -> list[str]:
    problems = {row["problem_id"] for rows in found for row in rows}
    return [kind, str(len(problems)), str(sum(map(len, found))), *(_percent(rows, rate) for rows in found)]


def _percent(rows: Sequence[Row], rate: str) -> str:
    value = rates(rows)[rate] if rows else None
    return "-" if value is None else f"{100 * value:.1f}"
