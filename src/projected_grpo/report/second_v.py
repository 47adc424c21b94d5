"""T7 outside the UAT: which two replays below a directory differ in the loss of their V alone, what they say, and what the
units say together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from projected_grpo.ledger import evidence
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.ledger.step_file import Row, read_run
from projected_grpo.report.uat.inputs import OF_LOSS, SETTINGS
from projected_grpo.verdicts.extraction import OfUnit, t7, t7_over
from projected_grpo.verdicts.h1 import Line
from projected_grpo.verdicts.intervals import MIN_UNITS
from projected_grpo.verdicts.registry import Finding

T = TypeVar("T")
Manifest = Mapping[str, Any]


def grpo_beside(nll: Manifest, others: Iterable[tuple[T, Manifest]]) -> T | None:
    """Of vanilla replays, the one of the same rollouts and settings against V of --loss grpo; None without one, or where
    this one is not of the NLL's own V."""
    mine = nll.get("vhack") or {}
    if mine.get("control") != "none" or mine.get("loss") != "nll":
        return None
    for other, manifest in others:
        theirs = manifest.get("vhack") or {}
        same_v = all(mine.get(key) == theirs.get(key) for key in {*mine, *theirs} - OF_LOSS)
        same_run = all(nll.get(key) == manifest.get(key) for key in ("pool_hash", "model_hash")) and all(
            nll["config"].get(key) == manifest["config"].get(key) for key in SETTINGS
        )
        if theirs.get("loss") == "grpo" and same_v and same_run:
            return other
    return None


def second_v(directory: Path) -> list[tuple[str, Finding]]:
    """T7 of every pair of finished replays below a directory, each with the folders that it is of, and over all of them
    where they may be units enough. BadInput on a damaged manifest; a replay that is not what it wrote is passed over."""
    units = replayed(directory)
    each = [(unit.name, unit.finding) for unit in units]
    return each if len(units) < MIN_UNITS else [*each, (f"{len(units)} units", over(units).verdict)]


def over(units: Sequence[OfUnit]) -> Line:
    """T7 over units, with each unit's own as a clause."""
    return Line(t7_over(units), tuple(replace(unit.finding, name=unit.name) for unit in units))


def replayed(directory: Path, paths: Iterable[Path] | None = None) -> list[OfUnit]:
    """Each pair of replays below a directory, or of these runs in it, judged. BadInput as in `second_v`."""
    chosen = paths if paths is not None else (path.parent for path in directory.rglob("manifest.json"))
    found = [(path, read_manifest(path)) for path in sorted(chosen)]
    replays = [
        (path, manifest)
        for path, manifest in found
        if manifest.get("kind") == "probe_distill"
        and manifest["config"].get("arm") == "vanilla"
        and not evidence.check(path, manifest)
    ]
    out = []
    for path, manifest in replays:
        beside = grpo_beside(manifest, [(replay, replay[1]) for replay in replays])
        if beside is not None:
            other, theirs = beside
            finding = t7((_rows(path), _rows(other)))
            names = " and ".join(p.relative_to(directory).as_posix() for p in (path, other))
            v = (str(manifest["vhack"].get("v_sha256")), str(theirs["vhack"].get("v_sha256")))
            out.append(OfUnit(names, finding, str(manifest.get("pool_hash")), v))
    return out


def _rows(path: Path) -> Sequence[Row]:
    return [row for rows in read_run(path) for row in rows]
