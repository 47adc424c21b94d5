"""Post-hoc: a finished vanilla run, with the hack removed from what it has learned. Nothing is trained.

    d_m = theta_m at the run's end - theta_m at its start
    post_hoc        d_m - V_m^T V_m d_m
    post_hoc_top    d_m without its k_m largest components, k_m = rows of V_m

delta_S are coordinates on the singular vectors of W, so W' - W = U diag(d) Vh, and the components of d are that
matrix's singular components, |d_i| its singular values: its principal components, V is only asked how many. A LoRA's
coordinates are no such thing.

In the loop: step 0 samples the untrained model, and its update is all of d at once, without the hack. Every later
update is zero. So step 0's evaluation is of the untrained model, and all rows after it are of the derived one.

Source: docs/interventions.md ("post-hoc PCA"); post_hoc is the projection of this project, done once at the end.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from projected_grpo.interventions.base import Intervention, Setup, StepContext, Vectors
from projected_grpo.ledger.errors import BadInput


class PostHoc(Intervention):
    """The component along V goes; of post_hoc_top the largest components, as many as V has directions in that
    module."""

    def __init__(self, setup: Setup) -> None:
        top, basis = setup.arm == "post_hoc_top", setup.basis
        if top and setup.adapter != "antipasto":
            raise BadInput(
                f"--adapter {setup.adapter}: --arm {setup.arm} removes singular components, which are coordinates of "
                "antipasto alone; leave the arm out"
            )
        self.left = {
            name: without_top(d, len(basis[name])) if top else d - basis[name].T @ (basis[name] @ d)
            for name, d in setup.finished.items()
        }

    def update(self, update: Vectors, context: StepContext) -> Vectors:  # noqa: ARG002
        return {name: torch.zeros_like(d) if context.step else -d for name, d in self.left.items()}


def without_top(d: Float[Tensor, " n"], k: int) -> Float[Tensor, " n"]:
    """Returns d with its k entries of the largest absolute value set to zero."""
    out = d.clone()
    out[d.abs().topk(min(k, d.numel())).indices] = 0
    return out
