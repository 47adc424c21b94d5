"""A run's directory: manifest.json, log.txt, and the rule that nothing is ever overwritten."""

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import tyro
from loguru import logger
from pydantic import TypeAdapter

from projected_grpo.ledger.console import log_to
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.ledger.step_file import SCHEMA_VERSION, steps_in

NoPath = Annotated[
    Path, tyro.conf.arg(help_behavior_hint=lambda shown: f"(default: {shown if shown != '.' else 'none'})")
]
"""A path that need not be given: Path() means none, which --help would show as the folder at hand."""
DEPLOYED = "deployed.safetensors"
"""The coordinates that an arm deploys, where they differ from those it trained."""
PACKAGES = ("torch", "transformers", "peft", "safetensors", "tokenizers", "numpy", "scipy", "tyro")
_ANY = TypeAdapter(Any)


def git_state() -> dict[str, str | None]:
    """Commit and full uncommitted diff of the checkout that this code runs from; None outside a git checkout."""
    git = ("git", "-C", str(Path(__file__).resolve().parent))
    try:
        commit, diff = (
            subprocess.check_output([*git, *args], stderr=subprocess.DEVNULL).decode("utf-8", "replace")
            for args in (("rev-parse", "HEAD"), ("diff", "HEAD"))
        )
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "diff": None}
    return {"commit": commit.strip(), "diff": diff}


def plain(value: Any) -> Any:
    """Returns a value in which dataclasses are dicts and paths are text."""
    return _ANY.dump_python(value, mode="json")


def check_new(directory: Path, *, resume: bool | None = None) -> None:
    """BadInput if a run directory that is to be new has anything in it, or one that is to be resumed holds no run.
    `resume`: None where the script cannot."""
    if resume and not (directory / "manifest.json").exists():
        raise BadInput(f"--resume {directory}: no run began there; leave --resume out, or name its --out")
    if not resume and directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        mend = "" if resume is None else ", or add --resume to go on with this run"
        raise BadInput(f"--out {directory}: exists and is never overwritten; choose another --out{mend}")


def open_run(directory: Path, kind: str, config: Any, *, resume: bool | None = None, **facts: Any) -> None:
    """Makes the run's directory, starts its log and writes the first manifest with `facts`.

    BadInput if it has anything in it (unless `resume`), or when resuming with another config or other facts.
    """
    check_new(directory, resume=resume)
    now = {"config": plain(config), **plain(facts)}
    if resume:
        before = read_manifest(directory)
        _check_same(directory, before, now, free_fields(config))
        if not before["finished"] or before["config"].get("steps") != now["config"].get("steps"):
            again = {"argv": sys.argv, "commit": git_state()["commit"], "processes": facts.get("processes")}
            update_manifest(directory, resumed=[*before.get("resumed", ()), again])
    else:
        state = {
            "kind": kind, "schema_version": SCHEMA_VERSION,
            "argv": sys.argv, "started": datetime.now(UTC).isoformat(timespec="seconds"),
            **now, **git_state(),
            "python": platform.python_version(), "versions": {package: version(package) for package in PACKAGES},
            "finished": False,
        }  # fmt: skip
        _write(directory, state)
    log_to(directory / "log.txt")
    logger.debug(f"argv: {shlex.join(sys.argv)}")
    logger.info(f"{kind} in {directory}{os.sep}")


def free_fields(config: Any) -> set[str]:
    """Returns the fields of a config that change no number (config.py classifies each): a resumed run may change
    them."""
    return {of.name for of in fields(config) if of.metadata.get("role") == "free"}


def _check_same(directory: Path, before: Mapping[str, Any], now: Mapping[str, Any], free: Collection[str]) -> None:
    started, asked = ({**m["config"], **{k: m.get(k) for k in now if k != "config"}} for m in (before, now))
    # The number of processes changes the order of a sum only, but for bnpo, which divides by each process's tokens.
    free = {*free, "steps"} | ({"processes"} if asked.get("loss") != "bnpo" else set())
    planned, steps = (m["config"].get("steps", 0) for m in (before, now))
    if steps != planned and (asked.get("meet") or asked.get("taid_weight")):
        raise BadInput(f"--steps {steps}: {directory} has {planned}, which --meet and --taid-weight need; repeat it")
    if steps != planned and steps < (done := len([*directory.glob("step_*")])):
        raise BadInput(f"--steps {steps}: {directory} has done {done}; give {done} or more")
    for key in {**started, **asked}:
        if key not in free and started.get(key) != asked.get(key):
            was, here = f"the run was started with {key}={started.get(key)!r}", repr(asked.get(key))
            raise BadInput(f"--resume {directory}: {was}, here it is {here}; repeat its arguments")


def read_manifest(directory: Path) -> dict[str, Any]:
    """Returns the run's manifest. BadInput when there is none, or it is of another schema."""
    path = directory / "manifest.json"
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as e:
        raise BadInput(f"{path}: cannot be read ({getattr(e, 'strerror', None) or e}); name the folder of a run") from e
    if (schema := data.get("schema_version")) != SCHEMA_VERSION:
        raise BadInput(f"{path}: schema {schema}, this version reads {SCHEMA_VERSION}; use the commit that it names")
    return data


def update_manifest(directory: Path, **values: Any) -> None:
    """Adds to the manifest, atomically."""
    _write(directory, {**read_manifest(directory), **values})


def _write(directory: Path, data: Mapping[str, Any]) -> None:
    write_atomic(directory / "manifest.json", _ANY.dump_json(data, indent=1))


def not_whole(directory: Path, manifest: Mapping[str, Any]) -> str:
    """Returns why a run does not count, in one line, or an empty string: it must be finished, with one step file for
    every step that its manifest says was done."""
    if not manifest["finished"]:
        return "not finished; continue it with --resume"
    try:
        found = len(steps_in(directory))
    except BadInput as e:
        return str(e)
    if (done := manifest.get("steps_done", found)) != found:
        return f"{found} step files, but its manifest says {done} steps; repeat the run"
    return ""


def finished_manifest(directory: Path, kinds: Collection[str], flag: str = "") -> dict[str, Any]:
    """Returns the manifest of a finished run of one of these kinds. BadInput, which `flag` begins, when it is
    none."""
    manifest, where = read_manifest(directory), f"{flag} {directory}".strip()
    if (kind := manifest["kind"]) not in kinds:
        raise BadInput(f"{where}: is a run of kind {kind!r}, where {' or '.join(map(repr, kinds))} is needed")
    if why := not_whole(directory, manifest):
        raise BadInput(f"{where}: {why}")
    return manifest
