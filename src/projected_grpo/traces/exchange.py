"""Folders of traces in other projects' formats: written whole, read strictly; and the states of traces, for teachers."""

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import read_jsonl, write_atomic
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


def imported(kind: Format, folder: Path) -> tuple[Header, Iterator[Trace]]:
    """The traces of a folder in another format, each checked as it is read.

    BadInput names the file, the record and what is wrong with it: a record that cannot be replayed is refused, not left out.
    """
    path = folder / FILES[kind]
    records = read_jsonl(path)
    if not records:
        raise BadInput(f"{path}: no traces in it")
    read: Callable[[Mapping[str, Any]], Trace]
    if kind == "verifiers":
        read = verifiers_format.from_episode
        header = _checked(verifiers_format.header_of_episode, records[0], f"{path}:1")
        for number, record in enumerate(records, 1):
            if _checked(verifiers_format.header_of_episode, record, f"{path}:{number}") != header:
                raise BadInput(f"{path}:{number}: of another model, run or code than the first record; keep them apart")
    else:
        read = openenv_format.from_record
        place = folder / openenv_format.METADATA
        header = _checked(openenv_format.header_of_metadata, _metadata(place), str(place))
    traces = (_checked(read, record, f"{path}:{number}") for number, record in enumerate(records, 1))
    first = next(traces)
    return header, chain([first], traces)


def _checked(read: Callable[[Mapping[str, Any]], Any], record: Mapping[str, Any], place: str) -> Any:
    try:
        return read(record)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError) as e:
        said = f"it lacks {e}" if isinstance(e, KeyError) else e
        raise BadInput(f"{place}: cannot be replayed: {said}") from e


def _metadata(path: Path) -> Mapping[str, Any]:
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as e:
        raise BadInput(f"{path}: damaged ({e})") from e
    return found if isinstance(found, dict) else {}
