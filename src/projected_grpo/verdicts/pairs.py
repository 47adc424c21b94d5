"""Do the pairs of teachers' votes suffice to learn from, and do they say more than pairs drawn at random? Thresholds:
docs/spec.md."""

from dataclasses import dataclass

from projected_grpo.verdicts.registry import Finding, Status

PAIRS_PER_TRACE = 5.0
"""A mean over all traces that were replayed; must be at least it."""
MOST_P = 0.05
MOST_ALIKE = 0.5
"""Teachers that say at more than half of the states what they say on another problem too answer none of them, and differ
from chance all the same."""
LEAST_PROBLEMS = 20
"""Traces of one problem share its first state and what teachers said there: they are one piece of evidence."""


@dataclass(frozen=True)
class Votes:
    """What `trace_pairs` counted."""

    traces: int
    """Replayed, those without a pair too."""
    problems: int
    """That they are of."""
    pairs: int
    kl: float | None
    """Of the pairs' numbers from those of the random pairs beside them, in nats; None: too few pairs."""
    null: float | None
    """Its mean where problems are dealt out at random."""
    p: float | None
    elsewhere: float | None
    """Share of the states with a majority at which it proposes words that it proposes on another problem too; None: there
    are none."""


def judge(votes: Votes) -> Finding:
    """NOT_EVALUABLE on too few problems or pairs, whatever they show so far; FAIL where a clause does not hold; PASS."""
    each = votes.pairs / votes.traces if votes.traces else 0.0
    known = votes.kl is not None and votes.null is not None and votes.p is not None
    missing = [] if votes.problems >= LEAST_PROBLEMS else [f"{votes.problems} problems (needs {LEAST_PROBLEMS})"]
    missing += [] if known else [f"{votes.pairs} pairs are too few for a histogram"]
    failed = [] if each >= PAIRS_PER_TRACE else ["too few pairs"]
    failed += ["no farther from random pairs than chance"] if votes.p is not None and votes.p > MOST_P else []
    alike = votes.elsewhere is not None and votes.elsewhere > MOST_ALIKE
    failed += ["the majority says at most states what it says on other problems"] if alike else []
    status: Status = "NOT_EVALUABLE" if missing else "FAIL" if failed else "PASS"
    told = f"{each:.2f} pairs a trace (needs >= {PAIRS_PER_TRACE:g}; {votes.pairs} pairs of {votes.traces} traces of "
    told += f"{votes.problems} problems)"
    if known:
        told += (
            f", KL from random pairs {votes.kl:.3f} nats, null {votes.null:.3f}, p {votes.p:.3f} (needs <= {MOST_P:g})"
        )
    if votes.elsewhere is not None:
        told += f", said on another problem too at {votes.elsewhere:.0%} of states (needs <= {MOST_ALIKE:.0%})"
    numbers: dict[str, float | int | None] = {
        "pairs_per_trace": each, "pairs": votes.pairs, "traces": votes.traces, "problems": votes.problems,
        "kl": votes.kl, "null": votes.null, "p": votes.p, "elsewhere": votes.elsewhere,
    }  # fmt: skip
    return Finding("pairs", status, "; ".join([*missing, *failed, told]), numbers)
