"""What teachers are asked about: replayed steps of traces, as chat messages."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import lines_of, row_of
from projected_grpo.prompts import Message, Messages, as_chat, said_in


@dataclass(frozen=True)
class State:
    """One replayed step."""

    state_id: str
    trace_id: str
    messages: Messages
    """(role, content), all that a teacher is sent."""


@dataclass
class _Row:
    state_id: Annotated[str, Field(min_length=1)]
    trace_id: Annotated[str, Field(min_length=1)]
    messages: Annotated[list[Message], Field(min_length=1)]


_ROW = TypeAdapter(_Row)


def read_states(path: Path) -> list[State]:
    """The states of a JSON-lines file (.gz too), in its order. BadInput, naming file and line, on one that is none, on an id
    that is there twice, and on a file without states."""
    states = []
    for number, line in lines_of(path):
        row = row_of(_ROW, line, f"{path}:{number}")
        if row.messages[-1]["role"] == "assistant":
            raise BadInput(
                f"{path}:{number}: the assistant speaks last; a state ends where the next action is to be chosen"
            )
        states.append(State(row.state_id, row.trace_id, said_in(row.messages)))
    if not states:
        raise BadInput(f"{path}: no state in it; write one JSON object a line with state_id, trace_id and messages")
    name, times = Counter(s.state_id for s in states).most_common(1)[0]
    if times > 1:
        raise BadInput(f"{path}: state_id {name!r} is there {times} times; every state needs an id of its own")
    return states


def as_rows(states: Sequence[State]) -> bytes:
    """JSON lines that `read_states` reads to the same states."""
    rows = ({"state_id": s.state_id, "trace_id": s.trace_id, "messages": as_chat(s.messages)} for s in states)
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
