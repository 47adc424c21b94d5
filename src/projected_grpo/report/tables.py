"""Tables of training runs in markdown. Each names its n and the runs that it came from, in an HTML comment below it.

Rates are in percent, differences in percentage points; mean ± standard error over seeds, and `-` where one seed is all
there is.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from projected_grpo.verdicts.finished_runs import (
    LAST,
    RATES,
    Run,
    RunGroup,
    mean_sem,
    paired_pp,
    reference,
    unmatched_compute,
)
from projected_grpo.verdicts.h1 import H1

NAMES = {"hack": "hack", "gt": "gt_pass", "form": "well-formed"}


@dataclass(frozen=True)
class Table:
    """A table and where it comes from."""

    title: str
    header: Sequence[str]
    body: Sequence[Sequence[str]]
    runs: Sequence[Run]
    notes: Sequence[str] = ()

    def markdown(self, root: Path) -> str:
        """The table with its heading, notes and sources; runs are named as seen from `root`."""
        sources = ", ".join(run.path.relative_to(root).as_posix() for run in self.runs)
        rollouts = sum(run.rollouts for run in self.runs)
        lines = [f"### {self.title}", "", self.text("github"), "", *(f"- {note}" for note in self.notes)]
        lines += [f"<!-- n = {len(self.runs)} runs ({rollouts} training rollouts); from: {sources} -->", ""]
        return "\n".join(lines)

    def text(self, style: str = "simple") -> str:
        """The bare table: names to the left, numbers to the right."""
        align = ["left" if name in ("arm", "mechanism") else "right" for name in self.header]
        return tabulate(self.body, self.header, style, colalign=align, disable_numparse=True)


def number(value: float | None, scale: float = 1.0, digits: int = 1, sign: str = "") -> str:
    """A number as a cell shows it."""
    return "-" if value is None else f"{scale * value:{sign}.{digits}f}"


def spread(values: Iterable[float | int | None], scale: float = 1.0, digits: int = 1, sign: str = "") -> str:
    """Mean ± standard error as a cell shows it."""
    mean, sem = mean_sem(values)
    if mean is None:
        return "-"
    alone = number(mean, scale, digits, sign)
    return alone if sem is None else f"{alone} ± {number(sem, scale, digits)}"


def _runs(groups: Sequence[RunGroup]) -> list[Run]:
    return [run for group in groups for run in group.runs]


_WINDOWS: tuple[Callable[[Run, str], float | None], ...] = (Run.last, Run.whole)
_RATE_HEADER = [*(f"{name} %" for name in NAMES.values()), *(f"{name} all %" for name in NAMES.values())]
_WINDOWS_TOLD = f"the last {LAST} steps, then all steps"


def per_run(groups: Sequence[RunGroup]) -> Table:
    """Arm x seed."""
    body = []
    for group in groups:
        for run in group.runs:
            cells = [number(of(run, rate), 100.0) for of in _WINDOWS for rate in RATES]
            onset = "-" if run.onset is None else str(run.onset)
            body.append([group.name, str(run.seed), str(run.steps), *cells, onset, number(run.seconds, digits=0)])
    header = ["arm", "seed", "steps", *_RATE_HEADER, "onset", "seconds"]
    return Table(f"Every run: {_WINDOWS_TOLD}", header, body, _runs(groups))


def per_arm(groups: Sequence[RunGroup]) -> Table:
    """Mean and standard error over seeds."""
    body = []
    for group in groups:
        cells = [spread((of(run, rate) for run in group.runs), 100.0) for of in _WINDOWS for rate in RATES]
        onsets = [run.onset for run in group.runs]
        started = sum(onset is not None for onset in onsets)
        onset = f"{spread(onsets)} ({started} of {len(onsets)})" if started else f"- (0 of {len(onsets)})"
        body.append(
            [group.name, str(len(group.runs)), *cells, onset, spread((run.seconds for run in group.runs), digits=0)]
        )
    header = ["arm", "seeds", *_RATE_HEADER, "onset (seeds)", "seconds"]
    return Table(f"Every arm, mean ± SEM over seeds: {_WINDOWS_TOLD}", header, body, _runs(groups))


@dataclass(frozen=True)
class Deltas:
    """A group minus vanilla at the same seeds, in percentage points over the last 10 steps."""

    by_rate: dict[str, dict[int, float]]
    pairs: dict[int, tuple[Run, Run]]
    notes: tuple[str, ...]


def against_vanilla(group: RunGroup, runs: Sequence[Run]) -> Deltas:
    """Seeds without a vanilla run of the same compute are left out, and a note says so."""
    vanilla = reference("vanilla", group, runs)
    pairs, notes = {}, []
    for run in group.runs:
        other = vanilla.get(run.seed)
        if other is None:
            notes.append(f"{group.name} seed {run.seed}: no vanilla run with this seed and these settings")
        elif other.compute != run.compute:
            notes.append(unmatched_compute([run, other]))
        else:
            pairs[run.seed] = (run, other)
    by_rate = {}
    for rate in RATES:
        ours, theirs = ({seed: pair[side].last(rate) for seed, pair in pairs.items()} for side in (0, 1))
        by_rate[rate] = paired_pp(ours, theirs)
    return Deltas(by_rate, pairs, tuple(notes))


def deltas(groups: Sequence[RunGroup], runs: Sequence[Run]) -> Table:
    """Every arm minus vanilla, paired by seed."""
    body, used, notes = [], [], []
    for group in groups:
        if group.runs[0].arm == "vanilla":
            continue
        found = against_vanilla(group, runs)
        notes += found.notes
        for seed, pair in found.pairs.items():
            used += [run for run in pair if run not in used]
            cells = [number(found.by_rate[rate].get(seed), sign="+") for rate in RATES]
            body.append([group.name, str(seed), *cells])
        if found.pairs:
            cells = [spread(found.by_rate[rate].values(), sign="+") for rate in RATES]
            body.append([group.name, "mean ± SEM", *cells])
    header = ["arm", "seed", *(f"{NAMES[rate]} pp" for rate in RATES)]
    return Table(f"Minus vanilla at the same seed, last {LAST} steps", header, body, used, notes)


def cosines(groups: Sequence[RunGroup]) -> Table:
    """The null beside what was measured: a cosine means nothing without it."""
    order = ("cos_null", "cos_in", "cos_out", "cos_update")
    body = [
        [group.name, str(len(group.runs)), *(spread((run.whole(c) for run in group.runs), digits=4) for c in order)]
        for group in groups
    ]
    notes = (
        "cos_null: all of a random direction, sqrt(k/r); its hack-ward part, which the others are, is that over sqrt(2)",
        "cos_in and cos_out are of what an arm projects; where that is the update, compare them with the cos_update of an "
        "arm that projects nothing",
    )
    return Table("Hack-ward cosines, mean over the run, beside their null", ["arm", "seeds", *order], body,
                 _runs(groups), notes)  # fmt: skip


# ---------------------------------------------------------------- held-out evaluation, mechanisms


def evaluated(groups: Sequence[RunGroup]) -> list[RunGroup]:
    """The groups' runs that have a held-out evaluation."""
    kept = [RunGroup(g.name, tuple(run for run in g.runs if run.evals)) for g in groups]
    return [group for group in kept if group.runs]


def ends(run: Run) -> tuple[int, int]:
    """Steps done at a run's first and last evaluation."""
    return min(run.evals), max(run.evals)


def change_pp(run: Run, rate: str) -> float | None:
    """Last minus first evaluation in percentage points; None when there is one evaluation only."""
    first, last = ends(run)
    if first == last:
        return None
    return paired_pp({0: run.evals[last][rate]}, {0: run.evals[first][rate]}).get(0)


def held_out(groups: Sequence[RunGroup]) -> list[Table]:
    """First and last held-out evaluation and the change: per run and per arm. Empty without any."""
    groups = evaluated(groups)
    per_run_body, per_arm_body, used, notes = [], [], [], []
    for group in groups:
        for run in group.runs:
            first, last = ends(run)
            cells = []
            for rate in RATES:
                before, after = number(run.evals[first][rate], 100.0), number(run.evals[last][rate], 100.0)
                cells.append(f"{before} → {after} ({number(change_pp(run, rate), sign='+')})")
            per_run_body.append([group.name, str(run.seed), f"{first} → {last}", *cells])
        if len({ends(run) for run in group.runs}) > 1:
            notes.append(
                f"{group.name}: its runs were evaluated after different numbers of steps, so they have no mean"
            )
            continue
        first, last = ends(group.runs[0])
        cells = []
        for rate in RATES:
            before, after = (spread((run.evals[step][rate] for run in group.runs), 100.0) for step in (first, last))
            cells.append(f"{before} → {after} ({spread((change_pp(run, rate) for run in group.runs), sign='+')})")
        per_arm_body.append([group.name, str(len(group.runs)), f"{first} → {last}", *cells])
        used += group.runs
    what = ["after steps", *(f"{NAMES[rate]} % (change pp)" for rate in RATES)]
    if not groups:
        return []
    return [
        Table("Held-out evaluation of every run, first → last", ["arm", "seed", *what], per_run_body, _runs(groups)),
        Table("Held-out evaluation: mean ± SEM over seeds", ["arm", "seeds", *what], per_arm_body, used, notes),
    ]


def mechanisms(groups: Sequence[RunGroup]) -> list[Table]:
    """Pure-hack rate of each mechanism over the last 10 steps. Empty when nothing tells mechanisms apart."""
    known = {run.path: run.mechanisms for run in _runs(groups) if run.mechanisms is not None}
    names = sorted({name for rates in known.values() for name in rates})
    if not names:
        return []
    body = [
        [group.name, name, str(len(group.runs)), spread((known[r.path].get(name, 0.0) for r in group.runs), 100.0)]
        for group in groups
        for name in names
    ]
    header = ["arm", "mechanism", "seeds", "pure hack %"]
    return [Table(f"Pure hacks by mechanism, last {LAST} steps", header, body, _runs(groups))]


def all_tables(groups: Sequence[RunGroup], runs: Sequence[Run]) -> list[Table]:
    """Every table that the runs give rise to."""
    return [
        per_arm(groups), per_run(groups), deltas(groups, runs), cosines(groups), *held_out(groups), *mechanisms(groups)
    ]  # fmt: skip


# ---------------------------------------------------------------- H1


def h1_text(found: H1, style: str = "simple") -> str:
    """Clauses, falsifiers and the claim of prevention."""
    widths = None if style == "github" else [None, None, 84]
    said = {True: "YES", False: "no", None: "cannot be told"}

    def listed(clauses: Sequence) -> str:
        rows = [[c.name, c.status, c.why] for c in clauses]
        return tabulate(rows, ["clause", "", "numbers"], style, disable_numparse=True, maxcolwidths=widths)

    return "\n".join(
        [
            f"{found.verdict.name}: {found.verdict.status}: {found.verdict.why}", "", listed(found.clauses), "",
            "falsified by: " + "; ".join(f"{what}: {said[holds]}" for what, holds in found.falsified.items()), "",
            f"{found.prevention.name}: {found.prevention.status}: {found.prevention.why}", "",
            listed(found.prevention_clauses), "",
        ]
    )  # fmt: skip
