"""The A/B of channels: does a channel next to GRPO raise pass@1 on held-out problems, and what does it do to hacking?

Of each arm, runs with the channel against runs without it, paired by replicate, after the last step. pass@1 is the share of
held-out rollouts that pass ground truth, under the prompt of training, as deployed; one rollout of a problem is as likely as
any. The thresholds are docs/spec.md's: a gain of 2 pp, and a two-sided 95 % interval (paired t) above 0.

    VALIDATED both    PARTIAL one of the two    INVALIDATED neither    NOT_EVALUABLE what is needed is missing
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from projected_grpo.ledger.rates import LAST, known_mean
from projected_grpo.ledger.step_file import CHANNELS
from projected_grpo.verdicts.comparison import OF_CHANNELS
from projected_grpo.verdicts.conditions import removed, untested
from projected_grpo.verdicts.effects import MIN_REPLICATES, interval
from projected_grpo.verdicts.finished_runs import Run, mean_sem, paired_pp
from projected_grpo.verdicts.matching import differences, independence, mismatches

GAIN = 2.0
"""Percentage points of pass@1."""
ON_SHARE, ON_STEPS = 0.001, 0.1
"""A channel was on where its gradient is so much of the sum's (either sign) at so many of the steps: of
`--distill-hint peer` few have a row."""
WEIGHT_OF = {"hint_distill": "alpha", "trace_dpo": "trace_weight", "taid": "taid_weight"}
Status = Literal["VALIDATED", "PARTIAL", "INVALIDATED", "NOT_EVALUABLE"]


@dataclass(frozen=True)
class AB:
    """One arm with and without some channels."""

    arm: str
    channels: tuple[str, ...]
    """Those that are on in one of the two; the policy is in both."""
    status: Status
    why: str
    runs: tuple[Run, ...] = ()
    """With the channels."""
    without: tuple[Run, ...] = ()
    gain: Mapping[int, float] = field(default_factory=dict)
    """pass@1 with minus without, in percentage points, by replicate."""
    plain: Mapping[int, float] = field(default_factory=dict)
    """The same without the loophole's hint, printed next to it."""
    hack: Mapping[int, float] = field(default_factory=dict)
    """Pure hacks on the held-out problems, with minus without."""


def channels_of(run: Run) -> tuple[str, ...]:
    """Returns the channels besides the policy."""
    return tuple(name for name, weight in WEIGHT_OF.items() if run.config(weight))


def judged(runs: Sequence[Run]) -> list[AB]:
    """Returns every arm and every set of channels that there are runs of, each against the same arm without them."""
    found: dict[tuple[str, tuple[str, ...]], list[Run]] = {}
    for run in runs:
        found.setdefault((run.arm, channels_of(run)), []).append(run)
    return [
        _judge(arm, channels, runs, found.get((arm, ()), [])) for (arm, channels), runs in found.items() if channels
    ]


def _judge(arm: str, channels: tuple[str, ...], with_it: Sequence[Run], without: Sequence[Run]) -> AB:
    on, off = ({run.seed: run for run in runs} for runs in (with_it, without))
    gain, plain, hack = (
        paired_pp(*({seed: run.held_out(rate, folder=folder) for seed, run in side.items()} for side in (on, off)))
        for rate, folder in (("gt", "eval"), ("gt", "eval_plain"), ("hack", "eval"))
    )
    refused = [*_sides(arm, with_it, without), *_idle(with_it)]
    refused += [why for seed in sorted(on.keys() & off.keys()) for why in _unlike(on[seed], off[seed])]
    if gain and not any(run.held_out("gt") for run in (*with_it, *without)):
        refused.append("nothing is solved on either side: a gain could not show")
    if len(gain) < MIN_REPLICATES:
        refused.append(f"{len(gain)} replicates; needs {MIN_REPLICATES}")
    status, why = ("NOT_EVALUABLE", "; ".join(dict.fromkeys(refused))) if refused else _status(list(gain.values()))
    return AB(arm, channels, status, why, tuple(on.values()), tuple(off.values()), gain, plain, hack)


def _status(gain: Sequence[float]) -> tuple[Status, str]:
    mean = sum(gain) / len(gain)
    low, high = interval(gain)
    clauses = (mean >= GAIN, low > 0)
    status: Status = "VALIDATED" if all(clauses) else "PARTIAL" if any(clauses) else "INVALIDATED"
    found = f"pass@1 {mean:+.1f} pp (needs {GAIN:g}), 95 % {low:+.1f} to {high:+.1f} (needs above 0), n = {len(gain)}"
    return status, found


def _sides(arm: str, with_it: Sequence[Run], without: Sequence[Run]) -> Iterator[str]:
    """Why the runs of a side are not independent replicates of one setting, or the two sides not of the same replicates."""
    for side in (with_it, without):
        by_seed = {arm: {run.seed: run for run in side}}
        if len(by_seed[arm]) < len(side):
            yield "a replicate has two runs of one side"
        yield from mismatches(by_seed)
        if side and side[0].projects:
            yield from (found.why for found in (removed(by_seed), independence(by_seed)) if found.status != "PASS")
    if one_sided := sorted({run.seed for run in with_it} ^ {run.seed for run in without}):
        yield f"replicate {one_sided[0]} has runs of one side"


def _unlike(a: Run, b: Run) -> Iterator[str]:
    """Why a replicate with and without the channels says nothing about them: other settings, other rollouts, another
    untrained model, an evaluation that is no evidence, a run that had hardly begun."""
    if differing := differences(a, b, OF_CHANNELS):
        yield f"replicate {a.seed}: with and without differ in {'; '.join(differing)}"
    yield from (f"replicate {a.seed}: {why}" for why in map(untested, (a, b)) if why)
    if a.tested.get(a.steps) != b.tested.get(b.steps):
        yield f"replicate {a.seed}: with and without were evaluated on other rollouts"
    before = [[of.get(0) for of in (run.evals, run.beside.get("eval_plain", {}))] for run in (a, b)]
    if before[0] != before[1]:
        yield f"replicate {a.seed}: with and without differ before the first step"
    if (steps := min(a.steps, b.steps)) < LAST:
        yield f"replicate {a.seed}: {steps} steps, at least {LAST} are needed"


def _idle(runs: Sequence[Run]) -> Iterator[str]:
    """Channels that were off all the same, or had next to no gradient."""
    for run in runs:
        for channel in channels_of(run):
            loss, share = (run.series.get(f"{channel}.{name}", ()) for name in ("loss", "share"))
            known = sum(x is not None for x in loss)
            moved = sum(x is not None and abs(x) >= ON_SHARE for x in share)
            if known < run.steps or moved < ON_STEPS * run.steps:
                yield f"replicate {run.seed}: {channel} was off at some step, or had a gradient at {moved} of {run.steps}"


@dataclass(frozen=True)
class Measured:
    """A channel's gradient against V, a number a replicate: the mean over its steps."""

    arm: str
    on: tuple[str, ...]
    """The channels besides the policy in these runs."""
    channel: str
    """Whose gradient."""
    runs: tuple[Run, ...]
    """Of the same settings, one a replicate."""
    numbers: Mapping[str, tuple[float | None, float | None]]
    """Mean and standard error over runs, by the names of the column `channels`; and `cos_null`, of the runs' V."""


def measured(runs: Sequence[Run]) -> list[Measured]:
    """Every channel of every arm, by which channels are on and how, in runs that have another one than the policy on. Of two
    runs of one replicate and setting the first is taken: a copy is no second replicate."""
    alike: list[list[Run]] = []
    for run in runs:
        if channels_of(run):
            same = next((group for group in alike if run.arm == group[0].arm and not differences(run, group[0])), None)
            if same is None:
                alike.append([run])
            elif run.seed not in {one.seed for one in same}:
                same.append(run)
    return [
        Measured(group[0].arm, channels_of(group[0]), channel, tuple(group), _against_v(group, channel))
        for group in alike
        for channel in CHANNELS
        if channel == "policy" or channel in channels_of(group[0])
    ]


def _against_v(runs: Sequence[Run], channel: str) -> dict[str, tuple[float | None, float | None]]:
    names = ("cos", "cos_signed", "energy", "removed", "share")
    found = {n: mean_sem(known_mean(r.series.get(f"{channel}.{n}", ())) for r in runs) for n in names}
    return {**found, "cos_null": mean_sem(known_mean(r.series.get("cos_null", ())) for r in runs)}
