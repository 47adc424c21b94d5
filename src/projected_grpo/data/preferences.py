"""Preference pairs as they stand on disk: what the channel `trace_dpo` learns from. Torch-free.

    {"format": "projected_grpo.preference_pairs", "version": 1, "pairs": 2, "traces": 1, "steps": 1}         the first line
    {"trace": "p7/0", "step": 3, "teachers": 5, "votes": 3, "reason": "majority over student", "prompt": ..., "chosen": ...,
     "rejected": ...}                                                                             then one line a pair

JSON lines, gzipped where the name ends with .gz. `prompt` is a list of {role, content} messages, and `chosen` and
`rejected` are texts; or all three are token ids, and `tokenizer_hash` in the first line says whose. `made_from` is
for people."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, TypeAdapter

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import check_once, lines_of, row_of, write_new
from projected_grpo.prompts import Message, as_chat, from_chat

Reason = Literal["majority over student", "student over minority"]
MAJORITY, MINORITY = get_args(Reason)
_Count = Annotated[int, Field(ge=0)]
_Tokens = Annotated[tuple[_Count, ...], Field(min_length=1)]
_Said = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True)
class StoredPair:
    """One line: `chosen` is preferred to `rejected` after `prompt`. No label: votes made it."""

    trace: str
    step: _Count
    """Of the trace, from 0."""
    teachers: _Count
    """How many were asked."""
    votes: _Count
    """How many of them agreed."""
    reason: Reason
    prompt: Any
    """Messages, with texts as actions; or token ids, with token ids as actions."""
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
    """Replayed, as the steps: those without a pair too."""
    steps: int
    tokenizer_hash: str | None = None
    """Whose ids they are; None for texts."""
    made_from: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """Of the pairs: two runs that learned from the same ones have the same."""
        return hashlib.sha256("".join(map(_line, self.pairs)).encode()).hexdigest()


@dataclass
class _Header:
    format: Literal["projected_grpo.preference_pairs"]
    version: Literal[1]
    pairs: _Count
    traces: Annotated[int, Field(ge=1)]
    steps: _Count
    tokenizer_hash: _Said | None = None
    made_from: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Ids(StoredPair):
    prompt: _Tokens
    chosen: _Tokens
    rejected: _Tokens


@dataclass(frozen=True)
class _Texts(StoredPair):
    prompt: Annotated[list[Message], Field(min_length=1), AfterValidator(from_chat)]
    chosen: _Said
    rejected: _Said


_HEADER, _IDS, _TEXTS = TypeAdapter(_Header), TypeAdapter(_Ids), TypeAdapter(_Texts)


def _line(pair: StoredPair) -> str:
    prompt = pair.prompt if pair.of_ids else as_chat(pair.prompt)
    return json.dumps({**asdict(pair), "prompt": prompt}, allow_nan=False) + "\n"


def write_preferences(path: Path, found: Preferences) -> None:
    """Writes the file whole, the same bytes for the same pairs. BadInput as in `write_new`."""
    header = {"format": "projected_grpo.preference_pairs", "version": 1, **vars(found), "pairs": len(found.pairs)}
    write_new(path, "".join((json.dumps(header) + "\n", *map(_line, found.pairs))).encode())


def read_preferences(path: Path) -> Preferences:
    """BadInput on a file that is missing, damaged, cut, without a pair, with one twice or of another version."""
    lines = lines_of(path)
    number, line = next(lines, (1, b"{}"))
    header = row_of(_HEADER, line, f"{path}:{number}", "make the file with `just trace-pairs`")
    kind: TypeAdapter[Any] = _IDS if header.tokenizer_hash else _TEXTS
    pairs = [StoredPair(**vars(row_of(kind, line, f"{path}:{number}"))) for number, line in lines]
    if not pairs or header.pairs != len(pairs):
        raise BadInput(f"{path}: holds {len(pairs)} pairs, its first line says {header.pairs}; correct that number")
    check_once(((f"pair {i} (trace {p.trace!r}, step {p.step})", p) for i, p in enumerate(pairs)), path)
    return Preferences(tuple(pairs), header.traces, header.steps, header.tokenizer_hash, header.made_from)
