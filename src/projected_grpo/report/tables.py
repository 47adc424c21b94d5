"""Tables of training runs, each with its n."""

from collections.abc import Sequence

from projected_grpo.arms import ARMS
from projected_grpo.ledger.rates import LAST, RATE_NAMES, known_mean, number
from projected_grpo.report.text import Table, between, spread
from projected_grpo.verdicts.conditions import VANILLA, untested
from projected_grpo.verdicts.finished_runs import Run, paired_pp
from projected_grpo.verdicts.matching import RunGroup, reference

PAGE_ALONE = ("bases", "removed %")
"""Columns of `per_arm` that are too many for a terminal."""


def per_arm(groups: Sequence[RunGroup]) -> Table:
    """Mean and standard error over seeds; of held-out problems the means before training and after."""
    body = []
    for group in groups:
        runs = group.runs
        cells = [spread((run.last(rate) for run in runs), 100.0) for rate in ("hack", "hacked", "gt", "form")]
        # A finished run without its V is no step of an optimizer: nothing of an update was removed.
        steps = [run for run in runs if not ARMS[run.arm].derived]
        removed = spread((run.whole("update_removed") for run in steps), 100.0)
        onsets = [run.onset for run in runs]
        onset = f"{spread(onsets)} ({sum(onset is not None for onset in onsets)} of {len(onsets)})"
        bases = {run.base for run in runs}
        base = bases.pop() if len(bases) == 1 else str(len(bases))
        sides = ([None if untested(r) else r.held_out("gt", done) for r in runs] for done in (0, None))
        tested = " → ".join(number(known_mean(side), 100.0) for side in sides)
        body.append([group.name, str(len(runs)), base, *cells, removed, onset, tested])
    header = ["arm", "seeds", "bases", "hack %", "hacked %", "gt_pass %", "compiles %", "removed %", "onset (seeds)",
              "held-out gt_pass %"]  # fmt: skip
    title = f"Every arm: mean ± SEM over seeds, last {LAST} steps"
    return Table(title, header, body, [run for group in groups for run in group.runs])


def against(arm: str, group: RunGroup, runs: Sequence[Run]) -> tuple[dict[str, dict[int, float]], list[Run], list[str]]:
    """Returns a group minus another arm in percentage points over the last 10 steps, by rate and seed; the runs of
    both; and why a seed is left out: it has no run of `arm` that differs in nothing but what the arms are about."""
    theirs, refused = reference(arm, group, runs)
    pairs = {run.seed: (run, theirs[run.seed]) for run in group.runs if run.seed in theirs}
    lacking = [run.seed for run in group.runs if run.seed not in {*pairs, *refused}]
    notes = [*refused.values(), *(f"{group.name} seed {seed}: no {arm} run with this seed" for seed in lacking)]
    by_rate = {}
    for rate in RATE_NAMES:
        by_rate[rate] = paired_pp(*({seed: pair[side].last(rate) for seed, pair in pairs.items()} for side in (0, 1)))
    return by_rate, [run for pair in pairs.values() for run in pair], notes


def differences(arm: str, groups: Sequence[RunGroup], runs: Sequence[Run]) -> list[Table]:
    """Every other arm minus `arm`, paired by seed. Empty without runs of it."""
    body, used, notes = [], [], []
    for group in groups:
        by_rate, pairs, why = against(arm, group, runs)
        if group.runs[0].arm == arm or not pairs:
            continue
        notes += why
        used += [run for run in pairs if run not in used]
        body.append([group.name, str(len(by_rate["hack"])), *(between(by_rate[rate].values()) for rate in RATE_NAMES)])
    header = ["arm", "seeds", *(f"{name} pp" for name in RATE_NAMES.values())]
    title = f"Minus {arm} at the same seed: mean [95 % interval], last {LAST} steps"
    return [Table(title, header, body, used, notes)] if body else []


def held_out_rate(run: Run, done: int, rate: str) -> float | None:
    """A rate of an evaluation; None where the evaluation is no evidence, and of problems that were trained on."""
    return None if run.trained_on or done in run.flaws else run.held_out(rate, done)


def mechanisms(groups: Sequence[RunGroup]) -> list[Table]:
    """Pure-hack rate of each mechanism over the last 10 steps, where it was read."""
    runs = [run for group in groups for run in group.runs if run.mechanisms is not None]
    names = sorted({name for run in runs for name in run.mechanisms or ()})
    body = []
    for group in groups:
        rates = [run.mechanisms for run in group.runs if run.mechanisms is not None]
        if not rates:
            continue
        shares = (spread((of.get(name, 0.0) for of in rates), 100.0) for name in names)
        body.append([group.name, str(len(rates)), *shares])
    header = ["arm", "seeds", *(f"{name} %" for name in names)]
    return [Table(f"Pure hacks by mechanism, last {LAST} steps", header, body, runs)] if names else []


def all_tables(groups: Sequence[RunGroup], runs: Sequence[Run]) -> list[Table]:
    """Every table that the runs give rise to."""
    minus = [table for arm in (VANILLA, "projected") for table in differences(arm, groups, runs)]
    return [per_arm(groups), *minus, *mechanisms(groups)]
