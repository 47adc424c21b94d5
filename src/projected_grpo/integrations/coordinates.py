"""What V is written in, found in somebody else's model: of every module, the parameters that its coordinates are made of.

antipasto, lora   this project's adapters: theta
peft-lora         PEFT's A [r, d_in] and B [d_out, r] flattened one after the other, as adapters/lora_adapter.py has them
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn

from projected_grpo.adapters.base import AdaptedLinear, Adapter, along_ramp, reduce_dtype
from projected_grpo.adapters.lora_adapter import LoRALinear
from projected_grpo.ledger.errors import BadInput
from projected_grpo.model.load import hash_parameters


@dataclass(frozen=True)
class Site:
    """One module of V."""

    params: tuple[nn.Parameter, ...]
    """Whose numbers, one parameter after the other, are the coordinates."""

    @property
    def size(self) -> int:
        """n."""
        return sum(p.numel() for p in self.params)

    @property
    def dtype(self) -> torch.dtype:
        """Of every product with V: float32, or float64 for float64 parameters."""
        return reduce_dtype(self.params[0])

    def vector(self, tensors: Sequence[Tensor | None]) -> Float[Tensor, " n"]:
        """Returns a copy of tensors of the parameters' shapes as one vector; None counts as zeros."""
        parts = [torch.zeros_like(p) if t is None else t for t, p in zip(tensors, self.params, strict=True)]
        return torch.cat([part.detach().flatten() for part in parts]).to(self.dtype)

    def values(self) -> Float[Tensor, " n"]:
        """Returns a copy of the parameters."""
        return self.vector(self.params)

    def gradient(self) -> Float[Tensor, " n"]:
        """Returns a copy of their gradients."""
        return self.vector([p.grad for p in self.params])

    def pieces(self, vector: Float[Tensor, " n"]) -> list[Tensor]:
        """The vector in the parameters' shapes and types."""
        parts = vector.split([p.numel() for p in self.params])
        return [part.view_as(p).to(p.dtype) for part, p in zip(parts, self.params, strict=True)]


@dataclass(frozen=True)
class Coordinates:
    """All modules of a model that V may have rows in."""

    sites: Mapping[str, Site]
    metadata: Mapping[str, str]
    """Kind and settings: what must agree for two sets of coordinates to mean the same."""
    probes: Mapping[str, Float[Tensor, " _p"]]
    """A fingerprint of every module's coordinates, float32 on the CPU."""
    model: nn.Module
    """The causal language model inside all wrappers."""
    adapter: Adapter | None = None
    """Where it is one of this project's."""

    @property
    def sizes(self) -> dict[str, int]:
        """n of every module."""
        return {name: site.size for name, site in self.sites.items()}

    def weights_hash(self) -> str:
        """Of the weights without any adapter: equal to that of the same model before one was put on."""
        thetas = {id(m.theta) for m in self.model.modules() if isinstance(m, AdaptedLinear)}
        return hash_parameters(
            (name.replace(".base_layer", "").replace(".original_module", ""), p)
            for name, p in self.model.named_parameters()
            if id(p) not in thetas and ".lora_" not in name and ".modules_to_save." not in name
        )


def coordinates_of(model: nn.Module) -> Coordinates:
    """Returns what V is written in for this model: this project's adapter or PEFT's LoRA, all of it. Raises BadInput on a
    model without an adapter."""
    inner = unwrapped(model)
    if ours := {n: m for n, m in inner.named_modules() if isinstance(m, AdaptedLinear)}:
        return _of_adapter(inner, ours)
    peft = {n: m for n, m in inner.named_modules() if isinstance(m, LoraLayer)}
    if not peft:
        raise BadInput(f"{type(inner).__name__} has no adapter; put a LoRA of PEFT's on it, or one of this project's")
    return _of_peft(inner, peft)


def unwrapped(model: Any) -> nn.Module:
    """The causal language model inside DDP, torch.compile and PEFT."""
    while True:
        if isinstance(model, PeftModel):
            model = model.get_base_model()
        elif isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            model = model.module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod
        else:
            return model


def _of_adapter(model: nn.Module, layers: dict[str, AdaptedLinear]) -> Coordinates:
    first = next(iter(layers.values()))
    lora = {"lora_rank": str(first.rank), "lora_seed": str(first.lora_seed)} if isinstance(first, LoRALinear) else {}
    adapter = Adapter("lora" if lora else "antipasto", layers, lora)
    sites = {name: Site((layer.theta,)) for name, layer in layers.items()}
    return Coordinates(sites, adapter.metadata(), adapter.basis_probes(), model, adapter)


def _of_peft(model: nn.Module, layers: dict[str, Any]) -> Coordinates:
    sites, ranks, scales, probes = {}, set(), set(), {}
    for name, layer in layers.items():
        active = [a for a in layer.active_adapters if a in layer.lora_A]
        if len(active) != 1:
            raise BadInput(
                f"{name}: {len(active)} active LoRA adapters ({', '.join(active)}); V is of one: set_adapter"
            )
        (which,) = active
        if len(layer.lora_magnitude_vector) or layer.lora_variant.get(which) is not None:
            raise BadInput(f"{name}: DoRA and other variants train more than A and B; use a plain LoraConfig")
        a, b = layer.lora_A[which].weight, layer.lora_B[which].weight
        sites[name] = Site((a, b))
        ranks.add(layer.r[which])
        scales.add(float(layer.scaling[which]))
        probes[name] = along_ramp(a).cpu()
    metadata = {
        "adapter": "peft-lora",
        "lora_rank": ",".join(map(str, sorted(ranks))),
        "lora_scaling": ",".join(f"{s:g}" for s in sorted(scales)),
    }
    return Coordinates(sites, metadata, probes, model)
