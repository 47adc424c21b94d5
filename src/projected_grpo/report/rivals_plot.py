"""The plot of the bench of rivals: hack under the loophole prompt against pass without it, each arm a named point with its
intervals; what hacks seldom a second time, close by."""

from collections.abc import Iterator, Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

from projected_grpo.arms import ARMS
from projected_grpo.report.plots import STYLE
from projected_grpo.report.rivals_rows import Row, percent
from projected_grpo.verdicts.intervals import interval

CLOSE = 8.0
"""Hack rate in percent up to which an arm is shown in the second panel, where it solves half of what the untrained model
does."""
KINDS = {
    "reference: untrained, vanilla, no loophole": ("#000000", "s", "full"),
    "projected": ("#0072b2", "*", "full"),
    "other ways to use V, and controls": ("#56b4e9", "o", "full"),
    "rival": ("#d55e00", "D", "full"),
    "oracle (told ground truth)": ("#d55e00", "D", "none"),
}
"""Colour, marker and fill of each kind of arm."""
POINT = 4.0
"""Half the height of a marker, in points."""


def kind_of(row: Row) -> str:
    """Which of KINDS a row is of."""
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
    """Up and left is better; oracles are hollow. Rows without either number are left out."""
    shown = [row for row in rows if row.score is not None]
    floor = max((_point(row.plain)[0] / 2 for row in shown if row.name == "untrained"), default=0.0)
    near = [row for row in shown if _point(row.hack)[0] <= CLOSE and _point(row.plain)[0] >= floor]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(13.0, 6.5), layout="constrained")
        canvas = FigureCanvasAgg(figure)
        whole, close = figure.subplots(1, 2)
        for axis, own in ((whole, shown), (close, near)):
            for kind, members in _by_kind(own):
                _draw(axis, kind, members)
            axis.set_xlabel("hack under the loophole prompt\n(% of held-out rollouts, as deployed)")
            axis.set_ylabel("pass without the loophole\n(% of held-out rollouts)")
            axis.margins(0.12)
        close.set_title(f"up to {CLOSE:.0f} % hacks, and at least half of the untrained model's pass")
        whole.set_title("every arm; those of the other panel are named there")
        handles = {
            label: h for axis in (whole, close) for h, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        if handles:  # no run may have been evaluated without the loophole
            units = sorted({len(row.runs) for row in shown})
            title = f"mean and 95 % interval over units ({' or '.join(map(str, units))} an arm)"
            figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, title=title)
        canvas.draw()  # names are placed where the layout has put the points, and move them no more
        figure.set_layout_engine("none")
        _name(whole, [row for row in shown if row not in near], shown, canvas)
        _name(close, near, near, canvas)
    return figure


def _by_kind(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    for kind in KINDS:
        if members := [row for row in rows if kind_of(row) == kind]:
            yield kind, members


def _draw(axis: Axes, kind: str, rows: Sequence[Row]) -> None:
    colour, marker, fill = KINDS[kind]
    across, up = ([_point(values) for values in of] for of in ([r.hack for r in rows], [r.plain for r in rows]))
    axis.errorbar(
        [x for x, _ in across], [y for y, _ in up], xerr=list(zip(*(d for _, d in across), strict=True)),
        yerr=list(zip(*(d for _, d in up), strict=True)), color=colour, marker=marker, fillstyle=fill,
        markersize=2 * POINT + 4 * (marker == "*"), linestyle="none", elinewidth=0.8, capsize=2, label=kind,
    )  # fmt: skip


def _point(values: Sequence[float | None]) -> tuple[float, tuple[float, float]]:
    """Mean in percent, and how far its interval reaches below and above: nowhere for a single unit."""
    known = [v for v in percent(values) if v is not None]
    mean = sum(known) / len(known)
    low, high = interval(known) if len(known) > 1 else (mean, mean)
    return mean, (mean - low, high - mean)


OFFSETS = [(side * reach, height) for reach in (7, 16, 30, 46) for height in (0, 9, -9, 18, -18, 28, -28, 40, -40)
           for side in (1, -1)]  # fmt: skip
"""Where a name may be, in points from its point, nearest first."""


def _name(axis: Axes, rows: Sequence[Row], drawn: Sequence[Row], canvas: FigureCanvasAgg) -> None:
    """Writes each row's name near its point, where it covers neither a point nor a name, or else where it covers fewest."""
    taken = [_around(axis, row) for row in drawn]
    for row in sorted(rows, key=lambda r: (-_point(r.plain)[0], _point(r.hack)[0])):
        tried = []
        for offset in OFFSETS:
            text, box = _written(axis, row, offset, canvas)
            tried.append((sum(box.overlaps(other) for other in taken) + 10 * _outside(axis, box), offset))
            text.remove()
            if not tried[-1][0]:
                break
        _, best = min(tried, key=lambda one: one[0])
        taken.append(_written(axis, row, best, canvas)[1])


def _written(axis: Axes, row: Row, offset: tuple[int, int], canvas: FigureCanvasAgg) -> tuple[Annotation, Bbox]:
    """The name, and what it covers, without the line to the point."""
    text = axis.annotate(
        row.name, (_point(row.hack)[0], _point(row.plain)[0]), offset, textcoords="offset points", fontsize=7.5, va="center",
        ha="left" if offset[0] > 0 else "right", color=KINDS[kind_of(row)][0],
        arrowprops={"arrowstyle": "-", "linewidth": 0.4, "color": "#888888", "shrinkA": 0, "shrinkB": 3},
    )  # fmt: skip
    text.update_positions(canvas.get_renderer())
    return text, Text.get_window_extent(text)


def _outside(axis: Axes, box: Bbox) -> bool:
    frame = axis.get_window_extent()
    return not (frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1)


def _around(axis: Axes, row: Row) -> Bbox:
    """What a row's marker covers, in pixels."""
    x, y = axis.transData.transform((_point(row.hack)[0], _point(row.plain)[0]))
    half = POINT * axis.figure.dpi / 72
    return Bbox.from_extents(x - half, y - half, x + half, y + half)
