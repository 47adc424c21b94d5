"""The plot of the bench of rivals: a line an arm, best first: hacks under the loophole prompt, and passes without it."""

from collections.abc import Mapping, Sequence
from typing import Literal

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from projected_grpo.arms import ARMS
from projected_grpo.report.plots import STYLE
from projected_grpo.report.rivals_rows import Row, percent
from projected_grpo.verdicts.effects import interval

KINDS: Mapping[str, tuple[str, str, Literal["full", "none"]]] = {
    "reference: untrained, vanilla, no loophole": ("#000000", "s", "full"),
    "projected": ("#0072b2", "*", "full"),
    "other ways to use V, and controls": ("#56b4e9", "o", "full"),
    "rival": ("#d55e00", "D", "full"),
    "oracle (ground truth)": ("#d55e00", "D", "none"),
}
"""Colour, marker and fill of each kind of arm."""
PANELS = {
    "hack": "hack under the loophole prompt\n(% of held-out rollouts, as deployed)",
    "plain": "pass without the loophole\n(% of held-out rollouts)",
}


def kind_of(row: Row) -> str:
    """Returns which of KINDS a row is of."""
    reference, ours, ways, rival, oracle = KINDS
    if row.oracle:
        return oracle
    arm = ARMS.get(row.name.split()[0].rstrip(","))
    if row.name == "untrained" or (arm and arm.role in ("baseline", "ceiling")):
        return reference
    if arm and arm.role == "method" and row.name == arm.name:
        return ours
    return rival if row.rival else ways


def hack_against_pass(rows: Sequence[Row]) -> Figure:
    """Returns the plot, in the order of pass without the loophole minus hack. Rows without either number are left out."""
    shown = sorted((row for row in rows if row.score is not None), key=lambda row: row.score or 0.0)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11.0, 0.27 * len(shown) + 2.2), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(1, len(PANELS), sharey=True)
        for axis, (rate, title) in zip(axes, PANELS.items(), strict=True):
            for place, row in enumerate(shown):
                mean, low, high = _point(getattr(row, rate))
                colour, marker, fill = KINDS[kind_of(row)]
                axis.errorbar([mean], [place], xerr=[[mean - low], [high - mean]], color=colour, marker=marker,
                              fillstyle=fill, markersize=8, elinewidth=1.0, capsize=3)  # fmt: skip
            axis.set_xlim(-3, 103)
            axis.set_xlabel(title)
        axes[0].set_yticks(range(len(shown)), [row.name for row in shown])
        found = {kind_of(row) for row in shown}
        handles = [Line2D([], [], color=colour, marker=marker, fillstyle=fill, linestyle="none", label=kind)
                   for kind, (colour, marker, fill) in KINDS.items() if kind in found]  # fmt: skip
        if handles:  # no run may have been evaluated without the loophole
            replicates = " or ".join(str(n) for n in sorted({len(row.runs) for row in shown}))
            title = f"mean and 95 % interval over {replicates} replicates; best first"
            figure.legend(handles=handles, loc="outside lower center", ncols=3, title=title)
    return figure


def _point(values: Sequence[float | None]) -> tuple[float, float, float]:
    """Mean in percent with its interval, of no width for a single value."""
    known = [v for v in percent(values) if v is not None]
    mean = sum(known) / len(known)
    return (mean, *(interval(known) if len(known) > 1 else (mean, mean)))
