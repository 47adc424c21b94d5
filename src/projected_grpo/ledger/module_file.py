"""The side file `modules.jsonl.gz` of a run with a V: what each step shows module by module. One file a run, a gzip member a
step; any reader of gzipped JSON lines opens it.

    append(run, 0, names, sizes, values);  read_modules(run).steps[0]["cos_in"]

The first line holds `modules` (names) and `n` (coordinates of each); every further line is a step, its columns are lists in
the order of the names. A step is written after its step file and before its checkpoint. A kill can leave the last member
torn: `cut` takes it off when the run goes on, and every reader refuses it.
"""

import gzip
import hashlib
import io
import json
import math
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import gzip_members, read_jsonl, write_atomic
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
    out = io.BytesIO()
    # mtime=0 and no file name: the same numbers give the same bytes.
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, compresslevel=6, mtime=0) as z:
        for line in lines:
            z.write(json.dumps(line, allow_nan=False, separators=(",", ":")).encode() + b"\n")
    return out.getvalue()


def _short(value: float | int | None) -> float | int | None:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def append(run: Path, step: int, names: Sequence[str], sizes: Sequence[int], values: Values) -> Path:
    """Add a step; the first makes the file. Returns its path.

    ValueError on columns that are not the schema's or a list of another length (a bug of ours); BadInput when the disk
    refuses, the file then being as it was, or when there is none to add to.
    """
    if set(values) != set(LINE[1:]) or any(len(column) != len(names) for column in values.values()):
        raise ValueError(f"step {step}: columns {sorted(values)} of {len(names)} modules are not the schema's")
    line = {"step": step, **{name: [_short(v) for v in values[name]] for name in LINE[1:]}}
    path = run / NAME
    if step == 0:
        write_atomic(path, _member({"modules": list(names), "n": list(sizes)}, line))
        return path
    try:
        with path.open("r+b") as f:
            end = f.seek(0, os.SEEK_END)
            try:
                f.write(_member(line))
                f.flush()
                os.fsync(f.fileno())
            except OSError:
                os.truncate(path, end)
                raise
    except OSError as e:
        raise BadInput(f"cannot add to {path}: {e.strerror or e}; free some space, then continue with --resume") from e
    return path


def cut(run: Path, step: int) -> None:
    """Drop what came after a step, and a torn end: a run goes on from there. Nothing is done where there is no file.

    BadInput when it is damaged or does not reach that step.
    """
    path = run / NAME
    if not path.exists():
        return
    try:
        data = path.read_bytes()
        members = (([json.loads(line) for line in text.splitlines()], end) for text, end in gzip_members(data))
        kept = next((end for lines, end in members if lines[-1]["step"] == step), None)
    except (OSError, ValueError, zlib.error, LookupError, TypeError) as e:
        raise BadInput(f"--resume: {path}: damaged ({e}); start the run anew") from e
    if kept is None:
        raise BadInput(f"--resume: {path}: ends before step {step}, though the checkpoint is later; start the run anew")
    if kept < len(data):
        write_atomic(path, data[:kept])


def read_modules(run: Path) -> Modules:
    """The side file, checked against the schema. BadInput when there is none, or it is torn, damaged or has a gap."""
    path = run / NAME
    if not path.exists():
        raise BadInput(f"{path}: no such file; a run writes it where it measures a V (--vhack)")
    first, *steps = read_jsonl(path) or [{}]
    names, sizes = first.get("modules"), first.get("n")
    if not isinstance(names, list) or not isinstance(sizes, list) or len(names) != len(sizes):
        raise BadInput(f"{path}:1: does not name the modules and their sizes; repeat the run")
    for place, line in enumerate(steps):
        if line.get("step") != place:
            raise BadInput(f"{path}:{place + 2}: holds step {line.get('step')}, where step {place} should be")
        if wrong := _problem_of(line, len(names)):
            raise BadInput(f"{path}:{place + 2}: {wrong}")
    if not steps:
        raise BadInput(f"{path}: no steps")
    return Modules(tuple(names), tuple(sizes), tuple({name: line[name] for name in LINE[1:]} for line in steps))


def _problem_of(line: Mapping[str, Any], modules: int) -> str:
    """What is wrong with a step's line, or an empty string."""
    if odd := sorted(set(LINE) ^ set(line)):
        return f"column {odd[0]!r} is {'missing' if odd[0] in LINE else 'unknown'}; written by another version"
    for column in MODULE_COLUMNS:
        values = line[column.name]
        if not isinstance(values, list) or len(values) != modules:
            return f"column {column.name!r} is not one value for each of {modules} modules"
        if any(type(v) not in ((int,) if column.type == "int" else (int, float)) for v in values if v is not None):
            return f"column {column.name!r} holds something that is not a number"
        if not column.nullable and None in values:
            return f"column {column.name!r} is null"
    return ""


def content_sha256(run: Path, steps: int) -> str | None:
    """SHA-256 of the side file's decompressed bytes; None without one. BadInput as in `read_modules`, or when it does not
    hold exactly so many steps."""
    path = run / NAME
    if not path.exists():
        return None
    found = len(read_modules(run).steps)
    if found != steps:
        raise BadInput(f"{NAME}: holds {found} steps beside {steps} step files; repeat the run")
    return hashlib.sha256(gzip.decompress(path.read_bytes())).hexdigest()
