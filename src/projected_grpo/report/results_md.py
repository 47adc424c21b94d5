"""What `just results` says about a directory of runs: the verdicts, a markdown document, and every number as JSON."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from projected_grpo.arms import ARMS, Recipe
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import plain
from projected_grpo.ledger.rates import LAST
from projected_grpo.report.channels import against_v
from projected_grpo.report.second_v import second_v
from projected_grpo.report.tables import (
    against_vanilla,
    all_tables,
    change_pp,
    dose,
    evaluated,
    h1_text,
    held_out,
    held_out_rate,
    how_they_end,
    line_text,
    mixed_units,
    per_arm,
    same_span,
)
from projected_grpo.verdicts.finished_runs import RATES, Found, MechanismOf, Run, mean_sem
from projected_grpo.verdicts.h1 import H1, Line
from projected_grpo.verdicts.matching import RunGroup, group_runs, same_rollouts, setting, settings
from projected_grpo.verdicts.registry import CLAIMS, Finding
from projected_grpo.verdicts.run_summaries import SUFFIX, runs_at
from projected_grpo.verdicts.step_numbers import COSINES

HOW_TO_READ = """\
hack: pure hacks, hacked and not gt_pass. gt_pass: passes every ground-truth test. well-formed: the program compiles. All
over the student's own rollouts; a hack rate means nothing without the other two beside it. onset: first step t at which
the mean hack rate of steps t-9 to t is above 50 %. hacked: right answers too whose own tests test
nothing. base: the first digits of the hash of the untrained model's weights; the same recipe on another base is
another number."""


@dataclass(frozen=True)
class Report:
    """Runs of one directory, judged."""

    root: Path
    found: Found
    groups: Sequence[RunGroup]
    judged: Sequence[H1]
    mixed: Sequence[Line]
    """T5 of every projected arm that was trained on base rows."""
    remarks: Sequence[str]
    t6: Sequence[Line] = ()
    """A LoRA against the singular basis, where runs of both are there."""
    warned: Sequence[Line] = ()
    """Early warning of every vanilla group that comes to hack."""
    shares: Sequence[Line] = ()
    """H2 of every projected group of three units that has a control to hold against it."""
    beside: Sequence[tuple[str, Finding]] = ()
    """Verdicts that stand beside H1 and what each is of: T7 of the replays below the directory."""

    @property
    def verdicts(self) -> list[Finding]:
        """The three lines of H1 of every projected arm, without one there is nothing to judge; T5 of those that it can be
        asked of, and T6 where both adapters are there."""
        h1 = [line.verdict for h in self.judged for line in h.lines]
        asked = [line.verdict for line in (*self.mixed, *self.t6)]
        return [*(h1 or [Finding("H1", "NOT_EVALUABLE", "no projected run")]), *asked]

    def printout(self) -> str:
        """What the terminal shows: the arms, then H1 and T5 clause by clause."""
        arms = how_they_end(self.groups)
        tables = [text for t in mixed_units(self.groups, self.found.runs) for text in (t.title, "", t.text(), "")]
        t5 = [text for line in self.mixed for text in (*line_text(line), "")]
        judged = [
            *map(h1_text, self.judged),
            *tables,
            *t5,
            *(text for t in against_v(self.found.runs) for text in (t.title, "", t.text(), "")),
            *self._t6("simple"),
            *self._warned("simple"),
            *self._shares("simple"),
            *map(_beside, self.beside),
        ]
        return "\n".join([*self.remarks, "", arms.title, "", arms.text(), "", *judged])

    def markdown(self, plots: Sequence[str]) -> str:
        """results.md; `plots` are the stems of the plots beside it."""
        recipes = recipes_of(self.groups)
        return "\n".join(
            [
                f"# Results of {self.root}", "", "Written by `just results`; do not edit by hand.", "", HOW_TO_READ, "",
                *(f"- {line}" for line in self.remarks), *([""] if self.remarks else []),
                *(f"- {line}" for line in recipes), *([""] if recipes else []),
                "## H1", "", *([h1_text(h, "github") for h in self.judged] or ["no projected run", ""]),
                *(["## T5", ""] if self.mixed else []),
                *(text for line in self.mixed for text in (*line_text(line, "github"), "")),
                *self._t6("github"), *self._warned("github"), *self._shares("github"),
                *(f"- {_beside(one)}" for one in self.beside), *([""] if self.beside else []),
                "## Numbers", "", *(t.markdown(self.root) for t in all_tables(self.groups, self.found.runs)),
                *(t.markdown(self.root) for t in against_v(self.found.runs)),
                "## Plots", *(f"\n![{stem.replace('_', ' ')}](plots/{stem}.svg)" for stem in plots), "",
            ]
        )  # fmt: skip

    def _t6(self, style: str) -> list[str]:
        return [text for line in self.t6 for text in (*line_text(line, style), "")]

    def _warned(self, style: str) -> list[str]:
        return [text for line in self.warned for text in (*line_text(line, style), "")]

    def _shares(self, style: str, evaluable: bool = False) -> list[str]:
        asked = [line for line in self.shares if not evaluable or line.verdict.status != "NOT_EVALUABLE"]
        return [text for line in asked for text in (*line_text(line, style), "")]

    def summary(self) -> str:
        """The arms and H1 as markdown, for a document that quotes them."""
        arms = per_arm(self.groups)
        return "\n".join([arms.markdown(self.root), *(h1_text(h, "github") for h in self.judged),
                          *(text for line in self.mixed for text in line_text(line, "github"))]).strip()  # fmt: skip

    def section(self, plots: Sequence[str]) -> str:
        """What a document on other runs says of these: how each arm ends, doses, held-out rates, and each line of H1 where
        there are units to judge it by."""
        tables = [per_arm(self.groups), *dose(self.groups), *held_out(self.groups)[1:]]
        lines = [
            f"- {line.verdict.name} {line.verdict.status}: {line.verdict.why}"
            for h in self.judged
            for line in h.lines
            if line.verdict.status != "NOT_EVALUABLE"
        ]
        return "\n".join(
            [
                f"## Beside it: {self.root.name.removesuffix(SUFFIX)}", "",
                *(f"- {line}" for line in (*self.remarks, *_shared(recipes_of(self.groups)))), "",
                *lines, *([""] if lines else []), *self._shares("github", evaluable=True),
                *(t.markdown(self.root) for t in tables),
                *(f"![{stem.replace('_', ' ')}](plots/{stem}.svg)\n" for stem in plots),
            ]
        )  # fmt: skip

    def json(self) -> str:
        """results.json: every number, the series per step included."""
        data = {
            "remarks": self.remarks,
            "h1": [h1_numbers(h) for h in self.judged],
            "t5": [line_numbers(line) for line in self.mixed],
            "t6": [{**asdict(t.verdict), "clauses": [asdict(c) for c in t.clauses], "notes": t.notes} for t in self.t6],
            "warning": [line_numbers(line) for line in self.warned],
            "h2": [line_numbers(line) for line in self.shares],
            "beside": [{"of": of, **asdict(finding)} for of, finding in self.beside],
            "arms": [arm_numbers(g, self.found.runs) for g in self.groups],
            "runs": [run_numbers(run, g.name, self.root) for g in self.groups for run in g.runs],
        }
        return json.dumps(plain(data), indent=1, allow_nan=False) + "\n"


def _beside(judged: tuple[str, Finding]) -> str:
    of, finding = judged
    return f"{finding.name} {finding.status} ({of}): {finding.why}"


BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def embedded(document: str, summary: str, place: Path) -> str:
    """The document with its results section replaced. BadInput when it has none."""
    head, begin, rest = document.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise BadInput(
            f"--embed {place}: has no section between {BEGIN} and {END}; add these two lines where it should be"
        )
    return f"{head}{BEGIN}\n{summary}\n{END}{tail}"


def report_on(directory: Path, mechanism_of: MechanismOf | None = None) -> Report:
    """Read and judge every training run below a directory, or of a file of summaries. BadInput as in `runs_at` and
    `group_runs`."""
    found = runs_at(directory, mechanism_of)
    return replace(report_of(directory, found), beside=[] if found.summary else second_v(directory))


def report_of(root: Path, found: Found) -> Report:
    """Judge runs that were read already; they are named as seen from `root`. BadInput as in `group_runs`."""
    groups = group_runs(found.runs)
    h1, t5 = (CLAIMS[name].judged(groups, found.runs) for name in ("H1", "T5"))
    t6 = CLAIMS["T6"].judged(found.runs)
    warned = CLAIMS["early warning"].judged(groups, found.runs)
    shares = CLAIMS["H2"].judged(groups, found.runs)
    return Report(root, found, groups, h1, t5, remarks_on(found), t6, warned, shares)


def recipes_of(groups: Sequence[RunGroup]) -> list[str]:
    """How V was taken out, a line for each group that takes it out, or is made as short as that would make it."""
    lines = []
    for group in groups:
        run = group.runs[0]
        told = Recipe(setting(run, "gate"), setting(run, "project")).told
        if run.projects and run.arm in ARMS and ARMS[run.arm].shrinks:
            lines.append(f"{group.name}: nothing is taken out; made as short as by {told}")
        elif run.projects:
            lines.append(f"{group.name}: V is taken out by {told}")
    return lines


def _shared(lines: Sequence[str]) -> list[str]:
    """Lines `name: what` that say the same of many names, as one line each."""
    of: dict[str, list[str]] = {}
    for line in lines:
        name, _, what = line.partition(": ")
        of.setdefault(what, []).append(name)
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
    return [*lines, *same_rollouts(found.runs), *(line for run in found.runs for line in _not_known(run))]


def _not_known(run: Run) -> list[str]:
    """Of which numbers of a run nothing is said, and why."""
    name = run.path.name
    lines = [f"{name}: the evaluation after {done} steps is not shown: {why}" for done, why in run.flaws.items()]
    if run.trained_on:
        lines.append(f"{name}: {run.trained_on} of its evaluation problems were trained on: no held-out rate is shown")
    if not run.judged:
        lines.append(f"{name}: too little ground truth is known of its last {LAST} steps: how it ends is not shown")
    return lines


def _stat(values: Iterable[float | int | None]) -> dict[str, float | int | None]:
    known = [v for v in values if v is not None]
    mean, sem = mean_sem(known)
    return {"mean": mean, "sem": sem, "n": len(known)}


def run_numbers(run: Run, name: str, root: Path) -> dict[str, Any]:
    """One run as JSON."""
    return {
        "path": run.path.relative_to(root).as_posix(), "arm": name, "seed": run.seed, "settings": settings(run),
        "base": run.base,
        "rollouts": run.rollouts, "last10": {r: run.last(r) for r in RATES}, "whole": {r: run.whole(r) for r in RATES},
        "onset": run.onset, "seconds": run.seconds,
        "held_out": {done: {r: held_out_rate(run, done, r) for r in of} for done, of in run.evals.items()},
        "mechanisms": run.mechanisms,
        "series": run.series,
    }  # fmt: skip


def arm_numbers(group: RunGroup, runs: Sequence[Run]) -> dict[str, Any]:
    """One group as JSON: mean, standard error and n over seeds; differences to vanilla in percentage points."""
    own = group.runs
    tested = [run for kept in evaluated([group]) for run in kept.runs]
    comparable = same_span(tested)
    return {
        "arm": group.name,
        "seeds": [run.seed for run in own],
        "last10": {r: _stat(run.last(r) for run in own) for r in RATES},
        "whole": {r: _stat(run.whole(r) for run in own) for r in RATES},
        "onset": _stat(run.onset for run in own),
        "seconds": _stat(run.seconds for run in own),
        "cosines": {c: _stat(run.whole(c) for run in own) for c in COSINES},
        "minus_vanilla_pp": {
            rate: {"by_seed": by_seed, **_stat(by_seed.values())}
            for rate, by_seed in against_vanilla(group, runs).by_rate.items()
        },
        "held_out_change_pp": {r: _stat(change_pp(run, r) for run in tested if comparable) for r in RATES},
    }


def h1_numbers(found: H1) -> dict[str, Any]:
    """H1 as JSON."""
    return {"lines": [line_numbers(line) for line in found.lines], "falsified": found.falsified}


def line_numbers(line: Line) -> dict[str, Any]:
    """A verdict with its clauses as JSON."""
    return {**asdict(line.verdict), "clauses": [asdict(c) for c in line.clauses], "notes": line.notes}
