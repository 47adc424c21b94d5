"""Checkpoints: everything a run needs to go on to the same numbers, in one file that is renamed into place."""

import ast
import io
import pickle
import random
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from projected_grpo.adapters.base import Adapter
from projected_grpo.errors import BadInput
from projected_grpo.steps import step_path, steps_in, write_atomic

NAME = "checkpoint.pt"
_UNREADABLE = (OSError, RuntimeError, EOFError, ValueError, LookupError, AttributeError, pickle.UnpicklingError)
"""What torch.load raises on a damaged file, by where the damage is."""


def save_checkpoint(
    run: Path,
    step: int,
    adapter: Adapter,
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
    basis: Mapping[str, Tensor],
) -> None:
    """State after `step`: adapter, optimizer, every random number generator, and V (a refreshed one is in no file)."""
    state = {
        "step": step,
        "theta": {n: p.detach().cpu() for n, p in adapter.vectors.items()},
        "optimizer": optimizer.state_dict(),
        "basis": {n: v.cpu().contiguous() for n, v in basis.items()},
        "generator": generator.get_state(),
        "torch_rng": torch.get_rng_state(),
        "cuda_rng": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python_rng": repr(random.getstate()),
        "numpy_rng": _numpy_state(),
    }
    out = io.BytesIO()
    torch.save(state, out)
    write_atomic(run / NAME, out.getvalue())


def _numpy_state() -> tuple[str, torch.Tensor, int, int, float]:
    kind, keys, pos, has_gauss, gauss = np.random.get_state(legacy=True)
    return str(kind), torch.from_numpy(np.array(keys, dtype=np.int64)), int(pos), int(has_gauss), float(gauss)


def load_checkpoint(
    run: Path, adapter: Adapter, optimizer: torch.optim.Optimizer, generator: torch.Generator
) -> tuple[int, dict[str, Tensor]]:
    """Restore what `save_checkpoint` wrote and drop step files that came after it. Returns the next step and V.

    BadInput when there is no checkpoint, it is damaged, or a step file before it is missing.
    """
    path = run / NAME
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as e:
        raise BadInput(f"--resume: {path}: no such file; the run was cut before its first step, start it anew") from e
    except _UNREADABLE as e:
        raise BadInput(f"--resume: {path}: damaged ({type(e).__name__}); start the run anew") from e
    with torch.no_grad():
        for name, p in adapter.vectors.items():
            p.copy_(state["theta"][name])
    optimizer.load_state_dict(state["optimizer"])
    generator.set_state(state["generator"])
    torch.set_rng_state(state["torch_rng"])
    if state["cuda_rng"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda_rng"])
    random.setstate(ast.literal_eval(state["python_rng"]))
    kind, keys, *rest = state["numpy_rng"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    found = steps_in(run)
    if found[-1] < state["step"]:
        raise BadInput(f"--resume: {step_path(run, found[-1] + 1)}: missing, though the checkpoint is later")
    for late in (s for s in found if s > state["step"]):
        step_path(run, late).unlink()
    return state["step"] + 1, {n: v.to(adapter.vectors[n]) for n, v in state["basis"].items()}
