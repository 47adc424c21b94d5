"""The singular value decomposition of a weight, cached on disk. Its signs are fixed: antipasto.py says why."""

import hashlib
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from projected_grpo.adapters.base import reduce_dtype
from projected_grpo.ledger.files import write_atomic

WORST_CONDITION = 1e4
"""Largest over smallest singular value, up to which the way by the Gram matrix is exact in float32."""
SVD = tuple[Float[Tensor, "d_out r"], Float[Tensor, " r"], Float[Tensor, "r d_in"]]


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
    """Whether to try `gram_svd`: on a CPU it is no faster than the library's SVD, which on a GPU is a Jacobi method made for
    small matrices, taken one after the other even in a batch (cuSOLVER's batched ones end at 32 x 32)."""
    return w.is_cuda and w.dtype == torch.float32


def canonical_svd(weight: Float[Tensor, "d_out d_in"]) -> SVD:
    """Thin SVD in float32 (float64 for a float64 weight), the largest-magnitude entry of each column of U positive."""
    w = weight.detach().to(reduce_dtype(weight))
    found = gram_svd(w) if by_gram(w) else None
    u, s, vh = torch.linalg.svd(w, full_matrices=False) if found is None else found
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
    if path.exists():
        with safe_open(path, "pt") as f:
            # In memory that torch allocates: a tensor inside the file begins anywhere, and its products round otherwise.
            whole = {name: f.get_tensor(name).clone() for name in ("U", "S", "Vh")}
    else:
        u, s, vh = canonical_svd(weight)
        # In the weight's type, as the layer holds them: Qwen3-4B's are 10 GB so, 20 GB in float32.
        found = {"U": u.to(weight.dtype), "S": s, "Vh": vh.to(weight.dtype)}
        # In the file's memory layout: an SVD comes column by column, and a product of another layout rounds otherwise.
        whole = {k: v.cpu().contiguous() for k, v in found.items()}
        write_atomic(path, save(whole))
    return whole["U"].to(weight.device), whole["S"].to(weight.device), whole["Vh"].to(weight.device)
