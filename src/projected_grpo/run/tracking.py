"""Logs a run's steps to trackio or wandb while it runs (`train --track`)."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from loguru import logger

from projected_grpo.ledger.files import content_hash
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.ledger.rates import logp_gap, mean, rates
from projected_grpo.ledger.step_file import COLUMNS, EVALUATIONS, Row, evaluations_in, read_step


def load_tracker(name: str) -> Any:
    """Returns the module of a tracker; None for `none`."""
    if name == "none":
        return None
    return import_module("trackio") if name == "trackio" else import_module("wandb")


@contextmanager
def tracked(module: Any, run: Path) -> Generator[Callable[[int, Sequence[Row]], None]]:
    """Yields a function that logs a step's rows, and the evaluations before it. module: trackio or wandb; None: nothing is
    logged. A tracker that raises is warned of once and left alone."""

    def attempt(work: Callable[[], None]) -> None:
        nonlocal module
        try:
            if module is not None:
                work()
        except Exception as e:  # noqa: BLE001 - a tracker may raise anything, and the run goes on
            module = None
            logger.warning(f"--track: {type(e).__name__}: {e}; the run goes on without it")

    def begin() -> None:
        manifest = read_manifest(run)
        settings = {name: value for name, value in manifest.items() if name not in ("argv", "diff")}
        # Resuming leaves both as they are, so a resumed run goes on under its name.
        key = f"{run.name}-{content_hash([manifest['started'], manifest['argv']])[:8]}"
        module.init(
            project="projected_grpo", group=str(manifest["config"]["arm"]), resume="allow", config=settings, name=key,
            **({"id": key} if module.__name__ == "wandb" else {}),
        )  # fmt: skip

    def log(step: int, rows: Sequence[Row]) -> None:
        if found := numbers(rows) | evaluated(run, step):
            module.log(found, step=step)

    attempt(begin)
    try:
        yield lambda step, rows: attempt(lambda: log(step, rows))
    finally:
        attempt(lambda: module.finish())


def numbers(rows: Sequence[Row]) -> dict[str, float]:
    """Returns every known number of a step: mean reward and rates of its rows, its step columns, seconds and channels.
    Empty without rows."""
    if not rows:
        return {}
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
