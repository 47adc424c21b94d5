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
from projected_grpo.report.second_v import told, units_at
from projected_grpo.report.tables import (
    against_vanilla,
    all_tables,
    bullets,
    change_pp,
    dose,
    evaluated,
    h1_text,
    held_out,
    held_out_rate,
    how_they_end,
    line_text,
    lines_text,
    mixed_units,
    per_arm,
    same_span,
)
from projected_grpo.verdicts.extraction_file import is_units
from projected_grpo.verdicts.finished_runs import RATES, Found, MechanismOf, Run, load_runs, mean_sem
from projected_grpo.verdicts.h1 import H1, Line
from projected_grpo.verdicts.matching import RunGroup, group_runs, setting, settings
from projected_grpo.verdicts.registry import CLAIMS, Finding
from projected_grpo.verdicts.run_summaries import is_summary, read_summaries, study_of
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
    t7: Line | None = None
    """T7 over the units that were replayed below the directory; None without any."""

    @property
    def alone(self) -> Line | None:
        """T7 where it is all there is to say: replays, and no training run."""
        return None if self.groups else self.t7

    @property
    def verdicts(self) -> list[Finding]:
        """The three lines of H1 of every projected arm, without one there is nothing to judge; T5 of those that it can be
        asked of, and T6 where both adapters are there. Of replays alone T7, which beside runs decides nothing."""
        if self.alone:
            return [self.alone.verdict]
        h1 = [line.verdict for h in self.judged for line in h.lines]
        asked = [line.verdict for line in (*self.mixed, *self.t6)]
        return [*(h1 or [Finding("H1", "NOT_EVALUABLE", "no projected run")]), *asked]

    def printout(self) -> str:
        """What the terminal shows: the arms, then H1 and T5 clause by clause; of replays alone T7, whose reason is in the
        last lines."""
        if self.alone:
            return "\n".join([*self.remarks, *([""] if self.remarks else []), *line_text(self.alone)])
        arms = how_they_end(self.groups)
        judged = [
            *map(h1_text, self.judged),
            *(text for t in mixed_units(self.groups, self.found.runs) for text in t.printed()),
            *lines_text(self.mixed),
            *(text for t in against_v(self.found.runs) for text in t.printed()),
            *lines_text(self.t6),
            *self._t7("simple"),
        ]
        return "\n".join([*self.remarks, "", *arms.printed(), *judged])

    def markdown(self, plots: Sequence[str]) -> str:
        """results.md; `plots` are the stems of the plots beside it."""
        head = [f"# Results of {self.root}", "", "Written by `just results`; do not edit by hand.", ""]
        remarks = bullets(self.remarks)
        if self.alone:
            return "\n".join([*head, *remarks, *self._t7("github")])
        return "\n".join(
            [
                *head, HOW_TO_READ, "", *remarks,
                *bullets(recipes_of(self.groups)),
                "## H1", "", *([h1_text(h, "github") for h in self.judged] or ["no projected run", ""]),
                *(["## T5", ""] if self.mixed else []),
                *lines_text(self.mixed, "github"), *lines_text(self.t6, "github"), *self._t7("github"),
                "## Numbers", "", *(t.markdown(self.root) for t in all_tables(self.groups, self.found.runs)),
                *(t.markdown(self.root) for t in against_v(self.found.runs)),
                "## Plots", *(f"\n![{stem.replace('_', ' ')}](plots/{stem}.svg)" for stem in plots), "",
            ]
        )  # fmt: skip

    def _t7(self, style: str) -> list[str]:
        return told(self.t7, style) if self.t7 else []

    def summary(self) -> str:
        """The arms and H1 as markdown, for a document that quotes them; T7 of replays alone."""
        if self.alone:
            return "\n".join(self._t7("github")).strip()
        arms = per_arm(self.groups)
        return "\n".join([arms.markdown(self.root), *(h1_text(h, "github") for h in self.judged),
                          *(text for line in self.mixed for text in line_text(line, "github"))]).strip()  # fmt: skip

    def section(self, plots: Sequence[str]) -> str:
        """What a document on other runs says of these: how each arm ends, doses, held-out rates, and each line of H1 where
        there are units to judge it by; of replays alone T7."""
        title = f"## Beside it: {study_of(self.root)}"
        if self.alone:
            return "\n".join([title, "", *(f"- {line}" for line in self.remarks), "", *self._t7("github")])
        tables = [per_arm(self.groups), *dose(self.groups), *held_out(self.groups)[1:]]
        lines = [
            f"- {line.verdict.name} {line.verdict.status}: {line.verdict.why}"
            for h in self.judged
            for line in h.lines
            if line.verdict.status != "NOT_EVALUABLE"
        ]
        return "\n".join(
            [
                title, "",
                *(f"- {line}" for line in (*self.remarks, *_shared(recipes_of(self.groups)))), "",
                *lines, *([""] if lines else []),
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
            "t6": [line_numbers(line) for line in self.t6],
            "t7": line_numbers(self.t7) if self.t7 else None,
            "arms": [arm_numbers(g, self.found.runs) for g in self.groups],
            "runs": [run_numbers(run, g.name, self.root) for g in self.groups for run in g.runs],
        }
        return json.dumps(plain(data), indent=1, allow_nan=False) + "\n"


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


def report_on(path: Path, mechanism_of: MechanismOf | None = None) -> Report:
    """Read and judge every training run and T7's replays below a directory, or of a file that they are kept in. BadInput as
    in `load_runs`, unless there are replays alone, `read_summaries`, `units_at` and in `group_runs`."""
    if is_summary(path):
        return report_of(path, read_summaries(path))
    of_t7 = units_at(path)
    units = of_t7.units
    t7 = of_t7.over if units else None
    found = Found((), ()) if is_units(path) else load_runs(path, mechanism_of, needed=not units)
    if found.runs:
        report = report_of(path, found)
        lost = [] if t7 else [f"left out: {place}: {why}" for place, why in of_t7.left_out]
        return replace(report, remarks=[*report.remarks, *lost], t7=t7)
    kept = f"read from {path.name}, T7 of {len(units)} units whose step files are not here"
    return Report(path, found, (), (), (), [kept] if is_units(path) else [], t7=t7)


def report_of(root: Path, found: Found) -> Report:
    """Judge runs that were read already; they are named as seen from `root`. BadInput as in `group_runs`."""
    groups = group_runs(found.runs)
    h1, t5 = (CLAIMS[name].judged(groups, found.runs) for name in ("H1", "T5"))
    t6 = CLAIMS["T6"].judged(found.runs)
    return Report(root, found, groups, h1, t5, remarks_on(found), t6)


def recipes_of(groups: Sequence[RunGroup]) -> list[str]:
    """How V was taken out, a line for each group that takes it out, or is made as short as that would make it."""
    lines = []
    for group in groups:
        run = group.runs[0]
        told = Recipe(setting(run, "gate"), setting(run, "project")).description
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
