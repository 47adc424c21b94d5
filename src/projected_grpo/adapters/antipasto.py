"""AntiPaSTO: train the coordinates of a weight in its singular basis.

W = U diag(S) Vh (thin SVD in float32). Forward, for x of [..., d_in]:

    y = x W^T + b + ((x Vh^T) * delta_S) U^T

delta_S = 0 is the base model bit for bit. The gradient of sample b is sum_t (x_bt Vh^T) * (g_bt U), g = dL/dy, so one
batched backward gives it for every sample. W' = W + U diag(delta_S) Vh merges the adapter away.

Differences from the source:
1. additive delta_S only; no rotation of the singular vectors and no scaling of S;
2. signs of singular vectors are fixed (the largest entry of each column of U is positive): an SVD leaves them free, and
   a V extracted under one choice would point the wrong way under another.

Source: AntiPaSTO (github.com/wassname/AntiPaSTO), the additive form of github.com/wassname/grpo_proj2 (25ad306),
src/projected_grpo/antipasto.py.
"""

import hashlib
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from projected_grpo.adapters.base import AdaptedLinear, Adapter, along_ramp, mm_float32, replace_targets
from projected_grpo.ledger.files import write_atomic

WORST_CONDITION = 1e4
"""Largest over smallest singular value, up to which the way by the Gram matrix is exact in float32."""
SVD = tuple[Float[Tensor, "d_out r"], Float[Tensor, " r"], Float[Tensor, "r d_in"]]


class AntiPaSTOLinear(AdaptedLinear):
    """One Linear with delta_S [r], r = min(d_in, d_out)."""

    kind = "antipasto"
    U: Tensor
    Vh: Tensor

    def __init__(self, name: str, linear: nn.Linear, svd: SVD) -> None:
        super().__init__(name, linear)
        u, s, vh = svd
        self.register_buffer("U", u.to(self.weight), persistent=False)
        self.register_buffer("Vh", vh.to(self.weight), persistent=False)
        self.theta = nn.Parameter(torch.zeros_like(s, device=self.weight.device))
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

    return Adapter(replace_targets(model, make, what="SVD of the weights"))


def for_config(model: nn.Module, config: Any) -> Adapter:
    """Returns the adapter that a run's config asks for."""
    return attach_antipasto(model, config.cache / "svd")


# ---------------------------------------------------------------- the singular value decomposition


def gram_svd(w: Float[Tensor, "d_out d_in"]) -> SVD | None:
    """Thin SVD of a float32 matrix from the eigenvectors of its smaller Gram matrix in float64. Squaring squares the
    condition number c; with 1e-16 c^2 below float32's rounding nothing is lost. None where c is larger."""
    tall = w.shape[0] > w.shape[1]
    a = (w.T if tall else w).double()
    values, vectors = torch.linalg.eigh(a @ a.T)  # ascending
    s, left = values.clamp(min=0).sqrt().flip(0), vectors.flip(1)
    if float(s[-1]) * WORST_CONDITION <= float(s[0]):
        return None
    right = left.T @ a / s[:, None]
    u, vh = (right.T, left.T) if tall else (left, right)
    return u.to(w.dtype), s.to(w.dtype), vh.to(w.dtype)


def by_gram(w: Tensor) -> bool:
    """Whether to try `gram_svd`: on a CPU it is no faster than the library's SVD, which on a GPU is a Jacobi method
    made for small matrices, taken one after the other even in a batch (cuSOLVER's batched ones end at 32 x 32)."""
    return w.is_cuda and w.dtype == torch.float32


def canonical_svd(weight: Float[Tensor, "d_out d_in"]) -> SVD:
    """Thin SVD in float32 (float64 for a float64 weight), the largest-magnitude entry of each column of U
    positive."""
    w = weight.detach().to(torch.promote_types(weight.dtype, torch.float32))
    found = gram_svd(w) if by_gram(w) else None
    u, s, vh = torch.linalg.svd(w, full_matrices=False) if found is None else found
    sign = torch.sign(u.gather(0, u.abs().argmax(0, keepdim=True)))
    return u * sign, s, vh * sign.T


def weight_key(weight: Tensor) -> str:
    """Hash of shape, type and every byte of a weight: a cached SVD can never be stale."""
    w = weight.detach().cpu().contiguous()
    digest = hashlib.blake2b(f"{tuple(w.shape)} {w.dtype}".encode(), digest_size=16)
    digest.update(w.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def cached_svd(weight: Float[Tensor, "d_out d_in"], folder: Path) -> SVD:
    """`canonical_svd` through `folder`: the same bits, layout and alignment from a cold cache as from a warm one.
    Writers rename a whole file into place, so any number may run at once."""
    path = folder / f"{weight_key(weight)}.safetensors"
    if path.exists():
        with safe_open(path, "pt") as f:
            # In memory that torch allocates: a tensor inside the file begins anywhere, and its products round
            # otherwise.
            whole = {name: f.get_tensor(name).clone() for name in ("U", "S", "Vh")}
    else:
        u, s, vh = canonical_svd(weight)
        # In the weight's type, as the layer holds them: Qwen3-4B's are 10 GB so, 20 GB in float32.
        found = {"U": u.to(weight.dtype), "S": s, "Vh": vh.to(weight.dtype)}
        # In the file's memory layout: an SVD comes column by column, and a product of another layout rounds
        # otherwise.
        whole = {k: v.cpu().contiguous() for k, v in found.items()}
        write_atomic(path, save(whole))
    return whole["U"].to(weight.device), whole["S"].to(weight.device), whole["Vh"].to(weight.device)
