"""The bench of interventions: every arm below a directory in one table and one plot, from finished runs alone.

All rates are of held-out problems and of the policy as it would be deployed, after the run's last step: under the
loophole prompt (eval/), and without the loophole's hint (eval_plain/). A policy that is deployed otherwise than it
was trained has a second row, as it trained (eval_trained/), and one with a part that is left out a row of that part
alone, before the first step and after the last (eval_part/). Mean and two-sided 95 % interval over replicates
(Student's t)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from projected_grpo.arms import ARMS
from projected_grpo.ledger.errors import EXIT_NOT_EVALUABLE, EXIT_OK
from projected_grpo.ledger.rates import known_mean, number
from projected_grpo.report.plots import STYLE, Output
from projected_grpo.report.text import Table, between, bullets, spread
from projected_grpo.verdicts.conditions import removed, untested
from projected_grpo.verdicts.effects import MIN_REPLICATES, interval
from projected_grpo.verdicts.finished_runs import Found, Run
from projected_grpo.verdicts.matching import RunGroup, differ, group_runs, independence, informed, reference

COLUMNS = {
    "hack": "hack %", "hacked": "all hacked %", "gt": "gt %", "gain": "held-out gain pp", "form": "form %",
    "plain": "pass without the loophole %", "over": "pass minus hack, over projected's pp",
    "trained": "hack in training %",
}  # fmt: skip
HEADER = ("arm", "n", *COLUMNS.values(), "seconds", "supervision")
PAGE_ALONE = ("gt %", "hack in training %", "seconds", "supervision")
NOTES = (
    "held-out problems, the policy as deployed, after the last step: hack (hacked and not gt_pass), all hacked, gt and form "
    "under the loophole prompt; pass without the loophole: gt on the same problems without the hint",
    "held-out gain: gt at the end minus gt of the untrained model, under the loophole prompt",
    "pass minus hack, over projected's: pass without the loophole minus hack, less the same of the replicate's projected",
    "mean [95 % interval over replicates]; seconds: the training steps' own, mean ± SEM; of what is made from a finished "
    "vanilla run (post_hoc) they come on top of that run's",
)
REFERENCE, OURS, WAYS = "reference: untrained, vanilla, no loophole", "projected", "other ways to use V, and controls"
INTERVENTION, ORACLE = "intervention", "oracle (ground truth)"
KINDS: Mapping[str, tuple[str, str, Literal["full", "none"]]] = {
    REFERENCE: ("#000000", "s", "full"),
    OURS: ("#0072b2", "*", "full"),
    WAYS: ("#56b4e9", "o", "full"),
    INTERVENTION: ("#d55e00", "D", "full"),
    ORACLE: ("#d55e00", "D", "none"),
}
"""Colour, marker and fill of each kind of arm in the plot."""
OF_ROLE = {"baseline": REFERENCE, "ceiling": REFERENCE, "intervention": INTERVENTION}
PANELS = {
    "hack": "hack under the loophole prompt\n(% of held-out rollouts, as deployed)",
    "plain": "pass without the loophole\n(% of held-out rollouts)",
}
OTHER_POLICIES = {"eval_trained": ", as trained", "eval_part": ", its part alone"}
BySeed = Mapping[int, float]
"""Of each replicate of which it is known."""


@dataclass(frozen=True)
class Row:
    """One line of the table, one point of the plot."""

    name: str
    runs: Sequence[Run]
    rates: Mapping[str, BySeed]
    """By the names of COLUMNS but for `over`, in percent of rollouts or in percentage points."""
    supervision: str
    kind: str
    """One of KINDS."""

    @property
    def scores(self) -> BySeed:
        """Pass without the loophole minus hack, in percentage points."""
        return minus(self.rates["plain"], self.rates["hack"])

    @property
    def score(self) -> float | None:
        """Its mean: what arms are ordered by."""
        return known_mean(self.scores.values())

    def over(self, ours: "Row | None") -> BySeed:
        """Returns each replicate's score minus the same replicate's of another row; empty for that row itself."""
        return minus(self.scores, ours.scores) if ours and ours is not self else {}

    def cells(self, ours: "Row | None") -> list[str]:
        """As the table shows it, compared with projected's row."""
        values = {**self.rates, "over": self.over(ours)}
        cells = [between(values[name].values(), "+" if name in ("gain", "over") else "") for name in COLUMNS]
        seconds = spread((run.seconds for run in self.runs), digits=0) if self.rates["trained"] else "-"
        return [self.name, str(len(self.runs)), *cells, seconds, self.supervision]


def known(shares: Mapping[int, float | None]) -> BySeed:
    """Returns the known shares in percent."""
    return {seed: 100 * share for seed, share in shares.items() if share is not None}


def minus(a: BySeed, b: BySeed) -> BySeed:
    """Returns the difference in each replicate of which both are known."""
    return {seed: value - b[seed] for seed, value in a.items() if seed in b}


def row_of(name: str, runs: Sequence[Run], folder: str = "eval", *, first: bool = False) -> Row:
    """Returns a group's row: of its deployed policy, or of what `folder` holds; after the last step, or before the
    `first`, when nothing was gained or trained."""
    arm, deployed = ARMS[runs[0].arm], folder == "eval"
    done = 0 if first else None

    def of(rate: str, folder: str, done: int | None) -> BySeed:
        return known({run.seed: run.held_out(rate, done, folder) for run in runs})

    rates = {rate: of(rate, folder, done) for rate in ("hack", "hacked", "gt", "form")}
    rates["gain"] = minus(rates["gt"], of("gt", "eval", 0)) if deployed and not first else {}
    rates["plain"] = of("gt", "eval_plain", done) if deployed else {}
    rates["trained"] = {} if first else known({run.seed: run.last("hack") for run in runs})
    kind = ORACLE if arm.labels else OF_ROLE.get(arm.role, OURS if name == OURS else WAYS)
    which = "" if deployed else OTHER_POLICIES[folder] + (", at the start" if first else "")
    return Row(name + which, runs, rates, arm.supervision, kind)


@dataclass(frozen=True)
class Bench:
    """The runs of one directory, side by side."""

    rows: Sequence[Row]
    remarks: Sequence[str]

    @property
    def table(self) -> Table:
        """One line an arm."""
        runs = list({run.path: run for row in self.rows for run in row.runs}.values())
        return Table(
            "Interventions, side by side", HEADER, [row.cells(self.row(OURS)) for row in self.rows], runs, NOTES
        )

    def row(self, name: str) -> Row | None:
        """Returns an arm's row, or the untrained model's."""
        return next((row for row in self.rows if row.name == name), None)

    @property
    def best(self) -> Row | None:
        """Of the interventions that are no oracles and know both rates of each replicate, projected's among them, the
        one with the highest pass without the loophole minus hack on projected's replicates; None without projected or
        an intervention."""
        if (ours := self.row(OURS)) is None:
            return None
        whole = [row for row in self.rows if row.kind == INTERVENTION and len(row.scores) == len(row.runs)]
        able = [row for row in whole if {run.seed for run in ours.runs} <= row.scores.keys()]
        return max(able, key=lambda row: known_mean(row.over(ours).values()) or 0.0, default=None)

    @property
    def verdict(self) -> str:
        """The bottom line: the best intervention and projected."""
        best, ours, untrained = self.best, self.row(OURS), self.row("untrained")
        if best is None or ours is None or len(ours.scores) < max(len(ours.runs), MIN_REPLICATES):
            return (
                f"NOT_EVALUABLE: needs projected and an intervention with its replicates, at least {MIN_REPLICATES}, "
                "both with --eval-every and --eval-plain"
            )
        return (
            f"pass minus hack: best intervention {best.name} {number(best.score)} (n = {len(best.runs)}), projected "
            f"{number(ours.score)} (n = {len(ours.runs)}), untrained {number(untrained.score if untrained else None)} pp; "
            f"over projected's, paired, {between(best.over(ours).values())} pp"
        )

    def output(self) -> Output:
        """Returns what is written and printed. Exit code: 0, or 3 where there is no intervention to compare with
        projected."""
        head = ["# Interventions", "", "Written by `just results --only interventions`; do not edit by hand.", ""]
        picture = "![hack against pass](plots/interventions.svg)\n"
        document = "\n".join([*head, *bullets(self.remarks), self.table.markdown(), picture])
        text = "\n".join([*self.remarks, "", self.table.title, "", self.table.text(without=PAGE_ALONE)])
        code = EXIT_NOT_EVALUABLE if self.verdict.startswith("NOT_EVALUABLE") else EXIT_OK
        return Output(
            text, self.verdict, code, {"interventions.md": document}, {"interventions": hack_against_pass(self.rows)}
        )


def bench_of(found: Found) -> Bench:
    """Returns every finished run, in the registry's order, but for those that may not be compared with their
    replicate's vanilla: they are named with the reason. The untrained model's rates are from the evaluations before
    the first step of each replicate's vanilla. BadInput as in `group_runs`."""
    rows: list[Row] = []
    whys = not_comparable(found.runs)
    for group in group_runs([run for run in found.runs if run.path not in whys]):
        if group.runs[0].arm == "vanilla":
            rows.append(row_of("untrained", group.runs, first=True))
        rows.append(row_of(group.name, group.runs))
        for folder, moments in (("eval_trained", (False,)), ("eval_part", (True, False))):
            if any(run.beside.get(folder) for run in group.runs):
                rows += [row_of(group.name, group.runs, folder, first=first) for first in moments]
    unsound = [(path.name, why) for path, why in whys.items()]
    return Bench(rows, [f"left out: {path}: {why}" for path, why in (*found.left_out, *unsound)])


def not_comparable(runs: Sequence[Run]) -> dict[Path, str]:
    """Returns the runs that may not be in one table with the others, and why: an evaluation that is no evidence, a V
    that was not removed or is from informed pairs, no vanilla of its replicate or one that differs in more than the
    arm is about, the V of another replicate of its arm."""
    whys = {run.path: why for run in runs if (why := untested(run) or _not_its_arm(run))}
    good = [run for run in runs if run.path not in whys]
    for run in good:
        vanilla, refused = reference("vanilla", RunGroup(run.arm, (run,)), good)
        if run.arm != "vanilla" and run.seed not in vanilla:
            whys[run.path] = refused.get(run.seed) or f"no vanilla of seed {run.seed} with these settings"
    for group in group_runs([run for run in good if run.path not in whys]):
        first, *others = group.runs
        kept = {first.seed: first}
        for run in others:
            shared = independence({run.arm: {**kept, run.seed: run}})
            if why := differ(run, first):
                whys[run.path] = why
            elif shared.status != "PASS":
                whys[run.path] = shared.why
            else:
                kept[run.seed] = run
    return whys


def _not_its_arm(run: Run) -> str:
    """Why a run that should remove V did something else."""
    if informed(run):
        return f"its V is from {run.facts['vhack.pairs']}, written when the hack had been seen"
    found = removed({run.arm: {run.seed: run}})
    return "" if found.status == "PASS" else found.why


def hack_against_pass(rows: Sequence[Row]) -> Figure:
    """Returns the plot, in the order of pass without the loophole minus hack. Rows without either number are left
    out."""
    shown = sorted((row for row in rows if row.score is not None), key=lambda row: row.score or 0.0)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11.0, 0.27 * len(shown) + 2.2), layout="constrained")
        axes = figure.subplots(1, len(PANELS), sharey=True)
        for axis, (rate, title) in zip(axes, PANELS.items(), strict=True):
            for index, row in enumerate(shown):
                rates = list(row.rates[rate].values())
                mean = sum(rates) / len(rates)
                low, high = interval(rates) if len(rates) > 1 else (mean, mean)
                colour, marker, fill = KINDS[row.kind]
                axis.errorbar([mean], [index], xerr=[[mean - low], [high - mean]], color=colour, marker=marker,
                              fillstyle=fill, markersize=8, elinewidth=1.0, capsize=3)  # fmt: skip
            axis.set_xlim(-3, 103)
            axis.set_xlabel(title)
        axes[0].set_yticks(range(len(shown)), [row.name for row in shown])
        if shown:
            found = {row.kind for row in shown}
            handles = [Line2D([], [], color=colour, marker=marker, fillstyle=fill, linestyle="none", label=kind)
                       for kind, (colour, marker, fill) in KINDS.items() if kind in found]  # fmt: skip
            replicates = " or ".join(str(n) for n in sorted({len(row.runs) for row in shown}))
            title = f"mean and 95 % interval over {replicates} replicates; best first"
            figure.legend(handles=handles, loc="outside lower center", ncols=3, title=title)
    return figure
