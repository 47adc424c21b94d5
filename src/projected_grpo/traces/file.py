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
from typing import Literal

from pydantic import TypeAdapter

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import lines_of, row_of, write_atomic
from projected_grpo.traces.record import Trace

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
    """Whether the reward pays a completion's evaluation function."""
    temperature: float

    def check_model(self, place: Path, weights_hash: str, tokenizer_hash: str) -> None:
        """Raises BadInput when the traces of the file `place` are not of the model with these hashes."""
        for name, mine in (("model_hash", weights_hash), ("tokenizer_hash", tokenizer_hash)):
            if (theirs := getattr(self, name)) != mine:
                raise BadInput(
                    f"{place}: its {name} is {theirs}, --model's is {mine}; use the model that it was sampled with "
                    f"({self.model}), or {MAKE_ONE}"
                )


@dataclass(frozen=True)
class _FirstLine(Header):
    format: Literal["projected_grpo traces"]
    version: Literal[2]


_FIRST, _TRACE = TypeAdapter(_FirstLine), TypeAdapter(Trace)


def write_traces(path: Path, header: Header, traces: Iterable[Trace]) -> None:
    """Writes a trace file whole, the same bytes for the same traces. BadInput when the place is taken."""
    if path.exists():
        raise BadInput(f"--out {path}: exists and is never overwritten; choose another")
    lines = [json.dumps({"format": "projected_grpo traces", "version": 2, **asdict(header)})]
    lines += [json.dumps(asdict(trace), allow_nan=False) for trace in traces]
    write_atomic(path, gzip.compress("".join(line + "\n" for line in lines).encode(), 6, mtime=0))


def open_traces(path: Path) -> tuple[Header, Iterator[Trace]]:
    """Returns a trace file's header, and its traces in order, one in memory at a time.

    BadInput when the file is missing or of another version, and at a line that is no trace.
    """
    if not path.is_file():
        raise BadInput(f"{path}: no such file; {MAKE_ONE}")
    _, line = next(lines_of(path), (1, b"null"))
    first = asdict(row_of(_FIRST, line, f"{path}:1"))
    del first["format"], first["version"]
    return Header(**first), _traces(path)


def _traces(path: Path) -> Iterator[Trace]:
    for number, line in lines_of(path):
        if number > 1:
            yield row_of(_TRACE, line, f"{path}:{number}")
