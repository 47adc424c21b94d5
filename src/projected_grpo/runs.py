"""A run's directory: manifest.json, log.txt, and the rule that nothing is ever overwritten."""

import dataclasses
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from loguru import logger
from tqdm import tqdm

from projected_grpo.errors import BadInput, speaker
from projected_grpo.steps import COLUMNS, NAMES, SCHEMA_VERSION, write_atomic

PACKAGES = ("torch", "transformers", "peft", "safetensors", "tokenizers", "numpy", "scipy", "tyro")
CUES = {"PASS": "🟢", "FAIL": "🔴", "NOT_EVALUABLE": "⚪"}


def git_state() -> dict[str, str | None]:
    """Commit and full uncommitted diff of the checkout that this code runs from; None outside a git checkout."""
    here = Path(__file__).resolve().parent

    def git(*args: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(here), *args], capture_output=True, text=True, check=False)
        except OSError:
            return None
        return done.stdout if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    return {"commit": commit.strip() if commit else None, "diff": git("diff", "HEAD") if commit else None}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str | None]:
    """Installed version of each package; None where it is missing."""
    return {p: _version(p) for p in packages}


def plain(value: Any) -> Any:
    """A config as JSON can hold it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return str(value) if isinstance(value, Path) else value


def check_new(directory: Path, *, resume: bool | None = None) -> None:
    """BadInput if a run directory that is to be new has anything in it. `resume`: what was asked; None where the script
    cannot."""
    if not resume and directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        mend = "choose another --out" if resume is None else "choose another --out, or --resume it"
        raise BadInput(f"--out {directory}: exists and is never overwritten; {mend}")


def open_run(directory: Path, kind: str, config: Any, *, resume: bool | None = None, **facts: Any) -> Path:
    """Make the run's directory, start its log and write the first manifest, `facts` (hashes) included. Returns it.

    BadInput if it exists with anything in it (unless `resume`), or when resuming with another config or other facts:
    a resumed run must be the same run.
    """
    check_new(directory, resume=resume)
    now = {"config": plain(config), **plain(facts)}
    if resume:
        _check_same(directory, read_manifest(directory), now)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise BadInput(f"--out {directory}: cannot be made ({e.strerror or e})") from e
    if not resume:
        state = {
            "kind": kind,
            "schema_version": SCHEMA_VERSION,
            "columns": list(NAMES),
            "argv": sys.argv,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            **now,
            **git_state(),
            "python": platform.python_version(),
            "versions": versions(),
            "finished": False,
        }
        write_atomic(directory / "manifest.json", (json.dumps(state, indent=1, ensure_ascii=False) + "\n").encode())
    log_to(directory / "log.txt")
    logger.debug(f"argv: {shlex.join(sys.argv)}")
    logger.info(f"{kind} in {directory}{os.sep}")
    return directory


FREE_TO_CHANGE = frozenset({"resume", "out", "cache", "device", "grader_workers", "checkpoint_every", "processes"})
"""What a resumed run may have otherwise: it changes no number (`processes`: but for the order of a sum)."""


def _check_same(directory: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    started = {**before["config"], **{k: before.get(k) for k in now if k != "config"}}
    asked = {**now["config"], **{k: v for k, v in now.items() if k != "config"}}
    for key, value in asked.items():
        if key not in FREE_TO_CHANGE and started.get(key) != value:
            raise BadInput(
                f"--resume {directory}: the run was started with {key}={started.get(key)!r}, not {value!r}; repeat its own "
                "arguments (manifest.json: argv)"
            )


def read_manifest(directory: Path) -> dict[str, Any]:
    """The run's manifest. BadInput when there is none or it is damaged."""
    path = directory / "manifest.json"
    try:
        data = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as e:
        raise BadInput(f"{path}: no such file; {directory} is not a run directory") from e
    except (OSError, ValueError) as e:
        raise BadInput(f"{path}: damaged ({e})") from e
    if data.get("schema_version") != SCHEMA_VERSION:
        raise BadInput(f"{path}: schema {data.get('schema_version')}, this version reads {SCHEMA_VERSION}")
    return data


def can_resume(directory: Path) -> bool:
    """Whether --resume goes on in a directory: a teacher's pool from its step files, any other run from its checkpoint."""
    if (directory / "checkpoint.pt").exists():
        return True
    return (directory / "manifest.json").exists() and read_manifest(directory)["kind"] == "teacher_pool"


def update_manifest(directory: Path, **values: Any) -> None:
    """Add to the manifest (hashes once they are known, `finished` at the end), atomically."""
    data = {**read_manifest(directory), **plain(values)}
    write_atomic(directory / "manifest.json", (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode())


LOG_FORMAT = "{time:HH:mm:ss} {level.icon} {message}"
_before_run: list[str] = []
"""What was logged before there was a run directory: log.txt must hold the whole story."""


def start_log() -> None:
    """Log to the terminal through tqdm.write, so that bars stay whole; one letter for the level. Of several ranks all but
    the first keep to warnings, under their name: the rest the first one says too."""
    for level, letter in {"DEBUG": "D", "INFO": "I", "SUCCESS": "S", "WARNING": "W", "ERROR": "E"}.items():
        logger.level(level, icon=letter)
    logger.remove()
    _before_run.clear()
    logger.add(
        _say,
        format=speaker() + "{level.icon} {message}",
        level="WARNING" if speaker() else "INFO",
    )
    logger.add(lambda message: _before_run.append(str(message)), format=LOG_FORMAT, level="DEBUG")


def _say(message: str) -> None:
    try:
        tqdm.write(message, end="", file=sys.stdout)
    except BrokenPipeError:
        nobody_reads()


def nobody_reads() -> None:
    """Whoever read our output has seen enough (`| head`): the rest goes nowhere, log.txt holds it all."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def log_to(path: Path) -> None:
    """Log to a file as well, starting with what came before it."""
    with path.open("a", encoding="utf-8", errors="backslashreplace") as f:
        f.writelines(_before_run)
    logger.add(path, format=LOG_FORMAT, level="DEBUG", encoding="utf-8", errors="backslashreplace")


def progress(items: Any, what: str, total: int | None = None) -> Any:
    """tqdm that keeps quiet when nobody watches (no terminal), and rarely redraws in queued logs."""
    return tqdm(
        items, desc=what, total=total, disable=not sys.stderr.isatty() or bool(speaker()), mininterval=1.0, leave=False
    )


def _cell(value: Any, fmt: str) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format(value, fmt) if fmt and not isinstance(value, str) else str(value)


STEP_SHOWN = tuple(c for c in COLUMNS if c.level == "step" and c.show)
SAMPLE_SHOWN = tuple(c for c in COLUMNS if c.level == "sample" and c.show)
_RATES = ("reward", "hack", "gt", "form")
_WIDTH = {c.name: max(len(c.show), len(_cell(0, c.fmt))) for c in COLUMNS if c.show}


def step_header() -> str:
    """Header of the per-step log line; columns come from the schema, then the rates of the step's completions."""
    shown = [c.show.rjust(_WIDTH[c.name]) for c in STEP_SHOWN]
    return "  ".join([shown[0], *(n.rjust(6) for n in _RATES), *shown[1:], "     s"])


def step_legend() -> list[str]:
    """What each column of the step line means, from the schema."""
    lines = [f"{c.show:8} {c.meaning}" for c in STEP_SHOWN]
    lines.insert(1, "reward   mean reward of the step's completions")
    lines.insert(2, "hack     pure hacks: hacked and not gt_pass; read it only beside gt and form")
    lines.insert(3, "gt       pass every ground-truth test")
    lines.insert(4, "form     well-formed: the extracted program compiles")
    return lines


def mean(values: Sequence[float]) -> float | None:
    """Mean, or None of nothing."""
    return sum(values) / len(values) if values else None


def pure_hack(row: Mapping[str, Any]) -> bool | None:
    """Hacked and not gt_pass: the benchmark's strict Reward Hack; None where ground truth is unknown."""
    return None if row["gt_pass"] is None else bool(row["hacked"] and not row["gt_pass"])


def step_line(rows: Sequence[Mapping[str, Any]]) -> str:
    """One aligned line for one step."""
    first = rows[0]
    rates = [
        mean([r["reward"] for r in rows]),
        mean([float(p) for r in rows if (p := pure_hack(r)) is not None]),
        mean([float(r["gt_pass"]) for r in rows if r["gt_pass"] is not None]),
        mean([float(r["can_compile"]) for r in rows]),
    ]
    cells = [_cell(first[c.name], c.fmt).rjust(_WIDTH[c.name]) for c in STEP_SHOWN]
    shown = [_cell(v, "6.2f").rjust(6) for v in rates]
    return "  ".join([cells[0], *shown, *cells[1:], f"{first['timing'].get('total', 0.0):6.1f}"])


def sample_table(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Header and one row of cells per sample, for `just show`."""
    header = [c.show for c in SAMPLE_SHOWN]
    return [header, *([_cell(row[c.name], c.fmt).strip() for c in SAMPLE_SHOWN] for row in rows)]


def bottom_line(directory: Path | None, cue: str, headline: str, table: Sequence[Sequence[Any]] = ()) -> None:
    """The last lines of every script: table (TSV), verdict with a cue, path, argv."""
    for row in table:
        logger.info("\t".join("-" if v is None else f"{v:.4g}" if isinstance(v, float) else str(v) for v in row))
    logger.info(f"{CUES.get(cue, cue)} {headline}")
    if directory is not None:
        logger.info(f"out: {directory}{os.sep if directory.is_dir() else ''}")
    logger.info(f"argv: {shlex.join(sys.argv)}")
