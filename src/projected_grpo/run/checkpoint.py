"""Checkpoints: everything a run needs to go on to the same numbers, in one file that is renamed into place.

There is no random number generator in it, because a run has none with a state: every draw is a function of the seed, the
step and the place in it (rollout.draw, problems.schedule, sources.drawn).
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from projected_grpo.ledger import module_file
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.ledger.step_file import step_path, steps_in

NAME = "checkpoint.pt"


def write_checkpoint(run: Path, *, step: int, optimizer: Mapping[str, Any], **tensors: Mapping[str, Tensor]) -> None:
    """Writes the state after `step`: the optimizer's, and by name what else holds tensors."""
    # Clones keep each tensor's layout (V in another one rounds otherwise) without the storage that it is a view of.
    saved = {what: {n: t.detach().cpu().clone() for n, t in of.items()} for what, of in tensors.items()}
    out = io.BytesIO()
    torch.save({"step": step, "optimizer": optimizer, **saved}, out)
    write_atomic(run / NAME, out.getvalue())


def read_checkpoint(run: Path) -> dict[str, Any]:
    """Returns what `write_checkpoint` wrote, on the CPU; step files that came after it are removed, and the side file is cut
    back to it. BadInput when there is no checkpoint, or a step file before it is missing."""
    path = run / NAME
    if not path.exists():
        raise BadInput(f"--resume: {path}: no such file; remove the folder and start the run again")
    state = torch.load(path, map_location="cpu", weights_only=True)
    found = steps_in(run)
    if found[-1] < state["step"]:
        raise BadInput(f"--resume: {step_path(run, found[-1] + 1)}: missing, though the checkpoint is later")
    for late in found[state["step"] + 1 :]:
        step_path(run, late).unlink()
    module_file.cut(run, state["step"])
    return state
