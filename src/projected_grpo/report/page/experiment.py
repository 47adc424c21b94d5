"""An experiment as it stands on disk: the runs below one or more directories, and what can be judged from them.

    found = find([Path("out/toy")]);  report = trained(found);  sources(found, report)

Runs are named as seen from the directories' common parent, so no page that is made of them names this machine.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.report.page.rollouts import Source
from projected_grpo.report.results_md import Report, report_of
from projected_grpo.verdicts.finished_runs import MechanismOf, read_runs

WITH_ROLLOUTS = ("train", "teacher_pool", "probe_distill")
"""Kinds of run that leave step files."""


@dataclass(frozen=True)
class Member:
    """A run of the experiment."""

    path: Path
    name: str
    manifest: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.manifest.get("kind"))

    @property
    def config(self) -> Mapping[str, Any]:
        return self.manifest.get("config") or {}

    @property
    def finished(self) -> bool:
        return bool(self.manifest.get("finished"))

    @property
    def has_steps(self) -> bool:
        """Whether it left a rollout: a run that was cut may have none."""
        return self.kind in WITH_ROLLOUTS and any(self.path.glob("step_*.jsonl.gz"))


@dataclass(frozen=True)
class Experiment:
    """Runs that are looked at together, by name."""

    root: Path
    members: Sequence[Member]

    @property
    def name(self) -> str:
        return self.root.name


def find(directories: Sequence[Path]) -> Experiment:
    """Every run in or below the directories, each once. BadInput when a directory is none, or none holds rollouts."""
    for directory in directories:
        if not directory.is_dir():
            raise BadInput(f"{directory}: no such directory; name a run, or a directory that holds runs")
    roots = [directory.resolve() for directory in directories]
    paths = sorted({p.parent for root in roots for p in root.rglob("manifest.json")})
    top = Path(os.path.commonpath(roots))
    if top in paths:  # one run alone is named by its own folder
        top = top.parent
    members = tuple(Member(path, path.relative_to(top).as_posix(), read_manifest(path)) for path in paths)
    if not any(member.has_steps for member in members):
        told = " ".join(map(str, directories))
        raise BadInput(f"{told}: no run with step files there; make one with `just train` or `just toy`")
    return Experiment(top, members)


def trained(found: Experiment, mechanism_of: MechanismOf | None = None) -> Report | None:
    """Finished training runs, judged as `just results` does; None without any. BadInput on a damaged run."""
    runs = read_runs([member.path for member in found.members], mechanism_of)
    if not runs.runs:
        return None
    named = tuple((path.relative_to(found.root), why) for path, why in runs.left_out)
    return report_of(found.root, dataclasses.replace(runs, left_out=named))


def remarks(found: Experiment, report: Report | None) -> list[str]:
    """What a reader must know first: what is not finished, what is missing, what does not match."""
    said = [] if report is None else [line for line in report.remarks if not line.startswith("left out: ")]
    left_out = () if report is None else report.found.left_out
    why = {path.as_posix(): reason for path, reason in left_out}
    for member in found.members:
        if not member.finished or member.name in why:
            reason = why.get(member.name, "not finished; continue it with --resume")
            browsed = "its rollouts can be browsed, its numbers are in no table or verdict"
            said.append(f"{member.name}: {reason}" + (f"; {browsed}" if member.has_steps else ""))
    if report is None:
        said.append("no finished training run: no tables, no plots, nothing to judge H1 on")
    return said


def sources(found: Experiment, report: Report | None) -> list[Source]:
    """Runs whose rollouts may be shown, training runs under their group's name and first, in the order of the tables."""
    groups = {} if report is None else {run.path: group.name for group in report.groups for run in group.runs}
    order = {path: i for i, path in enumerate(groups)}
    out = []
    for member in sorted(found.members, key=lambda m: (order.get(m.path, len(order)), m.kind != "train", m.name)):
        if member.has_steps:
            arm = str(member.config.get("arm"))
            other = {"teacher_pool": "teacher pool", "probe_distill": f"replay {arm}"}.get(member.kind, arm)
            place = str(member.config.get("out") or ".")
            shown = member.name if place == "." else place
            out.append(Source(member.path, member.name, groups.get(member.path, other), shown))
    return out
