"""Do the pairs of teachers' votes suffice to learn from, and do they say more than pairs drawn at random? Thresholds:
docs/spec.md."""

from dataclasses import dataclass

from projected_grpo.verdicts.registry import Finding, Status

PAIRS_PER_TRACE = 5.0
"""A mean over all traces that were replayed; must be at least it."""
MOST_P = 0.05
MOST_ALIKE = 0.5
"""Teachers that say one thing at more than half of the states answer none of them, and differ from chance all the same."""
LEAST_TRACES = 20


@dataclass(frozen=True)
class Votes:
    """What `trace_pairs` counted."""

    traces: int
    """Replayed, those without a pair too."""
    pairs: int
    kl: float | None
    """Of the pairs' numbers from those of the random pairs beside them, in nats; None: too few pairs."""
    null: float | None
    """Its mean where traces are dealt out at random."""
    p: float | None
    commonest: float | None
    """Share of the states with a majority at which it proposes the same words; None: there are none."""


def judge(votes: Votes) -> Finding:
    """NOT_EVALUABLE on too few traces or pairs, whatever they show so far; FAIL where a clause does not hold; else PASS."""
    each = votes.pairs / votes.traces if votes.traces else 0.0
    known = votes.kl is not None and votes.null is not None and votes.p is not None
    missing = [] if votes.traces >= LEAST_TRACES else [f"{votes.traces} traces (needs {LEAST_TRACES})"]
    missing += [] if known else [f"{votes.pairs} pairs are too few for a histogram"]
    failed = [] if each >= PAIRS_PER_TRACE else ["too few pairs"]
    failed += ["no farther from random pairs than chance"] if votes.p is not None and votes.p > MOST_P else []
    alike = votes.commonest is not None and votes.commonest > MOST_ALIKE
    failed += ["the majority says the same words at most states"] if alike else []
    status: Status = "NOT_EVALUABLE" if missing else "FAIL" if failed else "PASS"
    told = f"{each:.2f} pairs a trace (needs >= {PAIRS_PER_TRACE:g}; {votes.pairs} pairs of {votes.traces} traces)"
    if known:
        told += (
            f", KL from random pairs {votes.kl:.3f} nats, null {votes.null:.3f}, p {votes.p:.3f} (needs <= {MOST_P:g})"
        )
    if votes.commonest is not None:
        told += f", commonest answer at {votes.commonest:.0%} of states (needs <= {MOST_ALIKE:.0%})"
    numbers: dict[str, float | int | None] = {
        "pairs_per_trace": each, "pairs": votes.pairs, "traces": votes.traces, "kl": votes.kl, "null": votes.null,
        "p": votes.p, "commonest": votes.commonest,
    }  # fmt: skip
    return Finding("pairs", status, "; ".join([*missing, *failed, told]), numbers)
