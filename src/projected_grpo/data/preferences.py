"""Preference pairs as they stand on disk: what the channel `trace_dpo` learns from. Torch-free.

    {"format": "projected_grpo.preference_pairs", "version": 1, "pairs": 2, "traces": 1, "steps": 1, ...}    the first line
    {"trace": "p7/0", "step": 3, "teachers": 5, "votes": 3, "reason": "majority over student", "prompt": ..., "chosen": ...,
     "rejected": ...}                                                                             then one line a pair

JSON lines, gzipped where the name ends with .gz. `prompt` is a list of {role, content} messages, and `chosen` and `rejected`
are texts; or all three are token ids, and `tokenizer_hash` in the first line says whose. `traces` and `steps` there count
what was replayed, what gave no pair too; `made_from` says of what, for people.
"""

import dataclasses
import gzip
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import check_once, read_jsonl, write_atomic
from projected_grpo.prompts import as_chat, from_chat

FORMAT = "projected_grpo.preference_pairs"
VERSION = 1
MAJORITY = "majority over student"
"""A pair's reason; the other one is `student over minority`."""


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


def read_preferences(path: Path) -> Preferences:
    """BadInput on a file that is missing, damaged, cut, without a pair, with one twice or of another version."""
    if not path.is_file():
        raise BadInput(f"--trace-pairs {path}: no such file; make one with `just trace-pairs`")
    header, *rows = read_jsonl(path) or [{}]
    named = {name: header.pop(name, None) for name in ("format", "version", "pairs")}
    if named != {"format": FORMAT, "version": VERSION, "pairs": len(rows)} or not rows:
        raise BadInput(f"{path}: {named}, expected {FORMAT!r}, version {VERSION} and {len(rows)} pairs; make it again")
    pairs = tuple(map(_pair, rows))
    check_once(((f"pair {i} (trace {p.trace!r}, step {p.step})", p) for i, p in enumerate(pairs)), path)
    return Preferences(pairs, **header)


def _pair(row: dict[str, Any]) -> StoredPair:
    if isinstance(row["chosen"], str):
        row["prompt"] = from_chat(row["prompt"])
    else:
        row |= {name: tuple(row[name]) for name in ("prompt", "chosen", "rejected")}
    return StoredPair(**row)
