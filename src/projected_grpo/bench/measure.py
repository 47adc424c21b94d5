"""Two sides timed in turn, and nothing compared that is not the same work."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Work = Mapping[str, int]
"""What one measurement did (tokens, completions, ...): equal on every side, or there is nothing to compare."""
Run = Callable[[], Work]


class UnequalWork(RuntimeError):  # noqa: N818 - the name is what the user reads
    """The two sides of a ratio did not do the same: it would be no ratio."""


class NotHere(RuntimeError):  # noqa: N818
    """This part cannot be measured on this machine; the message says why and how to."""


@dataclass(frozen=True)
class Timed:
    """Seconds of one side, one entry per repeat, and the work that each of them did."""

    seconds: Sequence[float]
    work: Work

    @property
    def median(self) -> float:
        """Median seconds."""
        return statistics.median(self.seconds)

    def rate(self, key: str) -> float:
        """Median work per second."""
        return self.work[key] / self.median

    def scaled(self, factor: float) -> "Timed":
        """As if every measurement had taken `factor` times as long."""
        return Timed([factor * s for s in self.seconds], self.work)

    def plus(self, other: "Timed") -> "Timed":
        """Both after one another, repeat by repeat."""
        return Timed([a + b for a, b in zip(self.seconds, other.seconds, strict=True)], self.work)


Side = tuple[str, Timed]
"""A name and what was measured."""


def interleaved(
    sides: Mapping[str, Run], repeats: int, warmup: int, synchronize: Callable[[], None] = lambda: None
) -> dict[str, Timed]:
    """Every side `warmup` + `repeats` times in turn, so that a machine that slows down slows all of them; each round
    starts with another side. `synchronize` waits for the device. UnequalWork names the first two that differ."""
    names = list(sides)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    works: list[tuple[str, Work]] = []
    for turn in range(warmup + repeats):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            synchronize()
            start = time.perf_counter()
            work = sides[name]()
            synchronize()
            if turn >= warmup:
                seconds[name].append(time.perf_counter() - start)
            works.append((name, work))
    check_same_work(works)
    return {name: Timed(seconds[name], works[0][1]) for name in names}


def check_same_work(works: Sequence[tuple[str, Work]]) -> None:
    """UnequalWork, naming both sides and what differs, unless all did the same and did something."""
    first, expected = works[0]
    for name, work in works:
        if dict(work) != dict(expected):
            raise UnequalWork(f"{first} did {dict(expected)}, {name} did {dict(work)}: no ratio is taken of them")
    if any(amount <= 0 for amount in expected.values()):
        raise UnequalWork(f"{first} did nothing: {dict(expected)}")


@dataclass(frozen=True)
class Bar:
    """What a figure must reach."""

    value: float
    kind: Literal["at least", "at most"] = "at least"

    def reached(self, value: float) -> bool:
        """Whether it does."""
        return value >= self.value if self.kind == "at least" else value <= self.value

    def text(self, unit: str) -> str:
        """As a cell shows it."""
        return f"{'>=' if self.kind == 'at least' else '<='} {self.value:g} {unit}".replace(" x", "x")


@dataclass(frozen=True)
class Figure:
    """One line of the document."""

    part: str
    what: str
    value: float
    low: float
    high: float
    unit: str
    """`x` for a ratio to the baseline."""
    ours: str = ""
    baseline: str = ""
    bar: Bar | None = None
    floor: float | None = None
    """How many times longer than the floor: its model FLOPs at the peak rate of a matrix product here."""

    @property
    def verdict(self) -> str:
        """pass, MISS, or nothing where no bar is set."""
        if self.bar is None:
            return ""
        return "pass" if self.bar.reached(self.value) else "MISS"


def ratio(
    part: str, what: str, ours: Side, baseline: Side, bar: Bar | None, floor: float | None = None, *, longer: bool = False
) -> Figure:  # fmt: skip
    """How many times faster `ours` is; with `longer`, how many times longer it takes, for what adds to the baseline. Median
    and range over repeats."""
    our_time, their_time = ours[1], baseline[1]
    above, below = (our_time, their_time) if longer else (their_time, our_time)
    ratios = [a / b for a, b in zip(above.seconds, below.seconds, strict=True)]
    times_floor = None if floor is None else our_time.median / floor
    cells = [f"{name}: {seconds_text(timed.median)}" for name, timed in (ours, baseline)]
    return Figure(part, what, statistics.median(ratios), min(ratios), max(ratios), "x", *cells, bar, times_floor)


def absolute(
    part: str, what: str, values: Sequence[float], unit: str, bar: Bar | None = None, told: str = ""
) -> Figure:
    """A figure that is no ratio."""
    return Figure(part, what, statistics.median(values), min(values), max(values), unit, told, "", bar)


def seconds_text(seconds: float) -> str:
    """Seconds or milliseconds, three digits."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
