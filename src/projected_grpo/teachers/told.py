"""A folder of answers as a table: what each teacher said, cost and took."""

from collections.abc import Sequence
from statistics import median

from tabulate import tabulate

from projected_grpo.teachers.history import Folder
from projected_grpo.verdicts.teachers import p95

COLUMNS = (
    "teacher", "answers", "cut", "lost attempts", "tokens in", "tokens out", "$", "of it at most", "s p50", "s p95",
)  # fmt: skip


def _seconds(of: Sequence[float]) -> list[str]:
    return [f"{median(of):.2f}", f"{p95(of):.2f}"] if of else ["-", "-"]


def cost_table(found: Folder) -> str:
    """One line a teacher. `cut`: answers that max_tokens ended; `of it at most`: $ of attempts whose cost is not known."""
    history, rows = found.history, []
    for teacher in found.teachers:
        of = {call: a for call, a in history.answers.items() if call[1] == teacher.name}
        rows.append(
            [
                teacher.name,
                f"{len(of)} of {len(found.states)}",
                sum(a.finish == "length" for a in of.values()),
                sum(len(lost) for call, lost in history.lost.items() if call[1] == teacher.name),
                sum(a.prompt_tokens or 0 for a in of.values()),
                sum(a.completion_tokens or 0 for a in of.values()),
                f"{history.spent[teacher.name]:.4f}",
                f"{history.unknown[teacher.name]:.4f}",
                *_seconds([history.seconds[call] for call in of]),
            ]
        )
    return tabulate(rows, COLUMNS, disable_numparse=True, colalign=("left", *["right"] * (len(COLUMNS) - 1)))
