"""Rows told apart by who wrote them: what each source's rows earn, and how far its ratios are from 1."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from projected_grpo.ledger.rates import known_mean, mean, rates
from projected_grpo.records import SOURCES

Row = Mapping[str, Any]
BY_SOURCE = ("rows", "hack", "gt", "form", "hacked", "ratio", "ratio_low", "ratio_high", "at_clip", "lost", "unknown")
"""What `by_source` says of each."""
LOST_RATIO = 0.1
"""A token whose ratio is below it counts for less than a tenth of an on-policy one."""


def by_source(rows: Sequence[Row]) -> dict[str, dict[str, float | None]]:
    """Of the rows of each source that is there: how many; the rates; the mean, smallest and largest ratio; the share of
    their tokens at or beyond a clip bound; the share of rows with a token whose ratio is below a tenth; the share of rows
    whose behaviour log-probabilities are not known. None where nothing says."""
    own = {source: [r for r in rows if r["source"] == source] for source in SOURCES}
    return {source: _numbers(found) for source, found in own.items() if found}


def _numbers(rows: Sequence[Row]) -> dict[str, float | None]:
    ended = [r for r in rows if r["at_clip"] is not None]
    tokens = sum(r["comp_len"] for r in ended)
    told = rates(rows)
    return {
        "rows": float(len(rows)),
        **{name: told[name] for name in ("hack", "gt", "form", "hacked")},
        "ratio": known_mean(r["ratio"] for r in rows),
        "ratio_low": _extreme(min, rows, "ratio_low"),
        "ratio_high": _extreme(max, rows, "ratio_high"),
        "at_clip": sum(r["at_clip"] * r["comp_len"] for r in ended) / tokens if tokens else None,
        "lost": mean([float(r["ratio_low"] < LOST_RATIO) for r in rows if r["ratio_low"] is not None]),
        "unknown": mean([float(r["behaviour_from"] == "none") for r in rows]),
    }


def _extreme(of: Callable[[Sequence[float]], float], rows: Sequence[Row], name: str) -> float | None:
    known = [r[name] for r in rows if r[name] is not None]
    return of(known) if known else None


def source_lines(rows: Sequence[Row]) -> list[str]:
    """A line for each source of a step; none where the student wrote all rows."""
    found = by_source(rows)
    if set(found) <= {"student"}:
        return []
    show = lambda value, fmt: "-" if value is None else format(value, fmt)  # noqa: E731 - a cell
    return [
        f"      {source:8}{n['rows']:4.0f} rows  hack {show(n['hack'], '4.2f')}  gt {show(n['gt'], '4.2f')}  form "
        f"{show(n['form'], '4.2f')}  ratio {show(n['ratio'], '.3f')} ({show(n['ratio_low'], '.1e')} to "
        f"{show(n['ratio_high'], '.1e')})  at a clip bound {show(n['at_clip'], '4.2f')}"
        for source, n in found.items()
    ]
