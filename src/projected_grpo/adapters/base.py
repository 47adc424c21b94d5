"""What every adapter is: one flat trainable vector `theta` per Linear, zero effect at the start, and per-sample
gradients of that vector handed out during the one batched backward pass.

The forward of an adapted Linear is y = x W'^T + b with the merged weight W' = W + delta_weight(theta), in W's type.
Sampling and training read the same W', so the policy that is trained is the one that was sampled, to the bit. In
bfloat16 W' is rounded at random (`rounded_at_random`): to the nearest, a small delta_weight would be lost.

Custom autograd Functions keep x and no other activation. A sink, while one is set, receives the gradient of every
sample of the batch, [b, n] float32, before they are summed: so no adapter knows of V, and large per-sample gradients
need not be kept.

theta = 0 is the base model bit for bit in every type.
"""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional as F

from projected_grpo.ledger.console import progress
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import seed_of, write_atomic

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
Sink = Callable[[str, Float[Tensor, "b n"]], None]
"""Receives (module name, per-sample gradients of one micro-batch) once per module and backward pass."""


def rounded_at_random(values: Float[Tensor, "d_out d_in"], name: str) -> Float[Tensor, "d_out d_in"]:
    """Float32 values as bfloat16, each rounded to one of its two neighbours with the probability that keeps its mean;
    what bfloat16 holds already stays as it is. The draw depends on `name` and the shape alone: it is the same at
    every merge, on every rank, after a resume, and a weight changes only when its value passes its threshold.

    Source: Gupta et al. 2015 (arXiv:1502.02551), section 3.1, "stochastic rounding".
    """
    below = bits16(values.numel(), seed_of(name), values.device).view(values.shape)
    # A bfloat16 is the upper half of a float32: a carry from the lower half, r / 2^16 of the time, is the next number
    # away from zero, and without one the rest is cut off.
    return ((values.view(torch.int32) + below) & -(2**16)).view(torch.float32).to(torch.bfloat16)


def bits16(n: int, seed: int, device: torch.device) -> Int[Tensor, " n"]:
    """Returns n numbers from 0 to 65,535, the same on every device: a generator's draws depend on the card.

    A hash of the place (lowbias32, Wellons 2018, github.com/skeeto/hash-prospector) and the seed."""
    x = torch.arange(n, dtype=torch.int32, device=device) * (seed % 2**31 | 1) + seed // 2**31 % 2**31
    x = (x ^ ((x >> 16) & 0xFFFF)) * 0x7FEB352D
    x = (x ^ ((x >> 15) & 0x1FFFF)) * (0x846CA68B - 2**32)
    return (x ^ ((x >> 16) & 0xFFFF)) & 0xFFFF


def mm_float32(a: Float[Tensor, "*b m k"], b: Float[Tensor, "*b k n"]) -> Float[Tensor, "*b m n"]:
    """Returns a b, summed in float32 and not rounded to the inputs' bfloat16; in float32 and float64 the plain
    product. At most one batch dimension."""
    if a.dtype in (torch.float32, torch.float64):
        return a @ b
    if not a.is_cuda:
        return a.float() @ b.float()
    return (torch.mm if a.ndim == 2 else torch.bmm)(a, b, out_dtype=torch.float32)


def along_ramp(rows: Float[Tensor, "r d_in"]) -> Float[Tensor, " r"]:
    """A fingerprint of rows: their products with one vector that is orthogonal to nothing in particular. Each entry
    changes sign with its row."""
    ramp = torch.linspace(0.5, 1.5, rows.shape[1], device=rows.device)
    return rows.detach().float() @ (ramp / ramp.norm())


class AdaptedLinear(nn.Module, ABC):
    """A frozen Linear with trainable coordinates `theta`. Subclasses give the algebra below."""

    kind: ClassVar[str]
    """Its name in adapters/__init__.py."""
    theta: nn.Parameter
    """[n] trainable coordinates, float32."""

    @property
    def settings(self) -> dict[str, str]:
        """What must agree for two adapters' coordinates to mean the same: part of an artefact's metadata."""
        return {}

    def __init__(self, name: str, linear: nn.Linear) -> None:
        super().__init__()
        self.name = name
        self.weight = linear.weight.requires_grad_(False)
        self.bias = linear.bias if linear.bias is None else linear.bias.requires_grad_(False)
        self.enabled = True
        self.sink: Sink | None = None
        self.base: Tensor | None = None
        """W, while W' stands in `weight` (`Adapter.merged`)."""

    @abstractmethod
    def per_sample(self, x: Float[Tensor, "b t d_in"], g: Float[Tensor, "b t d_out"], theta: Tensor) -> Tensor:
        """dL/dtheta of every sample, [b, n], summed over its tokens only."""

    def summed(self, x: Float[Tensor, "t d_in"], g: Float[Tensor, "t d_out"], theta: Tensor) -> Tensor | None:
        """dL/dtheta [n] of all tokens together; None where it comes with `gathered`."""
        return self.per_sample(x[None], g[None], theta)[0]

    @abstractmethod
    def delta_weight(self, theta: Tensor) -> Float[Tensor, "d_out d_in"]:
        """W' - W: the adapter merged into the weight."""

    def gathered(self) -> Float[Tensor, " n"] | None:
        """Returns what `summed` has put off until the end of `Adapter.merged`; None if it puts nothing off."""
        return None

    def merged_weight(self, theta: Tensor) -> Float[Tensor, "d_out d_in"]:
        """Returns W' in the type of W."""
        if self.base is not None:
            return self.weight
        whole = self.weight.to(torch.promote_types(self.weight.dtype, torch.float32)) + self.delta_weight(theta)
        return rounded_at_random(whole, self.name) if self.weight.dtype == torch.bfloat16 else whole

    @abstractmethod
    def basis_probe(self) -> Float[Tensor, " p"]:
        """A fingerprint of the coordinates that theta is written in (V means nothing in other coordinates)."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.enabled:
            return F.linear(x, self.weight if self.base is None else self.base.to(self.weight.device), self.bias)
        if torch.is_grad_enabled():
            kept: list = []
            return _Product.apply(_Keep.apply(x, self.theta, kept), self.theta, self, kept, x.requires_grad)
        return F.linear(x, self.merged_weight(self.theta), self.bias)


class _Keep(torch.autograd.Function):
    """Returns x and keeps it for `_Product`. A step of its own, before the product: what recomputes a part of the
    model for its backward pass stops once all is kept, and leaves out the last product (a fourth of a decoder
    layer's)."""

    @staticmethod
    def forward(ctx, x: Tensor, theta: Tensor, kept: list) -> Tensor:
        # theta is saved, not read from the layer later: an optimizer step between forward and backward raises.
        ctx.save_for_backward(x, theta)
        ctx.set_materialize_grads(False)
        kept.append(ctx)
        return x.view_as(x)

    @staticmethod
    def backward(_ctx, g: Tensor | None):  # ty: ignore[incompatible-method-override]
        return g, None, None


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, theta: Tensor, layer: AdaptedLinear, kept: list, x_learns: bool) -> Tensor:
        ctx.layer, ctx.kept, ctx.x_learns = layer, kept, x_learns
        return F.linear(x, layer.merged_weight(theta), layer.bias)

    @staticmethod
    def backward(ctx, g: Tensor):  # ty: ignore[incompatible-method-override]
        layer: AdaptedLinear = ctx.layer
        sink = layer.sink
        x, theta = ctx.kept[0].saved_tensors
        grad_x = grad_theta = None
        if ctx.x_learns:
            grad_x = g @ layer.merged_weight(theta)
        if ctx.needs_input_grad[1]:
            if sink is None:
                grad_theta = layer.summed(x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1]), theta)
            else:
                if x.dim() != 3:
                    raise ValueError(f"{layer.name}: per-sample gradients need x of [b, t, d], got {tuple(x.shape)}")
                per_sample = layer.per_sample(x, g, theta)
                sink(layer.name, per_sample)
                grad_theta = per_sample.sum(0)
        return grad_x, grad_theta, None, None, None


class Adapter:
    """All adapted Linears of a model. Iteration order is the model's."""

    def __init__(self, layers: dict[str, AdaptedLinear]) -> None:
        self.layers = layers
        first = next(iter(layers.values()))
        self.kind, self.settings = first.kind, first.settings
        self._on_host: dict[str, Tensor] = {}

    @property
    def vectors(self) -> dict[str, nn.Parameter]:
        """theta [n] of every module."""
        return {name: layer.theta for name, layer in self.layers.items()}

    @property
    def sizes(self) -> dict[str, int]:
        """n of every module."""
        return {name: layer.theta.numel() for name, layer in self.layers.items()}

    def gradient(self) -> dict[str, Float[Tensor, " n"]]:
        """Returns copies of the accumulated gradients; zeros where there was no backward pass."""
        return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in self.vectors.items()}

    def set_gradient(self, gradient: Mapping[str, Float[Tensor, " n"]]) -> None:
        """Replaces the accumulated gradient by copies."""
        for name, p in self.vectors.items():
            p.grad = gradient[name].clone()

    def values(self) -> dict[str, Float[Tensor, " n"]]:
        """Returns copies of theta of every module."""
        return {name: p.detach().clone() for name, p in self.vectors.items()}

    def negative_update(self, start: Mapping[str, Float[Tensor, " n"]]) -> dict[str, Float[Tensor, " n"]]:
        """Returns minus the change of theta since `start`: like a gradient, hack-ward where V d > 0."""
        return {name: start[name] - p.detach() for name, p in self.vectors.items()}

    @torch.no_grad()
    def set_values(self, values: Mapping[str, Float[Tensor, " n"]]) -> None:
        """Sets theta of every module."""
        for name, p in self.vectors.items():
            p.copy_(values[name])

    def zero_grad(self) -> None:
        """Forget accumulated gradients."""
        for p in self.vectors.values():
            p.grad = None

    def checksum(self) -> int:
        """Returns the CRC-32 of all trainable coordinates: the same bits, the same number."""
        flat = torch.cat([p.detach() for p in self.vectors.values()]).cpu().contiguous()
        return zlib.crc32(flat.view(torch.uint8).numpy().tobytes())

    def disabled(self) -> AbstractContextManager[None]:
        """The model without its adapter, bit for bit: the KL reference, for free."""
        return self._inside("enabled", False, True)

    def per_sample(self, sink: Sink | None) -> AbstractContextManager[None]:
        """Give every module's per-sample gradients to `sink` (None: to nobody) during the backward passes inside."""
        return self._inside("sink", sink, None)

    @contextmanager
    def _inside(self, attribute: str, value: object, afterwards: object) -> Generator[None]:
        for layer in self.layers.values():
            setattr(layer, attribute, value)
        try:
            yield
        finally:
            for layer in self.layers.values():
                setattr(layer, attribute, afterwards)

    @contextmanager
    def merged(self) -> Generator[None]:
        """Puts W' in the place of W, built once, for sampling or for the passes of one optimizer step; theta must not
        change inside. The gradient may be gathered first, so that `gradient` is whole only when this is over.

        W is put back bit for bit. RuntimeError when the weights are merged already.
        """
        if any(layer.base is not None for layer in self.layers.values()):
            raise RuntimeError("the weights are merged already; one `merged` at a time")
        try:
            for name, layer in self.layers.items():
                self._fold(name, layer)
            yield
            for layer in self.layers.values():
                if (gradient := layer.gathered()) is not None:
                    layer.theta.grad = gradient if layer.theta.grad is None else layer.theta.grad + gradient
        finally:
            for layer in self.layers.values():
                layer.gathered()
                if layer.base is not None and layer.weight.is_cuda:
                    layer.weight.data.copy_(layer.base)
                elif layer.base is not None:
                    layer.weight.data = layer.base
                layer.base = None

    @torch.no_grad()
    def _fold(self, name: str, layer: AdaptedLinear) -> None:
        merged = layer.merged_weight(layer.theta)
        if not layer.weight.is_cuda:
            layer.base, layer.weight.data = layer.weight.data, merged
            return
        # On a GPU both would be in memory with the cache: W goes to the host, once. In place, as recorded graphs read
        # there.
        if name not in self._on_host:
            self._on_host[name] = layer.weight.detach().cpu().pin_memory()
        layer.base = self._on_host[name]
        layer.weight.data.copy_(merged)

    def basis_probes(self) -> dict[str, Float[Tensor, " p"]]:
        """Fingerprints of all modules' coordinates, float32 on the CPU."""
        return {name: layer.basis_probe().float().cpu() for name, layer in self.layers.items()}

    def metadata(self) -> dict[str, str]:
        return {"adapter": self.kind, **self.settings}

    def save(self, path: Path, extra: dict[str, str]) -> None:
        """Coordinates as safetensors, with kind, settings and `extra` as metadata; atomically."""
        tensors = {name: p.detach().cpu().contiguous() for name, p in self.vectors.items()}
        write_atomic(path, save(tensors, metadata={**self.metadata(), **extra}))

    def load(self, path: Path) -> dict[str, str]:
        """Reads what `save` wrote. Returns the metadata. BadInput names both sides when it is of another adapter."""
        with safe_open(path, "pt") as f:
            meta = f.metadata()
            tensors = {k: f.get_tensor(k) for k in f.keys()}  # noqa: SIM118 - safe_open is no dict
        for key, value in self.metadata().items():
            if meta.get(key) != value:
                raise BadInput(f"{path}: saved with {key}={meta.get(key)}, this adapter has {key}={value}")
        self.set_values(tensors)
        return meta


def replace_targets(
    model: nn.Module, make: Callable[[str, nn.Linear], AdaptedLinear], what: str = "adapters"
) -> dict[str, AdaptedLinear]:
    """Freeze the model and put an adapted Linear in place of each target, with a bar that says `what` takes so long.
    BadInput when the model has none of a name: it would be trained in part."""
    model.requires_grad_(False)
    found = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.Linear) and n.rpartition(".")[2] in TARGETS]
    there = {name.rpartition(".")[2] for name, _ in found}
    if lacking := [t for t in TARGETS if t not in there]:
        raise BadInput(
            f"--model: {type(model).__name__} has no Linear named {', '.join(lacking)}; use one of Llama's layout (Qwen, "
            "Llama, Mistral, Gemma)"
        )
    layers = {}
    for name, linear in progress(found, what):
        layers[name] = make(name, linear)
        model.set_submodule(name, layers[name])
    return layers
