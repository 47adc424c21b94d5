"""AntiPaSTO: train the coordinates of a weight in its own singular basis.

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

import hashlib
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from projected_grpo.adapters.base import AdaptedLinear, Adapter, reduce_dtype, replace_targets
from projected_grpo.runs import progress
from projected_grpo.steps import write_atomic

SVD = tuple[Float[Tensor, "d_out r"], Float[Tensor, " r"], Float[Tensor, "r d_in"]]


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

    def term(self, x: Tensor, theta: Tensor) -> Tensor:
        return ((x @ self.Vh.T) * theta.to(x.dtype)) @ self.U.T

    def term_backward(self, x: Tensor, g: Tensor, theta: Tensor) -> Tensor:  # noqa: ARG002 - one signature for all
        return ((g @ self.U) * theta.to(g.dtype)) @ self.Vh

    def per_sample(self, x: Float[Tensor, "b t d_in"], g: Float[Tensor, "b t d_out"], theta: Tensor) -> Tensor:
        dtype = theta.dtype
        return (x @ self.Vh.T).to(dtype).mul_((g @ self.U).to(dtype)).sum(1)  # in place: b x t x r is large

    def summed(self, x: Float[Tensor, "t d_in"], g: Float[Tensor, "t d_out"], theta: Tensor) -> Tensor:
        # diag(U^T (g^T x) Vh^T): with many tokens one product with them instead of two. In bfloat16 g^T x would round.
        if theta.dtype != x.dtype or len(x) < max(x.shape[1], g.shape[1]):
            return super().summed(x, g, theta)
        return ((self.U.T @ (g.T @ x)) * self.Vh).sum(1)

    def delta_weight(self, theta: Tensor) -> Float[Tensor, "d_out d_in"]:
        return (self.U.to(theta.dtype) * theta) @ self.Vh.to(theta.dtype)

    def basis_probe(self) -> Float[Tensor, " r"]:
        # A ramp is not orthogonal to anything in particular, and each entry changes sign with its singular vector.
        ramp = torch.linspace(0.5, 1.5, self.Vh.shape[1], device=self.Vh.device)
        return self.Vh.float() @ (ramp / ramp.norm())


def canonical_svd(weight: Float[Tensor, "d_out d_in"]) -> SVD:
    """Thin SVD in float32 (float64 for a float64 weight), the largest-magnitude entry of each column of U positive."""
    u, s, vh = torch.linalg.svd(weight.detach().to(reduce_dtype(weight)), full_matrices=False)
    sign = torch.sign(u.gather(0, u.abs().argmax(0, keepdim=True)))
    sign = torch.where(sign == 0, torch.ones_like(sign), sign)
    return u * sign, s, vh * sign.T


def weight_key(weight: Tensor) -> str:
    """Hash of shape, type and every byte of a weight: a cached SVD can never be stale."""
    w = weight.detach().cpu().contiguous()
    digest = hashlib.blake2b(f"{tuple(w.shape)} {w.dtype}".encode(), digest_size=16)
    digest.update(w.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def cached_svd(weight: Float[Tensor, "d_out d_in"], folder: Path) -> SVD:
    """`canonical_svd` through `folder`: the same bits, layout and alignment from a cold cache as from a warm one. Writers
    rename a whole file into place, so any number may run at once."""
    path = folder / f"{weight_key(weight)}.safetensors"
    try:
        t = load_file(path, device=str(weight.device))
        # In memory of torch's own: a tensor inside the file begins anywhere, and a product of such a one rounds otherwise.
        return t["U"].clone(), t["S"].clone(), t["Vh"].clone()
    except FileNotFoundError:
        pass
    except SafetensorError:  # a torn file from a crashed disk: make it again
        path.unlink(missing_ok=True)
    u, s, vh = canonical_svd(weight)
    # In the weight's own type, as the layer holds them: Qwen3-4B's are 10 GB so, 20 GB in float32.
    whole = {"U": u.to(weight.dtype), "S": s, "Vh": vh.to(weight.dtype)}
    whole = {k: v.cpu().contiguous() for k, v in whole.items()}
    write_atomic(path, save(whole), flag="--cache")
    # In the file's memory layout: an SVD comes column by column, and a product of another layout rounds otherwise.
    return whole["U"].to(u.device), whole["S"].to(u.device), whole["Vh"].to(u.device)


def attach_antipasto(model: nn.Module, svd_cache: Path | None = None) -> Adapter:
    """Adapt every target Linear of `model` in place; SVDs come from `svd_cache` (None: computed here)."""

    def make(name: str, linear: nn.Linear) -> AntiPaSTOLinear:
        bar.update()
        svd = canonical_svd(linear.weight) if svd_cache is None else cached_svd(linear.weight, svd_cache)
        return AntiPaSTOLinear(name, linear, svd)

    with progress(None, "SVD of the weights") as bar:
        return Adapter("antipasto", replace_targets(model, make), {})
