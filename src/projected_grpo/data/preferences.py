"""Preference pairs as they stand on disk: what the channel `trace_dpo` learns from. Torch-free.

    {"format": "projected_grpo.preference_pairs", "version": 1, "pairs": 2, "traces": 1, "steps": 1}         the first line
    {"trace": "p7/0", "step": 3, "teachers": 5, "votes": 3, "reason": "majority over student", "prompt": ..., "chosen": ...,
     "rejected": ...}                                                                             then one line a pair

JSON lines, gzipped where the name ends with .gz. `prompt` is a list of {role, content} messages, and `chosen` and `rejected`
are texts; or all three are token ids, and `tokenizer_hash` in the first line says whose. `traces` and `steps` there count
what was replayed, what gave no pair too; `made_from` may say of what, for people. `teachers` counts who was asked, `votes`
who agreed.
"""

import dataclasses
import gzip
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, Field, TypeAdapter
from typing_extensions import TypedDict  # pydantic takes typing's from Python 3.12 on

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import check_once, lines_of, row_of, write_atomic
from projected_grpo.prompts import Message, as_chat, from_chat

FORMAT = "projected_grpo.preference_pairs"
VERSION = 1
MAJORITY = "majority over student"
"""A pair's reason; the other one is `student over minority`."""
_Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class StoredPair:
    """One line: `chosen` is preferred to `rejected` after `prompt`. No label: votes made it."""

    trace: str
    step: _Count
    """Of the trace, from 0."""
    teachers: _Count
    votes: _Count
    reason: Literal["majority over student", "student over minority"]
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
    """Replayed, those without a pair too."""
    steps: int
    """The same."""
    tokenizer_hash: str | None = None
    """Whose ids they are; None for texts."""
    made_from: Mapping[str, Any] = field(default_factory=dict)

    @property
    def per_trace(self) -> float:
        """Mean number of pairs of a trace."""
        return len(self.pairs) / self.traces

    @property
    def sha256(self) -> str:
        """Of the pairs: two runs that learned from the same ones have the same."""
        return hashlib.sha256("".join(map(_line, self.pairs)).encode()).hexdigest()


def _line(pair: StoredPair) -> str:
    prompt = pair.prompt if pair.of_ids else as_chat(pair.prompt)
    return json.dumps({**dataclasses.asdict(pair), "prompt": prompt}, allow_nan=False) + "\n"


def write_preferences(path: Path, found: Preferences) -> None:
    """Writes the file whole and atomically, the same bytes for the same pairs. BadInput when the disk refuses or another
    file is there."""
    header = {"format": FORMAT, "version": VERSION, **vars(found), "pairs": len(found.pairs)}
    data = "".join((json.dumps(header) + "\n", *map(_line, found.pairs))).encode()
    data = gzip.compress(data, 6, mtime=0) if path.suffix == ".gz" else data
    if path.exists() and path.read_bytes() != data:
        raise BadInput(f"--out {path}: exists with something else in it and is never overwritten; choose another --out")
    write_atomic(path, data)


_Tokens = Annotated[tuple[_Count, ...], Field(min_length=1)]
_Said = Annotated[str, Field(min_length=1)]


class _Header(TypedDict):
    format: Literal["projected_grpo.preference_pairs"]
    version: Literal[1]
    pairs: _Count
    traces: Annotated[int, Field(ge=1)]
    steps: _Count
    tokenizer_hash: NotRequired[_Said | None]
    made_from: NotRequired[dict[str, Any]]


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


def read_preferences(path: Path) -> Preferences:
    """BadInput on a file that is missing, damaged, cut, without a pair, with one twice or of another version."""
    if not path.is_file():
        raise BadInput(f"--trace-pairs {path}: no such file; make one with `just trace-pairs`")
    lines = lines_of(path)
    number, line = next(lines, (1, b"{}"))
    header = row_of(_HEADER, line, f"{path}:{number}")
    whose = header.get("tokenizer_hash")
    kind: TypeAdapter[Any] = _IDS if whose else _TEXTS
    pairs = [StoredPair(**vars(row_of(kind, line, f"{path}:{number}"))) for number, line in lines]
    if not pairs or header["pairs"] != len(pairs):
        raise BadInput(f"{path}: holds {len(pairs)} pairs, its first line says {header['pairs']}; make it again")
    check_once(((f"pair {i} (trace {p.trace!r}, step {p.step})", p) for i, p in enumerate(pairs)), path)
    return Preferences(tuple(pairs), header["traces"], header["steps"], whose, header.get("made_from", {}))
