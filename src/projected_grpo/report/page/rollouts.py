"""Rollouts of an experiment for a reader: a sample that is spread over runs, labels and steps.

    shown = sample(runs, most=6000);  shown.total, shown.note

Without randomness: every run gets an equal share of the places, in it every label (as far as it has so many), in that
every step; where there are fewer places than steps, evenly spaced ones, first and last included. Shares of labels in a
sample are therefore no rates.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from loophole_grader import LABELS
from projected_grpo.ledger.step_file import Row, iter_run, read_step, step_path

UNKNOWN = "unknown"
KINDS = (*LABELS, UNKNOWN)
"""Every label that a row may have; null is `unknown`."""

T = TypeVar("T")


@dataclass(frozen=True)
class Source:
    """A run whose rollouts may be shown."""

    path: Path
    name: str
    arm: str
    """What its rollouts are filtered by: the group's name of a training run, else what the run is."""
    place: str
    """The run's directory as its own manifest names it: what `just show` takes."""


@dataclass(frozen=True)
class Shown:
    """Sampled rows, in order of run, step and place in the file."""

    sources: Sequence[Source]
    rows: Sequence[tuple[int, int, Row]]
    """(index of the source, place in the step file, row)."""
    total: int

    @property
    def note(self) -> str:
        """How the rows were chosen, in words."""
        if len(self.rows) == self.total:
            return f"all {self.total:,} rollouts shown (runs: {len(self.sources)})"
        return (
            f"{len(self.rows):,} of {self.total:,} rollouts shown (runs: {len(self.sources)}), chosen by run, label "
            "and step alone: each run has an equal share, in it each label, in that each step (fewer places than steps: "
            "evenly spaced steps). So counts below are no rates; rates are in the tables"
        )


def shares(sizes: Sequence[int], places: int) -> list[int]:
    """Places for each of the sizes, as equal as the sizes allow; the first get what does not divide evenly."""
    out = [0] * len(sizes)
    left = min(places, sum(sizes))
    while left:
        open_ = [i for i, size in enumerate(sizes) if out[i] < size]
        each = max(1, left // len(open_))
        for i in open_:
            taken = min(each, sizes[i] - out[i], left)
            out[i] += taken
            left -= taken
    return out


def evenly(items: Sequence[T], n: int) -> list[T]:
    """n of the items, evenly spaced, first and last among them; the middle one for n = 1."""
    if n <= 1:
        return [items[len(items) // 2]] * n
    return [items[i * (len(items) - 1) // (n - 1)] for i in range(n)]


def over_steps(by_step: Mapping[int, Sequence[int]], n: int) -> list[tuple[int, int]]:
    """n (step, row) of one run and label, one of each step before a second of any.

    Within a step it begins elsewhere each time, so that not every step shows its first problem.
    """
    turned = {step: [*rows[step % len(rows) :], *rows[: step % len(rows)]] for step, rows in by_step.items()}
    chosen: list[tuple[int, int]] = []
    layer = 0
    while len(chosen) < n:
        rank = [(step, rows[layer]) for step, rows in sorted(turned.items()) if len(rows) > layer]
        chosen += evenly(rank, min(n - len(chosen), len(rank)))
        layer += 1
    return chosen


Index = dict[str, dict[int, list[int]]]
"""label -> step -> rows of the step's file."""


def _index(path: Path) -> Index:
    """Where a run's rollouts of each label are. BadInput on a damaged step file."""
    found: Index = defaultdict(lambda: defaultdict(list))
    for rows in iter_run(path):
        for place, row in enumerate(rows):
            found[row["label"] or UNKNOWN][row["step"]].append(place)
    return found


def _chosen(index: Index, places: int) -> dict[int, list[int]]:
    """step -> rows to show of a run that has so many places."""
    labels = [label for label in KINDS if label in index]
    sizes = [sum(map(len, index[label].values())) for label in labels]
    out: dict[int, list[int]] = defaultdict(list)
    for label, n in zip(labels, shares(sizes, places), strict=True):
        for step, row in over_steps(index[label], n):
            out[step].append(row)
    return {step: sorted(out[step]) for step in sorted(out)}


def sample(sources: Sequence[Source], most: int) -> Shown:
    """At most so many rollouts of the runs. Files are read twice, one step in memory at a time. BadInput on damage."""
    indices = [_index(source.path) for source in sources]
    sizes = [sum(len(rows) for by_step in index.values() for rows in by_step.values()) for index in indices]
    places = shares(sizes, most)
    rows = [
        (i, row, content[row])
        for i, source in enumerate(sources)
        for step, own in _chosen(indices[i], places[i]).items()
        for content in [read_step(step_path(source.path, step))]
        for row in own
    ]
    return Shown(sources, rows, sum(sizes))
