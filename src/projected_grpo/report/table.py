"""A table of training runs, and how its cells are written: rates in percent, differences in percentage points, mean ±
standard error over seeds where runs are described; where arms are compared, the two-sided 95 % interval of the mean (paired
t). `-`: not known, or one seed."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tabulate import tabulate

from projected_grpo.ledger.rates import known_mean, number
from projected_grpo.verdicts.effects import interval
from projected_grpo.verdicts.finished_runs import Run, mean_sem

LEFT = (
    "what is removed (% of update energy)",
    "side",
    "adapter",
    "V",
    "folder",
    "effect size g [95 %] over problems",
)
"""Columns of words, besides the first."""


@dataclass(frozen=True)
class Table:
    """A table and the runs that it is of."""

    title: str
    header: Sequence[str]
    body: Sequence[Sequence[str]]
    runs: Sequence[Run] = ()
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        """The table with its heading, notes and sizes."""
        sizes = f"{len(self.runs)} runs, {sum(run.rollouts for run in self.runs):,} training rollouts"
        lines = [f"### {self.title}", "", self.text("github"), "", *(f"- {note}" for note in (*self.notes, sizes)), ""]
        return "\n".join(lines)

    def text(self, style: str = "simple", without: Collection[str] = ()) -> str:
        """The bare table: names to the left, numbers to the right; some columns may be left out."""
        kept = [i for i, name in enumerate(self.header) if name not in without]
        header, body = [self.header[i] for i in kept], [[row[i] for i in kept] for row in self.body]
        align = ["left" if i == 0 or name in LEFT else "right" for i, name in enumerate(header)]
        return tabulate(body, header, style, colalign=align, disable_numparse=True)


def spread(values: Iterable[float | int | None], scale: float = 1.0, digits: int = 1) -> str:
    """Mean ± standard error as a cell shows it."""
    return plus_minus(*mean_sem(values), scale, digits)


def plus_minus(mean: float | None, sem: float | None, scale: float = 1.0, digits: int = 1) -> str:
    """Formats a mean and its standard error; without the error where that is not known."""
    alone = number(mean, scale, digits)
    return alone if sem is None else f"{alone} ± {number(sem, scale, digits)}"


def between(values: Iterable[float | None], sign: str = "+") -> str:
    """Mean and its two-sided 95 % interval as a cell shows them."""
    known = [v for v in values if v is not None]
    if len(known) < 2:
        return number(known_mean(known), sign=sign)
    low, high = interval(known)
    return f"{number(known_mean(known), sign=sign)} [{number(low, sign=sign)}, {number(high, sign=sign)}]"
