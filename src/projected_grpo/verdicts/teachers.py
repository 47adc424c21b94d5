"""Teachers behind an endpoint: are they cheap and fast enough to be asked at every step of a trace (`judge`), and do
the pairs of their votes suffice to learn from, and say more than pairs drawn at random (`pairs`)? Thresholds:
docs/spec.md."""

import math
from collections.abc import Collection, Mapping, Sequence

from projected_grpo.ledger.rates import number
from projected_grpo.verdicts.registry import Finding

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
"""Teachers that say at more than half of the states what they say on another problem too answer none of them, and
differ from chance all the same."""
LEAST_PROBLEMS = 20
"""Traces of one problem share its first state and what teachers said there: they are one piece of evidence."""


def p95(values: Sequence[float]) -> float:
    """Returns the 95th percentile by nearest rank: the smallest value that at least 95 % of them do not exceed."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


def judge(
    *, whole: str, traces: int, seconds: Sequence[float], usd: float, budget: float, free: Sequence[str],
    models: Mapping[str, Collection[str]],
) -> Finding:  # fmt: skip
    """NOT_EVALUABLE where answers are missing or too few, whatever they show so far; FAIL where a clause does not
    hold; NOT_EVALUABLE where a cost of 0 is all that is known of the cost; else PASS.

    whole: why answers are missing; empty if none is. seconds: of each state whose teachers have all answered, how
    long the slowest took. usd: all that was spent; what is not known, at its most. free: teachers whose two prices
    are 0. models: the names that each teacher's answers came under."""
    per_trace = usd / traces if traces else 0.0
    slow = p95(seconds) if seconds else None
    few = [whole] if whole else []
    few += [f"{len(seconds)} states answered (needs {LEAST_STATES})"] if len(seconds) < LEAST_STATES else []
    failed = [f"{name} answered as {', '.join(sorted(of))}" for name, of in models.items() if len(of) > 1]
    failed += [f"${usd - budget:.4f} above the cap were spent"] if usd - budget > ROUNDING else []
    failed += ["too dear"] if per_trace >= USD_PER_TRACE else []
    failed += ["too slow"] if slow is not None and slow >= P95_SECONDS else []
    unpriced = [f"priced 0: {', '.join(free)}; its tokens say nothing of what it costs"] if free else []
    why = (
        f"$ per trace {per_trace:.4f} (needs < {USD_PER_TRACE:g}; {traces} traces, ${usd:.4f}), p95 per state "
        f"{number(slow, digits=2)} s (needs < {P95_SECONDS:g}; {len(seconds)} states)"
    )
    status = "NOT_EVALUABLE" if few else "FAIL" if failed else "NOT_EVALUABLE" if unpriced else "PASS"
    return Finding("teachers", status, "; ".join([*few, *failed, *unpriced, why]))


def pairs(
    *, traces: int, problems: int, pairs: int, kl: float | None, null: float | None, p: float | None,
    elsewhere: float | None,
) -> Finding:  # fmt: skip
    """NOT_EVALUABLE on too few problems or pairs, whatever they show so far; FAIL where a clause does not hold; PASS.

    traces: that were replayed, those without a pair too, of so many `problems`. kl: of the pairs' numbers from those
    of random pairs, in nats; null: its mean where problems are dealt out at random; all three None: too few pairs.
    elsewhere: share of the states with a majority at which it proposes words that it proposes on another problem too.
    """
    each = pairs / traces if traces else 0.0
    few = [f"{problems} problems (needs {LEAST_PROBLEMS})"] if problems < LEAST_PROBLEMS else []
    few += [f"{pairs} pairs are too few for a histogram"] if kl is None else []
    failed = ["too few pairs"] if each < PAIRS_PER_TRACE else []
    failed += ["no farther from random pairs than chance"] if p is not None and p > MOST_P else []
    alike = elsewhere is not None and elsewhere > MOST_ALIKE
    failed += ["the majority says at most states what it says on other problems"] if alike else []
    why = (
        f"{each:.2f} pairs a trace (needs >= {PAIRS_PER_TRACE:g}; {pairs} pairs of {traces} traces of {problems} problems), "
        f"KL from random pairs {number(kl, digits=3)} nats, null {number(null, digits=3)}, p {number(p, digits=3)} "
        f"(needs <= {MOST_P:g}), said on another problem too at {number(elsewhere, 100, 0)} % of states (needs <= "
        f"{MOST_ALIKE:.0%})"
    )
    status = "NOT_EVALUABLE" if few else "FAIL" if failed else "PASS"
    return Finding("pairs", status, "; ".join([*few, *failed, why]))
