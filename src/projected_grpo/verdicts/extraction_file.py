"""T7's units in one small file, losses.json: they can then be judged together again where no step file is.

    text = units_text(units);  units = read_units(path)

Of a unit it holds what `t7` said of it, and the hashes of its rollouts and of both V: units that share one are no units, of
a file as of a directory. What the units said together stands there for the reader and is not read.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from projected_grpo.ledger.errors import BadInput
from projected_grpo.verdicts.extraction import OfUnit, t7_over
from projected_grpo.verdicts.registry import Finding

VERSION = 1
LOSSES = ("nll", "grpo")


def is_units(path: Path) -> bool:
    """Whether a path names a file of T7's units."""
    return path.suffix == ".json" and not path.is_dir()


def units_text(units: Sequence[OfUnit]) -> str:
    """The file's text."""
    rows = [
        {
            "of": u.name,
            "pool_hash": u.pool,
            "v_sha256": dict(zip(LOSSES, u.v, strict=True)),
            "pairs_draw": u.draw,
            "setting": dict(u.setting),
            **asdict(u.finding),
        }
        for u in units
    ]
    data = {"t7_units": VERSION, "over": asdict(t7_over(units)), "units": rows}
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def read_units(path: Path) -> list[OfUnit]:
    """The units of such a file. BadInput on one that is damaged or of another version."""
    try:
        data = json.loads(path.read_text("utf-8"))
        if data["t7_units"] != VERSION:
            raise ValueError(f"version {data['t7_units']}, this version reads {VERSION}")
        units = [_unit(row) for row in data["units"]]
    except (OSError, ValueError, KeyError, TypeError) as e:
        why = e.strerror if isinstance(e, OSError) else f"no units of T7 ({type(e).__name__}: {e})"
        raise BadInput(f"{path}: {why}; write it again with `just losses-table DIRECTORY`") from e
    if not units:
        raise BadInput(f"{path}: holds no unit; write it again with `just losses-table DIRECTORY`")
    return units


def _unit(row: Mapping[str, Any]) -> OfUnit:
    finding = Finding(row["name"], row["status"], row["why"], row["numbers"])
    v = (row["v_sha256"]["nll"], row["v_sha256"]["grpo"])
    return OfUnit(row["of"], finding, row["pool_hash"], v, row["pairs_draw"], row["setting"])
