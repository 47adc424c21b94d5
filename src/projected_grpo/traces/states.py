"""What teachers are asked about: the states of traces, as chat messages. Torch-free."""

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import check_once, lines_of, row_of, write_atomic
from projected_grpo.prompts import Message, Messages, as_chat, from_chat
from projected_grpo.traces.record import Trace


@dataclass(frozen=True)
class State:
    """The chat before one action."""

    state_id: str
    trace_id: str
    messages: Messages
    """All that a teacher is sent: (role, content)."""


@dataclass
class _Row:
    state_id: Annotated[str, Field(min_length=1)]
    trace_id: Annotated[str, Field(min_length=1)]
    messages: Annotated[list[Message], Field(min_length=1)]


_ROW = TypeAdapter(_Row)


def state_id(trace_id: str, turn: int) -> str:
    """Returns the id of the state before the action of a turn, from 0."""
    return f"{trace_id}, turn {turn}"


def states_of(traces: Iterable[Trace]) -> list[State]:
    """Returns every state, trace by trace. Neither what the student did there nor what it earned is in one."""
    return [
        State(state_id(trace.trace_id, turn), trace.trace_id, step.messages)
        for trace in traces
        for turn, step in enumerate(trace.steps)
    ]


def read_states(path: Path) -> list[State]:
    """Returns the states of a JSON-lines file (.gz too), in its order. BadInput, naming file and line, on one that is none,
    on an id that is there twice, and on a file without states."""
    states = []
    for number, line in lines_of(path):
        row = row_of(_ROW, line, f"{path}:{number}")
        if row.messages[-1]["role"] == "assistant":
            raise BadInput(
                f"{path}:{number}: the assistant speaks last; a state ends where the next action is to be chosen"
            )
        states.append(State(row.state_id, row.trace_id, from_chat(row.messages)))
    if not states:
        raise BadInput(f"{path}: no state in it; write one JSON object a line with state_id, trace_id and messages")
    check_once(((f"state_id {s.state_id!r}", s.state_id) for s in states), path)
    return states


def as_rows(states: Sequence[State]) -> bytes:
    """Returns JSON lines that `read_states` reads to the same states."""
    rows = ({"state_id": s.state_id, "trace_id": s.trace_id, "messages": as_chat(s.messages)} for s in states)
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def write_states(path: Path, traces: Iterable[Trace]) -> None:
    """Writes the states of traces as JSON lines, gzipped where the name ends with .gz.

    BadInput when the disk refuses, or the file is there with other states.
    """
    data = as_rows(states_of(traces))
    data = gzip.compress(data, mtime=0) if path.suffix == ".gz" else data
    if path.exists() and path.read_bytes() != data:
        raise BadInput(f"--out {path}: exists with other states in it and is never overwritten; choose another")
    write_atomic(path, data)
