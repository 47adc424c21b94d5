"""AntiPaSTO: train the coordinates of a weight in its singular basis.

W = U diag(S) Vh (thin SVD in float32). Forward, for x of [..., d_in]:

    y = x W^T + b + ((x Vh^T) * delta_S) U^T

delta_S = 0 is the base model bit for bit. The gradient of sample b is sum_t (x_bt Vh^T) * (g_bt U), g = dL/dy, so one
batched backward gives it for every sample. W' = W + U diag(delta_S) Vh folds the adapter away.

Differences from the source:
1. additive delta_S only; no rotation of the singular vectors and no scaling of S;
2. signs of singular vectors are fixed (the largest entry of each column of U is positive): an SVD leaves them free, and
   a V extracted under one choice would point the wrong way under another.

Source: AntiPaSTO (github.com/wassname/AntiPaSTO), the additive form of github.com/wassname/grpo_proj2 (25ad306),
src/projected_grpo/antipasto.py.
"""

from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from projected_grpo.adapters.base import AdaptedLinear, Adapter, along_ramp, mm_float32, reduce_dtype, replace_targets
from projected_grpo.adapters.svd import SVD, cached_svd, canonical_svd


class AntiPaSTOLinear(AdaptedLinear):
    """One Linear with delta_S [r], r = min(d_in, d_out)."""

    U: Tensor
    Vh: Tensor

    def __init__(self, name: str, linear: nn.Linear, svd: SVD) -> None:
        super().__init__(name, linear)
        u, s, vh = svd
        self.register_buffer("U", u.to(self.weight), persistent=False)
        self.register_buffer("Vh", vh.to(self.weight), persistent=False)
        self.theta = nn.Parameter(torch.zeros(s.numel(), dtype=reduce_dtype(self.weight), device=self.weight.device))
        self._weight_gradient: Tensor | None = None

    def per_sample(self, x: Float[Tensor, "b t d_in"], g: Float[Tensor, "b t d_out"], theta: Tensor) -> Tensor:
        dtype = theta.dtype
        return (x @ self.Vh.T).to(dtype).mul_((g @ self.U).to(dtype)).sum(1)  # in place: b x t x r is large

    def summed(self, x: Float[Tensor, "t d_in"], g: Float[Tensor, "t d_out"], theta: Tensor) -> Tensor | None:
        # diag(U^T (g^T x) Vh^T): one product with many tokens in place of two.
        if self.base is not None and theta.dtype == x.dtype:
            # As large as W: gathered over micro-batches, then contracted once.
            if self._weight_gradient is None:
                self._weight_gradient = g.T @ x
            else:
                self._weight_gradient.addmm_(g.T, x)
            return None
        if len(x) < max(x.shape[1], g.shape[1]):
            return super().summed(x, g, theta)
        return self._along_basis(mm_float32(g.T, x))

    def gathered(self) -> Float[Tensor, " r"] | None:
        weight_gradient, self._weight_gradient = self._weight_gradient, None
        return None if weight_gradient is None else self._along_basis(weight_gradient)

    def _along_basis(self, weight_gradient: Float[Tensor, "d_out d_in"]) -> Float[Tensor, " r"]:
        """dL/d delta_S from dL/dW': the diagonal of U^T (dL/dW') Vh^T."""
        return (mm_float32(self.U.T, weight_gradient.to(self.U.dtype)) * self.Vh).sum(1)

    def delta_weight(self, theta: Tensor) -> Float[Tensor, "d_out d_in"]:
        scaled = self.U * theta
        # bfloat16 products, summed in float32, take a tenth of the time; W' is rounded to bfloat16 anyway.
        return mm_float32(scaled.to(self.U.dtype), self.Vh)

    def basis_probe(self) -> Float[Tensor, " r"]:
        return along_ramp(self.Vh)


def attach_antipasto(model: nn.Module, svd_cache: Path | None = None) -> Adapter:
    """Adapt every target Linear of `model` in place; SVDs come from `svd_cache` (None: computed here)."""

    def make(name: str, linear: nn.Linear) -> AntiPaSTOLinear:
        svd = canonical_svd(linear.weight) if svd_cache is None else cached_svd(linear.weight, svd_cache)
        return AntiPaSTOLinear(name, linear, svd)

    return Adapter("antipasto", replace_targets(model, make, what="SVD of the weights"), {})
