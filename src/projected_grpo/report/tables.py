"""Tables of training runs in markdown. Each names its n and the runs that it came from, in an HTML comment below it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from projected_grpo.ledger.rates import LAST, known_mean
from projected_grpo.report.table import Table, between, number, spread
from projected_grpo.verdicts.conditions import VANILLA, untested
from projected_grpo.verdicts.finished_runs import RATES, Run, paired_pp
from projected_grpo.verdicts.matching import RunGroup, reference
from projected_grpo.verdicts.step_numbers import COSINES, KINDS

NAMES = {"hack": "hack", "gt": "gt_pass", "form": "well-formed"}


def _runs(groups: Sequence[RunGroup]) -> list[Run]:
    return [run for group in groups for run in group.runs]


_WINDOWS: tuple[Callable[[Run, str], float | None], ...] = (Run.last, Run.whole)
_RATE_HEADER = [*(f"{name} %" for name in NAMES.values()), *(f"{name} all %" for name in NAMES.values())]
_WINDOWS_TOLD = f"the last {LAST} steps, then all steps"


def _bases(runs: Sequence[Run]) -> str:
    """The base that a number is of, or how many."""
    found = sorted({run.base for run in runs})
    return found[0] if len(found) == 1 else str(len(found))


def per_run(groups: Sequence[RunGroup]) -> Table:
    """Arm x seed."""
    body = []
    for group in groups:
        for run in group.runs:
            cells = [number(of(run, rate), 100.0) for of in _WINDOWS for rate in RATES]
            onset = "-" if run.onset is None else str(run.onset)
            cells = [*cells, number(run.last("hacked"), 100.0), onset, number(run.seconds, digits=0)]
            body.append([group.name, str(run.seed), run.base, str(run.steps), *cells])
    header = ["arm", "seed", "base", "steps", *_RATE_HEADER, "hacked %", "onset", "seconds"]
    return Table(f"Every run: {_WINDOWS_TOLD}", header, body, _runs(groups))


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
    table = Table("", header, body, ())
    return f"% of rollouts of the last {LAST} steps; held out: gt_pass before training → after\n\n{table.text()}"


def per_arm(groups: Sequence[RunGroup]) -> Table:
    """Mean and standard error over seeds."""
    body = []
    for group in groups:
        cells = [spread((of(run, rate) for run in group.runs), 100.0) for of in _WINDOWS for rate in RATES]
        onsets = [run.onset for run in group.runs]
        started = sum(onset is not None for onset in onsets)
        onset = f"{spread(onsets)} ({started} of {len(onsets)})" if started else f"- (0 of {len(onsets)})"
        cells += [spread((run.last("hacked") for run in group.runs), 100.0), onset]
        seconds = spread((run.seconds for run in group.runs), digits=0)
        body.append([group.name, str(len(group.runs)), _bases(group.runs), *cells, seconds])
    header = ["arm", "seeds", "bases", *_RATE_HEADER, "hacked %", "onset (seeds)", "seconds"]
    return Table(f"Every arm, mean ± SEM over seeds: {_WINDOWS_TOLD}", header, body, _runs(groups))


@dataclass(frozen=True)
class Deltas:
    """A group minus vanilla at the same seeds, in percentage points over the last 10 steps."""

    by_rate: dict[str, dict[int, float]]
    pairs: dict[int, tuple[Run, Run]]
    notes: tuple[str, ...]


def against_vanilla(group: RunGroup, runs: Sequence[Run]) -> Deltas:
    """Seeds without a vanilla run that differs in nothing but its arm are left out, and a note says why."""
    found = reference(VANILLA, group, runs)
    pairs = {run.seed: (run, found.runs[run.seed]) for run in group.runs if run.seed in found.runs}
    notes = [
        f"{group.name} seed {run.seed}: no vanilla run with this seed"
        for run in group.runs
        if run.seed not in pairs and run.seed not in found.refused
    ]
    by_rate = {}
    for rate in RATES:
        ours, theirs = ({seed: pair[side].last(rate) for seed, pair in pairs.items()} for side in (0, 1))
        by_rate[rate] = paired_pp(ours, theirs)
    return Deltas(by_rate, pairs, (*found.refused.values(), *notes))


def deltas(groups: Sequence[RunGroup], runs: Sequence[Run]) -> Table:
    """Every arm minus vanilla, paired by seed."""
    body, used, notes = [], [], []
    for group in groups:
        if group.runs[0].arm == VANILLA:
            continue
        found = against_vanilla(group, runs)
        notes += found.notes
        for seed, pair in found.pairs.items():
            used += [run for run in pair if run not in used]
            cells = [number(found.by_rate[rate].get(seed), sign="+") for rate in RATES]
            body.append([group.name, str(seed), *cells])
        if found.pairs:
            cells = [between(found.by_rate[rate].values()) for rate in RATES]
            body.append([group.name, "mean [95 %]", *cells])
    header = ["arm", "seed", *(f"{NAMES[rate]} pp" for rate in RATES)]
    return Table(f"Minus vanilla at the same seed, last {LAST} steps", header, body, used, notes)


def cosines(groups: Sequence[RunGroup]) -> Table:
    """The null next to what was measured: a cosine means nothing without it."""
    order = ("cos_null", *(name for name in COSINES if name != "cos_null"))
    body = [
        [group.name, str(len(group.runs)), *(spread((run.whole(c) for run in group.runs), digits=4) for c in order)]
        for group in groups
    ]
    notes = (
        "cos_null: all of a random direction, sqrt(k/r); its hack-ward part, which the others are, is that over sqrt(2)",
        "cos_in, cos_out: the gradient before and after projection; cos_update_in, cos_update: the update that the "
        "optimizer proposed, and the one that was applied",
    )
    return Table("Hack-ward cosines, mean over the run, beside their null", ["arm", "seeds", *order], body,
                 _runs(groups), notes)  # fmt: skip


ENERGY_COLUMNS = (
    *(f"energy_V of {kind}" for kind in KINDS), *(f"removed of {kind}" for kind in KINDS),
    "energy_in", "energy_update", "update_removed", "update_norm",
)  # fmt: skip


def energies(groups: Sequence[RunGroup]) -> Table:
    """How much of the gradient and of the update lies along V, and how much is taken out: controls that remove less than V
    does are no match for it."""
    body = []
    for group in groups:
        for window, of in zip((f"last {LAST}", "all"), _WINDOWS, strict=True):
            cells = [
                spread((of(run, name) for run in group.runs), *((1.0, 3) if name == "update_norm" else (100.0, 1)))
                for name in ENERGY_COLUMNS
            ]
            body.append([group.name, window, str(len(group.runs)), *cells])
    notes = (
        "energy_V of a kind of rows: of a row's own gradient, the energy along V; removed: what the arm's gate takes of it; "
        "hack: pure hacks, correct: solved and not hacked; mean over the student's rows where it was measured",
        "energy_in: of the summed gradient before projection; energy_update: of the applied update; update_removed: "
        "energy of the proposed update that was not applied; update_norm: norm of the applied update",
    )
    header = ["arm", "steps", "seeds", *(n if n == "update_norm" else f"{n} %" for n in ENERGY_COLUMNS)]
    return Table("Energy along V, and what was removed", header, body, _runs(groups), notes)


# ---------------------------------------------------------------- held-out evaluation, mechanisms


def evaluated(groups: Sequence[RunGroup]) -> list[RunGroup]:
    """The groups' runs that have a held-out evaluation."""
    kept = [RunGroup(g.name, tuple(run for run in g.runs if run.evals)) for g in groups]
    return [group for group in kept if group.runs]


def ends(run: Run) -> tuple[int, int]:
    """Steps done at a run's first and last evaluation."""
    return min(run.evals), max(run.evals)


def same_span(runs: Sequence[Run]) -> bool:
    """Whether the runs' first and last evaluations say the same of each: after as many steps, or before and after all."""
    return len({ends(run) for run in runs}) == 1 or all(ends(run) == (0, run.steps) for run in runs)


def held_out_rate(run: Run, done: int, rate: str) -> float | None:
    """A rate of an evaluation; None where the evaluation is no evidence, and of problems that were trained on."""
    return None if run.trained_on or done in run.flaws else run.evals[done][rate]


def change_pp(run: Run, rate: str) -> float | None:
    """Last minus first evaluation in percentage points; None when there is one evaluation only, where one of them is not
    known, and where they are of different rollouts."""
    first, last = ends(run)
    if first == last or run.tested.get(first) != run.tested.get(last):
        return None
    return paired_pp({0: held_out_rate(run, last, rate)}, {0: held_out_rate(run, first, rate)}).get(0)


def held_out(groups: Sequence[RunGroup]) -> list[Table]:
    """First and last held-out evaluation and the change, mean over runs. Empty without any."""
    groups = evaluated(groups)
    body, used, notes = [], [], []
    for group in groups:
        runs = group.runs
        if not same_span(runs):
            notes.append(
                f"{group.name}: its runs were evaluated after different numbers of steps, so they have no mean"
            )
            continue
        when = "{} → {}".format(*ends(runs[0])) if len({ends(run) for run in runs}) == 1 else "0 → end"
        cells = []
        for rate in RATES:
            before, after = (spread((held_out_rate(r, ends(r)[i], rate) for r in runs), 100.0) for i in (0, 1))
            cells.append(f"{before} → {after} ({between(change_pp(run, rate) for run in runs)})")
        body.append([group.name, str(len(runs)), when, *cells])
        used += runs
    title = "Held-out evaluation: mean ± SEM over seeds, change with its 95 % interval"
    header = ["arm", "seeds", "after steps", *(f"{NAMES[rate]} % (change pp)" for rate in RATES)]
    return [Table(title, header, body, used, notes)] if groups else []


def mechanisms(groups: Sequence[RunGroup]) -> list[Table]:
    """Pure-hack rate of each mechanism over the last 10 steps. Empty when nothing tells mechanisms apart."""
    known = {run.path: run.mechanisms for run in _runs(groups) if run.mechanisms is not None}
    names = sorted({name for rates in known.values() for name in rates})
    body = [
        [group.name, name, str(len(group.runs)), spread((known[r.path].get(name, 0.0) for r in group.runs), 100.0)]
        for group in groups
        for name in names
    ]
    header = ["arm", "mechanism", "seeds", "pure hack %"]
    return [Table(f"Pure hacks by mechanism, last {LAST} steps", header, body, _runs(groups))] if names else []


def all_tables(groups: Sequence[RunGroup], runs: Sequence[Run]) -> list[Table]:
    """Every table that the runs give rise to."""
    return [
        per_arm(groups), per_run(groups), deltas(groups, runs), energies(groups),
        cosines(groups), *held_out(groups), *mechanisms(groups),
    ]  # fmt: skip
