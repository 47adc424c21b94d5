"""T7's units: pairs of replays below a directory that differ in the loss of their V alone, or a losses.json that holds what
was said of each. Units of a file are judged together again like those of a directory.

    found = units_at(path);  found.over;  text = units_text(found.units)
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from projected_grpo.ledger.comparison import OF_BASE, OF_LOSS, OF_SEED, SHARED, differences, facts_of
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import not_whole, read_manifest
from projected_grpo.ledger.step_file import read_run
from projected_grpo.verdicts.extraction import OfUnit, t7, t7_over
from projected_grpo.verdicts.registry import Finding, Line

T = TypeVar("T")
Manifest = Mapping[str, Any]
Replay = tuple[Path, Manifest]
VERSION = 1
LOSSES = ("nll", "grpo")


@dataclass(frozen=True)
class Replayed:
    """The units of T7, and which replays are in none."""

    units: Sequence[OfUnit]
    left_out: Sequence[tuple[Path, str]] = ()
    """Replays that are not finished, and why."""

    @property
    def over(self) -> Line:
        """T7 over units, with each replicate's as a clause, and what was left out as notes."""
        clauses = tuple(replace(unit.finding, name=unit.name) for unit in self.units)
        return Line(t7_over(self.units), clauses, tuple(f"left out: {path}: {why}" for path, why in self.left_out))


def is_units(path: Path) -> bool:
    """Returns whether a path names a file of T7's units."""
    return path.suffix == ".json" and not path.is_dir()


def units_at(path: Path) -> Replayed:
    """Returns T7 of every unit below a directory, or of a losses.json. BadInput as in `grpo_beside`, or on another file."""
    return Replayed(read_units(path)) if is_units(path) else replayed(path)


def grpo_beside(nll: Manifest, others: Iterable[tuple[T, Manifest]]) -> T | None:
    """Returns, of vanilla replays, the one of the same rollouts and settings against V of --loss grpo; None without one, or
    where this one is not of the V of the NLL. BadInput where there are several, which could be chosen from."""
    mine = nll.get("vhack") or {}
    if mine.get("control") != "none" or mine.get("loss") != "nll":
        return None
    found = [
        (other, manifest["vhack"].get("v_sha256"))
        for other, manifest in others
        if (manifest.get("vhack") or {}).get("loss") == "grpo"
        and not differences(facts_of(nll), facts_of(manifest), OF_LOSS)
    ]
    if len(found) > 1:
        which = ", ".join(str(sha)[:8] for _, sha in found)
        raise BadInput(
            f"{len(found)} replays of one pool against a V of --loss grpo (V {which}); leave one of them there"
        )
    return found[0][0] if found else None


def pairs_below(directory: Path) -> tuple[list[tuple[Replay, Replay]], list[tuple[Path, str]]]:
    """Returns each pair of replays below a directory that differ in the loss of their V alone, the NLL's first; and the
    replays that are not finished, with why."""
    found = [(path, read_manifest(path)) for path in sorted(p.parent for p in directory.rglob("manifest.json"))]
    vanilla = [(path, m) for path, m in found if m.get("kind") == "probe_distill" and m["config"]["arm"] == "vanilla"]
    left_out = [(path, why) for path, m in vanilla if (why := not_whole(path, m))]
    whole = [(path, m) for path, m in vanilla if path not in dict(left_out)]
    pairs = [(nll, grpo_beside(nll[1], [(replay, replay[1]) for replay in whole])) for nll in whole]
    return [(nll, other) for nll, other in pairs if other is not None], left_out


def replayed(directory: Path) -> Replayed:
    """Returns each of these pairs, judged."""
    units = []
    pairs, left_out = pairs_below(directory)
    for (path, manifest), (other, theirs) in pairs:
        facts, drawn = facts_of(manifest), manifest["vhack"].get("pairs_draw")
        setting = {name: facts[name] for name in SHARED if name in facts and name not in OF_SEED | OF_BASE}
        names = " and ".join(p.relative_to(directory).as_posix() for p in (path, other))
        v = (str(manifest["vhack"].get("v_sha256")), str(theirs["vhack"].get("v_sha256")))
        nll, grpo = ([row for rows in read_run(p) for row in rows] for p in (path, other))
        units.append(OfUnit(names, t7((nll, grpo)), str(manifest.get("pool_hash")), v, str(drawn or ""), setting))
    return Replayed(units, [(path.relative_to(directory), why) for path, why in left_out])


def units_text(units: Sequence[OfUnit]) -> str:
    """Returns the file's text. What the units say together is for the reader; `read_units` leaves it out."""
    rows = [
        {
            "of": u.name, "pool_hash": u.pool, "v_sha256": dict(zip(LOSSES, u.v, strict=True)), "pairs_draw": u.draw,
            "setting": dict(u.setting), **asdict(u.finding),
        }
        for u in units
    ]  # fmt: skip
    data = {"t7_units": VERSION, "over": asdict(t7_over(units)), "units": rows}
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def read_units(path: Path) -> list[OfUnit]:
    """Returns the units of such a file. BadInput on another one."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as e:
        raise BadInput(f"{path}: {e}; name a losses.json of `just results`") from e
    if not isinstance(data, Mapping) or data.get("t7_units") != VERSION:
        raise BadInput(f"{path}: holds no units of T7 of version {VERSION}; write it again with `just results DIR`")
    return [
        OfUnit(
            row["of"], Finding(row["name"], row["status"], row["why"], row["numbers"]), row["pool_hash"],
            (row["v_sha256"]["nll"], row["v_sha256"]["grpo"]), row["pairs_draw"], row["setting"],
        )
        for row in data["units"]
    ]  # fmt: skip
