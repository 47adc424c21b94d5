"""Preference pairs as they stand on disk: what the channel `trace_dpo` learns from. Torch-free.

    {"format": "projected_grpo.preference_pairs", "version": 1, "pairs": 2, "traces": 1, "steps": 1, ...}    the first line
    {"trace": "p7/0", "step": 3, "teachers": 5, "votes": 3, "reason": "majority over student", "prompt": ..., "chosen": ...,
     "rejected": ...}                                                                             then one line a pair

JSON lines, gzipped where the name ends with .gz. `prompt` is a list of {role, content} messages, and `chosen` and `rejected`
are texts; or all three are token ids, and `tokenizer_hash` in the first line says whose. `traces` and `steps` there count
what was replayed, what gave no pair too; `made_from` says of what, for people.
"""

import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, TypeAdapter

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import lines_of, row_of, write_atomic
from projected_grpo.prompts import Message, as_chat, said_in

FORMAT = "projected_grpo.preference_pairs"
VERSION = 1
Reason = Literal["majority over student", "student over minority"]
MAJORITY: Reason = "majority over student"
MINORITY: Reason = "student over minority"
_KEYS = ("trace", "step", "teachers", "votes", "reason", "prompt", "chosen", "rejected")

Ids = tuple[int, ...]


@dataclass(frozen=True)
class StoredPair:
    """One line: `chosen` is preferred to `rejected` after `prompt`. No label: votes made it."""

    trace: str
    step: int
    """Of the trace, from 0."""
    teachers: int
    votes: int
    reason: str
    prompt: Any
    """Messages, with texts as actions; or Ids, with Ids as actions."""
    chosen: Any
    rejected: Any

    @property
    def of_ids(self) -> bool:
        """Whether prompt and actions are token ids."""
        return not isinstance(self.chosen, str)


@dataclass(frozen=True)
class Preferences:
    """A whole file."""

    pairs: tuple[StoredPair, ...]
    traces: int
    """Replayed, those without a pair too."""
    steps: int
    """The same."""
    tokenizer_hash: str | None
    """Whose ids they are; None for texts."""
    made_from: Mapping[str, Any]
    sha256: str
    """Of the pairs: two runs that learned from the same ones have the same."""

    @property
    def per_trace(self) -> float:
        """Mean number of pairs of a trace."""
        return len(self.pairs) / self.traces


@dataclass
class _Header:
    format: str
    version: int
    pairs: int
    traces: NonNegativeInt
    steps: NonNegativeInt
    tokenizer_hash: str | None = None
    made_from: dict[str, Any] = field(default_factory=dict)


_Ids = Annotated[list[NonNegativeInt], Field(min_length=1)]
_Text = Annotated[str, Field(min_length=1)]


@dataclass
class _Row:
    trace: str
    step: NonNegativeInt
    teachers: NonNegativeInt
    votes: NonNegativeInt
    reason: Reason


@dataclass
class _IdsRow(_Row):
    prompt: _Ids
    chosen: _Ids
    rejected: _Ids


@dataclass
class _TextsRow(_Row):
    prompt: Annotated[list[Message], Field(min_length=1)]
    chosen: _Text
    rejected: _Text


_HEADER, _IDS, _TEXTS = TypeAdapter(_Header), TypeAdapter(_IdsRow), TypeAdapter(_TextsRow)


def write_preferences(
    path: Path,
    pairs: Sequence[StoredPair],
    *,
    traces: int,
    steps: int,
    tokenizer_hash: str | None = None,
    made_from: Mapping[str, Any] = {},
) -> None:
    """Write the file whole and atomically, the same bytes for the same pairs. BadInput when the disk refuses or another file
    is there."""
    header = {
        "format": FORMAT, "version": VERSION, "pairs": len(pairs), "traces": traces, "steps": steps,
        "tokenizer_hash": tokenizer_hash, "made_from": dict(made_from),
    }  # fmt: skip
    rows = [
        {name: getattr(pair, name) for name in _KEYS} | {"prompt": pair.prompt if pair.of_ids else as_chat(pair.prompt)}
        for pair in pairs
    ]
    data = "".join(json.dumps(row, allow_nan=False) + "\n" for row in (header, *rows)).encode()
    data = gzip.compress(data, 6, mtime=0) if path.suffix == ".gz" else data
    if path.exists() and path.read_bytes() != data:
        raise BadInput(f"--out {path}: exists with something else in it and is never overwritten; choose another --out")
    write_atomic(path, data)


def read_preferences(path: Path) -> Preferences:
    """BadInput, naming file and line, on a file that is missing, damaged, cut, empty or of another version, and on a row
    that is no pair."""
    if not path.is_file():
        raise BadInput(f"--trace-pairs {path}: no such file; make one with `just trace-pairs`")
    (_, first), *lines = list(lines_of(path)) or [(1, b"")]
    header = row_of(_HEADER, first, f"{path}:1")
    if (header.format, header.version) != (FORMAT, VERSION):
        raise BadInput(
            f"{path}:1: format {header.format!r} version {header.version}, this version reads {FORMAT!r} version {VERSION}"
        )
    pairs = tuple(_pair(line, f"{path}:{number}", header.tokenizer_hash is not None) for number, line in lines)
    if not pairs or len(pairs) != header.pairs or not header.traces:
        raise BadInput(f"{path}: its first line says {header.pairs} pairs of {header.traces} traces, {len(pairs)} are "
                       "there; make it again")  # fmt: skip
    digest = hashlib.sha256(b"".join(line for _, line in lines)).hexdigest()
    return Preferences(pairs, header.traces, header.steps, header.tokenizer_hash, header.made_from, digest)


def _pair(line: bytes, place: str, of_ids: bool) -> StoredPair:
    """Token ids where the first line says whose they are, else texts."""
    row = row_of(_IDS, line, place) if of_ids else row_of(_TEXTS, line, place)
    if row.chosen == row.rejected:
        raise BadInput(f"{place}: prefers an action to itself")
    if isinstance(row, _IdsRow):
        said = (tuple(row.prompt), tuple(row.chosen), tuple(row.rejected))
    elif row.prompt[-1]["role"] == "assistant":
        raise BadInput(f"{place}: the assistant speaks last; a prompt ends where an action is to be chosen")
    else:
        said = (said_in(row.prompt), row.chosen, row.rejected)
    return StoredPair(row.trace, row.step, row.teachers, row.votes, row.reason, *said)
