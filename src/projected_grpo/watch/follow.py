"""A run as it is written, followed from its files: every step file is read once, and of the log what has come since."""

import math
import re
import unicodedata
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.ledger.rates import LAST, known_mean, rates
from projected_grpo.ledger.step_file import evaluations_in, read_step, step_path

RATES = ("hack", "gt", "form")
COSINES = ("cos_in", "cos_out", "cos_update")
TAIL = 65536
"""Bytes at the end of a log that is there already."""
MOST = 10_000
"""Lines of a log that are kept."""
SEQUENCE = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]")
"""What would move a terminal's cursor, or colour its text."""
STRING = re.compile(r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x80-\x9f]*(?:\x07|\x1b\\|\x9c)")
"""What would set its title or its clipboard; one without an end keeps its text."""


def known(value: Any) -> float | None:
    """A finite number, or None: a file that another hand wrote holds anything."""
    try:
        plain = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return None
    return value if plain else None


def harmless(text: str) -> str:
    """What of a text is to be read: a file that another hand wrote must not command the terminal. Nor is half a character
    left, which none can print; a tab is."""
    kept = STRING.sub("", SEQUENCE.sub("", text))
    return "".join(c for c in kept if c == "\t" or unicodedata.category(c) not in ("Cc", "Cs"))


@dataclass
class LogTail:
    """The last lines of a file that grows."""

    path: Path
    keep: int
    lines: deque[str] = field(init=False)
    _at: int = 0
    _torn: bytes = b""

    def __post_init__(self) -> None:
        self.lines = deque(maxlen=min(self.keep, MOST))

    def look(self) -> None:
        """Take in the whole lines that have been written since the last look."""
        if not self.path.is_file():
            return
        size = self.path.stat().st_size
        if size < self._at:  # another file of this name
            self._at, self._torn = 0, b""
            self.lines.clear()
        begin = self._at or max(0, size - TAIL)
        with self.path.open("rb") as f:
            f.seek(begin)
            new = f.read(size - begin)
        *whole, self._torn = (self._torn + new).split(b"\n")
        self._at = size
        self.lines.extend(harmless(line.decode("utf-8", "replace")) for line in whole)


@dataclass
class Followed:
    """A run directory at the latest look; empty before it has a manifest."""

    path: Path
    keep: int = 0
    """Lines of its log."""
    manifest: dict[str, Any] = field(default_factory=dict)
    series: dict[str, list[float | None]] = field(init=False)
    """One number per step: rates of the student's rows, cosines, `seconds`. None = not known."""
    log: LogTail = field(init=False)
    _seen: tuple[int, int] = (0, 0)
    """Inode and time of the manifest that was read: each version of it is a file of its own."""

    def __post_init__(self) -> None:
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.series = {name: [] for name in (*RATES, *COSINES, "seconds")}
        self.log = LogTail(self.path / "log.txt", self.keep)

    def look(self) -> None:
        """Take in what has been written since the last look. BadInput on a damaged file."""
        self._look_at_manifest()
        while self.done and not step_path(self.path, self.done - 1).exists():  # a resumed run has taken it back
            for values in self.series.values():
                values.pop()
        while step_path(self.path, self.done).exists():
            rows = read_step(step_path(self.path, self.done))
            own = rates([r for r in rows if r["source"] == "student"])
            told = {**own, **rows[0], "seconds": rows[0]["timing"].get("total")}
            for name, values in self.series.items():
                values.append(known(told[name]))
        self.log.look()

    def _look_at_manifest(self) -> None:
        try:
            found = (self.path / "manifest.json").stat()
        except FileNotFoundError:
            return
        if (found.st_ino, found.st_mtime_ns) == self._seen:
            return
        before, self.manifest = self.manifest, read_manifest(self.path)
        if not isinstance(config := self.manifest.get("config", {}), dict):
            raise BadInput(
                f"{self.path / 'manifest.json'}: config is a {type(config).__name__}, no object; not a manifest of this "
                "project: name another place, or make the run again"
            )
        self._seen = (found.st_ino, found.st_mtime_ns)
        if before and before.get("started") != self.manifest.get("started"):
            self._begin_anew()  # a queue began it again from nothing

    @property
    def done(self) -> int:
        """Steps that are on disk."""
        return len(self.series["seconds"])

    @property
    def total(self) -> int | None:
        """Steps that were asked for, at most; None where the run does not say."""
        config = self.manifest.get("config", {})
        asked = config.get("steps" if self.manifest.get("kind") == "train" else "n_problems")
        return asked if known(asked) is not None and isinstance(asked, int) and asked > 0 else None

    @property
    def finished(self) -> bool:
        """Whether the run says so."""
        return bool(self.manifest.get("finished"))

    @property
    def evaluates_first(self) -> bool:
        """Whether step 0 waits for a held-out evaluation."""
        config = self.manifest.get("config", {})
        due = ("eval", "eval_plain") if config.get("eval_plain") else ("eval",)
        return bool(config.get("eval_every")) and not self.done and any(not evaluations_in(self.path, f) for f in due)

    @property
    def name(self) -> str:
        """Kind, arm and seed."""
        config = self.manifest.get("config", {})
        told = (self.manifest.get("kind"), config.get("arm"), f"seed {config['seed']}" if "seed" in config else None)
        return " ".join(str(part) for part in told if part)

    @property
    def left(self) -> float | None:
        """Seconds that the steps to come take at the pace of the last 10, evaluations aside; None when it is not known."""
        pace = known_mean(self.series["seconds"][-LAST:])
        if self.finished or pace is None or self.total is None:
            return None
        return known(pace * max(0, self.total - self.done))

    def age(self, now: float) -> float | None:
        """Seconds since the last step was written; None before the first, and where a resumed run has just taken it back."""
        last = step_path(self.path, self.done - 1) if self.done else None
        return max(0.0, now - last.stat().st_mtime) if last and last.exists() else None

    def last(self, name: str) -> float | None:
        """Mean of what is known over the last 10 steps."""
        return known_mean(self.series[name][-LAST:])
