"""Checkpoints: everything a run needs to go on to the same numbers, in one file that is renamed into place.

There is no random number generator in it, because a run has none with a state: every draw is a function of the seed, the
step and the place in it (rollout.draw, problems.schedule, sources.drawn).
"""

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from projected_grpo.adapters.base import Adapter
from projected_grpo.ledger import module_file
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.ledger.step_file import step_path, steps_in

NAME = "checkpoint.pt"
FORMAT = 3
_UNREADABLE = (OSError, RuntimeError, EOFError, ValueError, LookupError, AttributeError, pickle.UnpicklingError)
"""What torch.load raises on a damaged file, by where the damage is."""


def save_checkpoint(
    run: Path,
    step: int,
    adapter: Adapter,
    optimizer: torch.optim.Optimizer,
    basis: Mapping[str, Tensor],
    page: Mapping[str, Tensor] = {},
    channels: Mapping[str, Tensor] = {},
    outer: Mapping[str, Tensor] = {},
) -> None:
    """State after `step`: adapter, optimizer, V (a refreshed one is in no file), what an arm's page and the channels keep,
    and what replicas keep between rounds."""
    state = {
        "format": FORMAT,
        "step": step,
        "theta": {n: p.detach().cpu() for n, p in adapter.vectors.items()},
        "optimizer": optimizer.state_dict(),
        "basis": {n: v.cpu().clone() for n, v in basis.items()},  # in its own layout: another one rounds otherwise
        "page": {n: t.detach().cpu().contiguous() for n, t in page.items()},
        "channels": {n: t.detach().cpu().contiguous() for n, t in channels.items()},
        "outer": {n: t.detach().cpu().contiguous() for n, t in outer.items()},
    }
    out = io.BytesIO()
    torch.save(state, out)
    write_atomic(run / NAME, out.getvalue())


def read_checkpoint(run: Path) -> dict[str, Any]:
    """What `save_checkpoint` wrote, on the CPU, for `restore`; step files that came after it are dropped, and the
    side file is cut back to it.

    BadInput when there is no checkpoint, it is damaged or of another version, or a step file before it is missing.
    """
    path = run / NAME
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as e:
        raise BadInput(f"--resume: {path}: no such file; remove the folder and start the run anew") from e
    except _UNREADABLE as e:
        raise BadInput(f"--resume: {path}: damaged ({type(e).__name__}); start the run anew") from e
    if state.get("format") != FORMAT:
        raise BadInput(
            f"--resume: {path}: format {state.get('format', 1)}, this version goes on from {FORMAT}; start the run anew"
        )
    found = steps_in(run)
    if found[-1] < state["step"]:
        raise BadInput(f"--resume: {step_path(run, found[-1] + 1)}: missing, though the checkpoint is later")
    for late in (s for s in found if s > state["step"]):
        step_path(run, late).unlink()
    module_file.cut(run, state["step"])
    return state


def restore(
    state: Mapping[str, Any], adapter: Adapter, optimizer: torch.optim.Optimizer
) -> tuple[int, dict[str, Tensor]]:
    """Put a checkpoint's state back. Returns the next step and V."""
    adapter.set_values(state["theta"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"] + 1, {n: v.to(adapter.vectors[n]) for n, v in state["basis"].items()}
