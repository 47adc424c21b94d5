"""Traces in other projects' formats."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.traces import openenv_format, verifiers_format
from projected_grpo.traces.file import Header
from projected_grpo.traces.record import Trace

Format = Literal["verifiers", "openenv"]
FILES: Mapping[Format, str] = {"verifiers": verifiers_format.FILE, "openenv": openenv_format.FILE}


def export(kind: Format, folder: Path, header: Header, traces: Iterable[Trace]) -> None:
    """Writes traces as a file of the format in a folder.

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
        metadata = json.dumps({"openenv": "0.10.0", "projected_grpo": asdict(header)}, indent=2) + "\n"
        write_atomic(folder / openenv_format.METADATA, metadata.encode())
    write_atomic(path, b"".join(lines))
