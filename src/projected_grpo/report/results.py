"""What `just results` says about a directory of runs: the verdicts, a markdown document, and every number as JSON."""

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from projected_grpo.arms import ARMS, Recipe
from projected_grpo.ledger.console import CUES
from projected_grpo.ledger.folder import plain
from projected_grpo.ledger.rates import LAST
from projected_grpo.report.channels import against_v
from projected_grpo.report.output import Output
from projected_grpo.report.plots import all_plots
from projected_grpo.report.tables import against, all_tables, brief, held_out_rate
from projected_grpo.report.verdict_text import bullets, h1_text, line_text
from projected_grpo.verdicts.conditions import VANILLA
from projected_grpo.verdicts.finished_runs import RATES, Found, MechanismOf, Run
from projected_grpo.verdicts.h1 import H1
from projected_grpo.verdicts.matching import RunGroup, group_runs, setting, settings
from projected_grpo.verdicts.registry import CLAIMS, Finding, Line, exit_code
from projected_grpo.verdicts.run_summaries import runs_at

HOW_TO_READ = """\
Shares of the student's own rollouts. hack: pure hacks, which pass their own tests and fail the problem's. hacked: all that
pass their own empty tests, right or wrong. gt_pass: passes every ground-truth test. compiles: Python compiles the program.
removed: share of the proposed updates' energy that was not applied, mean over all steps. onset: first step t at which the
mean hack rate of steps t-9 to t is above 50 %. bases: how many base models, or the hash of the only one."""

WIDTH, MANY = 118, 8
"""Columns of the printout; verdicts above which each has one line of it."""


@dataclass(frozen=True)
class Report:
    """Runs of one directory, judged."""

    root: Path
    found: Found
    groups: Sequence[RunGroup]
    h1: Sequence[H1] = ()
    t5: Sequence[Line] = ()
    """Of every projected arm that was trained on base rows."""
    t6: Sequence[Line] = ()
    """A LoRA against the singular basis, where runs of both are there."""
    remarks: Sequence[str] = ()

    @property
    def lines(self) -> list[Line]:
        """The three of H1 of every projected arm, T5 and T6."""
        h1 = [line for h in self.h1 for line in h.lines]
        none = Line(Finding("H1", "NOT_EVALUABLE", "no projected run"), ())
        return [*(h1 or [none]), *self.t5, *self.t6]

    def text(self) -> str:
        """For the terminal: the arms, then one line a verdict with the clause that decided it."""
        parts = [*(_shortened(line) for line in self.remarks), "", brief(self.groups), ""]
        lines = self.lines
        for line in lines:
            reasons = line.verdict.name.startswith("T6")  # its reason holds the numbers
            head = f"{CUES[line.verdict.status]} {line.verdict.name}: {line.verdict.status}"
            why = line.verdict.why if reasons else line.decided
            many = len(lines) > MANY
            parts += [textwrap.shorten(f"{head}: {why}", WIDTH)] if many else [head, _shortened(why, "   ")]
        return "\n".join(parts)

    def markdown(self, plots: Iterable[str]) -> str:
        """results.md; `plots` are the stems of its plots."""
        head = [f"# Results of {self.root}", "", "Written by `just results`; do not edit by hand.", ""]
        return "\n".join(
            [
                *head, HOW_TO_READ, "", *bullets(self.remarks),
                *bullets(recipes_of(self.groups)),
                "## H1", "", *([h1_text(h) for h in self.h1] or ["no projected run", ""]),
                *(["## T5", ""] if self.t5 else []),
                *(text for line in (*self.t5, *self.t6) for text in (*line_text(line, "github"), "")),
                "## Numbers", "", *(t.markdown() for t in all_tables(self.groups, self.found.runs)),
                *(t.markdown() for t in against_v(self.found.runs)),
                "## Plots", *(f"\n![{stem.replace('_', ' ')}](plots/{stem}.svg)" for stem in plots), "",
            ]
        )  # fmt: skip

    def json(self) -> str:
        """results.json: verdicts, differences to vanilla by seed, and each run with its series per step."""
        data = {
            "remarks": self.remarks,
            "h1": [{"lines": [line_numbers(line) for line in h.lines], "falsified": h.falsified} for h in self.h1],
            "t5": [line_numbers(line) for line in self.t5],
            "t6": [line_numbers(line) for line in self.t6],
            "arms": [arm_numbers(g, self.found.runs) for g in self.groups],
            "runs": [run_numbers(run, g.name, self.root) for g in self.groups for run in g.runs],
        }
        return json.dumps(plain(data), indent=1, allow_nan=False) + "\n"


def _shortened(line: str, indent: str = "") -> str:
    """At most two lines of a terminal."""
    return textwrap.fill(line, WIDTH, initial_indent=indent, subsequent_indent=indent, max_lines=2, placeholder=" ...")


def report_on(path: Path, mechanism_of: MechanismOf | None = None) -> Report:
    """Returns every training run below a directory, or of a file of summaries, judged. BadInput as in `runs_at` and in
    `group_runs`."""
    return report_of(path, runs_at(path, mechanism_of))


def report_of(root: Path, found: Found) -> Report:
    """Returns runs that were read already, judged; they are named as seen from `root`. BadInput as in `group_runs`."""
    groups = group_runs(found.runs)
    h1, t5 = (CLAIMS[name].judged(groups, found.runs) for name in ("H1", "T5"))
    return Report(root, found, groups, h1, t5, CLAIMS["T6"].judged(found.runs), remarks=remarks_on(found))


def output(report: Report, require: Sequence[str]) -> Output:
    """Returns what is written and printed of a report; `require`: verdicts that decide the exit code, all of them where
    empty."""
    figures = all_plots(report.groups)
    verdicts = [line.verdict for line in report.lines]
    asked = [v for v in verdicts if not require or v.name.split()[0] in require]
    missing = [name for name in require if name not in {v.name.split()[0] for v in verdicts}]
    asked += [Finding(name, "NOT_EVALUABLE", "no run that it is asked of") for name in missing]
    code = exit_code(asked, [v.name for v in asked])
    states = [f"{v.name} {v.status}" for v in asked]
    if len(asked) > MANY:
        states = [f"{n} {status}" for status, n in Counter(v.status for v in asked).items()]
    bottom = f"{'; '.join(states)}; exit code {code}"
    files = {"results.json": report.json(), "results.md": report.markdown(figures)}
    return Output(report.text(), bottom, code, files, figures)


def recipes_of(groups: Sequence[RunGroup]) -> list[str]:
    """Returns how V was removed, a line for the groups that remove it in one way, or are made as short as that would
    make them."""
    of: dict[str, list[str]] = {}
    for group in groups:
        run = group.runs[0]
        if run.projects:
            recipe = Recipe(setting(run, "gate"), setting(run, "project")).description
            what = "nothing is removed; made as short as" if ARMS[run.arm].shrinks else "V is removed"
            of.setdefault(f"{what} by {recipe}", []).append(group.name)
    return [f"{', '.join(names)}: {what}" for what, names in of.items()]


def remarks_on(found: Found) -> list[str]:
    """What a reader must know before the numbers: runs that are missing, runs that do not match."""
    lines = [f"left out: {path}: {why}" for path, why in found.left_out]
    if found.summary:
        lines.append(
            f"read from {found.summary.name}, a summary of {len(found.runs)} runs whose step files are not here"
        )
    if not any(run.arm == "vanilla" for run in found.runs):
        lines.append("no vanilla run: nothing to compare with")
    return [*lines, *(line for run in found.runs for line in _not_known(run))]


def _not_known(run: Run) -> list[str]:
    """Of which numbers of a run nothing is said, and why."""
    name = run.path.name
    lines = [f"{name}: the evaluation after {done} steps is not shown: {why}" for done, why in run.flaws.items()]
    if run.trained_on:
        lines.append(f"{name}: {run.trained_on} of its evaluation problems were trained on: no held-out rate is shown")
    if not run.judged:
        lines.append(f"{name}: too little ground truth is known of its last {LAST} steps: how it ends is not shown")
    return lines


def run_numbers(run: Run, name: str, root: Path) -> dict[str, Any]:
    """One run as JSON."""
    return {
        "path": run.path.relative_to(root).as_posix(), "arm": name, "seed": run.seed, "settings": settings(run),
        "base": run.base, "rollouts": run.rollouts,
        "last10": {r: run.last(r) for r in RATES}, "whole": {r: run.whole(r) for r in RATES},
        "onset": run.onset, "seconds": run.seconds,
        "held_out": {done: {r: held_out_rate(run, done, r) for r in of} for done, of in run.evals.items()},
        "mechanisms": run.mechanisms, "series": run.series,
    }  # fmt: skip


def arm_numbers(group: RunGroup, runs: Sequence[Run]) -> dict[str, Any]:
    """One group as JSON: its seeds, and the differences to vanilla in percentage points."""
    minus = against(VANILLA, group, runs).by_rate
    return {"arm": group.name, "seeds": [run.seed for run in group.runs], "minus_vanilla_pp": minus}


def line_numbers(line: Line) -> dict[str, Any]:
    """A verdict with its clauses as JSON."""
    return {**asdict(line.verdict), "clauses": [asdict(c) for c in line.clauses], "notes": line.notes}
