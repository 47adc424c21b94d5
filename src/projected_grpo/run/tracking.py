"""Logs a run's steps to trackio or wandb while it runs (`train --track`), read from its step files.

track.json holds the tracked run's name and the number of steps logged, so a resumed run logs each step once.
"""

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

from loguru import logger

from projected_grpo.ledger.by_source import logp_gap
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.ledger.rates import mean, rates
from projected_grpo.ledger.step_file import COLUMNS, EVALUATIONS, Row, evaluations_in, read_step, step_path


def load_tracker(name: str) -> Any:
    """Returns the module of a tracker; None for `none`. BadInput when it cannot be imported."""
    if name == "none":
        return None
    try:
        return import_module("trackio") if name == "trackio" else import_module("wandb")
    except ImportError as e:
        how = "uv sync --extra track" if name == "trackio" else f"uv pip install {name}"
        raise BadInput(f"--track {name}: cannot be imported ({e}); get it with `{how}`") from e


@contextmanager
def tracked(module: Any, run: Path) -> Generator[Callable[[], None]]:
    """Yields a function that logs every step that is on disk and not logged yet. module: trackio or wandb; None: nothing is
    logged. A tracker that raises is warned of once and left alone."""
    note = run / "track.json"
    fresh = {"key": f"{run.name}-{uuid4().hex[:8]}", "logged": 0}
    state: dict[str, Any] = json.loads(note.read_text("utf-8")) if note.exists() else fresh

    def begin() -> None:
        manifest = read_manifest(run)
        settings = {name: value for name, value in manifest.items() if name not in ("argv", "diff")}
        words = {"id": state["key"]} if module.__name__ == "wandb" else {}
        module.init(
            project="projected_grpo", group=str(manifest["config"]["arm"]), resume="allow", config=settings,
            name=state["key"], **words,
        )  # fmt: skip
        log_new()

    def log_new() -> None:
        while step_path(run, step := state["logged"]).exists():
            state["logged"] += 1
            write_atomic(note, json.dumps(state).encode())  # first, so that no step is logged twice
            module.log({**numbers(read_step(step_path(run, step))), **evaluated(run, step)}, step=step)

    def end() -> None:
        if read_manifest(run).get("finished") and (last := evaluated(run, state["logged"])):
            module.log(last, step=state["logged"])
        module.finish()

    def guarded(work: Callable[[], None]) -> None:
        nonlocal module
        try:
            if module is not None:
                work()
        except Exception as e:  # noqa: BLE001 - a tracker may raise anything, and the run goes on
            module = None
            logger.warning(f"--track: {type(e).__name__}: {e}; the run goes on without it")

    guarded(begin)
    try:
        yield lambda: guarded(log_new)
    finally:
        guarded(end)


def numbers(rows: Sequence[Row]) -> dict[str, float]:
    """Returns every known number of a step: mean reward and rates of its rows, its step columns, seconds and channels."""
    first = rows[0]
    found = {c.name: first[c.name] for c in COLUMNS if c.level == "step" and c.type in ("int", "float")}
    found |= {f"seconds/{part}": seconds for part, seconds in first["timing"].items()}
    found |= {f"{name}/{key}": v for name, own in (first["channels"] or {}).items() for key, v in own.items()}
    found |= {"reward": mean([r["reward"] for r in rows]), "logp_gap": logp_gap(rows), **rates(rows)}
    return {name: value for name, value in found.items() if value is not None}


def evaluated(run: Path, done: int) -> dict[str, float]:
    """Returns the rates of the held-out evaluations after so many steps, as eval/hack, ...; empty where there were none."""
    found = {folder: evaluations_in(run, folder).get(done) for folder in EVALUATIONS}
    rated = {folder: rates(read_step(path)) for folder, path in found.items() if path is not None}
    return {f"{folder}/{name}": v for folder, own in rated.items() for name, v in own.items() if v is not None}
