"""Teachers behind an endpoint: are they cheap and fast enough to be asked at every step of a trace (`judge`), and do the
pairs of their votes suffice to learn from, and say more than pairs drawn at random (`pairs`)? Thresholds: docs/spec.md."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from projected_grpo.ledger.rates import number
from projected_grpo.verdicts.registry import Finding, Status

USD_PER_TRACE = 5.0
"""$; a mean over traces must be below it."""
P95_SECONDS = 30.0
"""Seconds per state; the 95th percentile must be below it."""
ROUNDING = 1e-9
"""$ that a sum of floats may be off."""
LEAST_STATES = 20
"""Below it the 95th percentile by nearest rank is the maximum."""
PAIRS_PER_TRACE = 5.0
"""A mean over all traces that were replayed; must be at least it."""
MOST_P = 0.05
MOST_ALIKE = 0.5
"""Teachers that say at more than half of the states what they say on another problem too answer none of them, and differ
from chance all the same."""
LEAST_PROBLEMS = 20
"""Traces of one problem share its first state and what teachers said there: they are one piece of evidence."""


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
    """Returns the 95th percentile by nearest rank: the smallest value that at least 95 % of them do not exceed."""
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
    failed = [f"{name} answered as {', '.join(sorted(of))}" for name, of in asked.models.items() if len(of) > 1]
    if asked.over_cap > ROUNDING:
        failed.append(f"${asked.over_cap:.4f} above the cap were spent")
    if per_trace is not None and per_trace >= USD_PER_TRACE:
        failed.append("too dear")
    if slow is not None and slow >= P95_SECONDS:
        failed.append("too slow")
    status: Status = "NOT_EVALUABLE" if missing else "FAIL" if failed else "NOT_EVALUABLE" if free else "PASS"
    measured = (
        f"$ per trace {number(per_trace, digits=4)} (needs < {USD_PER_TRACE:g}; {asked.traces} traces, "
        f"${asked.usd:.4f}, of it not known and taken at its most ${asked.unknown_usd:.4f}), p95 per state "
        f"{number(slow, digits=2)} s (needs < {P95_SECONDS:g}; {len(asked.seconds)} states)"
    )
    numbers = {
        "usd_per_trace": per_trace, "p95_seconds": slow, "usd": asked.usd, "unknown_usd": asked.unknown_usd,
        "traces": asked.traces, "states": len(asked.seconds),
    }  # fmt: skip
    return Finding("teachers", status, "; ".join([*missing, *failed, *free, measured]), numbers)


@dataclass(frozen=True)
class Votes:
    """What `trace_pairs` counted."""

    traces: int
    """Replayed, those without a pair too."""
    problems: int
    """That they are of."""
    pairs: int
    kl: float | None
    """Of the pairs' numbers from those of random pairs, in nats; None, as the next two: too few pairs."""
    null: float | None
    """Its mean where problems are dealt out at random."""
    p: float | None
    elsewhere: float | None
    """Share of the states with a majority at which it proposes words that it proposes on another problem too; None: there
    are none."""


def pairs(votes: Votes) -> Finding:
    """NOT_EVALUABLE on too few problems or pairs, whatever they show so far; FAIL where a clause does not hold; PASS."""
    each = votes.pairs / votes.traces if votes.traces else 0.0
    missing = [] if votes.problems >= LEAST_PROBLEMS else [f"{votes.problems} problems (needs {LEAST_PROBLEMS})"]
    missing += [f"{votes.pairs} pairs are too few for a histogram"] if votes.kl is None else []
    failed = [] if each >= PAIRS_PER_TRACE else ["too few pairs"]
    failed += ["no farther from random pairs than chance"] if votes.p is not None and votes.p > MOST_P else []
    alike = votes.elsewhere is not None and votes.elsewhere > MOST_ALIKE
    failed += ["the majority says at most states what it says on other problems"] if alike else []
    status: Status = "NOT_EVALUABLE" if missing else "FAIL" if failed else "PASS"
    why = f"{each:.2f} pairs a trace (needs >= {PAIRS_PER_TRACE:g}; {votes.pairs} pairs of {votes.traces} traces of "
    why += f"{votes.problems} problems)"
    if votes.kl is not None:
        why += (
            f", KL from random pairs {votes.kl:.3f} nats, null {votes.null:.3f}, p {votes.p:.3f} (needs <= {MOST_P:g})"
        )
    if votes.elsewhere is not None:
        why += f", said on another problem too at {votes.elsewhere:.0%} of states (needs <= {MOST_ALIKE:.0%})"
    numbers = {
        "pairs_per_trace": each, "pairs": votes.pairs, "traces": votes.traces, "problems": votes.problems,
        "kl": votes.kl, "null": votes.null, "p": votes.p, "elsewhere": votes.elsewhere,
    }  # fmt: skip
    return Finding("pairs", status, "; ".join([*missing, *failed, why]), numbers)
