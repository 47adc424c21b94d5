"""Histogram of cosines per kind of rollout, one panel per V, same bins: what a mean and a t hide."""

from itertools import chain

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import AutoLocator

from projected_grpo.report.plots import STYLE, figure_of, legend
from projected_grpo.report.uat.inputs import Replays
from projected_grpo.report.uat.numbers import KINDS, cosines_by_kind

BINS = 20
"""Over the range of all cosines."""
LOOKS = dict(zip(KINDS, (("#D55E00", "-"), ("#CC79A7", "--"), ("#000000", ":"), ("#0072B2", "-.")), strict=True))
"""Okabe-Ito colour and line of each kind."""


def cosine_histogram(replays: Replays) -> Figure:
    """Returns one panel per V that was measured: the share of each kind's rollouts per bin."""
    steps = {"V": replays.vanilla, "random V of the same rank": replays.random}
    values = {title: cosines_by_kind(list(chain.from_iterable(rows))) for title, rows in steps.items() if rows}
    flat = [v for kinds in values.values() for found in kinds.values() for v in found] or [-1.0, 1.0]
    low, high = min(*flat, 0.0), max(*flat, 0.0)
    width = (high - low) / BINS or 1.0
    edges = width * np.arange(np.floor(low / width) - 1, np.ceil(high / width) + 2)  # 0 is an edge: no bin mixes signs
    with mpl.rc_context(STYLE):
        figure, axes = figure_of(len(values), height=2.9)
        for axis, (title, kinds) in zip(axes, values.items(), strict=True):
            for kind, found in kinds.items():
                shares = np.histogram(found, edges)[0] / max(len(found), 1)
                colour, line = LOOKS[kind]
                name = f"{kind} (n = {len(found)})"
                axis.stairs(shares, edges, color=colour, linestyle=line, linewidth=1.8, label=name)
            axis.axvline(0.0, color="#555555", linewidth=1.2, zorder=1.5)
            axis.set_title(title, loc="left")
            axis.set_ylabel("share of the kind's rollouts\n(fraction per bin)")
        axes[-1].xaxis.set_major_locator(AutoLocator())
        axes[-1].set_xlabel("cos_S_contrib: cosine of a rollout's own gradient with V (positive = hack-ward)")
        legend(figure, axes[:1], "kind of rollout")
    return figure
