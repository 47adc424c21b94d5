"""Trace files: gzipped JSON lines, a header and then a trace a line.

    {"format": "projected_grpo traces", "version": 2, "model_hash": ..., ...}
    {"trace_id", "group", "problem_id", "source", "policy_step", "stop", "steps": [{"messages": [[role, content], ...],
     "ids", "action": {"text", "ids", "logps", "truncated"}, "reward", "done"}, ...]}

No field is optional and none can be added: a label has no place in a trace.
"""

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import lines_of, row_of, write_atomic
from projected_grpo.traces.record import Trace, fault_of

FORMAT = "projected_grpo traces"
VERSION = 2
MAKE_ONE = "write one with `just traces RUN` or `just multi-turn PRESET`"


@dataclass(frozen=True)
class Header:
    """What the traces of a file were sampled from."""

    made_by: str
    """Kind of run: train, teacher_pool or multi_turn."""
    model: str
    model_hash: str
    """Of the frozen weights."""
    tokenizer_hash: str
    problems_hash: str
    config_hash: str
    """Of the run's whole config."""
    hint: str
    loophole: bool
    """Whether the reward pays a completion's own tests."""
    temperature: float


@dataclass(frozen=True)
class _FirstLine(Header):
    format: str
    version: int


_FIRST, _TRACE = TypeAdapter(_FirstLine), TypeAdapter(Trace)


def write_traces(path: Path, header: Header, traces: Iterable[Trace]) -> int:
    """Write a trace file whole, the same bytes for the same traces; returns their number.

    BadInput when the place is taken or cannot be written, or when there are no traces; ValueError on a trace that breaks
    the rules of `record` (a bug of ours).
    """
    if path.exists():
        raise BadInput(f"--out {path}: exists and is never overwritten; choose another")
    lines = [json.dumps({"format": FORMAT, "version": VERSION, **asdict(header)})]
    for trace in traces:
        if wrong := fault_of(trace):
            raise ValueError(f"trace {trace.trace_id}: {wrong}")
        lines.append(json.dumps(asdict(trace), allow_nan=False))
    if len(lines) == 1:
        raise BadInput(f"--out {path}: there are no traces to write")
    write_atomic(path, gzip.compress("".join(line + "\n" for line in lines).encode(), 6, mtime=0))
    return len(lines) - 1


@dataclass(frozen=True)
class TraceFile:
    """A trace file whose header was read."""

    path: Path
    header: Header

    def __iter__(self) -> Iterator[Trace]:
        """The traces in order, one in memory at a time. BadInput names the line and what is wrong with it."""
        for number, line in lines_of(self.path):
            if number > 1:
                trace = row_of(_TRACE, line, f"{self.path}:{number}")
                if wrong := fault_of(trace):
                    raise BadInput(f"{self.path}:{number}: trace {trace.trace_id}: {wrong}")
                yield trace


def open_traces(
    path: Path, *, model_hash: str | None = None, tokenizer_hash: str | None = None, problems_hash: str | None = None
) -> TraceFile:
    """A trace file of what is at hand: hashes that are given must be the file's own.

    BadInput when it is missing, of another version, or of another model, tokenizer or set of problems; the line names both
    sides.
    """
    if not path.is_file():
        raise BadInput(f"{path}: no such file; {MAKE_ONE}")
    _, line = next(lines_of(path), (1, b"null"))
    said = asdict(row_of(_FIRST, line, f"{path}:1"))
    if (kind := (said.pop("format"), said.pop("version"))) != (FORMAT, VERSION):
        raise BadInput(f"{path}: {kind[0]!r} version {kind[1]}, this version reads {VERSION} of {FORMAT!r}; {MAKE_ONE}")
    header = Header(**said)
    for name, mine in (
        ("model_hash", model_hash), ("tokenizer_hash", tokenizer_hash), ("problems_hash", problems_hash)
    ):  # fmt: skip
        theirs = getattr(header, name)
        if mine is not None and theirs != mine:
            raise BadInput(
                f"{path}: its {name} is {theirs}, here it is {mine}: its states and ids are not of what is at hand; use the "
                f"model and problems that it was sampled with ({header.model}), or {MAKE_ONE}"
            )
    return TraceFile(path, header)
