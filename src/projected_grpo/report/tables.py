"""Tables of training runs, each with its n, and how their cells are written: rates in percent, differences in percentage
points, mean ± standard error over seeds where runs are described; where arms are compared, the two-sided 95 % interval of
the mean (paired t). `-`: not known, or one seed."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tabulate import tabulate

from projected_grpo.arms import ARMS
from projected_grpo.ledger.rates import LAST, RATE_NAMES, known_mean, number
from projected_grpo.verdicts.conditions import VANILLA, untested
from projected_grpo.verdicts.effects import interval
from projected_grpo.verdicts.finished_runs import RATES, Run, mean_sem, paired_pp
from projected_grpo.verdicts.matching import RunGroup, reference

LEFT = ("what is removed (% of update energy)", "side", "adapter", "V", "folder")
"""Columns of words, besides the first."""


@dataclass(frozen=True)
class Table:
    """A table and the runs that it is of."""

    title: str
    header: Sequence[str]
    body: Sequence[Sequence[str]]
    runs: Sequence[Run] = ()
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        """The table with its heading, notes and sizes."""
        sizes = f"{len(self.runs)} runs, {sum(run.rollouts for run in self.runs):,} training rollouts"
        lines = [f"### {self.title}", "", self.text("github"), "", *(f"- {note}" for note in (*self.notes, sizes)), ""]
        return "\n".join(lines)

    def text(self, style: str = "simple", without: Collection[str] = ()) -> str:
        """The bare table: names to the left, numbers to the right; some columns may be left out."""
        kept = [i for i, name in enumerate(self.header) if name not in without]
        header, body = [self.header[i] for i in kept], [[row[i] for i in kept] for row in self.body]
        align = ["left" if i == 0 or name in LEFT else "right" for i, name in enumerate(header)]
        return tabulate(body, header, style, colalign=align, disable_numparse=True)


def spread(values: Iterable[float | int | None], scale: float = 1.0, digits: int = 1) -> str:
    """Mean ± standard error as a cell shows it."""
    return plus_minus(*mean_sem(values), scale, digits)


def plus_minus(mean: float | None, sem: float | None, scale: float = 1.0, digits: int = 1) -> str:
    """Formats a mean and its standard error; without the error where that is not known."""
    alone = number(mean, scale, digits)
    return alone if sem is None else f"{alone} ± {number(sem, scale, digits)}"


def between(values: Iterable[float | None], sign: str = "+") -> str:
    """Mean and its two-sided 95 % interval as a cell shows them."""
    known = [v for v in values if v is not None]
    if len(known) < 2:
        return number(known_mean(known), sign=sign)
    low, high = interval(known)
    return f"{number(known_mean(known), sign=sign)} [{number(low, sign=sign)}, {number(high, sign=sign)}]"


# ---------------------------------------------------------------- training runs


def brief(groups: Sequence[RunGroup]) -> str:
    """Returns one line an arm for a terminal: means over runs in percent, `held out` is gt_pass before training and
    after."""
    body = []
    for group in groups:
        runs = group.runs
        ends = [number(known_mean(run.last(rate) for run in runs), 100.0) for rate in ("hack", "hacked", "gt", "form")]
        sides = ([None if untested(r) else r.held_out("gt", done) for r in runs] for done in (0, None))
        held_out = " → ".join(number(known_mean(side), 100.0) for side in sides).replace("- → -", "-")
        onsets = [run.onset for run in runs if run.onset is not None]
        onset = f"{number(known_mean(onsets), digits=0)} ({len(onsets)} of {len(runs)})"
        body.append([group.name, str(len(runs)), *ends, held_out, onset])
    header = ["arm", "n", "pure hacks", "all hacks", "gt_pass", "compiles", "held out", "onset"]
    note = f"% of rollouts of the last {LAST} steps; held out: gt_pass before training → after"
    return f"{note}\n\n{Table('', header, body).text()}"


def per_arm(groups: Sequence[RunGroup]) -> Table:
    """Mean and standard error over seeds."""
    body = []
    for group in groups:
        cells = [spread((run.last(rate) for run in group.runs), 100.0) for rate in ("hack", "hacked", "gt", "form")]
        # A finished run without its V is no step of an optimizer: nothing of an update was removed.
        steps = [run for run in group.runs if run.arm not in ARMS or not ARMS[run.arm].derived]
        removed = spread((run.whole("update_removed") for run in steps), 100.0)
        onsets = [run.onset for run in group.runs]
        started = sum(onset is not None for onset in onsets)
        onset = f"{spread(onsets)} ({started} of {len(onsets)})" if started else f"- (0 of {len(onsets)})"
        bases = {run.base for run in group.runs}
        base = bases.pop() if len(bases) == 1 else str(len(bases))
        body.append([group.name, str(len(group.runs)), base, *cells, removed, onset])
    header = ["arm", "seeds", "bases", "hack %", "hacked %", "gt_pass %", "compiles %", "removed %", "onset (seeds)"]
    return Table(
        f"Every arm: mean ± SEM over seeds, last {LAST} steps", header, body, [r for g in groups for r in g.runs]
    )


@dataclass(frozen=True)
class Deltas:
    """A group minus another arm at the same seeds, in percentage points over the last 10 steps."""

    by_rate: dict[str, dict[int, float]]
    runs: tuple[Run, ...]
    notes: tuple[str, ...]


def against(arm: str, group: RunGroup, runs: Sequence[Run]) -> Deltas:
    """Seeds without a run of `arm` that differs in nothing but what the arms are about are left out, and a note says why."""
    theirs, refused = reference(arm, group, runs)
    pairs = {run.seed: (run, theirs[run.seed]) for run in group.runs if run.seed in theirs}
    notes = [
        f"{group.name} seed {run.seed}: no {arm} run with this seed"
        for run in group.runs
        if run.seed not in pairs and run.seed not in refused
    ]
    by_rate = {}
    for rate in RATES:
        by_rate[rate] = paired_pp(*({seed: pair[side].last(rate) for seed, pair in pairs.items()} for side in (0, 1)))
    return Deltas(by_rate, tuple(run for pair in pairs.values() for run in pair), (*refused.values(), *notes))


def differences(arm: str, groups: Sequence[RunGroup], runs: Sequence[Run]) -> list[Table]:
    """Every other arm minus `arm`, paired by seed. Empty without runs of it."""
    body, used, notes = [], [], []
    for group in groups:
        found = against(arm, group, runs)
        if group.runs[0].arm == arm or not found.runs:
            continue
        notes += found.notes
        used += [run for run in found.runs if run not in used]
        cells = [between(found.by_rate[rate].values()) for rate in RATES]
        body.append([group.name, str(len(found.by_rate["hack"])), *cells])
    header = ["arm", "seeds", *(f"{RATE_NAMES[rate]} pp" for rate in RATES)]
    title = f"Minus {arm} at the same seed: mean [95 % interval], last {LAST} steps"
    return [Table(title, header, body, used, notes)] if body else []


# ---------------------------------------------------------------- held-out evaluation, mechanisms


def held_out_rate(run: Run, done: int, rate: str) -> float | None:
    """A rate of an evaluation; None where the evaluation is no evidence, and of problems that were trained on."""
    return None if run.trained_on or done in run.flaws else run.evals[done][rate]


def held_out(groups: Sequence[RunGroup]) -> list[Table]:
    """Held-out evaluations before the first step and after the last, and the change, mean over runs. Empty without any. A
    change of a run is known where both are of the same rollouts."""
    body, used = [], []
    for group in groups:
        runs = [run for run in group.runs if {0, run.steps} <= run.evals.keys()]
        if not runs:
            continue
        steps = {run.steps for run in runs}
        cells = []
        for rate in RATES:
            before, after = ({r.seed: held_out_rate(r, n * r.steps, rate) for r in runs} for n in (0, 1))
            same = {r.seed: before[r.seed] for r in runs if r.tested.get(0) == r.tested.get(r.steps)}
            sides = " → ".join(spread(side.values(), 100.0) for side in (before, after))
            cells.append(f"{sides} ({between(paired_pp(after, same).values())})")
        body.append([group.name, str(len(runs)), f"0 → {steps.pop() if len(steps) == 1 else 'end'}", *cells])
        used += runs
    title = "Held-out evaluation: mean ± SEM over seeds, change with its 95 % interval"
    header = ["arm", "seeds", "after steps", *(f"{RATE_NAMES[rate]} % (change pp)" for rate in RATES)]
    return [Table(title, header, body, used)] if body else []


def mechanisms(groups: Sequence[RunGroup]) -> list[Table]:
    """Pure-hack rate of each mechanism over the last 10 steps. Empty when nothing tells mechanisms apart."""
    runs = [run for group in groups for run in group.runs]
    names = sorted({name for run in runs for name in run.mechanisms or ()})
    body = []
    for group in groups:
        rates = [run.mechanisms for run in group.runs if run.mechanisms is not None]
        shares = (spread((of.get(name, 0.0) for of in rates), 100.0) for name in names)
        body.append([group.name, str(len(group.runs)), *shares])
    header = ["arm", "seeds", *(f"{name} %" for name in names)]
    return [Table(f"Pure hacks by mechanism, last {LAST} steps", header, body, runs)] if names else []


def all_tables(groups: Sequence[RunGroup], runs: Sequence[Run]) -> list[Table]:
    """Every table that the runs give rise to."""
    minus = [table for arm in (VANILLA, "projected") for table in differences(arm, groups, runs)]
    return [per_arm(groups), *minus, *held_out(groups), *mechanisms(groups)]
