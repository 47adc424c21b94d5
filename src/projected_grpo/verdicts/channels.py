"""The A/B of channels: does a channel next to GRPO raise pass@1 on held-out problems, and what does it do to hacking?

Of each arm, runs with the channel against runs without it, paired by replicate, after the last step. pass@1 is the
share of held-out rollouts that pass ground truth, under the prompt of training, as deployed; one rollout of a problem
is as likely as any. The thresholds are docs/spec.md's: a gain of 2 pp, and a two-sided 95 % interval (paired t) above
0.

    VALIDATED both    PARTIAL one of the two    INVALIDATED neither    NOT_EVALUABLE what is needed is missing
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from projected_grpo.ledger.rates import LAST
from projected_grpo.losses import AUXILIARY
from projected_grpo.verdicts.comparison import OF_CHANNELS
from projected_grpo.verdicts.conditions import removed, untested
from projected_grpo.verdicts.effects import MIN_REPLICATES, interval
from projected_grpo.verdicts.finished_runs import Run, paired_pp
from projected_grpo.verdicts.matching import differ, independence, mismatches

GAIN = 2.0
"""Percentage points of pass@1."""
ON_SHARE, ON_STEPS = 0.001, 0.1
"""A channel was on where its gradient is so much of the sum's (either sign) at so many of the steps: of
`--distill-hint peer` few have a row."""
WEIGHT_OF = {name: loss.weight for name, loss in AUXILIARY.items()}
Status = Literal["VALIDATED", "PARTIAL", "INVALIDATED", "NOT_EVALUABLE"]
PerReplicate = Mapping[int, float]


@dataclass(frozen=True)
class AB:
    """One arm with and without some channels."""

    arm: str
    channels: tuple[str, ...]
    """Those that are on in one of the two; the policy is in both."""
    status: Status
    why: str
    runs: Sequence[Run]
    """With the channels."""
    without: Sequence[Run]
    gain: PerReplicate
    """pass@1 with minus without, in percentage points."""
    plain: PerReplicate
    """The same without the loophole's hint, printed next to it."""
    hack: PerReplicate
    """Pure hacks on the held-out problems, with minus without."""


def channels_of(run: Run) -> tuple[str, ...]:
    """Returns the channels besides the policy."""
    return tuple(name for name, weight in WEIGHT_OF.items() if run.config(weight))


def judged(runs: Sequence[Run]) -> list[AB]:
    """Returns every arm and every set of channels that there are runs of, each against the same arm without them."""
    sides: dict[tuple[str, tuple[str, ...]], list[Run]] = {}
    for run in runs:
        sides.setdefault((run.arm, channels_of(run)), []).append(run)
    found = []
    for (arm, channels), with_it in sides.items():
        if channels:
            without = sides.get((arm, ()), [])
            on, off = ({run.seed: run for run in side} for side in (with_it, without))
            gain, plain, hack = (
                paired_pp(*({seed: run.held_out(rate, folder=folder) for seed, run in of.items()} for of in (on, off)))
                for rate, folder in (("gt", "eval"), ("gt", "eval_plain"), ("hack", "eval"))
            )
            refused = dict.fromkeys(_refused(arm, with_it, without, len(gain)))
            status, why = ("NOT_EVALUABLE", "; ".join(refused)) if refused else _status(list(gain.values()))
            found.append(AB(arm, channels, status, why, with_it, without, gain, plain, hack))
    return found


def _status(gain: Sequence[float]) -> tuple[Status, str]:
    mean = sum(gain) / len(gain)
    low, high = interval(gain)
    clauses = (mean >= GAIN, low > 0)
    status: Status = "VALIDATED" if all(clauses) else "PARTIAL" if any(clauses) else "INVALIDATED"
    found = f"pass@1 {mean:+.1f} pp (needs {GAIN:g}), 95 % {low:+.1f} to {high:+.1f} (needs above 0), n = {len(gain)}"
    return status, found


def _refused(arm: str, with_it: Sequence[Run], without: Sequence[Run], pairs: int) -> Iterator[str]:
    """Why nothing can be said: the runs of a side are no independent replicates of one setting, a channel was off,
    the two sides differ in more than it, or nothing was solved."""
    for side in (with_it, without):
        by_seed = {arm: {run.seed: run for run in side}}
        if len(by_seed[arm]) < len(side):
            yield "a replicate has two runs of one side"
        yield from mismatches(by_seed)
        yield from (found.why for found in (removed(by_seed), independence(by_seed)) if found.status != "PASS")
    for run in with_it:
        yield from _idle(run)
    on, off = ({run.seed: run for run in side} for side in (with_it, without))
    for seed in sorted(on.keys() | off.keys()):
        if seed in on and seed in off:
            yield from (f"replicate {seed}: {why}" for why in _unlike(on[seed], off[seed]))
        else:
            yield f"replicate {seed} has runs of one side"
    if not any(run.held_out("gt") for run in (*with_it, *without)):
        yield "nothing is solved on either side: a gain could not show"
    if pairs < MIN_REPLICATES:
        yield f"{pairs} replicates; needs {MIN_REPLICATES}"


def _unlike(a: Run, b: Run) -> Iterator[str]:
    """Why a replicate with and without the channels says nothing about them: other settings, other rollouts, another
    untrained model, an evaluation that is no evidence, a run that had hardly begun."""
    yield from filter(None, (differ(a, b, OF_CHANNELS), untested(a), untested(b)))
    if a.tested.get(a.steps) != b.tested.get(b.steps):
        yield "with and without were evaluated on other rollouts"
    before = [[of.get(0) for of in (run.evals, run.beside.get("eval_plain", {}))] for run in (a, b)]
    if before[0] != before[1]:
        yield "with and without differ before the first step"
    if (steps := min(a.steps, b.steps)) < LAST:
        yield f"{steps} steps, at least {LAST} are needed"


def _idle(run: Run) -> Iterator[str]:
    """Channels that were off all the same, or had next to no gradient."""
    for channel in channels_of(run):
        loss, share = (run.series.get(f"{channel}.{name}", ()) for name in ("loss", "share"))
        known = sum(x is not None for x in loss)
        moved = sum(x is not None and abs(x) >= ON_SHARE for x in share)
        if known < run.steps or moved < ON_STEPS * run.steps:
            yield f"replicate {run.seed}: {channel} was off at some step, or .1 % of the gradient at {moved} of {run.steps}"


def with_channels(runs: Sequence[Run]) -> list[list[Run]]:
    """Returns the runs with another channel than the policy, by arm and by which channels are on and how. Of two runs
    of one replicate and setting the first is taken: a copy is no second replicate."""
    alike: list[list[Run]] = []
    for run in (run for run in runs if channels_of(run)):
        same = next((group for group in alike if run.arm == group[0].arm and not differ(run, group[0])), None)
        if same is None:
            alike.append([run])
        elif run.seed not in {one.seed for one in same}:
            same.append(run)
    return alike
