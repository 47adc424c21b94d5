"""Sides timed in turn on torch.utils.benchmark's clock, nothing compared that is not the same work, and the figures that
come of it."""

import operator
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch.utils.benchmark import Measurement, TaskSpec, timer

from projected_grpo.bench.settings import WARMUP

Work = Mapping[str, int]
"""What one measurement did (tokens, completions, ...): equal on every side, or there is nothing to compare."""
Call = Callable[[], Work]
Side = Measurement
"""Its name (`title`), seconds of every repeat (`times`) and what each of them did (`metadata`)."""
Bar = tuple[str, float]
"""What a figure must reach: (">=" or "<=", value)."""


class UnequalWork(RuntimeError):  # noqa: N818 - the name is what the user reads
    """The two sides of a ratio did not do the same: it would be no ratio."""


class NotHere(RuntimeError):  # noqa: N818
    """This part cannot be measured on this machine; the message says why and how to."""


def side(name: str, seconds: Sequence[float], work: Work) -> Side:
    """What was measured of one side."""
    return Measurement(1, list(seconds), TaskSpec(name, ""), dict(work))


def rates(measured: Side, key: str) -> list[float]:
    """Work per second of every repeat."""
    return [(measured.metadata or {})[key] / seconds for seconds in measured.times]


def doing(work: Work, ways: Mapping[str, Callable[[], object]]) -> dict[str, Call]:
    """Sides whose work is known beforehand."""
    return {name: lambda way=way: (way(), work)[1] for name, way in ways.items()}


def interleaved(sides: Mapping[str, Call], repeats: int, warmup: int = WARMUP) -> list[Side]:
    """Every side `warmup` + `repeats` times in turn, so that a machine that slows down slows all of them; each round
    starts with another side. The clock waits for the GPU. UnequalWork names the first two that differ.

    Not Timer.timeit: it runs a side three times for one measurement, and what the side did is lost.
    """
    names, works = list(sides), []
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(warmup + repeats):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            start = timer()
            works.append((name, sides[name]()))
            seconds[name].append(timer() - start)
    check_same_work(works)
    return [side(name, seconds[name][warmup:], works[0][1]) for name in names]


def check_same_work(works: Sequence[tuple[str, Work]]) -> None:
    """UnequalWork, naming both sides and what differs, unless all did the same and did something."""
    first, expected = works[0]
    for name, work in works:
        if dict(work) != dict(expected):
            raise UnequalWork(f"{first} did {dict(expected)}, {name} did {dict(work)}: no ratio is taken of them")
    if any(amount <= 0 for amount in expected.values()):
        raise UnequalWork(f"{first} did nothing: {dict(expected)}")


def weighted(name: str, *parts: tuple[float, Side]) -> Side:
    """The sum of several sides, each times its weight: seconds repeat by repeat, and work."""
    repeats = zip(*([weight * seconds for seconds in part.times] for weight, part in parts), strict=True)
    work = {key: round(sum(w * (part.metadata or {})[key] for w, part in parts)) for key in parts[0][1].metadata or {}}
    return side(name, [sum(repeat) for repeat in repeats], work)


@dataclass(frozen=True)
class Figure:
    """One line of the document, of one value per repeat: their median counts; unit `x` is a ratio to the baseline. `floor`:
    how many times longer than its model FLOPs take at the peak rate of a matrix product here."""

    what: str
    values: Sequence[float]
    unit: str
    bar: Bar | None = None
    ours: str = ""
    baseline: str = ""
    floor: float | None = None
    part: str = ""

    @property
    def value(self) -> float:
        """What the bar judges."""
        return statistics.median(self.values)

    @property
    def verdict(self) -> str:
        """pass, MISS, or nothing where no bar is set."""
        if self.bar is None:
            return ""
        sign, value = self.bar
        return "pass" if {">=": operator.ge, "<=": operator.le}[sign](self.value, value) else "MISS"


def ratio(
    what: str, ours: Side, baseline: Side, *, bar: Bar | None = None, floor: float | None = None, longer: bool = False
) -> Figure:
    """How many times faster `ours` is; with `longer`, how many times longer it takes, for what adds to the baseline.
    `floor` in seconds."""
    above, below = (ours, baseline) if longer else (baseline, ours)
    found = [a / b for a, b in zip(above.times, below.times, strict=True)]
    return Figure(what, found, "x", bar, cell(ours), cell(baseline), floor and ours.median / floor)


def cell(measured: Side) -> str:
    """A side and its seconds or milliseconds, three digits."""
    s = measured.median
    return f"{measured.title}: {s:.3g} s" if s >= 1 else f"{measured.title}: {1e3 * s:.3g} ms"
