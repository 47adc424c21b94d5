"""Are N teachers behind an endpoint cheap and fast enough to be asked at every step of a trace? Thresholds: docs/spec.md."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from projected_grpo.verdicts.registry import Finding, Status

USD_PER_TRACE = 5.0
"""$; a mean over traces must be below it."""
P95_SECONDS = 30.0
"""Seconds per state; the 95th percentile must be below it."""
ROUNDING = 1e-9
"""$ that a sum of floats may be off."""
LEAST_STATES = 20
"""Below it the 95th percentile by nearest rank is the maximum."""


@dataclass(frozen=True)
class Asked:
    """What a folder of answers says, in numbers."""

    whole: str
    """Why it is not the whole of a finished run; empty if it is."""
    traces: int
    seconds: Sequence[float]
    """Of each state whose teachers have all answered: how long the slowest took."""
    usd: float
    """All that was spent; what is not known, at its most."""
    unknown_usd: float
    """The part of it that is such a most."""
    free: Sequence[str]
    """Teachers whose two prices are 0."""
    models: Mapping[str, frozenset[str]]
    """Teacher -> the model names that its answers came under."""
    over_cap: float
    """By how much what was spent is above the cap; 0 or less if it is not."""


def p95(values: Sequence[float]) -> float:
    """95th percentile by nearest rank: the smallest value that at least 95 % of them do not exceed. ValueError without
    one."""
    if not values:
        raise ValueError("no value to take a percentile of")
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


def judge(asked: Asked) -> Finding:
    """NOT_EVALUABLE where the folder is not whole or too small, whatever it shows so far; FAIL where a clause does not hold;
    NOT_EVALUABLE where a cost of 0 is all that is known of the cost; else PASS."""
    per_trace = asked.usd / asked.traces if asked.traces else None
    slow = p95(asked.seconds) if asked.seconds else None
    missing = [asked.whole] if asked.whole else []
    if len(asked.seconds) < LEAST_STATES:
        missing.append(f"{len(asked.seconds)} states answered (needs {LEAST_STATES})")
    free = [f"priced 0: {', '.join(asked.free)}; its tokens say nothing of what it costs"] if asked.free else []
    changed = [f"{name} answered as {', '.join(sorted(of))}" for name, of in asked.models.items() if len(of) > 1]
    failed = [*changed]
    if asked.over_cap > ROUNDING:
        failed.append(f"${asked.over_cap:.4f} above the cap were spent")
    if per_trace is not None and per_trace >= USD_PER_TRACE:
        failed.append("too dear")
    if slow is not None and slow >= P95_SECONDS:
        failed.append("too slow")
    status: Status = "NOT_EVALUABLE" if missing else "FAIL" if failed else "NOT_EVALUABLE" if free else "PASS"
    told = "-" if per_trace is None else f"{per_trace:.4f}"
    measured = (
        f"$ per trace {told} (needs < {USD_PER_TRACE:g}; {asked.traces} traces, ${asked.usd:.4f}, of it not known and taken "
        f"at its most ${asked.unknown_usd:.4f}), p95 per state {'-' if slow is None else f'{slow:.2f}'} s "
        f"(needs < {P95_SECONDS:g}; {len(asked.seconds)} states)"
    )
    numbers: dict[str, float | int | None] = {
        "usd_per_trace": per_trace,
        "p95_seconds": slow,
        "usd": asked.usd,
        "unknown_usd": asked.unknown_usd,
        "traces": asked.traces,
        "states": len(asked.seconds),
    }
    return Finding("teachers", status, "; ".join([*missing, *failed, *free, measured]), numbers)
