"""Logs a run's steps to trackio or wandb while it runs (`train --track`)."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loguru import logger

from projected_grpo.ledger.files import content_hash
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.ledger.rates import logp_gap, mean, rates
from projected_grpo.ledger.step_file import COLUMNS, EVALUATIONS, Row, evaluations_in, read_step


@contextmanager
def tracked(module: Any, run: Path) -> Generator[Callable[[int, Sequence[Row]], None]]:
    """Yields a function that logs a step's rows, and the evaluations before it. module: trackio or wandb; None:
    nothing is logged or read. A tracker that raises is warned of once and left alone."""
    if module is None:
        yield lambda *_: None
        return

    def attempt(function: str, *args: Any, **kwargs: Any) -> None:
        nonlocal module
        try:
            if module is not None:
                getattr(module, function)(*args, **kwargs)
        except Exception as e:  # noqa: BLE001 - a tracker may raise anything, and the run goes on
            module = None
            logger.warning(f"--track: {type(e).__name__}: {e}; the run goes on without it")

    def log(step: int, rows: Sequence[Row]) -> None:
        if module is not None and (found := numbers(run, step, rows)):
            attempt("log", found, step=step)

    manifest = read_manifest(run)
    # Resuming leaves both as they are, so a resumed run goes on under its name.
    key = f"{run.name}-{content_hash([manifest['started'], manifest['argv']])[:8]}"
    attempt(
        "init", project="projected_grpo", group=manifest["config"]["arm"], resume="allow", name=key,
        config={name: value for name, value in manifest.items() if name not in ("argv", "diff")},
        **({"id": key} if getattr(module, "__name__", "") == "wandb" else {}),
    )  # fmt: skip
    try:
        yield log
    finally:
        attempt("finish")


def numbers(run: Path, step: int, rows: Sequence[Row]) -> dict[str, float]:
    """Returns every known number of a step: mean reward and rates of its rows, its step columns, seconds and
    channels; and the rates of the held-out evaluations before it, as eval/hack, ... Without rows, of the evaluations
    alone."""
    found: dict[str, float | None] = {}
    for folder in EVALUATIONS:
        if path := evaluations_in(run, folder).get(step):
            found |= {f"{folder}/{name}": rate for name, rate in rates(read_step(path)).items()}
    if rows:
        first = rows[0]
        found |= {c.name: first[c.name] for c in COLUMNS if c.level == "step" and c.type in ("int", "float")}
        found |= {f"seconds/{part}": seconds for part, seconds in first["timing"].items()}
        found |= {f"{name}/{key}": v for name, own in (first["channels"] or {}).items() for key, v in own.items()}
        found |= {"reward": mean([r["reward"] for r in rows]), "logp_gap": logp_gap(rows), **rates(rows)}
    return {name: value for name, value in found.items() if value is not None}
