"""T7 outside the UAT: which two replays below a directory differ in the loss of their V alone, what they say, and what the
units say together; of a file of such units too."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from projected_grpo.ledger.comparison import OF_BASE, OF_LOSS, OF_SEED, SHARED, differences, facts_of
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import not_whole, read_manifest
from projected_grpo.ledger.step_file import Row, read_run
from projected_grpo.report.tables import line_text
from projected_grpo.verdicts.extraction import OfUnit, t7, t7_over
from projected_grpo.verdicts.extraction_file import is_units, read_units
from projected_grpo.verdicts.h1 import Line

T = TypeVar("T")
Manifest = Mapping[str, Any]
Replay = tuple[Path, Manifest]


def grpo_beside(nll: Manifest, others: Iterable[tuple[T, Manifest]]) -> T | None:
    """Of vanilla replays, the one of the same rollouts and settings against V of --loss grpo; None without one, or where
    this one is not of the NLL's own V. BadInput where there are several, which could be chosen from."""
    found = []
    mine = nll.get("vhack") or {}
    if mine.get("control") != "none" or mine.get("loss") != "nll":
        return None
    for other, manifest in others:
        theirs = manifest.get("vhack") or {}
        if theirs.get("loss") == "grpo" and not differences(facts_of(nll), facts_of(manifest), OF_LOSS):
            found.append((other, theirs.get("v_sha256")))
    if len(found) > 1:
        which = ", ".join(str(sha)[:8] for _, sha in found)
        raise BadInput(
            f"{len(found)} replays of one pool against a V of --loss grpo (V {which}); leave one of them there"
        )
    return found[0][0] if found else None


@dataclass(frozen=True)
class Replayed:
    """The units of T7, and which replays are in none."""

    units: list[OfUnit]
    left_out: tuple[tuple[Path, str], ...] = ()
    """Replays that are not what they wrote, and why."""

    @property
    def over(self) -> Line:
        """T7 over units, with each unit's own as a clause, and what was left out as notes."""
        clauses = tuple(replace(unit.finding, name=unit.name) for unit in self.units)
        return Line(t7_over(self.units), clauses, tuple(f"left out: {path}: {why}" for path, why in self.left_out))


def units_at(path: Path) -> Replayed:
    """T7 of every unit below a directory, or of a file of `just losses-table`. BadInput as in `read_units` and
    `pairs_below`."""
    return Replayed(read_units(path)) if is_units(path) else replayed(path)


def told(line: Line, style: str = "simple") -> list[str]:
    """T7 over units as lines of text: the table of its units, and what they say together."""
    return [*line_text(line, style), "", line.verdict.why, ""]


def pairs_below(
    directory: Path, paths: Iterable[Path] | None = None
) -> tuple[list[tuple[Replay, Replay]], list[tuple[Path, str]]]:
    """Each pair of replays below a directory, or of these runs in it, that differ in the loss of their V alone, the NLL's
    first; and the replays that are not what they wrote, with why. BadInput on a damaged manifest."""
    chosen = paths if paths is not None else (path.parent for path in directory.rglob("manifest.json"))
    found = [(path, read_manifest(path)) for path in sorted(chosen)]
    replays, left_out = [], []
    for path, manifest in found:
        if (
            manifest.get("kind") == "probe_distill"
            and isinstance(manifest.get("config"), Mapping)
            and isinstance(manifest.get("vhack") or {}, Mapping)
            and manifest["config"].get("arm") == "vanilla"
        ):
            if why := not_whole(path, manifest):
                left_out.append((path, why))
            else:
                replays.append((path, manifest))
    beside = [grpo_beside(own[1], [(replay, replay[1]) for replay in replays]) for own in replays]
    return [(own, other) for own, other in zip(replays, beside, strict=True) if other is not None], left_out


def replayed(directory: Path, paths: Iterable[Path] | None = None) -> Replayed:
    """Each of these pairs, judged. BadInput as in `pairs_below`."""
    out = []
    pairs, left_out = pairs_below(directory, paths)
    for (path, manifest), (other, theirs) in pairs:
        names = " and ".join(p.relative_to(directory).as_posix() for p in (path, other))
        v = (str(manifest["vhack"].get("v_sha256")), str(theirs["vhack"].get("v_sha256")))
        drawn = str(manifest["vhack"].get("pairs_draw") or "")
        of_pool, found = str(manifest.get("pool_hash")), t7((_rows(path), _rows(other)))
        out.append(OfUnit(names, found, of_pool, v, drawn, _setting(manifest)))
    return Replayed(out, tuple((path.relative_to(directory), why) for path, why in left_out))


def _setting(manifest: Manifest) -> dict[str, Any]:
    """What replicates must share: all but their seed, base, pool and V."""
    facts = facts_of(manifest)
    return {name: facts[name] for name in SHARED if name in facts and name not in OF_SEED | OF_BASE}


def _rows(path: Path) -> Sequence[Row]:
    return [row for rows in read_run(path) for row in rows]
