"""Heat maps of where the hack lives: layers x kinds of module over the steps of a run, or over several runs of one arm.

A panel a kind (q_proj, ...), a row a layer, a column some steps. Of several runs each is cut into as many columns, so that
runs of different lengths are aligned by how far they are.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from projected_grpo.ledger import module_file
from projected_grpo.report.lives import Lives, kind_of, layer_of, lives_of
from projected_grpo.report.plots import STYLE
from projected_grpo.verdicts.conditions import METHOD, VANILLA
from projected_grpo.verdicts.matching import RunGroup

COLUMNS = 24
"""At most; fewer where a run has fewer steps."""
PER_ROW = 4
GREY = "#bbbbbb"
"""Where V has no direction, or there is no such module."""
TITLES = {
    "times chance": "energy of the {of} along V in each module, over what as many random directions hold (1 = chance)",
    "share": "energy along V in each module, in percent of the energy of the whole {of}",
}


def grid(found: Sequence[Lives], what: str) -> dict[str, np.ndarray]:
    """Returns kind -> [layers, columns]: `times chance` of the energy along V, or `share` in percent of the whole's energy;
    the mean over runs, NaN where there is nothing."""
    names = found[0].modules.names
    layers = sorted({layer_of(name) for name in names})
    many = min(COLUMNS, *(len(one.modules.steps) for one in found))
    out = {kind: np.full((len(layers), many), np.nan) for kind in dict.fromkeys(map(kind_of, names))}
    for name in names:
        cells = [[_cell(one, name, i, many, what) for i in range(many)] for one in found]
        known = [row for row in cells if not np.isnan(row).all()]
        if known:
            out[kind_of(name)][layers.index(layer_of(name))] = np.mean(known, axis=0)
    return out


def _cell(one: Lives, name: str, place: int, many: int, what: str) -> float:
    steps = len(one.modules.steps)
    part = one.part([name], range(round(place * steps / many), round((place + 1) * steps / many)))
    value = part.times if what == "times chance" else 100 * part.along
    return np.nan if value is None else value


def heat_map(found: Sequence[Lives], what: str, title: str) -> Figure:
    """Returns one figure of runs of the same modules; `what` as in `grid`."""
    with mpl.rc_context({**STYLE, "axes.grid": False}):
        cells = grid(found, what)
        layers = sorted({layer_of(name) for name in found[0].modules.names})
        rows = -(-len(cells) // PER_ROW)
        figure = Figure(figsize=(11, rows * max(1.7, 0.11 * len(layers) + 0.6) + 1.0), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, min(PER_ROW, len(cells)), squeeze=False, sharex=True, sharey=True)
        flat: list[Axes] = list(axes.flat)
        for axis in flat[len(cells) :]:
            axis.set_visible(False)
        last, unit = (len(found[0].modules.steps), "optimizer step") if len(found) == 1 else (100, "% of the run")
        extent = (0, last, layers[-1] + 0.5, layers[0] - 0.5)
        colours = _colours(what, cells)
        drawn: Any = None
        for axis, (kind, values) in zip(flat, cells.items(), strict=False):
            axis.set_facecolor(GREY)
            drawn = axis.imshow(values, aspect="auto", extent=extent, interpolation="nearest", **colours)
            axis.set_title(kind, loc="left")
            axis.yaxis.set_major_locator(MaxNLocator(integer=True))
            axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        for axis in flat[max(0, len(cells) - PER_ROW) : len(cells)]:
            axis.set_xlabel(unit)
            axis.tick_params(labelbottom=True)
        for axis in axes[:, 0]:
            axis.set_ylabel("layer")
        figure.colorbar(drawn, ax=flat[: len(cells)], label=what if what != "share" else "% of the energy", shrink=0.9)
        figure.suptitle(f"{title}\n{TITLES[what].format(of=found[0].of)}", fontsize=10)
    return figure


def _colours(what: str, cells: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Around chance both ways, or from nothing upwards. Above the 99th percentile all share the last colour."""
    known = np.concatenate([v[~np.isnan(v)] for v in cells.values()])
    top = float(np.percentile(known, 99)) if len(known) else 1.0
    if what == "times chance":
        return {"cmap": "RdBu_r", "norm": TwoSlopeNorm(1.0, vmin=0.0, vmax=max(2.0, top))}
    return {"cmap": "cividis", "vmin": 0.0, "vmax": top or 1.0}


def lives_plots(groups: Sequence[RunGroup]) -> dict[str, Figure]:
    """Returns heat maps of vanilla and of the method by their file's stem: of the first group of each with side files."""
    out: dict[str, Figure] = {}
    for group in groups:
        arm = group.runs[0].arm
        found = [lives_of(r.path) for r in group.runs if (r.path / module_file.NAME).exists()]
        if arm not in (VANILLA, METHOD) or not found or f"lives_{arm}_share" in out:
            continue
        alike = [one for one in found if one.modules.names == found[0].modules.names]
        title = f"{group.name}, mean of {len(alike)} run{'s' if len(alike) > 1 else ''}"
        out |= {f"lives_{arm}_{what.replace(' ', '_')}": heat_map(alike, what, title) for what in TITLES}
    return out
