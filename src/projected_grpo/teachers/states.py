"""What teachers are asked about: replayed steps of traces, as chat messages."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import content_hash, is_utf8, read_jsonl
from projected_grpo.prompts import ROLES, as_chat


@dataclass(frozen=True)
class State:
    """One replayed step."""

    state_id: str
    trace_id: str
    messages: tuple[tuple[str, str], ...]
    """(role, content), all that a teacher is sent."""


def _text(row: Mapping[str, Any], name: str, place: str) -> str:
    found = row.get(name)
    if not isinstance(found, str) or not found:
        raise BadInput(
            f"{place}: {name} is {found!r}, where a text is expected; a state has state_id, trace_id, messages"
        )
    if not is_utf8(found):
        raise BadInput(f"{place}: {name} holds half a surrogate pair, which cannot be sent; write it as UTF-8")
    return found


def _message(message: Any, place: str) -> tuple[str, str]:
    if not isinstance(message, dict) or set(message) != {"role", "content"}:
        what = sorted(message) if isinstance(message, dict) else type(message).__name__
        raise BadInput(f"{place}: a message is {what}, where role and content are expected; nothing else would be sent")
    if message["role"] not in ROLES:
        raise BadInput(f"{place}: role {message['role']!r}; there are {', '.join(ROLES)}")
    return message["role"], message["content"] if message["content"] == "" else _text(message, "content", place)


def state_of(row: Mapping[str, Any], place: str) -> State:
    """A state of a JSON object with state_id, trace_id and messages; other fields are not read and not sent. BadInput,
    naming the place, on anything else, and where it is the assistant that spoke last: nobody would be asked anything."""
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadInput(f"{place}: messages is {messages!r}, where a list of chat messages is expected")
    found = tuple(_message(m, place) for m in messages)
    if found[-1][0] == "assistant":
        raise BadInput(f"{place}: the assistant speaks last; a state ends where the next action is to be chosen")
    return State(_text(row, "state_id", place), _text(row, "trace_id", place), found)


def read_states(path: Path) -> list[State]:
    """The states of a JSON-lines file (.gz too), in its order. BadInput, naming file and row, on one that is none, on an id
    that is there twice, and on a file without states."""
    states = [state_of(row, f"{path} row {i}") for i, row in enumerate(read_jsonl(path), 1)]
    if not states:
        raise BadInput(f"{path}: no state in it; write one JSON object a line with state_id, trace_id and messages")
    name, times = Counter(s.state_id for s in states).most_common(1)[0]
    if times > 1:
        raise BadInput(f"{path}: state_id {name!r} is there {times} times; every state needs an id of its own")
    return states


def as_rows(states: Sequence[State]) -> bytes:
    """JSON lines that `read_states` reads to the same states."""
    rows = (
        {
            "state_id": s.state_id,
            "trace_id": s.trace_id,
            "messages": as_chat(s.messages),
        }
        for s in states
    )
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def states_hash(states: Sequence[State]) -> str:
    """Over ids, traces and every message, in order."""
    return content_hash([[s.state_id, s.trace_id, s.messages] for s in states])
