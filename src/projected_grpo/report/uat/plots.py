"""Histogram of cosines per kind of rollout, one panel per V, same bins: what a mean and a t hide."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from projected_grpo.ledger.step_file import Row
from projected_grpo.report.plots import STYLE, Look
from projected_grpo.report.uat.numbers import KINDS
from projected_grpo.verdicts.effects import mean_of

Kinds = Mapping[str, Sequence[Row]]
BINS = 20
"""Over the range of all cosines."""
_LOOK = dict(zip(KINDS, (
    Look("#D55E00", "-", "o"), Look("#CC79A7", (0, (6, 1.5)), "s"), Look("#000000", ":", "^"),
    Look("#0072B2", (0, (4, 1.5, 1, 1.5)), "D"),
), strict=True))  # fmt: skip
"""Okabe-Ito colours; line and marker differ too, so that the plot reads in grey."""


def cosine_histogram(panels: Mapping[str, Kinds]) -> Figure:
    """One panel per V (its title: rows with a cosine, by kind). Steps: share of the kind's rollouts per bin; above them the
    kind's mean with the standard error by problem."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.5, 2.9 * len(panels) + 1.0), layout="constrained")
        FigureCanvasAgg(figure)
        edges = _edges([_values(rows) for kinds in panels.values() for rows in kinds.values()])
        height = max(float(_shares(rows, edges).max()) for kinds in panels.values() for rows in kinds.values()) or 1.0
        axes = [figure.add_subplot(len(panels), 1, i + 1) for i in range(len(panels))]
        for axis, (title, kinds) in zip(axes, panels.items(), strict=True):
            _panel(axis, kinds, edges, height)
            axis.set_title(title, loc="left")
        for axis in axes[:-1]:
            axis.tick_params(labelbottom=False)
        axes[-1].set_xlabel("cos_S_contrib: cosine of a rollout's own gradient with V (positive = hack-ward)")
        figure.legend(
            handles=_keys(next(iter(panels.values()))),
            loc="outside lower center",
            ncols=2,
            handlelength=3.4,
            title="outline: share of the kind's rollouts per bin; marker: mean ± SEM clustered by problem",
        )
    return figure


def _keys(kinds: Kinds) -> list[Line2D]:
    """Legend in the order of the kinds, empty ones too."""
    return [
        Line2D([], [], color=_LOOK[k].colour, linestyle=_LOOK[k].line, marker=_LOOK[k].marker, markeredgecolor="black",
               markeredgewidth=0.6, linewidth=1.8, label=f"{k} (n = {len(rows)})") for k, rows in kinds.items()
    ]  # fmt: skip


def _values(rows: Sequence[Row]) -> list[float]:
    return [r["cos_S_contrib"] for r in rows]


def _edges(values: Sequence[Sequence[float]]) -> np.ndarray:
    """Bins shared by all panels, one edge at 0 so that no bin mixes signs."""
    flat = [v for own in values for v in own] or [-1.0, 1.0]
    low, high = min(*flat, 0.0), max(*flat, 0.0)
    width = (high - low) / BINS or 1.0
    return width * np.arange(np.floor(low / width) - 1, np.ceil(high / width) + 2)


def _panel(axis: Axes, kinds: Kinds, edges: np.ndarray, height: float) -> None:
    """Outlines, means in a strip above them, the zero line."""
    for i, (kind, rows) in enumerate((k, rows) for k, rows in kinds.items() if rows):
        look = _LOOK[kind]
        axis.stairs(_shares(rows, edges), edges, color=look.colour, linestyle=look.line, linewidth=1.8)
        found = mean_of(_values(rows), [r["problem_id"] for r in rows])
        axis.errorbar(
            [found.mean], [0.95 - 0.06 * i], xerr=[found.sem_problem or 0.0], color=look.colour, marker=look.marker,
            markersize=6, capsize=3, markeredgecolor="black", markeredgewidth=0.6, transform=axis.get_xaxis_transform(),
        )  # fmt: skip
    axis.axvline(0.0, color="#555555", linewidth=1.2, zorder=1.5)
    axis.set_xlim(edges[0], edges[-1])
    axis.set_ylim(0, height / 0.7)  # the strip of means is the upper third
    axis.set_ylabel("share of the kind's rollouts\n(fraction per bin)")
    if not any(kinds.values()):
        axis.text(0.5, 0.5, "no rollout has a cosine", ha="center", va="center", transform=axis.transAxes)


def _shares(rows: Sequence[Row], edges: np.ndarray) -> np.ndarray:
    return np.histogram(_values(rows), edges)[0] / max(len(rows), 1)
