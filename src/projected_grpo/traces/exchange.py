"""Traces in other projects' formats, and the states of traces, for teachers."""

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.teachers.states import as_rows
from projected_grpo.traces import openenv_format, verifiers_format
from projected_grpo.traces.file import Header
from projected_grpo.traces.record import Trace
from projected_grpo.traces.states import states_of

Format = Literal["verifiers", "openenv"]
FILES: Mapping[Format, str] = {"verifiers": verifiers_format.FILE, "openenv": openenv_format.FILE}


def export(kind: Format, folder: Path, header: Header, traces: Iterable[Trace]) -> Path:
    """Write traces as the format's own file in a folder; returns its path.

    BadInput when the file is there already, or names the trace that the format cannot hold. Nothing is written then.
    """
    path = folder / FILES[kind]
    if path.exists():
        raise BadInput(f"--out {path}: exists and is never overwritten; choose another folder")
    lines = []
    for trace in traces:
        try:
            record = (
                verifiers_format.to_episode(trace, header) if kind == "verifiers" else openenv_format.to_record(trace)
            )
        except ValueError as e:
            raise BadInput(f"trace {trace.trace_id}: no {kind} record: {e}") from e
        lines.append(json.dumps(record, allow_nan=False).encode() + b"\n")
    if kind == "openenv":
        metadata = json.dumps(openenv_format.metadata_of(header), indent=2) + "\n"
        write_atomic(folder / openenv_format.METADATA, metadata.encode())
    write_atomic(path, b"".join(lines))
    return path


def write_states(path: Path, traces: Iterable[Trace]) -> None:
    """Write the states of traces as `ask_teachers` reads them: JSON lines, gzipped where the name ends with .gz.

    BadInput when the name ends otherwise, when the disk refuses, or when another file is there; the very same one may be, so
    that a chain that was cut goes on.
    """
    if not path.name.endswith((".jsonl", ".jsonl.gz")):
        raise BadInput(f"--out {path}: the name must end with .jsonl or .jsonl.gz")
    data = as_rows(states_of(traces))
    data = gzip.compress(data, mtime=0) if path.suffix == ".gz" else data
    if path.exists() and path.read_bytes() != data:
        raise BadInput(f"--out {path}: exists with other states in it and is never overwritten; choose another")
    write_atomic(path, data)
