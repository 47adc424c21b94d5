"""T7's replicates: pairs of replays below a directory that differ in the loss of their V alone, or a losses.json that
holds the verdict of each. Replicates of a file are judged together again like those of a directory.

    found = replicates_at(path);  found.over;  text = replicates_text(found.replicates)
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import not_whole, read_manifest
from projected_grpo.ledger.step_file import read_run
from projected_grpo.verdicts.comparison import OF_BASE, OF_LOSS, OF_SEED, SHARED, differences, facts_of
from projected_grpo.verdicts.extraction import T7Replicate, t7, t7_over
from projected_grpo.verdicts.registry import Finding, Line

Manifest = Mapping[str, Any]
Replay = tuple[Path, Manifest]
VERSION = 1
LOSSES = ("nll", "grpo")


@dataclass(frozen=True)
class Replayed:
    """The replicates of T7, and which replays are in none."""

    replicates: Sequence[T7Replicate]
    left_out: Sequence[tuple[Path, str]] = ()
    """Replays that are not finished, and why."""

    @property
    def over(self) -> Line:
        """T7 over replicates, with each replicate's as a clause, and what was left out as notes."""
        clauses = tuple(replace(replicate.finding, name=replicate.name) for replicate in self.replicates)
        return Line(t7_over(self.replicates), clauses, tuple(f"left out: {path}: {why}" for path, why in self.left_out))


def is_losses_file(path: Path) -> bool:
    """Returns whether a path names a file of T7's replicates."""
    return path.suffix == ".json" and not path.is_dir()


def grpo_beside(nll: Manifest, others: Sequence[Replay]) -> Replay | None:
    """Returns, of vanilla replays, the one of the same rollouts and settings against V of --loss grpo; None without one, or
    where this one is not of the V of the NLL. BadInput where there are several, which could be chosen from."""
    mine = nll.get("vhack") or {}
    if mine.get("control") != "none" or mine.get("loss") != "nll":
        return None
    found = [
        (path, manifest)
        for path, manifest in others
        if (manifest.get("vhack") or {}).get("loss") == "grpo"
        and not differences(facts_of(nll), facts_of(manifest), OF_LOSS)
    ]
    if len(found) > 1:
        which = ", ".join(str(manifest["vhack"].get("v_sha256"))[:8] for _, manifest in found)
        raise BadInput(
            f"{len(found)} replays of one pool against a V of --loss grpo (V {which}); leave one of them there"
        )
    return found[0] if found else None


def replicates_at(path: Path) -> Replayed:
    """Returns T7 of every replicate of a losses.json, or of each pair of replays below a directory that differ in the loss
    of their V alone. BadInput as in `grpo_beside`, or on another file."""
    if is_losses_file(path):
        return Replayed(read_replicates(path))
    found = [(run, read_manifest(run)) for run in sorted(p.parent for p in path.rglob("manifest.json"))]
    vanilla = [(run, m) for run, m in found if m.get("kind") == "probe_distill" and m["config"]["arm"] == "vanilla"]
    left_out = {run: why for run, m in vanilla if (why := not_whole(run, m))}
    whole = [(run, m) for run, m in vanilla if run not in left_out]
    replicates = [_replicate(path, nll, grpo) for nll in whole if (grpo := grpo_beside(nll[1], whole))]
    return Replayed(replicates, [(run.relative_to(path), why) for run, why in left_out.items()])


def _replicate(directory: Path, nll: Replay, grpo: Replay) -> T7Replicate:
    """One pair of replays, judged."""
    (path, manifest), (other, theirs) = nll, grpo
    facts, drawn = facts_of(manifest), manifest["vhack"].get("pairs_draw")
    setting = {name: facts[name] for name in SHARED if name in facts and name not in OF_SEED | OF_BASE}
    names = " and ".join(p.relative_to(directory).as_posix() for p in (path, other))
    v = (str(manifest["vhack"].get("v_sha256")), str(theirs["vhack"].get("v_sha256")))
    a, b = ([row for rows in read_run(p) for row in rows] for p in (path, other))
    return T7Replicate(names, t7((a, b)), str(manifest.get("pool_hash")), v, str(drawn or ""), setting)


def replicates_text(replicates: Sequence[T7Replicate]) -> str:
    """Returns the file's text. What the replicates say together is for the reader; `read_replicates` leaves it out."""
    rows = [
        {
            "of": u.name, "pool_hash": u.pool, "v_sha256": dict(zip(LOSSES, u.v, strict=True)), "pairs_draw": u.draw,
            "setting": dict(u.setting), **asdict(u.finding),
        }
        for u in replicates
    ]  # fmt: skip
    data = {"t7_replicates": VERSION, "over": asdict(t7_over(replicates)), "replicates": rows}
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def read_replicates(path: Path) -> list[T7Replicate]:
    """Returns the replicates of such a file. BadInput on another one."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as e:
        raise BadInput(f"{path}: {e}; name a losses.json of `just results`") from e
    if not isinstance(data, Mapping) or data.get("t7_replicates") != VERSION:
        raise BadInput(
            f"{path}: holds no replicates of T7 of version {VERSION}; write it again with `just results DIR`"
        )
    return [
        T7Replicate(
            row["of"], Finding(row["name"], row["status"], row["why"], row["numbers"]), row["pool_hash"],
            (row["v_sha256"]["nll"], row["v_sha256"]["grpo"]), row["pairs_draw"], row["setting"],
        )
        for row in data["replicates"]
    ]  # fmt: skip
