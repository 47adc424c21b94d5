"""Trace files: `traces.jsonl.gz`, one row per turn between a header and an end, and a reader that refuses drift.

    header  {"format": "projected_grpo traces", "version": 1, "model_hash": ..., ...}
    row     {"trace", "group", "problem", "source", "policy_step", "turn", "state": {"messages", "ids"},
             "action": {"text", "ids", "logps", "truncated"}, "reward", "done", "stop"}
    end     {"end": true, "traces": n, "rows": m, "sha256": of every line before}

No column is optional and none can be added: a label has no place in a row. A file is written to a temporary name and
renamed; its end is what tells a whole one from a torn one. The checksum finds edits, and is no signature.
"""

import gzip
import hashlib
import json
import math
import os
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any

from projected_grpo.ledger.errors import BadInput
from projected_grpo.prompts import as_chat
from projected_grpo.traces.record import Action, Step, Trace, assembled, fault_of

FORMAT = "projected_grpo traces"
VERSION = 1
MAKE_ONE = "write one with `just traces RUN` or `just multi-turn PRESET`"
ROW = ("trace", "group", "problem", "source", "policy_step", "turn", "state", "action", "reward", "done", "stop")
STATE, ACTION = ("messages", "ids"), ("text", "ids", "logps", "truncated")
END = ("end", "traces", "rows", "sha256")
Row = dict[str, Any]


@dataclass(frozen=True)
class Header:
    """What the traces of a file were sampled from. Where another project wrote them, a hash may be `unknown`."""

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


def write_traces(path: Path, header: Header, traces: Iterable[Trace]) -> int:
    """Write a trace file whole; returns the number of traces. They are written as they come: a long run's need not fit into
    memory.

    BadInput when the place is taken or cannot be written, or when there are no traces; ValueError on a trace that breaks
    the rules of `record` (a bug of ours). Nothing is left behind then.
    """
    if path.exists():
        raise BadInput(f"--out {path}: exists and is never overwritten; choose another")
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as f:
            # mtime=0 and no file name: the same traces give the same bytes.
            with gzip.GzipFile(filename="", mode="wb", fileobj=f, compresslevel=6, mtime=0) as z:
                count = _write(z, header, traces)
            f.flush()
            os.fsync(f.fileno())
        if not count:
            raise BadInput(f"--out {path}: there are no traces to write")
        temporary.replace(path)
    except OSError as e:
        raise BadInput(
            f"cannot write {path}: {e.strerror or e}; free some space or choose another place with --out"
        ) from e
    finally:
        temporary.unlink(missing_ok=True)
    return count


def _write(out: gzip.GzipFile, header: Header, traces: Iterable[Trace]) -> int:
    digest, seen, rows = hashlib.sha256(), set(), 0
    for row in _lines(header, traces, seen):
        data = json.dumps(row, allow_nan=False).encode() + b"\n"
        digest.update(data)
        out.write(data)
        rows += 1
    end = {"end": True, "traces": len(seen), "rows": rows - 1, "sha256": digest.hexdigest()}
    out.write(json.dumps(end).encode() + b"\n")
    return len(seen)


def _lines(header: Header, traces: Iterable[Trace], seen: set[str]) -> Iterator[Row]:
    yield {"format": FORMAT, "version": VERSION, **asdict(header)}
    for trace in traces:
        if wrong := fault_of(trace):
            raise ValueError(f"trace {trace.trace_id}: {wrong}")
        if trace.trace_id in seen:
            raise ValueError(f"trace {trace.trace_id} stands twice")
        seen.add(trace.trace_id)
        yield from rows_of(trace)


def rows_of(trace: Trace) -> Iterator[Row]:
    """A trace's rows, one per turn."""
    for turn, step in enumerate(trace.steps):
        action = step.action
        yield {
            "trace": trace.trace_id,
            "group": trace.group,
            "problem": trace.problem_id,
            "source": trace.source,
            "policy_step": trace.policy_step,
            "turn": turn,
            "state": {"messages": as_chat(step.messages), "ids": list(step.ids)},
            "action": {
                "text": action.text,
                "ids": list(action.ids),
                "logps": None if action.logps is None else list(action.logps),
                "truncated": action.truncated,
            },
            "reward": step.reward,
            "done": step.done,
            "stop": trace.stop,
        }


@dataclass(frozen=True)
class TraceFile:
    """A trace file that was read through once and found whole."""

    path: Path
    header: Header
    traces: int
    rows: int

    def __iter__(self) -> Iterator[Trace]:
        """The traces in order, one in memory at a time. BadInput names the trace and what is wrong with it."""
        seen: set[str] = set()
        rows = (_object(line) for line in _between_ends(_lines_of(self.path)))
        checked = (_checked(row, self.path, number) for number, row in enumerate(rows, 2))
        for trace_id, own in groupby(checked, key=lambda row: row["trace"]):
            trace = _trace(list(own), self.path)
            if trace_id in seen:
                raise BadInput(f"{self.path}: trace {trace_id} stands in two places; make the file again")
            seen.add(trace_id)
            yield trace


def _between_ends(lines: Iterable[bytes]) -> Iterator[bytes]:
    """All lines but the first and the last."""
    before = None
    for number, line in enumerate(lines):
        if before is not None:
            yield before
        before = line if number else None


def open_traces(
    path: Path, *, model_hash: str | None = None, tokenizer_hash: str | None = None, problems_hash: str | None = None
) -> TraceFile:
    """A trace file, whole and of what is at hand: hashes that are given must be the file's own.

    BadInput when it is missing, torn, edited, of another version, or of another model, tokenizer or set of problems; the
    line names both sides. The file is read through before the first trace is handed out.
    """
    lines = _lines_of(path)
    first = next(lines, b"")
    header = _header(first, path)
    for name, mine in (
        ("model_hash", model_hash), ("tokenizer_hash", tokenizer_hash), ("problems_hash", problems_hash)
    ):  # fmt: skip
        theirs = getattr(header, name)
        if mine is not None and theirs != mine:
            raise BadInput(
                f"{path}: its {name} is {theirs}, here it is {mine}: its states and ids are not of what is at hand; use the "
                f"model and problems that it was sampled with ({header.model}), or {MAKE_ONE}"
            )
    digest, rows, last, names = hashlib.sha256(first), -1, b"", set()
    for line in lines:
        digest.update(last)
        if last:
            name = (_object(last) or {}).get("trace")
            names.add(name if isinstance(name, str) else None)
        last, rows = line, rows + 1
    end = _object(last) or {}
    if end.get("end") is not True:
        raise BadInput(f"{path}: truncated: it has no end after {rows + 1} rows; make it again")
    if (end.get("rows"), end.get("sha256")) != (rows, digest.hexdigest()):
        raise BadInput(f"{path}: not what was written: its checksum is of other rows; make it again")
    if type(count := end.get("traces")) is not int or not count or end.keys() != set(END):
        raise BadInput(f"{path}: no traces in it, or an end that was edited; {MAKE_ONE}")
    if None not in names and (there := len(names)) != count:  # a row that is none is named when it is read
        raise BadInput(f"{path}: its end says {count} traces, its rows are of {there}; make it again")
    return TraceFile(path, header, count, rows)


def _lines_of(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path, "rb") as f:
            yield from f
    except FileNotFoundError as e:
        raise BadInput(f"{path}: no such file; {MAKE_ONE}") from e
    except (EOFError, gzip.BadGzipFile, zlib.error) as e:
        raise BadInput(f"{path}: truncated or no gzip ({e}); make it again") from e
    except OSError as e:
        raise BadInput(f"{path}: cannot be read ({e.strerror or e})") from e


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line, parse_constant=_refused)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _refused(name: str) -> None:
    """json reads NaN and infinities, and no trace is written with them."""
    raise ValueError(name)


def _header(line: bytes, path: Path) -> Header:
    found = _object(line)
    if found is None or found.pop("format", None) != FORMAT:
        raise BadInput(f"{path}: no trace file of ours (its first line is no header); {MAKE_ONE}")
    if (version := found.pop("version", None)) != VERSION:
        raise BadInput(f"{path}: trace format {version}, this version reads {VERSION}; make it again")
    if wrong := sorted(found.keys() ^ {f.name for f in fields(Header)}):
        raise BadInput(f"{path}: its header lacks or adds {wrong[0]!r}; make it again")
    try:
        return header_of(found)
    except ValueError as e:
        raise BadInput(f"{path}: {e}; make it again") from e


def header_of(found: Mapping[str, Any]) -> Header:
    """A header from its values, one a field. ValueError on one that a header does not hold."""
    for f in fields(Header):
        value = found[f.name]
        if type(value) is not f.type or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(f"its header's {f.name} is {value!r}")
    return Header(**found)


def _checked(row: Any, path: Path, number: int) -> Row:
    """A row with exactly the keys that a row has. BadInput names the line."""
    for what, has, keys in (("row", row, ROW), *((("state", row.get("state"), STATE), ("action", row.get("action"), ACTION))
                            if isinstance(row, dict) else ())):  # fmt: skip
        if has is None:
            raise BadInput(
                f"{path}:{number}: its {what} is no JSON object (NaN and infinities are none); make it again"
            )
        if not isinstance(has, dict):
            raise BadInput(f"{path}:{number}: its {what} is a {type(has).__name__}, where an object is expected")
        if wrong := sorted(set(keys) ^ has.keys()):
            raise BadInput(f"{path}:{number}: its {what} lacks or adds {wrong[0]!r}; a trace holds no other column")
    return row


def trace_of(rows: list[Row]) -> Trace:
    """A trace from its rows. ValueError, TypeError or KeyError on rows that are none."""
    first = rows[0]
    shared = ("trace", "group", "problem", "source", "policy_step", "stop")
    for turn, row in enumerate(rows):
        if row["turn"] != turn or any(row[name] != first[name] for name in shared):
            raise ValueError(f"its row {turn} is turn {row['turn']}, or of another trace")
    return assembled(
        first["trace"], first["group"], first["problem"], first["source"], first["policy_step"], first["stop"],
        [_step(row) for row in rows],
    )  # fmt: skip


def _step(row: Mapping[str, Any]) -> Step:
    state, action = row["state"], row["action"]
    if not isinstance(row["done"], bool) or not isinstance(action["truncated"], bool):
        raise TypeError("done and truncated are true or false")
    if not isinstance(action["text"], str):
        raise TypeError("an action's text is a text")
    logps = action["logps"]
    if any(type(x) not in (int, float) for x in (row["reward"], *(logps or ()))):
        raise TypeError("a reward and a log-probability are numbers")
    if any(
        m.keys() != {"role", "content"} or not all(isinstance(x, str) for x in m.values()) for m in state["messages"]
    ):
        raise TypeError("a message is role and content, both texts")
    return Step(
        tuple((str(m["role"]), str(m["content"])) for m in state["messages"]),
        tuple(state["ids"]),
        Action(
            action["text"],
            tuple(action["ids"]),
            None if logps is None else tuple(float(p) for p in logps),
            action["truncated"],
        ),
        float(row["reward"]),
        row["done"],
    )


def _trace(rows: list[Row], path: Path) -> Trace:
    try:
        return trace_of(rows)
    except (ValueError, TypeError, KeyError, OverflowError, AttributeError) as e:
        raise BadInput(f"{path}: trace {rows[0]['trace']}: {e}; make the file again") from e
