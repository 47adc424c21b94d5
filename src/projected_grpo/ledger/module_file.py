"""The side file `modules.jsonl.gz` of a run with a V: what each step shows module by module. One file a run, a gzip member a
step; any reader of gzipped JSON lines opens it.

    append(run, 0, names, sizes, values);  read_modules(run).steps[0]["cos_in"]

The first line holds `modules` (names) and `n` (coordinates of each); every further line is a step, its columns are lists in
the order of the names. A step is written after its step file and before its checkpoint. A kill can leave the last line torn;
`cut` removes it when the run goes on.
"""

import contextlib
import gzip
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


def _line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _member(text: bytes) -> bytes:
    out = io.BytesIO()
    # mtime=0 and no file name: the same numbers give the same bytes.
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, compresslevel=6, mtime=0) as z:
        z.write(text)
    return out.getvalue()


def _short(value: float | int | None) -> float | int | None:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def append(run: Path, step: int, names: Sequence[str], sizes: Sequence[int], values: Values) -> Path:
    """Add a step; the first makes the file. Returns its path. BadInput when the disk refuses."""
    line = _line({"step": step, **{name: [_short(v) for v in values[name]] for name in LINE[1:]}})
    path = run / NAME
    if step == 0:
        write_atomic(path, _member(_line({"modules": list(names), "n": list(sizes)}) + line))
        return path
    try:
        with path.open("ab") as f:
            f.write(_member(line))
            f.flush()
            os.fsync(f.fileno())
    except OSError as e:
        raise BadInput(f"cannot add to {path}: {e.strerror or e}; free some space, then continue with --resume") from e
    return path


def cut(run: Path, step: int) -> None:
    """Remove what came after a step, and a torn end, so that a run can go on from there. No file, no effect.

    BadInput when the file does not reach that step.
    """
    path = run / NAME
    if not path.exists():
        return
    lines: list[bytes] = []
    with gzip.open(path) as f, contextlib.suppress(EOFError, OSError, zlib.error):  # the torn end
        lines.extend(f)
    whole = [line for line in lines[: step + 2] if line.endswith(b"\n")]
    if len(whole) < step + 2:
        raise BadInput(f"--resume: {path}: ends before step {step}, though the checkpoint is later; start the run anew")
    write_atomic(path, b"".join(map(_member, [whole[0] + whole[1], *whole[2:]])))


def read_modules(run: Path) -> Modules:
    """The side file. BadInput when there is none, or it is torn or has a gap."""
    path = run / NAME
    if not path.exists():
        raise BadInput(f"{path}: no such file; a run writes it where it measures a V (--vhack)")
    first, *steps = read_jsonl(path)
    for place, line in enumerate(steps):
        if line["step"] != place:
            raise BadInput(f"{path}:{place + 2}: holds step {line['step']}, where step {place} should be")
    names, sizes = tuple(first["modules"]), tuple(first["n"])
    return Modules(names, sizes, tuple({name: line[name] for name in LINE[1:]} for line in steps))
