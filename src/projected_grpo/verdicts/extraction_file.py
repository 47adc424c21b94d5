"""T7's units in one small file, losses.json: they can then be judged together again where no step file is.

    text = units_text(units);  units = read_units(path)

Of a unit it holds what `t7` said of it, and the hashes of its rollouts and of both V: units that share one are no units, of
a file as of a directory. What the units said together stands there for the reader and is not read. A file proves nothing by
itself; whoever has the step files can compare.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import parsed
from projected_grpo.verdicts.extraction import ONE_V, OfUnit, one_v, t7_over
from projected_grpo.verdicts.registry import Finding, Status
from projected_grpo.verdicts.summary_shape import is_number

VERSION = 1
LOSSES = ("nll", "grpo")
TEXTS = ("of", "pool_hash", "pairs_draw", "name", "why")
NO_HASH = ("", "-", "none", "null")
ROUNDING = 1e-6
MEND = "write it again with `just losses-table DIRECTORY`"


def is_units(path: Path) -> bool:
    """Whether a path names a file of T7's units."""
    return path.suffix == ".json" and not path.is_dir()


def units_text(units: Sequence[OfUnit]) -> str:
    """The file's text. BadInput when a unit could not be read again from it."""
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
    for row in rows:
        if wrong := _problem_of(row):
            raise BadInput(f"{row['of']!r}: cannot be kept: {wrong}; repeat its replays, or rename their directories")
    data = {"t7_units": VERSION, "over": asdict(t7_over(units)), "units": rows}
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def read_units(path: Path) -> list[OfUnit]:
    """The units of such a file. BadInput on one that is damaged or of another version."""
    try:
        data = parsed(path.read_bytes())
    except (OSError, ValueError, RecursionError) as e:
        why = e.strerror if isinstance(e, OSError) else f"not JSON ({e})"
        raise BadInput(f"{path}: {why}; {MEND}") from e
    if not isinstance(data, dict) or data.get("t7_units") != VERSION:
        raise BadInput(f"{path}: no units of T7 of version {VERSION}; {MEND}")
    rows = data.get("units")
    if not isinstance(rows, list) or not rows:
        wrong = "holds no unit" if rows == [] else f"'units' is {_shown(rows)}, where a list is expected"
        raise BadInput(f"{path}: {wrong}; {MEND}")
    for number, row in enumerate(rows, 1):
        if wrong := _problem_of(row):
            raise BadInput(f"{path}: unit {number}: {wrong}; {MEND}")
    return [_unit(row) for row in rows]


def _unit(row: Mapping[str, Any]) -> OfUnit:
    finding = Finding(row["name"], row["status"], row["why"], row["numbers"])
    v = (row["v_sha256"]["nll"], row["v_sha256"]["grpo"])
    return OfUnit(row["of"], finding, row["pool_hash"], v, row["pairs_draw"], row["setting"])


def _problem_of(row: Any) -> str:
    """What is wrong with a unit, or an empty string: first its shape, then what contradicts its numbers."""
    if not isinstance(row, dict):
        return f"a {type(row).__name__}, where an object is expected"
    if lacking := [name for name in (*TEXTS, "status", "v_sha256", "setting", "numbers") if name not in row]:
        return f"lacks {lacking[0]!r}"
    for name in ("v_sha256", "setting", "numbers"):
        if not isinstance(row[name], dict):
            return f"{name!r} is {_shown(row[name])}, where an object is expected"
    v, numbers = row["v_sha256"], row["numbers"]
    if lacking := [loss for loss in LOSSES if loss not in v]:
        return f"'v_sha256' lacks {lacking[0]!r}"
    texts = [*((name, row[name]) for name in TEXTS), *((loss, v[loss]) for loss in LOSSES), *row["setting"].items()]
    for name, value in texts:
        if not (isinstance(value, str) and value.isprintable()):
            return f"{name!r} is {_shown(value)}, where a text is expected"
    for name, value in (("pool_hash", row["pool_hash"]), *((loss, v[loss]) for loss in LOSSES)):
        if value in NO_HASH or value != value.strip().lower():  # else one could be told as two
            return f"{name!r} is {_shown(value)}, where a hash is expected"
    for name, value in numbers.items():
        if value is not None and not is_number(value):
            return f"{name!r} is {_shown(value)}, where a number is expected"
    return _contradiction(row, numbers)


def _contradiction(row: Mapping[str, Any], numbers: Mapping[str, float | None]) -> str:
    if row["name"] != "T7":
        return f"'name' is {_shown(row['name'])}, where 'T7' is expected"
    if row["status"] not in get_args(Status):
        return f"'status' is {_shown(row['status'])}, where one of {', '.join(get_args(Status))} is expected"
    gain, one, other = (numbers.get(name) for name in ("gain", "g_grpo", "g_nll"))
    if gain is not None and one is not None and other is not None and abs(one - other - gain) > ROUNDING:
        return f"'gain' is {gain}, and g_grpo - g_nll {one - other}"
    for name in ("energies_differ", "cosines_differ"):
        if (share := numbers.get(name)) is not None and not 0 <= share <= 1:
            return f"{name!r} is {share}, which is no share"
    low, high = numbers.get("low"), numbers.get("high")
    if low is not None and high is not None and low > high:
        return f"'low' is {low}, above 'high' {high}"
    if row["status"] in ("PASS", "FAIL") and (numbers.get("energies_differ") is None or (numbers.get("n") or 0) < 1):
        return f"'status' is {row['status']}, and energies_differ or n is not known"
    energies = numbers.get("energies_differ")
    if energies is not None and one_v(energies, numbers.get("cosines_differ")) != (ONE_V in row["why"]):
        return f"'why' and energies_differ {energies} contradict each other on whether its two V are one"
    return ""


def _shown(value: Any) -> str:
    return "nothing" if value is None else f"{value!a:.40}"
