"""LoRA through the same interface: theta is A [r, d_in] and B [d_out, r], flattened one after the other.

    y = x W^T + b + (x A^T) B^T

B = 0 at the start, so the base model is exact and A's first gradient is exactly zero: a V extracted there would not
cover A at all. Extraction therefore moves to a `warm_point`: B is drawn so small that ||B A|| is a thousandth of
||W|| and put back to zero afterwards; the artefact's metadata says so. A trained B gives A a gradient and stays as it
is.

Differences from the source: scale alpha / r is 1, no dropout; A's uniform initialisation is PEFT's.
Source: Hu et al. 2021 (arXiv:2106.09685), equation 3; huggingface/peft 0.21, peft/tuners/lora/layer.py.
"""

import math
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from projected_grpo.adapters.base import AdaptedLinear, Adapter, along_ramp, replace_targets
from projected_grpo.ledger.files import seed_of

WARM_RATIO = 1e-3
"""||B A|| / ||W|| at the warm point."""


@torch.no_grad()
def warm_columns(a: Float[Tensor, "r d_in"], b: Float[Tensor, "d_out r"], norm: Float[Tensor, ""], seed: int) -> None:
    """Fill the columns of B that are zero with noise of this seed, in place: ||noise A|| is WARM_RATIO of `norm`."""
    empty = ~b.any(0)
    if not empty.any():
        return
    noise = torch.randn(b.shape, generator=torch.Generator().manual_seed(seed)).to(b) * empty
    b.add_(noise * (WARM_RATIO * norm / (noise @ a).norm()))


class LoRALinear(AdaptedLinear):
    """One Linear with theta = [A.flatten(), B.flatten()]."""

    kind = "lora"

    @property
    def settings(self) -> dict[str, str]:
        return {"lora_rank": str(self.rank), "lora_seed": str(self.lora_seed)}

    def __init__(self, name: str, linear: nn.Linear, rank: int, seed: int) -> None:
        super().__init__(name, linear)
        self.rank, self.lora_seed = rank, seed
        self.d_out, self.d_in = linear.weight.shape
        self.seed = seed_of(f"{seed} {name}")
        a = torch.empty(rank, self.d_in)
        nn.init.kaiming_uniform_(a, a=math.sqrt(5), generator=torch.Generator().manual_seed(self.seed))
        theta = torch.cat([a.flatten(), torch.zeros(self.d_out * rank)])
        self.register_buffer("a_start", a.to(self.weight.device), persistent=False)
        self.theta = nn.Parameter(theta.to(self.weight.device, torch.promote_types(self.weight.dtype, torch.float32)))

    def split(self, theta: Tensor) -> tuple[Float[Tensor, "r d_in"], Float[Tensor, "d_out r"]]:
        """A and B as views of theta."""
        cut = self.rank * self.d_in
        return theta[:cut].view(self.rank, self.d_in), theta[cut:].view(self.d_out, self.rank)

    def per_sample(self, x: Float[Tensor, "b t d_in"], g: Float[Tensor, "b t d_out"], theta: Tensor) -> Tensor:
        a, b = self.split(theta.to(x.dtype))
        dtype = theta.dtype
        grad_a = torch.einsum("btr,btd->brd", (g @ b).to(dtype), x.to(dtype))
        grad_b = torch.einsum("btd,btr->bdr", g.to(dtype), (x @ a.T).to(dtype))
        return torch.cat([grad_a.flatten(1), grad_b.flatten(1)], 1)

    def delta_weight(self, theta: Tensor) -> Float[Tensor, "d_out d_in"]:
        a, b = self.split(theta)
        return b @ a

    def basis_probe(self) -> Float[Tensor, " r"]:
        return along_ramp(self.get_buffer("a_start"))


class FrozenALinear(LoRALinear):
    """One Linear with theta = B.flatten(): A stands still, so the same V is the same direction of the weights for as
    long as a run takes, and B has a gradient from the start.

    Source: Zhang et al. 2023, LoRA-FA (arXiv:2308.03303), section 3.1; with Adam on B, without the correction of B's
    gradient by (A A^T)^-1 that PEFT's create_lorafa_optimizer makes.
    """

    kind = "lora_fa"

    def __init__(self, name: str, linear: nn.Linear, rank: int, seed: int) -> None:
        super().__init__(name, linear, rank, seed)
        self.theta = nn.Parameter(self.theta.new_zeros(self.d_out * rank))

    def split(self, theta: Tensor) -> tuple[Float[Tensor, "r d_in"], Float[Tensor, "d_out r"]]:
        """A, and B as a view of theta."""
        return self.get_buffer("a_start").to(theta.dtype), theta.view(self.d_out, self.rank)

    def per_sample(self, x: Float[Tensor, "b t d_in"], g: Float[Tensor, "b t d_out"], theta: Tensor) -> Tensor:
        a, _ = self.split(theta.to(x.dtype))
        return torch.einsum("btd,btr->bdr", g.to(theta.dtype), (x @ a.T).to(theta.dtype)).flatten(1)


def attach_lora(model: nn.Module, rank: int, seed: int, kind: type[LoRALinear] = LoRALinear) -> Adapter:
    """Adapt every target Linear of `model` in place."""
    return Adapter(replace_targets(model, lambda name, linear: kind(name, linear, rank, seed)))


def for_config(model: nn.Module, config: Any) -> Adapter:
    """Returns the adapter that a run's config asks for."""
    return attach_lora(model, config.lora_rank, config.lora_seed)


def frozen_a_for_config(model: nn.Module, config: Any) -> Adapter:
    """As for_config, with A frozen."""
    return attach_lora(model, config.lora_rank, config.lora_seed, FrozenALinear)


@contextmanager
def warm_point(adapter: Adapter) -> Generator[None]:
    """Where A has a gradient (row i has none where column i of B is zero): columns of B that are zero are small and
    random instead, those that are not stay as they are. theta is put back afterwards.

    The identity for an adapter that trains no A, and for one whose B is trained.
    """
    before = adapter.values()
    for layer in adapter.layers.values():
        if type(layer) is LoRALinear:
            warm_columns(*layer.split(layer.theta.detach()), layer.weight.float().norm(), layer.seed + 1)
    try:
        yield
    finally:
        adapter.set_values(before)
