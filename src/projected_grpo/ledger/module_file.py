"""The side file `modules.jsonl.gz` of a run with a V: what each step shows module by module. One file a run, a gzip member a
step; any reader of gzipped JSON lines opens it.

    append(run, 0, sizes, values);  read_modules(run).steps[0]["cos_in"]

The first line holds `modules` (names) and `n` (coordinates of each); every further line is a step, its columns are lists in
the order of the names. A step is written after its step file and before its checkpoint.
"""

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import json_line, read_jsonl, write_atomic

NAME = "modules.jsonl.gz"
DIGITS = 7
"""Significant ones: what float32 holds."""
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


def append(run: Path, step: int, sizes: Mapping[str, int], values: Values) -> None:
    """Adds a step; the first makes the file. sizes: coordinates of each module. BadInput when the disk refuses."""
    short = {
        name: [float(f"{v:.{DIGITS}g}") if isinstance(v, float) else v for v in column]
        for name, column in values.items()
    }
    path, line = run / NAME, json_line({"step": step, **short})
    if step == 0:
        before, line = b"", json_line({"modules": list(sizes), "n": list(sizes.values())}) + line
    else:
        before = path.read_bytes()
    write_atomic(path, before + gzip.compress(line, 6, mtime=0))


def cut(run: Path, step: int) -> None:
    """Removes what came after a step, so that a run can go on from there. No file, no effect."""
    path = run / NAME
    if path.exists():
        lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
        members = (b"".join(lines[:2]), *lines[2 : step + 2])
        write_atomic(path, b"".join(gzip.compress(member, 6, mtime=0) for member in members))


def read_modules(run: Path) -> Modules:
    """Returns the side file. BadInput when there is none, or it is damaged."""
    path = run / NAME
    if not path.exists():
        raise BadInput(f"{path}: no such file; a run writes it where it measures a V (--vhack)")
    first, *steps = read_jsonl(path)
    return Modules(tuple(first["modules"]), tuple(first["n"]), tuple(steps))
