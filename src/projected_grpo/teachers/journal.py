"""Everything that was asked and answered, written as it happens: `calls.jsonl.gz`, one event a line.

Each line is a gzip member of its own, appended by one write and flushed to disk: `zcat` reads the file, each event has a
checksum, and a kill in the middle of a write tears the last event alone. An attempt is written down before it is sent, with
the most that it can cost, so that a killed run knows what it may have paid for.
"""

import fcntl
import gzip
import json
import math
import os
import zlib
from dataclasses import asdict, dataclass, fields
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import gzip_members, is_utf8

NAME = "calls.jsonl.gz"
MOST_USD = Decimal(10) ** 12


@dataclass(frozen=True)
class Session:
    """A process that asks begins (the run itself, or a resume)."""

    budget: Decimal
    """Its cap on all that is spent in this folder, in $."""
    started: str
    at: float = 0.0


@dataclass(frozen=True)
class Sent:
    """An attempt, written down before it is sent."""

    attempt: int
    """Its number in the file, from 0."""
    state: str
    teacher: str
    usd: Decimal
    """The most that it can cost."""
    at: float
    """Seconds since its session began; so in every event."""


@dataclass(frozen=True)
class Answered:
    """An attempt that brought an answer."""

    attempt: int
    usd: Decimal
    """What it cost; the most that it can have cost where `prompt_tokens` is None."""
    text: str
    finish: str
    model: str
    prompt_tokens: int | None
    completion_tokens: int | None
    at: float


@dataclass(frozen=True)
class Lost:
    """An attempt that brought none."""

    attempt: int
    usd: Decimal
    """0, or the most that it can have cost where it may have been paid for."""
    why: str
    at: float


Event = Session | Sent | Answered | Lost
KINDS: dict[str, type[Event]] = {"session": Session, "sent": Sent, "answered": Answered, "lost": Lost}
NAMES = {kind: name for name, kind in KINDS.items()}


def line_of(event: Event) -> bytes:
    """An event as a line of JSON; dollars are exact decimals, in quotes."""
    told = {k: format(v, "f") if isinstance(v, Decimal) else v for k, v in asdict(event).items()}
    return (json.dumps({"event": NAMES[type(event)], **told}) + "\n").encode()


def _fits(value: Any, kind: Any) -> bool:
    """Whether JSON holds a value of the field's type: a time is finite and not before its session, a text has no half of a
    surrogate pair."""
    if kind is float:
        return type(value) in (int, float) and 0 <= value < math.inf
    if kind is str:
        return isinstance(value, str) and is_utf8(value)
    return (type(value) is int and value >= 0) or (value is None and kind is not int)


def event_of(line: bytes) -> Event:
    """The event of a line. ValueError on anything else."""
    row: dict[str, Any] = json.loads(line)
    kind: Any = KINDS[row.pop("event")]
    if set(row) != {f.name for f in fields(kind)}:
        raise ValueError(f"fields {sorted(row)}")
    for f in fields(kind):
        if f.name not in ("usd", "budget") and not _fits(row[f.name], f.type):
            raise ValueError(f"{f.name} is {row[f.name]!r:.40}")
    money: dict[str, Any] = {name: Decimal(row[name]) for name in ("usd", "budget") if name in row}
    if any(not usd.is_finite() or not 0 <= usd <= MOST_USD for usd in money.values()):
        raise ValueError("dollars below 0, or more than anybody has")
    return kind(**{**row, **money})


def read_events(path: Path) -> tuple[list[Event], int]:
    """The events of a journal and how many bytes they take: less than the file has where its last event is torn. BadInput,
    naming the byte and the mend, where it is damaged."""
    events: list[Event] = []
    whole = 0
    try:
        for content, end in gzip_members(path.read_bytes()):
            events.append(event_of(content))
            whole = end
    except OSError as e:
        raise BadInput(f"{path}: cannot be read ({e.strerror or e})") from e
    except (zlib.error, ValueError, LookupError, TypeError, AttributeError, RecursionError, ArithmeticError) as e:
        raise BadInput(
            f"{path}: damaged at byte {whole} ({e}); the {len(events)} events before it are whole: "
            f"`truncate -s {whole}` keeps them"
        ) from e
    return events, whole


class Journal:
    """The one writer of a journal. `events` are those that were there when it was opened."""

    def __init__(self, path: Path) -> None:
        """Open or begin it; a torn last event is cut off. BadInput while another process writes it, and as `read_events`."""
        self.path = path
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as e:
            raise BadInput(f"cannot write {path}: {e.strerror or e}") from e
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.events, self._size = read_events(path)
            self.torn = path.stat().st_size - self._size
            self._file.truncate(self._size)
        except BlockingIOError:
            self._file.close()
            raise BadInput(f"{path}: another process is asking into this folder; wait for it or end it") from None
        except BadInput:
            self._file.close()
            raise

    def write(self, event: Event) -> None:
        """Append an event and flush it to disk. BadInput when the disk is full; the file is then as it was before."""
        data = gzip.compress(line_of(event), mtime=0)
        try:
            written = self._file.write(data)
            if written != len(data):
                raise OSError(28, "No space left on device")
            os.fsync(self._file.fileno())
        except OSError as e:
            self._file.truncate(self._size)
            raise BadInput(f"cannot write {self.path}: {e.strerror or e}; free some space and --resume") from e
        self._size += len(data)

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
