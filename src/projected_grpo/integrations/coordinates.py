"""What V is written in, found in somebody else's model: of every adapted module one vector of trainable numbers.

antipasto, lora   this project's adapters: theta
peft-lora         PEFT's A [r, d_in] and B [d_out, r] flattened one after the other, as adapters/lora_adapter.py has them
peft-lora-fa      the same with A frozen (LoRA-FA): B alone
"""

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn

from projected_grpo.adapters.base import AdaptedLinear, Adapter, along_ramp
from projected_grpo.ledger.errors import BadInput
from projected_grpo.model.load import hash_parameters
from projected_grpo.projection import Vectors
from projected_grpo.vhack import VBasis, same_coordinates


@dataclass(frozen=True)
class Coordinates:
    """The trainable numbers that V may have rows in. The same calls as an `Adapter`'s, for every kind of adapter."""

    model: nn.Module
    """The causal language model inside all wrappers."""
    parameters: Mapping[str, tuple[nn.Parameter, ...]]
    """Of every module; flattened, one after the other, they are its vector."""
    metadata: Mapping[str, str]
    """Kind and settings: what must agree for two sets of coordinates to mean the same."""
    probes: Mapping[str, Float[Tensor, " _p"]]
    """A fingerprint of every module's coordinates, float32 on the CPU."""
    adapter: Adapter | None = None
    """Where it is one of this project's."""

    @property
    def sizes(self) -> dict[str, int]:
        """n of every module."""
        return {name: sum(p.numel() for p in own) for name, own in self.parameters.items()}

    def values(self) -> dict[str, Float[Tensor, " _n"]]:
        """Returns copies of the parameters."""
        return {name: flat(own) for name, own in self.parameters.items()}

    def gradient(self) -> dict[str, Float[Tensor, " _n"]]:
        """Returns copies of their gradients; zeros where there is none."""
        return {
            name: flat([torch.zeros_like(p) if p.grad is None else p.grad for p in own])
            for name, own in self.parameters.items()
        }

    @torch.no_grad()
    def set_values(self, vectors: Vectors) -> None:
        for p, part in self.parts(vectors):
            p.copy_(part)

    def set_gradient(self, vectors: Vectors) -> None:
        for p, part in self.parts(vectors):
            p.grad = part

    def parts(self, vectors: Vectors) -> Generator[tuple[nn.Parameter, Tensor]]:
        """Yields every parameter of these modules with its part of the vector, in its shape and type."""
        for name, vector in vectors.items():
            own = self.parameters[name]
            for p, part in zip(own, vector.split([p.numel() for p in own]), strict=True):
                yield p, part.view_as(p).to(p.dtype)

    def weights_hash(self) -> str:
        """Of the weights that stand still: without adapters, and without biases where PEFT trains them. Otherwise
        equal to that of the same model before an adapter was put on."""
        configs = getattr(self.model, "peft_config", {}).values()
        biases = "|bias$" if any(getattr(config, "bias", "none") != "none" for config in configs) else ""
        trained = re.compile(rf"\.(theta$|lora_|modules_to_save\.|trainable_tokens_delta\.{biases})")
        return hash_parameters(
            (re.sub(r"\.(base_layer|original_module)\b", "", name), p)
            for name, p in self.model.named_parameters()
            if not trained.search(name)
        )

    def check_made_for(self, v: VBasis, *, moved: bool = False, **facts: str) -> None:
        """Raises BadInput when V was made for other weights or another adapter, or with other `facts`. moved: the
        adapter was trained since."""
        for key, here in {**facts, **self.metadata, "weights_hash": self.weights_hash()}.items():
            if (there := v.meta.get(key)) != here:
                raise BadInput(f"V was made for {key}={there}, but here it is {here}; extract it again")
        a_moved = moved and self.metadata["adapter"] == "peft-lora"  # the fingerprint is of A
        if why := same_coordinates(v, v.probes if a_moved else self.probes, self.sizes):
            mend = "extract V on this very model, and give `step` where a run goes on"
            raise BadInput(f"{why}: another LoRA, or a trained one; {mend}")


def flat(tensors: Sequence[Tensor]) -> Float[Tensor, " n"]:
    """Returns a copy of tensors as one vector, in the type of all products with V: float32, or float64 for
    float64."""
    return torch.cat([t.detach().flatten() for t in tensors]).to(torch.promote_types(tensors[0].dtype, torch.float32))


def unwrapped(model: Any) -> Any:
    """Returns the causal language model inside DDP, torch.compile and PEFT."""
    if isinstance(model, PeftModel):
        return unwrapped(model.get_base_model())
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return unwrapped(model.module)
    return unwrapped(model._orig_mod) if hasattr(model, "_orig_mod") else model


def coordinates_of(model: Any) -> Coordinates:
    """Returns what V is written in for this model, in whatever wrapper: this project's adapter, or the active LoRA of
    PEFT. Raises BadInput on a model without an adapter, or with several that are active."""
    inner = unwrapped(model)
    if layers := {name: m for name, m in inner.named_modules() if isinstance(m, AdaptedLinear)}:
        adapter = Adapter(layers)
        thetas = {name: (layer.theta,) for name, layer in layers.items()}
        return Coordinates(inner, thetas, adapter.metadata(), adapter.basis_probes(), adapter)
    peft = {name: m for name, m in inner.named_modules() if isinstance(m, LoraLayer)}
    if not peft:
        raise BadInput(f"{type(inner).__name__} has no adapter; put a LoRA of PEFT's on it, or one of this project's")
    if any(len(m.active_adapters) != 1 for m in peft.values()):
        raise BadInput(f"{type(inner).__name__}: V is of one LoRA; activate exactly one adapter (set_adapter)")
    found = {name: lora_of(m) for name, m in peft.items() if m.active_adapters[0] in m.lora_A}
    scales = sorted({scale for *_, scale in found.values()})
    own = {name: (b,) if b.requires_grad and not a.requires_grad else (a, b) for name, (a, b, _) in found.items()}
    kind = "peft-lora-fa" if all(len(ps) == 1 for ps in own.values()) else "peft-lora"
    return Coordinates(
        inner,
        own,
        {"adapter": kind, "lora_scaling": ",".join(f"{scale:g}" for scale in scales)},
        {name: along_ramp(a).cpu() for name, (a, *_) in found.items()},
    )


def lora_of(layer: Any) -> tuple[nn.Parameter, nn.Parameter, float]:
    """Returns A [r, d_in], B [d_out, r] and the scale of the active LoRA of one of PEFT's layers."""
    which = layer.active_adapters[0]
    return layer.lora_A[which].weight, layer.lora_B[which].weight, float(layer.scaling[which])
