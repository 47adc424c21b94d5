"""Verdicts with their clauses as text: for a terminal, and as markdown (style `github`)."""

import textwrap
from collections.abc import Sequence

from tabulate import tabulate

from projected_grpo.verdicts.registry import Line

WIDTH = 118
"""Columns of a printout."""


def filled(text: str, indent: str = "", most: int | None = None, width: int = WIDTH) -> str:
    """Returns a text in lines of this width, all but the first indented, the rest cut behind so many lines."""
    return textwrap.fill(text, width, subsequent_indent=indent, max_lines=most, placeholder=" ...")


def h1_text(lines: Sequence[Line]) -> str:
    """Returns H1's lines as markdown: a table of them, then each with its clauses."""
    whys = ["", *(line.verdict.why for line in lines)]
    summary = [[line.verdict.name, line.verdict.status, "the same" if line.verdict.why == before else line.verdict.why]
               for before, line in zip(whys, lines, strict=False)]  # fmt: skip
    parts = [tabulate(summary, ["line", "", "why"], "github", disable_numparse=True), ""]
    for line in lines:
        parts += [*line_text(line, "github"), ""]
    return "\n".join(parts)


def line_text(line: Line, style: str = "simple") -> list[str]:
    """Returns a line with its clauses and notes."""
    rows = [[c.name, c.status, c.why] for c in line.clauses]
    widths = None if style == "github" else [None, None, 84]
    table = tabulate(rows, ["clause", "", "numbers"], style, disable_numparse=True, maxcolwidths=widths)
    return [
        f"{line.verdict.name}: {line.verdict.status}",
        "",
        table,
        *(text for note in line.notes for text in ("", note)),
    ]


def bullets(lines: Sequence[str]) -> list[str]:
    """Returns the lines as a markdown list with an empty line behind it; nothing without lines."""
    return [*(f"- {line}" for line in lines), *([""] if lines else [])]
