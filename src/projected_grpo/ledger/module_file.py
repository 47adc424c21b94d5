"""The side file `modules.jsonl.gz` of a run with a V: what each step shows module by module. One file a run, a gzip member a
step; any reader of gzipped JSON lines opens it.

    append(run, 0, names, sizes, values);  read_modules(run).steps[0]["cos_in"]

The first line holds `modules` (names) and `n` (coordinates of each); every further line is a step, its columns are lists in
the order of the names. A step is written after its step file and before its checkpoint. A kill can leave the last line torn;
`cut` removes it when the run goes on.
"""

import contextlib
import gzip
import itertools
import json
import math
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import read_jsonl, write_atomic
from projected_grpo.ledger.step_file import MODULE_COLUMNS

NAME = "modules.jsonl.gz"
DIGITS = 7
"""Significant ones: what float32 holds."""
LINE = ("step", *(c.name for c in MODULE_COLUMNS))
Values = Mapping[str, Sequence[float | int | None]]
"""By column, one value a module."""


@dataclass(frozen=True)
class Modules:
    """A run's side file."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    """Coordinates of each module."""
    steps: tuple[dict[str, list[Any]], ...]
    """By step: every column of the schema, one value a module; None where there is nothing to measure."""


def _member(*lines: Mapping[str, Any]) -> bytes:
    """Returns a gzip member of these lines; the same numbers give the same bytes."""
    text = "".join(json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n" for line in lines)
    return gzip.compress(text.encode(), 6, mtime=0)


def _short(value: float | int | None) -> float | int | None:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def append(run: Path, step: int, names: Sequence[str], sizes: Sequence[int], values: Values) -> None:
    """Adds a step; the first makes the file. BadInput when the disk refuses."""
    line = {"step": step, **{name: [_short(v) for v in values[name]] for name in LINE[1:]}}
    path = run / NAME
    if step == 0:
        write_atomic(path, _member({"modules": list(names), "n": list(sizes)}, line))
        return
    try:
        with path.open("ab") as f:
            f.write(_member(line))
            f.flush()
            os.fsync(f.fileno())
    except OSError as e:
        raise BadInput(f"cannot add to {path}: {e.strerror or e}; free some space, then continue with --resume") from e


def cut(run: Path, step: int) -> None:
    """Removes what came after a step, and a torn end, so that a run can go on from there. No file, no effect."""
    path = run / NAME
    if not path.exists():
        return
    lines: list[dict[str, Any]] = []
    with gzip.open(path) as f, contextlib.suppress(EOFError, OSError, ValueError, zlib.error):  # the torn end
        lines.extend(json.loads(line) for line in itertools.islice(f, step + 2))
    write_atomic(path, b"".join((_member(*lines[:2]), *map(_member, lines[2:]))))


def read_modules(run: Path) -> Modules:
    """Returns the side file. BadInput when there is none, or it is torn."""
    path = run / NAME
    if not path.exists():
        raise BadInput(f"{path}: no such file; a run writes it where it measures a V (--vhack)")
    first, *steps = read_jsonl(path)
    return Modules(
        tuple(first["modules"]), tuple(first["n"]), tuple({name: line[name] for name in LINE[1:]} for line in steps)
    )
