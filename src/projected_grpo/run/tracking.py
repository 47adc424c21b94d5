"""Logs a run's steps to a tracker while it runs (`train --track`): trackio, which is local, or wandb.

    with tracked(config.track, run) as tracking:
        tracking.catch_up()                           # after each step

What is logged is read from step files, so a resumed run catches up. track.json holds the tracked run's name and the number
of steps logged; it is written first, so no step is logged twice.
"""

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

from loguru import logger

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.ledger.rates import mean, rates
from projected_grpo.ledger.step_file import COLUMNS, EVALUATIONS, Row, evaluations_in, read_step, step_path

PROJECT = "projected_grpo"
NOTE = "track.json"
UNTOLD = ("argv", "columns", "diff")
"""Of a manifest: what a tracker's settings are better without."""
NO_CHART = ("step", "seed", "theta_after")
"""Numbers of a step that a curve says nothing about."""


@dataclass(frozen=True)
class Tracker:
    """A module with wandb's API: init, log and finish."""

    load: Callable[[], Any]
    get: str
    """The command that installs it."""
    known_by: str
    """Which word of `init` says which tracked run to go on with: in trackio the name itself."""


TRACKERS: Mapping[str, Tracker] = {
    "trackio": Tracker(lambda: import_module("trackio"), "uv sync --extra track", "name"),
    "wandb": Tracker(lambda: import_module("wandb"), "uv pip install wandb", "id"),
}


def load_tracker(name: str) -> Any:
    """The module of a tracker; None for `none`. BadInput when it is not installed."""
    if name == "none":
        return None
    try:
        return TRACKERS[name].load()
    except ImportError as e:
        raise BadInput(f"--track {name}: cannot be imported ({e}); get it with `{TRACKERS[name].get}`") from e


class Tracking:
    """A run and the tracked run that follows it; does nothing without a module, or once the tracker has raised."""

    def __init__(self, name: str, module: Any, run: Path) -> None:
        self.name, self.run = name, run
        self.module: Any = module
        self.key, self.told = f"{run.name}-{uuid4().hex[:8]}", 0
        """Its name in the tracker, and how many steps that has been told."""

    def start(self) -> None:
        """Begin, or go on with, the tracked run, and tell it the steps that the run has done without it."""
        self._guarded(self._start)
        self.catch_up()

    def catch_up(self) -> None:
        """Tell every step that is on disk and has not been told."""
        while self.module is not None and step_path(self.run, self.told).exists():
            self._guarded(self._tell_next)

    def end(self) -> None:
        """Log the last evaluation and close the tracked run."""
        self._guarded(self._end)

    def _start(self) -> None:
        if (note := self.run / NOTE).exists():
            found = json.loads(note.read_text("utf-8"))
            if found["tracker"] == self.name:  # another tracker begins at the first step
                self.key, self.told = found["key"], found["told"]
        manifest = read_manifest(self.run)
        self.module.init(
            project=PROJECT, group=str(manifest["config"]["arm"]), resume="allow",
            config={k: v for k, v in manifest.items() if k not in UNTOLD},
            **{"name": self.run.name, TRACKERS[self.name].known_by: self.key},
        )  # fmt: skip
        self._note(self.told)
        logger.info(f"tracked by {self.name} as {self.key}, project {PROJECT}")

    def _tell_next(self) -> None:
        step = self.told
        self._note(step + 1)
        rows = read_step(step_path(self.run, step))
        self.module.log({**numbers(rows), **evaluated(self.run, step)}, step=step)

    def _end(self) -> None:
        last = evaluated(self.run, self.told)
        if last and read_manifest(self.run).get("finished"):
            self.module.log(last, step=self.told)
        self.module.finish()

    def _note(self, told: int) -> None:
        self.told = told
        note = {"tracker": self.name, "project": PROJECT, "key": self.key, "told": told}
        write_atomic(self.run / NOTE, (json.dumps(note) + "\n").encode())

    def _guarded(self, tell: Callable[[], Any]) -> None:
        """A tracker that raises loses its own lines, never the run."""
        if self.module is None:
            return
        try:
            tell()
        except Exception as e:  # noqa: BLE001 - a tracker may raise anything, and none of it is the run's affair
            self.module = None
            logger.warning(
                f"--track {self.name}: {type(e).__name__}: {e}; the run goes on without it ({self.told} steps told)"
            )


@contextmanager
def tracked(name: str, module: Any, run: Path) -> Generator[Tracking]:
    """A tracked run around what is done inside; closed however that ends."""
    tracking = Tracking(name, module, run)
    tracking.start()
    try:
        yield tracking
    finally:
        tracking.end()


def numbers(rows: Sequence[Row]) -> dict[str, float]:
    """Every number of a step that is known: mean reward and rates of its rows, its step columns, seconds and channels."""
    first = rows[0]
    of_step = {c.name: first[c.name] for c in COLUMNS if c.level == "step" and c.type in ("int", "float")}
    nested = {f"seconds/{part}": seconds for part, seconds in first["timing"].items()}
    nested |= {f"{name}/{key}": v for name, told in (first["channels"] or {}).items() for key, v in told.items()}
    found = {"reward": mean([r["reward"] for r in rows]), **rates(rows), **of_step, **nested}
    return {name: value for name, value in found.items() if value is not None and name not in NO_CHART}


def evaluated(run: Path, done: int) -> dict[str, float]:
    """Rates of the held-out evaluations after so many steps, as eval/hack, ...; empty where there were none."""
    found = {folder: evaluations_in(run, folder).get(done) for folder in EVALUATIONS}
    rated = {folder: rates(read_step(path)) for folder, path in found.items() if path is not None}
    return {f"{folder}/{name}": v for folder, own in rated.items() for name, v in own.items() if v is not None}
