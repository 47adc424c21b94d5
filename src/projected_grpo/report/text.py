"""How tables, numbers and verdicts are written: for a terminal, and as markdown (style `github`).

Rates are in percent, differences in percentage points, runs as mean ± standard error over seeds; where arms are
compared, the two-sided 95 % interval of the mean (paired t). `-`: not known, or one seed."""

import textwrap
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tabulate import tabulate

from projected_grpo.ledger.rates import known_mean, number
from projected_grpo.verdicts.effects import interval
from projected_grpo.verdicts.finished_runs import Run, mean_sem
from projected_grpo.verdicts.registry import Line

LEFT = ("track", "was shown", "what is removed (% of update energy)", "side", "adapter", "V", "folder")
"""Columns of words, besides the first."""


@dataclass(frozen=True)
class Table:
    """A table and the runs that it is of."""

    title: str
    header: Sequence[str]
    body: Sequence[Sequence[object]]
    runs: Sequence[Run] = ()
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        """The table with its heading, notes and sizes."""
        sizes = f"{len(self.runs)} runs, {sum(run.rollouts for run in self.runs):,} training rollouts"
        lines = [f"### {self.title}", "", self.text("github"), "", *bullets([*self.notes, sizes])]
        return "\n".join(lines)

    def text(self, style: str = "simple", without: Collection[str] = ()) -> str:
        """The bare table: names to the left, numbers to the right; some columns may be left out."""
        kept = [i for i, name in enumerate(self.header) if name not in without]
        header, body = [self.header[i] for i in kept], [[row[i] for i in kept] for row in self.body]
        align = ["left" if i == 0 or name in LEFT else "right" for i, name in enumerate(header)]
        return tabulate(body, header, style, colalign=align, disable_numparse=True)


def spread(values: Iterable[float | int | None], scale: float = 1.0, digits: int = 1) -> str:
    """Mean ± standard error as a cell shows it; without the error where that is not known."""
    mean, sem = mean_sem(values)
    alone = number(mean, scale, digits)
    return alone if sem is None else f"{alone} ± {number(sem, scale, digits)}"


def between(values: Iterable[float | None], sign: str = "+", digits: int = 1) -> str:
    """Mean and its two-sided 95 % interval as a cell shows them."""
    known = [v for v in values if v is not None]
    mean = number(known_mean(known), sign=sign, digits=digits)
    if len(known) < 2:
        return mean
    low, high = interval(known)
    return f"{mean} [{low:{sign}.{digits}f}, {high:{sign}.{digits}f}]"


def filled(text: str, indent: str = "", most: int | None = None, width: int = 118) -> str:
    """Returns a text in lines of this width, all but the first indented, the rest cut behind so many lines."""
    return textwrap.fill(text, width, subsequent_indent=indent, max_lines=most, placeholder=" ...")


def line_text(line: Line, style: str = "simple") -> str:
    """Returns a verdict with its clauses and notes."""
    rows = [[c.name, c.status, c.why] for c in line.clauses]
    widths = None if style == "github" else [None, None, 84]
    table = tabulate(rows, ["clause", "", "numbers"], style, disable_numparse=True, maxcolwidths=widths)
    return "\n\n".join([f"{line.verdict.name}: {line.verdict.status}", table, *line.notes])


def bullets(lines: Sequence[str]) -> list[str]:
    """Returns the lines as a markdown list with an empty line behind it; nothing without lines."""
    return [*(f"- {line}" for line in lines), *([""] if lines else [])]
