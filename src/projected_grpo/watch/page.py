"""The page itself: what was followed, as rich draws it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from projected_grpo.chains.links import chain_file
from projected_grpo.chains.status import CUES, Standing, standings, took
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.rates import LAST, known_mean
from projected_grpo.watch.follow import COSINES, RATES, Followed, harmless

BARS = "▁▂▃▄▅▆▇█"
SHOWN = {**{name: name for name in (*RATES, *COSINES)}, "cos_update": "upd_out"}
"""A series under the name that the step line gives it."""
WIDE, NARROW = 60, 10
"""Cells of a sparkline on a run's page, and on a chain's."""
FIRST = ("running", "failed", "cut", "done")
"""States at the top of a chain's page: a long chain is cut at the end of the screen."""


def spark(values: Sequence[float | None], width: int, top: float = 1.0) -> str:
    """A line of at most `width` cells, each the mean of its steps on a scale from 0 to `top`; blank where none is known."""
    n = min(width, len(values))
    cells = [known_mean(values[i * len(values) // n : (i + 1) * len(values) // n]) for i in range(n)]
    return "".join(
        " " if c is None else BARS[min(7, int(8 * min(1.0, max(0.0, c / top))))] if top else BARS[0] for c in cells
    )


def tops(run: Followed) -> Mapping[str, float]:
    """The top of each series' scale: 1 for a rate, the largest cosine of all for the cosines, so that they compare."""
    largest = max((v for name in COSINES for v in run.series[name] if v is not None), default=0.0)
    return {**dict.fromkeys(RATES, 1.0), **dict.fromkeys(COSINES, largest)}


def number(value: float | None) -> str:
    """Two decimals, or `-`."""
    return "-" if value is None else f"{value:.2f}"


def steps_told(run: Followed) -> str:
    """`37 of 200`."""
    return f"{run.done} of {run.total}" if run.total and not run.finished else str(run.done)


def run_page(run: Followed, now: float) -> RenderableType:
    """One run: where it stands, a line per series, the end of its log."""
    going = f"{steps_told(run)} steps, {'evaluates before step 0' if run.evaluates_first else f'{took(run.left)} left'}"
    stand = f"finished, {run.done} steps" if run.finished else going
    age = None if run.finished else run.age(now)
    head = Text(harmless(f"{run.path}  {run.name}: {stand}"), style="bold")
    if age is not None:
        head.append(f", last step {took(age)} ago", style="dim")
    table = Table("", "", "last", f"last {LAST}", box=None, pad_edge=False, header_style="dim")
    for name, top in tops(run).items():
        values = run.series[name]
        if any(v is not None for v in values):
            table.add_row(SHOWN[name], spark(values, WIDE, top), number(values[-1]), number(run.last(name)))
    largest = tops(run)["cos_in"]
    told = "rates of the student's rows, from 0 to 1" + (f"; cosines, from 0 to {largest:.2f}" if largest else "")
    lines = (Text(line, overflow="ellipsis", no_wrap=True) for line in run.log.lines)
    return Group(head, table, Text(told, style="dim"), *lines)


def chain_page(home: Path, found: Sequence[Standing], runs: Mapping[str, Followed]) -> RenderableType:
    """A chain: a line per link, and the last line of the log of those that run or failed."""
    done = sum(s.state == "done" for s in found)
    head = Text(harmless(f"{home}: {done} of {len(found)} links done"), style="bold")
    shown = ("hack", "gt", "form", "cos_in", "cos_update")
    table = Table(
        "", "link", "", "steps", *(SHOWN[n] for n in shown), "left", box=None, pad_edge=False, header_style="dim"
    )
    order = sorted(found, key=lambda s: FIRST.index(s.state) if s.state in FIRST else len(FIRST))
    for s in order:
        run = runs.get(s.link.name)
        state = "waiting" if s.state == "unknown" else s.state
        lines = [_cell(run, name) for name in shown] if run and run.done else [""] * len(shown)
        left = run.left if run and s.state == "running" else None
        if run and s.state == "running" and run.evaluates_first:
            state = "evaluates"
        table.add_row(CUES[s.state], harmless(f"{s.link.name}"), state, steps_told(run) if run and run.done else "", *lines,
                      "" if left is None else took(left))  # fmt: skip
    logs = [f"{s.link.name}: {s.last_line}" for s in order if s.state in ("running", "failed", "cut") and s.last_line]
    return Group(head, table, *(Text(harmless(line), overflow="ellipsis", no_wrap=True) for line in logs))


def _cell(run: Followed, name: str) -> str:
    return f"{spark(run.series[name], NARROW, tops(run)[name])} {number(run.last(name))}"


@dataclass
class Watched:
    """What is watched: a run, or a chain's folder with all its links."""

    place: Path
    keep: int
    runs: dict[str, Followed] = field(default_factory=dict)
    found: list[Standing] = field(default_factory=list)
    """Links as they stand; empty where a run is watched."""

    def look(self) -> None:
        """Take in what is new. BadInput when the place is neither, or a file is damaged or cannot be read."""
        try:
            self._look()
        except OSError as e:  # no permission, a name that is too long
            place = e.filename or self.place
            raise BadInput(f"{place}: cannot be read ({e.strerror or e}); mend it, or name another place") from e

    def _look(self) -> None:
        if chain_file(self.place).exists():
            self.found = standings(self.place, None)
            if not self.found:
                raise BadInput(
                    f"{chain_file(self.place)}: names no links; not a chain of this project: queue the chain again, or name "
                    "another folder"
                )
            for s in self.found:
                if s.link.kind != "check":
                    self.runs.setdefault(s.link.name, Followed(s.link.out)).look()
        elif (self.place / "manifest.json").exists():
            self.runs.setdefault("", Followed(self.place, self.keep)).look()
        else:
            raise BadInput(
                f"{self.place}: neither a run (manifest.json) nor a chain's folder (chain.json); start one, or name another"
            )

    @property
    def finished(self) -> bool:
        """Whether nothing can come any more."""
        return all(s.state == "done" for s in self.found) if self.found else all(r.finished for r in self.runs.values())

    def page(self, now: float) -> RenderableType:
        """What the last look saw; `now` in seconds since the epoch."""
        return chain_page(self.place, self.found, self.runs) if self.found else run_page(self.runs[""], now)
