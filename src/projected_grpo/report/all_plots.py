"""Which plots a study has: its own (plots.py), and by dose where an arm removed several numbers of directions."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import AutoLocator

from projected_grpo.ledger.rates import LAST, known_mean
from projected_grpo.report.plots import (
    STYLE,
    cosines,
    figure_of,
    legend,
    looks,
    outcomes,
    pass_versus_hack,
    trajectories,
)
from projected_grpo.report.tables import doses
from projected_grpo.verdicts.conditions import VANILLA
from projected_grpo.verdicts.finished_runs import Run
from projected_grpo.verdicts.matching import RunGroup


def all_plots(groups: Sequence[RunGroup]) -> dict[str, Figure]:
    """Returns every plot by its file name's stem; none without runs."""
    if not groups:
        return {}
    with mpl.rc_context(STYLE):
        look = looks([g.name for g in groups])
        return {
            "trajectories": trajectories(groups, look), "cosines": cosines(groups, look), "outcomes": outcomes(groups),
            "pass_versus_hack": pass_versus_hack(groups, look), **_by_dose(groups),
        }  # fmt: skip


def plots_beside(groups: Sequence[RunGroup], study: str) -> dict[str, Figure]:
    """Returns what says most of a study, under its name: doses where there are some, else hacks against passes."""
    if not groups:
        return {}
    with mpl.rc_context(STYLE):
        drawn = _by_dose(groups) or {"outcome": pass_versus_hack(groups, looks([g.name for g in groups]))}
        return {f"{study}_{stem}": figure for stem, figure in drawn.items()}


def _by_dose(groups: Sequence[RunGroup]) -> dict[str, Figure]:
    found = doses(groups)
    return {"dose": dose(found), "dose_by_share": dose_by_share(found, groups)} if found else {}


Doses = Mapping[str, Mapping[int, Sequence[Run]]]
"""Arm -> directions removed -> its runs."""
DOSE_PANELS = {
    "hack": ("pure hack rate\n(fraction of rollouts)", Run.last), "gt": ("ground-truth pass rate\n(fraction)", Run.last),
    "form": ("well-formed rate\n(fraction of rollouts)", Run.last),
    "update_removed": ("update removed\n(fraction of its energy)", Run.whole),
}  # fmt: skip


def dose(found: Doses) -> Figure:
    """How the arms end by the number of directions that are removed: one point a run, a line through their means."""
    figure, axes = figure_of(len(DOSE_PANELS), width=7.5, height=2.2)
    look = looks(list(found))
    for axis, (series, (title, of)) in zip(axes, DOSE_PANELS.items(), strict=True):
        for arm, by_k in found.items():
            values = {k: [v for run in runs if (v := of(run, series)) is not None] for k, runs in by_k.items()}
            points = [(k, value) for k, own in values.items() for value in own]
            means = [(k, sum(own) / len(own)) for k, own in values.items() if own]
            axis.scatter(*zip(*points, strict=True), s=22, color=look[arm].colour, marker=look[arm].marker, alpha=0.6)
            axis.plot(*zip(*means, strict=True), color=look[arm].colour, linestyle=look[arm].line, label=arm)
        axis.set_xscale("log", base=2)
        axis.set_ylim(-0.03, 1.03)
        axis.set_ylabel(title)
    every = sorted({k for by_k in found.values() for k in by_k})
    axes[-1].set_xticks(every, [str(k) for k in every])
    axes[-1].set_xlabel("k: directions taken out of each module (random_energy: k of the V whose energy it holds)")
    legend(figure, axes, f"rates: last {LAST} steps; update removed: mean over the run; line: mean over runs")
    return figure


LABEL_AT = ((0, 6), (-4, -12), (9, -8), (8, 5))
"""Points from a point to its number, by arm: numbers of arms that meet do not cover one another."""
SHARE_PANELS = {name: DOSE_PANELS[name] for name in ("hack", "gt")}


def dose_by_share(found: Doses, groups: Sequence[RunGroup]) -> Figure:
    """The same by what it removes: how the arms end against the share of the applied update that was removed. An arm whose
    line lies below another's does more at an equal share. Numbers: directions; vanilla is at 0."""
    figure, axes = figure_of(len(SHARE_PANELS), width=7.5, height=3.4)
    look = looks([VANILLA, *found])
    vanilla = [run for group in groups for run in group.runs if run.arm == VANILLA]
    for axis, (series, (title, of)) in zip(axes, SHARE_PANELS.items(), strict=True):
        for place, (arm, by_k) in enumerate({**({VANILLA: {0: vanilla}} if vanilla else {}), **found}.items()):
            means = [
                (
                    known_mean(run.whole("update_removed") for run in runs) or 0.0,
                    known_mean(of(run, series) for run in runs),
                    k,
                )
                for k, runs in by_k.items()
            ]
            points = sorted((share, rate, k) for share, rate, k in means if rate is not None)
            colour, line, marker = look[arm].colour, look[arm].line, look[arm].marker
            axis.plot(
                [p[0] for p in points], [p[1] for p in points], color=colour, linestyle=line, marker=marker, label=arm
            )
            for share, rate, k in points if arm != VANILLA else []:
                axis.annotate(
                    str(k), (share, rate), xytext=LABEL_AT[place % len(LABEL_AT)], textcoords="offset points", fontsize=7,
                    color=colour, ha="center",
                )  # fmt: skip
        axis.xaxis.set_major_locator(AutoLocator())
        axis.set_xlim(-0.02, 1.02)
        axis.set_ylim(-0.03, 1.03)
        axis.set_ylabel(title)
    axes[-1].set_xlabel("share of the applied update's energy that was taken out (mean over the run)")
    legend(
        figure, axes, f"rates: last {LAST} steps, means over runs; numbers: k of V, or of the V whose energy it holds"
    )
    return figure
