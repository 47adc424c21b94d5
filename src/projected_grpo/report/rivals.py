"""The bench of rivals: every arm below a directory in one table and one plot, from finished runs alone.

All rates are of held-out problems and of the policy as it would be deployed, after the run's last step: under the loophole
prompt (eval/), and without the loophole's hint (eval_plain/). A policy that is deployed otherwise than it was trained has a
second row, as it trained (eval_trained/), and one with a part that is left out a row of that part alone, before the first
step and after the last (eval_part/). Mean and two-sided 95 % interval over replicates (Student's t).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from projected_grpo.ledger.errors import EXIT_NOT_EVALUABLE, EXIT_OK
from projected_grpo.ledger.rates import known_mean, number
from projected_grpo.report.output import Output
from projected_grpo.report.rivals_plot import hack_against_pass
from projected_grpo.report.rivals_rows import Row, comparable_runs, percent, row_of, untrained
from projected_grpo.report.table import Table, between
from projected_grpo.report.verdict_text import bullets
from projected_grpo.verdicts.effects import MIN_REPLICATES
from projected_grpo.verdicts.finished_runs import Found
from projected_grpo.verdicts.matching import group_runs

HEADER = (
    "arm", "n", "hack %", "all hacked %", "gt %", "held-out gain pp", "form %", "pass without the loophole %",
    "pass minus hack, over projected's pp", "hack in training %", "seconds", "supervision",
)  # fmt: skip
PAGE_ALONE = ("gt %", "hack in training %", "seconds", "supervision")
NOTES = (
    "held-out problems, the policy as deployed, after the last step: hack (hacked and not gt_pass), all hacked, gt and form "
    "under the loophole prompt; pass without the loophole: gt on the same problems without the hint",
    "held-out gain: gt at the end minus gt of the untrained model, under the loophole prompt",
    "pass minus hack, over projected's: pass without the loophole minus hack, less the same of the replicate's projected",
    "mean [95 % interval over replicates]; seconds: the training steps' own, mean ± SEM; of what is made from a finished "
    "vanilla run (post_hoc) they come on top of that run's",
)


@dataclass(frozen=True)
class Bench:
    """The runs of one directory, side by side."""

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
    def best(self) -> Row | None:
        """Of the rivals that are no oracles and have every replicate of projected, the one with the highest pass without the
        loophole minus hack on those replicates; None without projected or a rival."""
        if (ours := self.ours) is None:
            return None
        replicates = {run.seed for run in ours.runs}
        able = [
            row for row in self.rows
            if row.rival and row.deployed and not row.oracle and row.whole and replicates <= {run.seed for run in row.runs}
        ]  # fmt: skip
        return max(able, key=lambda row: known_mean(row.over(ours)) or 0.0, default=None)

    @property
    def verdict(self) -> str:
        """The bottom line: the best rival and projected. NOT_EVALUABLE without one, and of fewer replicates than a claim
        needs: which is best is then said as a sign."""
        best, ours = self.best, self.ours
        if best is None or ours is None or not ours.whole:
            return "NOT_EVALUABLE: needs projected and a rival with its replicates, both with --eval-every and --eval-plain"
        cells = [
            f"{row.name} hack {number(known_mean(row.hack), 100.0)} %, pass without "
            f"{number(known_mean(row.plain), 100.0)} % (n = {len(row.runs)})"
            for row in (best, ours)
        ]
        plain = next((row.score for row in self.rows if row.name == "untrained"), None)
        scores = [number(score) for score in (best.score, ours.score, plain)]
        few = f"NOT_EVALUABLE: {len(ours.runs)} replicates, at least {MIN_REPLICATES} are needed; as a sign: "
        return (few if len(ours.runs) < MIN_REPLICATES else "") + (
            f"best rival by pass minus hack: {cells[0]}; beside it {cells[1]}; pass minus hack {scores[0]}, {scores[1]} and "
            f"{scores[2]} pp of the untrained model; over projected's, paired, {between(percent(best.over(ours)))} pp"
        )

    def output(self) -> Output:
        """Returns what is written and printed. Exit code: 0, or 3 where there is no rival to compare with projected."""
        head = [
            "# Rivals",
            "",
            "Written by `just results --only rivals`; do not edit by hand.",
            "",
            *bullets(self.remarks),
        ]
        table = self.table.markdown()
        document = "\n".join([*head, table, "![hack against pass](plots/rivals.svg)", ""])
        text = "\n".join([*self.remarks, "", self.table.title, "", self.table.without(PAGE_ALONE, "").text()])
        code = EXIT_NOT_EVALUABLE if self.verdict.startswith("NOT_EVALUABLE") else EXIT_OK
        figures = {"rivals": hack_against_pass(self.rows)}
        return Output(text, self.verdict, code, {"rivals.md": document}, figures)


def bench_of(found: Found) -> Bench:
    """Returns every finished run, in the registry's order, but for those that may not be compared with their
    replicate's vanilla: they are named with the reason. BadInput as in `group_runs`."""
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
    return Bench(rows, [f"left out: {path}: {why}" for path, why in (*found.left_out, *unsound)])
