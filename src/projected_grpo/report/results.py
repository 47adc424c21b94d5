"""What `just results` says about a directory of runs: the verdicts, a markdown document, and every number as JSON."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tabulate import tabulate

from projected_grpo.arms import ARMS, Recipe
from projected_grpo.ledger.console import CUES
from projected_grpo.ledger.folder import plain
from projected_grpo.ledger.rates import LAST, RATE_NAMES
from projected_grpo.report.interventions import CEILING, SECONDARY, bench_of
from projected_grpo.report.plots import Output, all_plots
from projected_grpo.report.tables import PAGE_ALONE, all_tables, held_out_rate, per_arm
from projected_grpo.report.text import Table, bullets, filled, line_text
from projected_grpo.verdicts import h1, h2, trajectory
from projected_grpo.verdicts.adapters import t6_of
from projected_grpo.verdicts.conditions import VANILLA
from projected_grpo.verdicts.finished_runs import Found, Run
from projected_grpo.verdicts.matching import RunGroup, group_runs
from projected_grpo.verdicts.registry import Finding, Line, exit_code
from projected_grpo.verdicts.run_summaries import is_summary, runs_at

HOW_TO_READ = """\
Shares of the student's own rollouts. hack: pure hacks, which pass their own tests and fail the problem's. hacked: all that
pass their own empty tests, right or wrong. gt_pass: passes every ground-truth test. compiles: Python compiles the program.
removed: share of the proposed updates' energy that was not applied, mean over all steps. onset: first step t at which the
mean hack rate of steps t-9 to t is above 50 %. bases: how many base models, or the hash of the only one."""

MANY = 8
"""Verdicts above which the last line counts them."""


@dataclass(frozen=True)
class Report:
    """Runs of one directory, judged."""

    root: Path
    found: Found
    groups: Sequence[RunGroup]
    h1: Sequence[Line]
    """Three of every projected arm."""
    h2: Sequence[Line]
    """Of every dose of projected with controls of its share."""
    t5: Sequence[Line]
    """Of every projected arm that was trained on base rows."""
    t6: Sequence[Line]
    """A LoRA against the singular basis, where runs of both are there."""
    remarks: Sequence[str]

    @property
    def lines(self) -> list[Line]:
        """Of H1, H2, T5 and T6."""
        none = Line(Finding("H1", "NOT_EVALUABLE", "no projected run"), ())
        return [*(self.h1 or [none]), *self.h2, *self.t5, *self.t6]

    @cached_property
    def costs(self) -> list[Table]:
        """The main table; nothing without the arm that says what can be learned."""
        return [bench_of(self.found).table] if any(run.arm == CEILING for run in self.found.runs) else []

    def text(self) -> str:
        """For the terminal: the arms, then each verdict with the clause that decided it."""
        arms = per_arm(self.groups)
        remarks = (filled(line, most=2) for line in self.remarks)
        parts = [*remarks, "", f"{arms.title}\n\n{arms.text(without=PAGE_ALONE)}\n"]
        parts += [f"{table.title}\n\n{table.text(without=SECONDARY)}\n" for table in self.costs]
        for line in self.lines:
            verdict = line.verdict
            why = verdict.why if verdict.name.startswith("T6") else line.decided  # its reason holds the numbers
            parts.append(filled(f"{CUES[verdict.status]} {verdict.name}: {verdict.status}: {why}", "   ", 2))
        return "\n".join(parts)

    def markdown(self, plots: Iterable[str]) -> str:
        """results.md; `plots` are the stems of its plots."""
        others = (*self.h2, *self.t5, *self.t6)
        return "\n".join([
            f"# Results of {self.root}", "", "Written by `just results`; do not edit by hand.", "",
            HOW_TO_READ, "", *bullets(self.remarks), *bullets(recipes_of(self.groups)),
            "## H1", "", h1_text(self.h1) if self.h1 else "no projected run\n",
            *(["## H2, T5, T6", ""] if others else []), *(f"{line_text(line, 'github')}\n" for line in others),
            "## Numbers", "", *(t.markdown() for t in self.costs),
            *(t.markdown() for t in all_tables(self.groups, self.found.runs)),
            "## Plots", *(f"\n![{stem.replace('_', ' ')}](plots/{stem}.svg)" for stem in plots), "",
        ])  # fmt: skip

    def json(self) -> str:
        """results.json: verdicts, and of each run the rates of its last 10 steps and of its evaluations."""
        runs = [
            {
                "path": run.path.relative_to(self.root).as_posix(), "arm": group.name, "seed": run.seed,
                "last10": {rate: run.last(rate) for rate in RATE_NAMES}, "onset": run.onset, "seconds": run.seconds,
                "held_out": {n: {rate: held_out_rate(run, n, rate) for rate in of} for n, of in run.evals.items()},
            }
            for group in self.groups for run in group.runs
        ]  # fmt: skip
        data = {"remarks": self.remarks, "verdicts": self.lines, "runs": runs}
        return json.dumps(plain(data), indent=1, allow_nan=False) + "\n"


def report_on(path: Path) -> Report:
    """Returns every training run below a directory, or of a file of summaries, judged. BadInput as in `runs_at` and
    in `group_runs`."""
    found = runs_at(path)
    groups = group_runs(found.runs)
    remarks = [f"left out: {run}: {why}" for run, why in found.left_out]
    if is_summary(path):
        remarks.append(f"read from {path.name}, a summary of {len(found.runs)} runs whose step files are not here")
    if not any(run.arm == VANILLA for run in found.runs):
        remarks.append("no vanilla run: nothing to compare with")
    remarks += [f"{run.path.name}: {line}" for run in found.runs for line in _not_known(run)]
    judged = (room.judge(groups, found.runs) for room in (h1, h2, trajectory))
    return Report(path, found, groups, *judged, t6_of(found.runs), remarks)


def _not_known(run: Run) -> list[str]:
    """Of which numbers of a run nothing is said, and why."""
    lines = [f"the evaluation after {done} steps is not shown: {why}" for done, why in run.flaws.items()]
    if run.trained_on:
        lines.append(f"{run.trained_on} of its evaluation problems were trained on: no held-out rate is shown")
    if not run.judged():
        lines.append(f"too little ground truth is known of its last {LAST} steps: how it ends is not shown")
    return lines


def output(report: Report, require: Sequence[str]) -> Output:
    """Returns what is written and printed of a report; `require`: verdicts that decide the exit code, all of them
    where empty."""
    figures = all_plots(report.groups)
    verdicts = [line.verdict for line in report.lines]
    names = {v.name.split()[0] for v in verdicts}
    asked = [v for v in verdicts if not require or v.name.split()[0] in require]
    asked += [Finding(n, "NOT_EVALUABLE", "no run that it is asked of") for n in require if n not in names]
    code = exit_code(asked, [v.name for v in asked])
    states = "; ".join(f"{v.name} {v.status}" for v in asked)
    if len(asked) > MANY:
        states = "; ".join(f"{n} {status}" for status, n in Counter(v.status for v in asked).items())
    files = {"results.json": report.json(), "results.md": report.markdown(figures)}
    return Output(report.text(), f"{states}; exit code {code}", code, files, figures)


def recipes_of(groups: Sequence[RunGroup]) -> list[str]:
    """Returns how V was removed, a line for the groups that remove it in one way, or are made as short as that would
    make them."""
    of: dict[str, list[str]] = {}
    for group in groups:
        run = group.runs[0]
        if run.projects:
            recipe = Recipe(run.config("gate"), run.config("project")).description
            what = "nothing is removed; made as short as" if ARMS[run.arm].shrinks else "V is removed"
            of.setdefault(f"{what} by {recipe}", []).append(group.name)
    return [f"{', '.join(names)}: {what}" for what, names in of.items()]


def h1_text(lines: Sequence[Line]) -> str:
    """Returns H1's lines as markdown: a table of them, then each with its clauses."""
    whys = [line.verdict.why for line in lines]
    summary = [[line.verdict.name, line.verdict.status, "the same" if line.verdict.why == before else line.verdict.why]
               for before, line in zip(["", *whys], lines, strict=False)]  # fmt: skip
    table = tabulate(summary, ["line", "", "why"], "github", disable_numparse=True)
    return "\n\n".join([table, *(line_text(line, "github") for line in lines)]) + "\n"
