"""Preference pairs as they stand on disk: what the channel `trace_dpo` learns from. Torch-free.

    {"format": "projected_grpo.preference_pairs", "version": 1, "pairs": 2, "sha256": "...", ...}     the first line
    {"trace": "p7/0", "step": 3, "teachers": 5, "votes": 3, "reason": "majority over student", "prompt": ..., "chosen": ...,
     "rejected": ...}                                                                               then one line a pair

JSON lines, gzipped where the name ends with .gz. `prompt` is a list of {role, content} messages, and `chosen` and `rejected`
are texts; or all three are token ids, and `tokenizer_hash` in the first line says whose. sha256 is over all else, the first
line too. `traces` and `steps` there count what was replayed, what gave no pair too; `made_from` says of what, for people.

A pair is made by the majority rule (channels/preference_pairs.py) and by nothing else: `votes` of `teachers` proposed the
chosen action (majority over student: more than half) or the rejected one (student over minority: fewer). A file that says
otherwise is refused.
"""

import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import is_utf8, write_atomic
from projected_grpo.prompts import ROLES, Messages, as_chat, said_in

FORMAT = "projected_grpo.preference_pairs"
VERSION = 1
MAJORITY, MINORITY = REASONS = ("majority over student", "student over minority")
_KEYS = ("trace", "step", "teachers", "votes", "reason", "prompt", "chosen", "rejected")
_HEADER = ("format", "version", "pairs", "traces", "steps", "tokenizer_hash", "made_from", "sha256")

LEAST = 3
"""Teachers that can have a majority and a minority."""

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

    @property
    def of_student(self) -> Any:
        """The action that the student did."""
        return self.rejected if self.reason == MAJORITY else self.chosen

    @property
    def of_teachers(self) -> Any:
        """The action that has the votes."""
        return self.chosen if self.reason == MAJORITY else self.rejected


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

    @property
    def per_trace(self) -> float:
        """Mean number of pairs of a trace."""
        return len(self.pairs) / self.traces


def _line(pair: StoredPair) -> bytes:
    chat = pair.prompt if pair.of_ids else as_chat(pair.prompt)
    row = {name: getattr(pair, name) for name in _KEYS} | {"prompt": chat}
    return json.dumps(row, ensure_ascii=True, allow_nan=False).encode() + b"\n"


def write_preferences(
    path: Path,
    pairs: Sequence[StoredPair],
    *,
    traces: int,
    steps: int,
    tokenizer_hash: str | None = None,
    made_from: Mapping[str, Any] = {},
) -> str:
    """Write the file whole and atomically, the same bytes for the same pairs. Returns its sha256. BadInput when the disk
    refuses or another file is there, ValueError on pairs that the reader would refuse."""
    body = b"".join(_line(pair) for pair in pairs)
    header = {
        "format": FORMAT, "version": VERSION, "pairs": len(pairs), "traces": traces, "steps": steps,
        "tokenizer_hash": tokenizer_hash, "made_from": dict(made_from),
    }  # fmt: skip
    digest = _digest(header, body)
    data = json.dumps({**header, "sha256": digest}, ensure_ascii=True).encode() + b"\n" + body
    try:
        _parsed(data, path)
    except BadInput as e:
        raise ValueError(str(e)) from e
    data = gzip.compress(data, 6, mtime=0) if path.suffix == ".gz" else data
    if path.exists() and path.read_bytes() != data:
        raise BadInput(f"--out {path}: exists with something else in it and is never overwritten; choose another --out")
    write_atomic(path, data)
    return digest


def _digest(header: Mapping[str, Any], body: bytes) -> str:
    rest = {name: value for name, value in header.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, ensure_ascii=True).encode() + b"\n" + body).hexdigest()


def read_preferences(path: Path) -> Preferences:
    """BadInput, naming file and line, on a file that is missing, damaged, of another format or version, edited since it was
    written, empty, or whose pairs contradict the majority rule."""
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
    except FileNotFoundError as e:
        raise BadInput(f"--trace-pairs {path}: no such file; make one with `just trace-pairs`") from e
    except (EOFError, OSError, zlib.error) as e:
        raise BadInput(f"--trace-pairs {path}: cannot be read ({e}); make it again") from e
    return _parsed(data, path)


def _parsed(data: bytes, path: Path) -> Preferences:
    first, _, body = data.partition(b"\n")
    header = _object(first, f"{path}:1")
    if header.get("format") != FORMAT or header.get("version") != VERSION:
        raise BadInput(
            f"{path}:1: format {header.get('format')!r} version {header.get('version')!r}, this version reads {FORMAT!r} "
            f"version {VERSION}; make it again"
        )
    if odd := sorted(header.keys() ^ set(_HEADER)):
        raise BadInput(f"{path}:1: {odd[0]!r} is missing or unknown; make it again")
    if header["sha256"] != (now := _digest(header, body)):
        raise BadInput(f"{path}: holds sha256 {now[:16]}, its first line says {str(header['sha256'])[:16]}: cut or edited "
                       "since it was written; make it again")  # fmt: skip
    pairs = tuple(_pair(line, f"{path}:{i}") for i, line in enumerate(body.splitlines(), 2))
    _check_steps(pairs, path)
    if not pairs:
        raise BadInput(f"{path}: no pairs in it: the teachers had no majority, or all agreed with the student")
    counts = {
        "pairs": len(pairs),
        "traces": len({p.trace for p in pairs}),
        "steps": len({(p.trace, p.step) for p in pairs}),
    }
    for name, n in counts.items():
        said = header[name]
        if type(said) is not int or said < n or (name == "pairs" and said != n):
            raise BadInput(f"{path}:1: says {name} {said!r}, its pairs are of {n}; make it again")
    if len({p.of_ids for p in pairs}) > 1 or pairs[0].of_ids != isinstance(header["tokenizer_hash"], str):
        raise BadInput(
            f"{path}: token ids need a tokenizer_hash and texts have none, and a file holds one of both kinds"
        )
    return Preferences(pairs, header["traces"], header["steps"], header["tokenizer_hash"], header["made_from"], now)


def _object(line: bytes, place: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise BadInput(f"{place}: not JSON ({e}); no file of preference pairs, or a damaged one") from e
    if not isinstance(found, dict):
        raise BadInput(f"{place}: a {type(found).__name__}, where a JSON object is expected")
    return found


def _pair(line: bytes, place: str) -> StoredPair:
    row = _object(line, place)
    if odd := sorted(row.keys() ^ set(_KEYS)):
        raise BadInput(f"{place}: {odd[0]!r} is missing or unknown; needs exactly {', '.join(_KEYS)}")
    for name, kind in (("trace", str), ("step", int), ("teachers", int), ("votes", int), ("reason", str)):
        if type(row[name]) is not kind:
            raise BadInput(f"{place}: {name!r} should be {kind.__name__}, is {row[name]!r:.40}")
    of_ids = not isinstance(row["chosen"], str)
    pair = StoredPair(
        row["trace"], row["step"], row["teachers"], row["votes"], row["reason"],
        _ids(row["prompt"], "prompt", place) if of_ids else _chat(row["prompt"], place),
        *(_ids(row[n], n, place) if of_ids else _text(row[n], n, place) for n in ("chosen", "rejected")),
    )  # fmt: skip
    if not pair.prompt:
        raise BadInput(f"{place}: an empty prompt")
    if not pair.chosen or not pair.rejected:
        raise BadInput(f"{place}: an empty action")
    if _same(pair.chosen) == _same(pair.rejected):
        raise BadInput(f"{place}: prefers an action to itself")
    known = pair.reason in REASONS and pair.step >= 0 and pair.votes >= 1 and pair.teachers >= LEAST
    twice, n = 2 * pair.votes, pair.teachers
    if not known or not (n < twice <= 2 * n if pair.reason == MAJORITY else twice < n):
        raise BadInput(f"{place}: {pair.votes} votes of {pair.teachers} teachers give no pair {pair.reason!r:.40}: not made "
                       "by the majority rule")  # fmt: skip
    return pair


def _same(action: Any) -> Any:
    """Two actions with the same one are the same: of texts, white space at the end aside."""
    return action.rstrip() if isinstance(action, str) else action


def _check_steps(pairs: Sequence[StoredPair], path: Path) -> None:
    """BadInput on a step whose pairs no one vote gives: each teacher has one vote, and one action the majority."""
    of: dict[tuple[str, int], list[StoredPair]] = {}
    for pair in pairs:
        of.setdefault((pair.trace, pair.step), []).append(pair)
    for (trace, step), own in of.items():
        if (
            len({(p.prompt, _same(p.of_student), p.teachers) for p in own}) > 1
            or len({_same(p.of_teachers) for p in own}) < len(own)
            or sum(p.votes for p in own) > own[0].teachers
        ):
            raise BadInput(
                f"{path}: trace {trace!r}, step {step}: no one vote of its teachers gives its pairs; make it again"
            )


def _ids(value: Any, name: str, place: str) -> Ids:
    if not isinstance(value, list) or any(type(i) is not int or i < 0 for i in value):
        raise BadInput(f"{place}: {name!r} should be a list of token ids (or all of prompt, chosen and rejected texts)")
    return tuple(value)


def _text(value: Any, name: str, place: str) -> str:
    if not isinstance(value, str):
        raise BadInput(f"{place}: {name!r} should be a text, as the other action is")
    if not is_utf8(value):
        raise BadInput(f"{place}: {name!r} holds half a surrogate pair; write it as UTF-8")
    return value


def _chat(value: Any, place: str) -> Messages:
    good = isinstance(value, list) and all(
        isinstance(m, dict) and m.keys() == {"role", "content"} and all(isinstance(x, str) for x in m.values())
        for m in value
    )
    if not good:
        raise BadInput(f"{place}: 'prompt' should be a list of {{role, content}} messages, as the actions are texts")
    for message in value:
        _text(message["content"], "prompt", place)
        if message["role"] not in ROLES:
            raise BadInput(f"{place}: role {message['role']!r:.40}; there are {', '.join(ROLES)}")
    if value and value[-1]["role"] == "assistant":
        raise BadInput(f"{place}: the assistant speaks last; a prompt ends where an action is to be chosen")
    return said_in(value)
