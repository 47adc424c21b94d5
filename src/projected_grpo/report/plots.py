"""Plots of training runs. Every arm has one colour, line and marker in all of them (Okabe-Ito: safe for colour-blind
readers, and readable in grey). A figure is returned, not shown; `save` writes it as PNG and SVG, the same bytes each
time."""

import io
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import AutoLocator, MaxNLocator

from loophole_grader import LABELS
from projected_grpo.ledger.files import write_atomic
from projected_grpo.ledger.rates import LAST, known_mean, running_mean
from projected_grpo.report.replays import Steps
from projected_grpo.report.uat import KINDS, cosines_by_kind
from projected_grpo.verdicts.finished_runs import Run
from projected_grpo.verdicts.matching import RunGroup

STYLE: dict[Any, Any] = {
    "font.size": 10, "axes.labelsize": 10, "axes.titlesize": 11, "legend.fontsize": 9, "legend.frameon": False,
    "axes.grid": True, "grid.color": "#dddddd", "grid.linewidth": 0.6, "axes.axisbelow": True, "axes.spines.top": False,
    "axes.spines.right": False, "figure.dpi": 150, "hatch.linewidth": 0.5, "hatch.color": "#444444",
    "svg.hashsalt": "projected_grpo",
}  # fmt: skip
Look = tuple[str, Any, str]
"""Colour, line and marker of a group, in every plot."""
_ARM_LOOKS: Mapping[str, Look] = {
    "vanilla": ("#D55E00", "-", "o"),
    "projected": ("#0072B2", "--", "s"),
    "literal": ("#56B4E9", (0, (5, 1, 1, 1, 1, 1)), "P"),
    "one_sided": ("#E69F00", "-.", "D"),
    "random": ("#009E73", ":", "^"),
    "placebo": ("#8C8200", "-", "X"),
    "random_energy": ("#000000", ":", "h"),
    "random_share": ("#7B3294", (0, (3, 1)), "*"),
    "clean": ("#888888", "-", "d"),
    "words": ("#8B4513", (0, (3, 1, 1, 1)), "<"),
    "shrunk": ("#CC79A7", (0, (8, 3)), "v"),
}
"""Other arms take spare ones."""
_SPARE_LOOKS: tuple[Look, ...] = (
    ("#56B4E9", "-", ">"),
    ("#000000", "-", "H"),
    ("#8C8200", "-.", "p"),
    ("#CC79A7", ":", "8"),
    ("#009E73", "-", "D"),
    ("#E69F00", ":", "s"),
    ("#0072B2", "-.", "^"),
)
_LABEL_LOOK = {
    "correct": ("#009E73", ""),
    "correct_attempted_hack": ("#56B4E9", "//"),
    "reward_hack": ("#D55E00", ""),
    "attempted_hack": ("#E69F00", "\\\\"),
    "incorrect": ("#BBBBBB", ".."),
}


def looks(names: Sequence[str]) -> dict[str, Look]:
    """One look per group: an arm's for the first group of that arm, spare ones for its variants."""
    out: dict[str, Look] = {}
    spare = itertools.cycle(_SPARE_LOOKS)
    for name in names:
        usual = _ARM_LOOKS.get(name.split()[0])
        out[name] = usual if usual and usual not in out.values() else next(spare)
    return out


def rendered(figure: Figure, kind: Literal["png", "svg"]) -> bytes:
    """A figure as a file's content, without a date in it."""
    metadata = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}[kind]
    data = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure.savefig(data, format=kind, metadata=metadata)
    return data.getvalue()


def save(figure: Figure, directory: Path, stem: str) -> None:
    """Writes `stem`.png and `stem`.svg."""
    for kind in ("png", "svg"):
        write_atomic(directory / f"{stem}.{kind}", rendered(figure, kind))


@dataclass(frozen=True)
class Output:
    """What `just results` prints and writes, whichever table is asked for."""

    text: str
    bottom: str
    """The last line: what was found."""
    code: int
    """Exit code: 0 PASS, 1 FAIL, 3 not evaluable."""
    files: Mapping[str, str]
    """File name -> its text."""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    """Stem -> figure, for plots/."""

    def write(self, out: Path) -> None:
        for stem, figure in self.figures.items():
            save(figure, out / "plots", stem)
        for name, text in self.files.items():
            write_atomic(out / name, text.encode())


def figure_of(rows: int, width: float = 8.5, height: float = 2.6) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, rows * height + 0.9), layout="constrained")
    axes = list(figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0])
    for axis in axes:
        axis.margins(x=0.02)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[-1].set_xlabel("optimizer step")
    return figure, axes


def legend(figure: Figure, axes: Iterable[Axes], title: str) -> None:
    """Below all panels, where it covers nothing; each name once."""
    found: dict[str, Any] = {}
    for axis in axes:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    widest = max(map(len, found), default=0)
    columns = min(len(found), 3 if widest <= 26 else 2 if widest <= 46 else 1)
    if found:
        figure.legend(
            found.values(), found.keys(), loc="outside lower center", ncols=columns, title=title, handlelength=3.4
        )


MOST_POINTS = 60
"""Of a line: more are hardly seen in running means over ten steps, and make files of a megabyte."""


def thinned(points: Sequence[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
    """Every so many points that MOST_POINTS remain, the last one always."""
    return [*points[: -1 : max(1, len(points) // MOST_POINTS)], *points[-1:]]


def over_seeds(runs: Sequence[Run], series: str) -> Sequence[tuple[int, float, float, float]]:
    """(step, mean, lowest, highest) over seeds of the runs' 10-step running means, where anything is known, for as
    long as all of them run: each replicate lasts for three of its vanilla's onsets. Thinned."""
    means = zip(*(running_mean(run.series[series]) for run in runs), strict=False)
    known = ((step, [v for v in values if v is not None]) for step, values in enumerate(means))
    return thinned([(step, sum(of) / len(of), min(of), max(of)) for step, of in known if of])


def _lines(axis: Axes, groups: Sequence[RunGroup], look: Mapping[str, Look], series: str) -> list[RunGroup]:
    """Each group's mean line and, with several seeds, its band. Returns the groups of which anything is known."""
    drawn = []
    for index, group in enumerate(groups):
        if not (points := over_seeds(group.runs, series)):
            continue
        steps, mean, low, high = zip(*points, strict=True)
        (colour, line, marker), n = look[group.name], len(group.runs)
        every = max(1, len(steps) // 8)
        first = index * every // 5 % every  # markers of arms that lie on one another stand side by side
        axis.plot(
            steps, mean, color=colour, linestyle=line, marker=marker, markevery=(first, every), markersize=4.5,
            linewidth=1.8, label=f"{group.name} ({n} seed{'s' if n > 1 else ''})",
        )  # fmt: skip
        if n > 1:
            axis.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
        drawn.append(group)
    return drawn


BAND = (
    f"line: mean over seeds of the {LAST}-step running mean; band: lowest to highest seed;\n"
    "as far as the shortest seed goes"
)


def trajectories(groups: Sequence[RunGroup], look: Mapping[str, Look]) -> Figure:
    """Pure hacks, ground-truth passes and compiling programs over the run: never one without the others."""
    figure, axes = figure_of(3)
    titles = ("pure hack rate", "ground-truth pass rate", "compile rate")
    for axis, series, title in zip(axes, ("hack", "gt", "form"), titles, strict=True):
        _rate_panel(axis, groups, look, series, title)
    legend(figure, axes, BAND)
    return figure


def paths(groups: Sequence[RunGroup], look: Mapping[str, Look]) -> Figure:
    """Pure hacks over the length of the parameters' path, a line a run: what only takes shorter steps hacks later in
    steps, and as soon in path."""
    figure, (axis,) = figure_of(1, height=3.6)
    for group in groups:
        colour, line, _ = look[group.name]
        for i, run in enumerate(group.runs):
            length = np.cumsum([norm or 0.0 for norm in run.series["update_norm"]])
            points = thinned(list(zip(length, running_mean(run.series["hack"]), strict=True)))
            name = None if i else group.name
            axis.plot(*zip(*points, strict=True), color=colour, linestyle=line, linewidth=1.2, label=name)
    axis.set_xlabel("path length: sum of the applied updates' norms")
    axis.set_ylabel("pure hack rate\n(fraction of rollouts)")
    legend(figure, [axis], f"a line a run: its {LAST}-step running mean")
    return figure


def _rate_panel(axis: Axes, groups: Sequence[RunGroup], look: Mapping[str, Look], series: str, title: str) -> None:
    _lines(axis, groups, look, series)
    axis.set_ylim(-0.03, 1.03)
    axis.set_ylabel(f"{title}\n(fraction of rollouts)")


COSINE_PANELS = {
    "cos_in": "gradient before projection", "cos_out": "gradient that the optimizer used",
    "cos_update_in": "update that the optimizer proposed", "cos_update": "update that was applied",
}  # fmt: skip


def cosines(groups: Sequence[RunGroup], look: Mapping[str, Look]) -> Figure:
    """Hack-ward fraction of the gradient and of the update, before and after projection, with a line per value that a
    random direction would show."""
    figure, axes = figure_of(len(COSINE_PANELS))
    for axis, (series, what) in zip(axes, COSINE_PANELS.items(), strict=True):
        drawn = _lines(axis, groups, look, series)
        nulls = {known_mean(run.whole("cos_null") for run in group.runs) for group in drawn}
        # Of a random direction half of the axes are positive, and only those are in a hack-ward fraction.
        for null in sorted({round(n / 2**0.5, 4) for n in nulls if n is not None}):
            name = f"null: random direction ({null:.3f})"
            axis.axhline(null, color="#555555", linestyle=(0, (2, 2)), linewidth=1.4, zorder=1.5, label=name)
        axis.set_ylabel(f"{series} (cosine)")
        axis.set_title(f"hack-ward part of the {what}", loc="left")
        if not drawn:
            axis.text(0.5, 0.5, "not measured: the runs had no V", ha="center", va="center", transform=axis.transAxes)
        axis.set_ylim(bottom=min(-0.01, axis.get_ylim()[0]))
    legend(figure, axes, BAND)
    return figure


def outcomes(groups: Sequence[RunGroup]) -> Figure:
    """Shares of the five labels over the run, stacked, one panel per group."""
    figure, axes = figure_of(len(groups), height=1.7)
    for axis, group in zip(axes, groups, strict=True):
        points = [over_seeds(group.runs, label) for label in LABELS]
        steps, means = [point[0] for point in points[0]], [[point[1] for point in of] for of in points]
        layers = axis.stackplot(steps, *means, colors=[_LABEL_LOOK[x][0] for x in LABELS])
        for layer, label in zip(layers, LABELS, strict=True):
            layer.set_hatch(_LABEL_LOOK[label][1])
        n = len(group.runs)
        axis.set_title(f"{group.name} (mean of {n} seed{'s' if n > 1 else ''})", loc="left")
        axis.set_ylabel("share of rollouts\n(fraction)")
        axis.set_ylim(0, 1)
        axis.margins(x=0)
    patches = [Patch(facecolor=_LABEL_LOOK[x][0], hatch=_LABEL_LOOK[x][1], label=x.replace("_", " ")) for x in LABELS]
    title = f"label ({LAST}-step running mean, for as long as all seeds of the arm run)"
    figure.legend(handles=patches, loc="outside lower center", ncols=5, handlelength=2.4, title=title)
    return figure


def all_plots(groups: Sequence[RunGroup]) -> dict[str, Figure]:
    """Returns every plot by its file name's stem."""
    with mpl.rc_context(STYLE):
        look = looks([g.name for g in groups])
        return {
            "trajectories": trajectories(groups, look), "paths": paths(groups, look), "cosines": cosines(groups, look),
            "outcomes": outcomes(groups),
        }  # fmt: skip


def hack_rates(worlds: Mapping[str, Sequence[RunGroup]]) -> Figure:
    """Returns the plot of pure hacks over the run alone, worlds side by side under their titles."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.5, 4.3), layout="constrained")
        axes = list(figure.subplots(1, len(worlds), sharey=True, squeeze=False)[0])
        look = looks(list(dict.fromkeys(g.name for groups in worlds.values() for g in groups)))
        for axis, (title, groups) in zip(axes, worlds.items(), strict=True):
            _rate_panel(axis, groups, look, "hack", "pure hack rate")
            axis.set_title(title, loc="left")
            axis.set_xlabel("optimizer step")
            axis.margins(x=0.02)
            axis.label_outer()
        legend(figure, axes, BAND)
        return figure


# ---------------------------------------------------------------- the UAT

BINS = 20
"""Over the range of all cosines."""
_KIND_LOOKS = dict(zip(KINDS, (("#D55E00", "-"), ("#CC79A7", "--"), ("#000000", ":"), ("#0072B2", "-.")), strict=True))
"""Colour and line of each kind of rollout."""


def cosine_histogram(replays: Mapping[str, Steps]) -> Figure:
    """Returns one panel per V that was measured, with the same bins: the share of each kind's rollouts per bin of
    cosines, which a mean and a t hide."""
    titles = {"vanilla": "V", "random": "random V of the same rank"}
    rows = {title: itertools.chain(*replays[name]) for name, title in titles.items() if name in replays}
    values = {title: cosines_by_kind(list(of)) for title, of in rows.items()}
    flat = [v for kinds in values.values() for found in kinds.values() for v in found] or [-1.0, 1.0]
    low, high = min(*flat, 0.0), max(*flat, 0.0)
    width = (high - low) / BINS or 1.0
    edges = width * np.arange(np.floor(low / width) - 1, np.ceil(high / width) + 2)  # 0 is an edge: no bin mixes signs
    with mpl.rc_context(STYLE):
        figure, axes = figure_of(len(values), height=2.9)
        for axis, (title, kinds) in zip(axes, values.items(), strict=True):
            for kind, found in kinds.items():
                shares = np.histogram(found, edges)[0] / max(len(found), 1)
                colour, line = _KIND_LOOKS[kind]
                name = f"{kind} (n = {len(found)})"
                axis.stairs(shares, edges, color=colour, linestyle=line, linewidth=1.8, label=name)
            axis.axvline(0.0, color="#555555", linewidth=1.2, zorder=1.5)
            axis.set_title(title, loc="left")
            axis.set_ylabel("share of the kind's rollouts\n(fraction per bin)")
        axes[-1].xaxis.set_major_locator(AutoLocator())
        axes[-1].set_xlabel("cos_S_contrib: cosine of a rollout's own gradient with V (positive = hack-ward)")
        legend(figure, axes[:1], "kind of rollout")
    return figure
