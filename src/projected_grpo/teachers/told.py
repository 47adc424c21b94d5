"""A folder of answers as a table: what each teacher said, cost and took."""

from collections.abc import Sequence
from statistics import median

from tabulate import tabulate

from projected_grpo.teachers.answers import Folder
from projected_grpo.verdicts.teachers import p95

COLUMNS = (
    "teacher", "answers", "cut", "failed calls", "tokens in", "tokens out", "$", "of it at most", "s p50", "s p95",
)  # fmt: skip


def _seconds(of: Sequence[float]) -> list[str]:
    return [f"{median(of):.2f}", f"{p95(of):.2f}"] if of else ["-", "-"]


def cost_table(found: Folder) -> str:
    """One line a teacher. `cut`: answers that max_tokens ended; `of it at most`: $ of calls whose cost is not known."""
    rows, seconds = [], found.seconds
    for teacher in found.teachers:
        lines = [a for a in found.lines if a.teacher == teacher.name]
        of = [a for a in lines if not a.error]
        rows.append(
            [
                teacher.name,
                f"{len(of)} of {len(found.states)}",
                sum(a.finish == "length" for a in of),
                len(lines) - len(of),
                sum(a.prompt_tokens or 0 for a in of),
                sum(a.completion_tokens or 0 for a in of),
                f"{sum(a.usd for a in lines):.4f}",
                f"{sum(a.usd for a in lines if a.prompt_tokens is None):.4f}",
                *_seconds([seconds[a.state, a.teacher] for a in of]),
            ]
        )
    return tabulate(rows, COLUMNS, disable_numparse=True, colalign=("left", *["right"] * (len(COLUMNS) - 1)))
