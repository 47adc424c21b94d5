"""The bench of rivals: every arm below a directory in one table and one plot, from finished runs alone.

All rates are of held-out problems and of the policy as it would be deployed, after the run's last step: under the loophole
prompt (eval/), and without the loophole's hint (eval_plain/). A policy that is deployed otherwise than it was trained has a
second row, as it trained (eval_trained/), and one with a part that is left out a row of that part alone, before the first
step and after the last (eval_part/). Mean and two-sided 95 % interval over units (Student's t).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from projected_grpo.arms import ARMS
from projected_grpo.ledger.rates import known_mean
from projected_grpo.report.tables import Table, between, bullets, number, spread
from projected_grpo.verdicts.finished_runs import Found, Run
from projected_grpo.verdicts.h1 import no_evidence, taken_out
from projected_grpo.verdicts.intervals import MIN_UNITS
from projected_grpo.verdicts.matching import (
    RunGroup,
    differences,
    gathered,
    group_runs,
    independence,
    kinds_of_v,
    reference,
)

Rates = Mapping[str, float | None]
HEADER = (
    "arm", "n", "hack %", "all hacked %", "gt %", "held-out gain pp", "form %", "pass without the loophole %",
    "pass minus hack, over projected's pp", "hack in training %", "seconds", "told",
)  # fmt: skip
PAGE_ALONE = ("gt %", "hack in training %", "seconds", "told")
NOTES = (
    "held-out problems, the policy as deployed, after the last step: hack (hacked and not gt_pass), all hacked, gt and form "
    "under the loophole prompt; pass without the loophole: gt on the same problems without the hint",
    "held-out gain: gt at the end minus gt of the untrained model, under the loophole prompt",
    "pass minus hack, over projected's: pass without the loophole minus hack, less the same of projected's run of that unit",
    "mean [95 % interval over units]; seconds: the training steps' own, mean ± SEM; of what is made from a finished vanilla "
    "run (post_hoc) they come on top of that run's",
)


@dataclass(frozen=True)
class Row:
    """One line of the table, one point of the plot: what its units say."""

    name: str
    runs: Sequence[Run]
    hack: Sequence[float | None]
    """Per unit, as the others: shares of rollouts."""
    hacked: Sequence[float | None]
    gt: Sequence[float | None]
    form: Sequence[float | None]
    gain: Sequence[float | None]
    plain: Sequence[float | None]
    trained: Sequence[float | None]
    """Hack rate of the last 10 training steps."""
    told: str
    oracle: bool = False
    rival: bool = False
    deployed: bool = True
    """Whether it is of the policy as deployed."""

    def cells(self, ours: "Row | None") -> list[str]:
        """As the table shows it, beside projected's row."""
        over = self.over(ours) if ours else []
        values = (self.hack, self.hacked, self.gt, self.gain, self.form, self.plain, over, self.trained)
        cells = [between(percent(v), sign="+" if v is self.gain or v is over else "") for v in values]
        seconds = spread((run.seconds for run in self.runs), digits=0) if known_mean(self.trained) is not None else "-"
        return [self.name, str(len(self.runs)), *cells, seconds, self.told]

    @property
    def scores(self) -> dict[int, float]:
        """Pass without the loophole minus hack of each unit of which both are known."""
        each = zip(self.runs, self.plain, self.hack, strict=True)
        return {run.seed: p - h for run, p, h in each if p is not None and h is not None}

    @property
    def score(self) -> float | None:
        """Its mean in percentage points: what arms are ordered by."""
        return 100 * sum(self.scores.values()) / len(self.scores) if self.scores else None

    def over(self, ours: "Row") -> list[float]:
        """By how much each unit's score is above that of the same unit of another row; empty for that row itself."""
        theirs = ours.scores if ours is not self else {}
        return [score - theirs[seed] for seed, score in self.scores.items() if seed in theirs]

    @property
    def whole(self) -> bool:
        """Whether every unit has both."""
        return None not in (*self.plain, *self.hack)


def percent(values: Sequence[float | None]) -> list[float | None]:
    """Shares in percent."""
    return [None if v is None else 100 * v for v in values]


def _at(evals: Mapping[int, Rates], done: int, rate: str) -> float | None:
    return evals.get(done, {}).get(rate)


def _gain(run: Run) -> float | None:
    last, first = _at(run.evals, run.steps, "gt"), _at(run.evals, 0, "gt")
    return None if last is None or first is None else last - first


BESIDE = {"eval_trained": "as trained", "eval_part": "its part alone"}


def row_of(name: str, runs: Sequence[Run], folder: str = "eval", *, first: bool = False) -> Row:
    """A group's row: of its deployed policy, or of what `folder` holds beside it; after the last step, or before the
    `first`."""
    arm = ARMS.get(runs[0].arm)

    def end(rate: str) -> list[float | None]:
        done = [0 if first else run.steps for run in runs]
        evals = [run.evals if folder == "eval" else run.beside.get(folder, {}) for run in runs]
        return [_at(rates, steps, rate) for rates, steps in zip(evals, done, strict=True)]

    deployed = folder == "eval"
    beside = "" if deployed else f", {BESIDE[folder]}" + (", at the start" if first else "")
    return Row(
        name + beside, runs, end("hack"), end("hacked"), end("gt"), end("form"),
        [_gain(run) if deployed else None for run in runs],
        [_at(run.beside.get("eval_plain", {}), run.steps, "gt") if deployed else None for run in runs],
        [run.last("hack") for run in runs], arm.supervision if arm else "not known", bool(arm and arm.labels),
        bool(arm and arm.role == "rival"), deployed,
    )  # fmt: skip


def untrained(runs: Sequence[Run]) -> Row:
    """The untrained model, from the evaluations before the first step of each unit's vanilla."""
    unknown: list[float | None] = [None] * len(runs)
    plain = [_at(run.beside.get("eval_plain", {}), 0, "gt") for run in runs]
    at_start = row_of("untrained", runs, first=True)
    return replace(at_start, gain=unknown, plain=plain, trained=unknown, told="nothing")


@dataclass(frozen=True)
class Bench:
    """The runs of one directory, side by side."""

    root: Path
    rows: Sequence[Row]
    remarks: Sequence[str]

    @property
    def table(self) -> Table:
        """One line an arm."""
        used = [run for row in self.rows if row.name != "untrained" and row.deployed for run in row.runs]
        return Table("Rivals, side by side", HEADER, [row.cells(self.ours) for row in self.rows], used, NOTES)

    @property
    def ours(self) -> Row | None:
        """Projected's."""
        return next((row for row in self.rows if row.name == "projected"), None)

    @property
    def printed(self) -> Table:
        """The table without what only a page has room for."""
        short = self.table.without(PAGE_ALONE, self.table.title)
        header = [
            name.replace(" the loophole", "\nthe loophole")
            .replace("out gain", "out\ngain")
            .replace("hack, over", "hack,\nover")
            for name in short.header
        ]
        return replace(short, header=header)

    @property
    def best(self) -> Row | None:
        """Of the rivals that are no oracles and have every unit of projected, the one with the highest pass without the
        loophole minus hack on those units; None without projected or a rival."""
        if (ours := self.ours) is None:
            return None
        units = {run.seed for run in ours.runs}
        able = [
            row for row in self.rows
            if row.rival and row.deployed and not row.oracle and row.whole and units <= {run.seed for run in row.runs}
        ]  # fmt: skip
        return max(able, key=lambda row: known_mean(row.over(ours)) or 0.0, default=None)

    @property
    def verdict(self) -> str:
        """The bottom line: the best rival beside projected. NOT_EVALUABLE without one, and of fewer units than a claim
        needs: which is best is then said as a sign."""
        best, ours = self.best, self.ours
        if best is None or ours is None or not ours.whole:
            return "NOT_EVALUABLE: needs projected and a rival with its units, both with --eval-every and --eval-plain"
        told = [
            f"{row.name} hack {number(known_mean(row.hack), 100.0)} %, pass without "
            f"{number(known_mean(row.plain), 100.0)} % (n = {len(row.runs)})"
            for row in (best, ours)
        ]
        plain = next((row.score for row in self.rows if row.name == "untrained"), None)
        scores = [number(score) for score in (best.score, ours.score, plain)]
        few = f"NOT_EVALUABLE: {len(ours.runs)} units, at least {MIN_UNITS} are needed; as a sign: "
        return (few if len(ours.runs) < MIN_UNITS else "") + (
            f"best rival by pass minus hack: {told[0]}; beside it {told[1]}; pass minus hack {scores[0]}, {scores[1]} and "
            f"{scores[2]} pp of the untrained model; over projected's, unit by unit, {between(percent(best.over(ours)))} pp"
        )

    def markdown(self) -> str:
        """rivals.md."""
        head = ["# Rivals", "", "Written by `just rivals-table`; do not edit by hand.", "", *bullets(self.remarks)]
        return "\n".join([*head, self.table.markdown(self.root), "![hack against pass](plots/rivals.svg)", ""])

    def json(self) -> str:
        """Every number, unit by unit."""
        rates = ("hack", "hacked", "gt", "form", "gain", "plain", "trained")
        rows = [
            {"arm": r.name, "told": r.told, "oracle": r.oracle, "units": [run.seed for run in r.runs],
             **{rate: list(getattr(r, rate)) for rate in rates}}
            for r in self.rows
        ]  # fmt: skip
        return json.dumps({"remarks": list(self.remarks), "rows": rows}, indent=1, allow_nan=False) + "\n"


def bench_of(root: Path, found: Found) -> Bench:
    """Every finished run below `root`, in the registry's order, but for those that may not stand beside their unit's
    vanilla: they are named with the reason. BadInput as in `group_runs`."""
    rows: list[Row] = []
    sound, unsound = comparable_runs(found.runs)
    for group in group_runs(sound):
        if group.runs[0].arm == "vanilla":
            rows.append(untrained(group.runs))
        rows.append(row_of(group.name, group.runs))
        if any(run.beside.get("eval_trained") for run in group.runs):
            rows.append(row_of(group.name, group.runs, "eval_trained"))
        if any(run.beside.get("eval_part") for run in group.runs):
            rows += [row_of(group.name, group.runs, "eval_part", first=first) for first in (True, False)]
    remarks = [f"left out: {path}: {why}" for path, why in found.left_out]
    return Bench(root, rows, [*remarks, *unsound])


def comparable_runs(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """The runs that may stand in one table, and why each other one may not: an evaluation that is no evidence by H1's
    rules, coordinates changed behind a step, a V that was not taken out or is of another kind than its arm's, no vanilla of
    its unit or one that differs in more than the arm is about, the V of another unit of its arm."""
    whys = {run.path: why for run in runs if (why := no_evidence(run) or _not_its_arm(run))}
    good = [run for run in runs if run.path not in whys]
    for run in good:
        if run.arm == "vanilla":
            continue
        own = reference("vanilla", RunGroup(run.arm, (run,)), good)
        theirs = own.runs.get(run.seed)
        if theirs is None:
            whys[run.path] = gathered(own.refused) or f"no vanilla of seed {run.seed} with these settings"
    for group in group_runs([run for run in good if run.path not in whys]):
        first, units = group.runs[0], {group.runs[0].seed: group.runs[0]}
        for run in group.runs[1:]:
            shared = independence({run.arm: {**units, run.seed: run}})
            if differing := differences(run, first):
                whys[run.path] = f"differs from {first.path.name} in {'; '.join(differing)}"
            elif shared.status != "PASS":
                whys[run.path] = shared.why
            else:
                units[run.seed] = run
    return [run for run in runs if run.path not in whys], [
        f"left out: {path.name}: {why}" for path, why in whys.items()
    ]


def _not_its_arm(run: Run) -> str:
    """Why a run that should take V out did something else. One that is only made as short takes nothing."""
    of_arm = {run.arm: {run.seed: run}}
    found = taken_out(of_arm) if run.projects and not ARMS[run.arm].shrinks else None
    return found.why if found and found.status != "PASS" else "; ".join(kinds_of_v(of_arm))
