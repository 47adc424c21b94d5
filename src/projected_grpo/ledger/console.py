"""A run's log: the terminal, log.txt, the last lines."""

import atexit
import io
import logging
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from loguru import logger
from tqdm import tqdm

from projected_grpo.ledger.errors import speaker

CUES = {"PASS": "🟢", "FAIL": "🔴", "NOT_EVALUABLE": "⚪"}
LOG_FORMAT = "{time:HH:mm:ss} {level.name[0]} {message}"
_before_run: list[str] = []
"""What was logged before there was a run directory: log.txt must hold the whole story."""


class _GraderWarnings(logging.Handler):
    """Puts what the grader warns of into our log; it knows the standard library's alone."""

    def emit(self, record: logging.LogRecord) -> None:
        logger.log(record.levelname, record.getMessage())


def start_log() -> None:
    """Logs to the terminal, one letter for the level; the grader's warnings too. Of several ranks all but the first
    print warnings only, under their name."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal of another encoding shows "\U0001f7e2" and loses no line
            stream.reconfigure(errors="backslashreplace")
    logging.getLogger("loophole_grader").handlers = [_GraderWarnings()]
    logger.remove()
    _before_run.clear()
    logger.add(_say, format=speaker() + "{level.name[0]} {message}", level="WARNING" if speaker() else "INFO")
    logger.add(lambda message: _before_run.append(str(message)), format=LOG_FORMAT, level="DEBUG")


def _say(message: str) -> None:
    with suppress(OSError):  # its reader has left (`| head`), or it is full; log.txt holds it all
        tqdm.write(message, end="", file=sys.stdout)  # bars stay whole
        sys.stdout.flush()


@atexit.register
def drop_unwritten() -> None:
    """Drops what stdout and stderr did not take: Python would try again when it ends, and exit with 120."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def log_to(path: Path) -> None:
    """Logs to a file as well, starting with what came before it."""
    with path.open("a", encoding="utf-8", errors="backslashreplace") as f:
        f.writelines(_before_run)
    named = str(path).replace("{", "{{").replace("}", "}}")  # loguru fills in braces
    logger.add(named, format=LOG_FORMAT, level="DEBUG", encoding="utf-8", errors="backslashreplace")


def progress(items: Any, what: str, total: int | None = None) -> Any:
    """tqdm that is silent where nobody watches (no terminal)."""
    return tqdm(items, desc=what, total=total, disable=bool(speaker()) or None, mininterval=1.0, leave=False)


def bottom_line(directory: Path | None, cue: str, headline: str, table: Sequence[Sequence[Any]] = ()) -> None:
    """The last lines of every script: table (TSV), verdict with a cue, path, argv."""
    for row in table:
        logger.info("\t".join("-" if v is None else f"{v:.4g}" if isinstance(v, float) else str(v) for v in row))
    logger.info(f"{CUES.get(cue, cue)} {headline}")
    if directory is not None:
        logger.info(f"out: {directory}{os.sep if directory.is_dir() else ''}")
    logger.info(f"argv: {shlex.join(sys.argv)}")
