"""Verdicts with their clauses as text: for a terminal, and as markdown (style `github`)."""

from collections.abc import Sequence

from tabulate import tabulate

from projected_grpo.verdicts.h1 import H1
from projected_grpo.verdicts.registry import Line


def h1_text(found: H1) -> str:
    """Returns, as markdown, the three lines with their clauses, and what falsifies the first."""
    whys = ["", *(line.verdict.why for line in found.lines)]
    summary = [[line.verdict.name, line.verdict.status, "the same" if line.verdict.why == before else line.verdict.why]
               for before, line in zip(whys, found.lines, strict=False)]  # fmt: skip
    parts = [_aligned(summary, ["line", "", "why"], "github"), ""]
    for line in found.lines:
        parts += [*line_text(line, "github"), ""]
        if line is found.preregistered:
            parts += [f"falsified by: {found.falsified_told}", ""]
    return "\n".join(parts)


def line_text(line: Line, style: str = "simple") -> list[str]:
    """Returns a line with its clauses and notes."""
    rows = [[c.name, c.status, c.why] for c in line.clauses]
    notes = [text for note in line.notes for text in ("", note)]
    return [f"{line.verdict.name}: {line.verdict.status}", "", _aligned(rows, ["clause", "", "numbers"], style), *notes]


def bullets(lines: Sequence[str]) -> list[str]:
    """Returns the lines as a markdown list with an empty line behind it; nothing without lines."""
    return [*(f"- {line}" for line in lines), *([""] if lines else [])]


def _aligned(rows: Sequence[Sequence[str]], header: Sequence[str], style: str) -> str:
    widths = None if style == "github" else [None, None, 84]
    return tabulate(rows, header, style, disable_numparse=True, maxcolwidths=widths)
