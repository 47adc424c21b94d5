"""What every adapter is: one flat trainable vector `theta` per Linear, zero effect at the start, and per-sample
gradients of that vector handed out during the one batched backward pass.

The forward of an adapted Linear is y = x W^T + b + term(x; theta). A custom autograd Function computes the term and its
gradients, keeps x and no activation of its own, and while a sink is set also gives the sink the gradient of every
sample of the batch, [b, n] float32, before they are summed. What the sink does with them (project on V, take norms,
keep them) is its own affair, so no adapter knows of v_hack and large per-sample gradients need not be kept.

In float32 and float64 the term is taken inside the weight, y = x (W + delta_weight)^T + b, where the tokens are so many that
building the sum is cheaper than the term's products; theta = 0 is the base model bit for bit either way. In bfloat16 the sum
would round small coordinates away, so there the term always stands apart.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional as F

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
Sink = Callable[[str, Float[Tensor, "b n"]], None]
"""Receives (module name, per-sample gradients of one micro-batch) once per module and backward pass."""


def reduce_dtype(weight: Tensor) -> torch.dtype:
    """Type of theta and of every reduction: float32, or float64 for a float64 model."""
    return torch.float64 if weight.dtype == torch.float64 else torch.float32


class AdaptedLinear(nn.Module, ABC):
    """A frozen Linear with `theta` beside it. Subclasses give the four pieces of algebra below."""

    theta: nn.Parameter
    """[n] trainable coordinates, float32."""

    def __init__(self, name: str, linear: nn.Linear) -> None:
        super().__init__()
        self.name = name
        self.weight = linear.weight.requires_grad_(False)
        self.bias = linear.bias if linear.bias is None else linear.bias.requires_grad_(False)
        self.enabled = True
        self.sink: Sink | None = None

    @abstractmethod
    def term(self, x: Tensor, theta: Tensor) -> Tensor:
        """What is added to x W^T + b: [..., d_in] -> [..., d_out]. Zero at the start."""

    @abstractmethod
    def term_backward(self, x: Tensor, g: Tensor, theta: Tensor) -> Tensor:
        """g = dL/dy [..., d_out] -> the term's share of dL/dx [..., d_in]."""

    @abstractmethod
    def per_sample(self, x: Float[Tensor, "b t d_in"], g: Float[Tensor, "b t d_out"], theta: Tensor) -> Tensor:
        """dL/dtheta of every sample, [b, n], summed over its own tokens only."""

    def summed(self, x: Float[Tensor, "t d_in"], g: Float[Tensor, "t d_out"], theta: Tensor) -> Tensor:
        """dL/dtheta [n] of all tokens together."""
        return self.per_sample(x[None], g[None], theta)[0]

    @abstractmethod
    def delta_weight(self, theta: Tensor) -> Float[Tensor, "d_out d_in"]:
        """W' - W: the adapter folded into the weight."""

    def effective_weight(self, x: Tensor, theta: Tensor) -> Float[Tensor, "d_out d_in"] | None:
        """W', or None where the term is to stand apart from W for these inputs: it would round, or cost more."""
        d_out, d_in = self.weight.shape
        if theta.dtype != self.weight.dtype or x.numel() // d_in * (d_in + d_out) < d_in * d_out:
            return None
        return self.weight + self.delta_weight(theta)

    @abstractmethod
    def basis_probe(self) -> Float[Tensor, " p"]:
        """A fingerprint of the coordinates that theta is written in (V means nothing in other coordinates)."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.enabled:
            return F.linear(x, self.weight, self.bias)
        return _AdaptedForward.apply(x, self.theta, self)


class _AdaptedForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, theta: Tensor, layer: AdaptedLinear) -> Tensor:
        # theta is saved, not read from the layer later: an optimizer step between forward and backward raises.
        ctx.save_for_backward(x, theta)
        ctx.layer = layer
        if (folded := layer.effective_weight(x, theta)) is not None:
            return F.linear(x, folded, layer.bias)
        return F.linear(x, layer.weight, layer.bias) + layer.term(x, theta)

    @staticmethod
    def backward(ctx, g: Tensor):  # ty: ignore[incompatible-method-override]
        layer: AdaptedLinear = ctx.layer
        sink = layer.sink
        x, theta = ctx.saved_tensors
        grad_x = grad_theta = None
        if ctx.needs_input_grad[0]:
            # Built again, not kept: it would hold a second copy of every weight until here.
            folded = layer.effective_weight(x, theta)
            grad_x = g @ layer.weight + layer.term_backward(x, g, theta) if folded is None else g @ folded
        if ctx.needs_input_grad[1]:
            if sink is None:
                grad_theta = layer.summed(x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1]), theta)
            else:
                if x.dim() != 3:
                    raise ValueError(f"{layer.name}: per-sample gradients need x of [b, t, d], got {tuple(x.shape)}")
                per_sample = layer.per_sample(x, g, theta)
                sink(layer.name, per_sample)
                grad_theta = per_sample.sum(0)
        return grad_x, grad_theta, None


class Adapter:
    """All adapted Linears of a model. Iteration order is the model's own."""

    def __init__(self, kind: str, layers: dict[str, AdaptedLinear], settings: dict[str, str]) -> None:
        self.kind = kind
        self.layers = layers
        self.settings = settings
        """What must agree for two adapters' coordinates to mean the same (rank, seed): part of an artefact's metadata."""
        self._on_host: dict[str, Tensor] = {}

    @property
    def vectors(self) -> dict[str, nn.Parameter]:
        """theta [n] of every module."""
        return {name: layer.theta for name, layer in self.layers.items()}

    @property
    def sizes(self) -> dict[str, int]:
        """n of every module."""
        return {name: layer.theta.numel() for name, layer in self.layers.items()}

    def grads(self) -> dict[str, Float[Tensor, " n"]]:
        """The accumulated gradient of every module; zeros where there was no backward pass."""
        return {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in self.vectors.items()}

    def zero_grad(self) -> None:
        """Forget accumulated gradients."""
        for p in self.vectors.values():
            p.grad = None

    def norm(self) -> float:
        """Norm of all trainable coordinates together."""
        return float(torch.linalg.vector_norm(torch.stack([p.detach().norm() for p in self.vectors.values()])))

    @contextmanager
    def disabled(self) -> Generator[None]:
        """The model without its adapter, bit for bit: the KL reference, for free."""
        before = {name: layer.enabled for name, layer in self.layers.items()}
        for layer in self.layers.values():
            layer.enabled = False
        try:
            yield
        finally:
            for name, layer in self.layers.items():
                layer.enabled = before[name]

    @contextmanager
    def folded(self) -> Generator[None]:
        """W' = W + delta_weight in place and the plain Linear's forward, for rollouts at the plain model's speed.

        The original weights are kept aside and put back bit for bit: subtracting would round.
        """
        originals = self._originals()
        with torch.no_grad():
            for layer in self.layers.values():
                layer.weight.copy_(layer.weight.to(reduce_dtype(layer.weight)) + layer.delta_weight(layer.theta))
        try:
            with self.disabled():
                yield
        finally:
            for name, layer in self.layers.items():
                layer.weight.data.copy_(originals[name])

    def _originals(self) -> dict[str, Tensor]:
        """Copies of the frozen weights; those of a GPU on the host, made once: there they would stand beside the cache."""
        on_gpu = next(iter(self.layers.values())).weight.is_cuda
        if not on_gpu:
            return {name: layer.weight.detach().clone() for name, layer in self.layers.items()}
        if not self._on_host:
            self._on_host = {name: layer.weight.detach().cpu().pin_memory() for name, layer in self.layers.items()}
        return self._on_host

    @contextmanager
    def per_sample(self, sink: Sink | None) -> Generator[None]:
        """Give every module's per-sample gradients to `sink` (None: to nobody) during the backward passes inside."""
        for layer in self.layers.values():
            layer.sink = sink
        try:
            yield
        finally:
            for layer in self.layers.values():
                layer.sink = None

    def basis_probes(self) -> dict[str, Float[Tensor, " p"]]:
        """Fingerprints of all modules' coordinates, float32 on the CPU."""
        return {name: layer.basis_probe().float().cpu() for name, layer in self.layers.items()}

    def metadata(self) -> dict[str, str]:
        """Kind and settings."""
        return {"adapter": self.kind, **self.settings}

    def save(self, path: Path, extra: dict[str, str] | None = None) -> None:
        """Coordinates as safetensors, with kind, settings and `extra` as metadata; atomically."""
        tensors = {name: p.detach().cpu().contiguous() for name, p in self.vectors.items()}
        write_atomic(path, save(tensors, metadata={**self.metadata(), **(extra or {})}))

    @torch.no_grad()
    def load(self, path: Path) -> dict[str, str]:
        """Read what `save` wrote. Returns the metadata; BadInput names both sides when it is of another adapter."""
        try:
            with safe_open(path, "pt") as f:
                meta = f.metadata() or {}
                tensors = {k: f.get_tensor(k) for k in f.keys()}  # noqa: SIM118 - safe_open is no dict
        except (OSError, SafetensorError) as e:
            raise BadInput(f"{path}: not a readable safetensors file ({e})") from e
        for key, value in self.metadata().items():
            if meta.get(key) != value:
                raise BadInput(f"{path}: saved with {key}={meta.get(key)}, this adapter has {key}={value}")
        shapes = {k: tuple(t.shape) for k, t in tensors.items()}
        if shapes != (mine := {k: tuple(p.shape) for k, p in self.vectors.items()}):
            odd = sorted(set(shapes.items()) ^ set(mine.items()))[0][0]
            raise BadInput(f"{path}: module {odd} is {shapes.get(odd)} there and {mine.get(odd)} here; another model?")
        for name, p in self.vectors.items():
            p.copy_(tensors[name])
        return meta


def replace_targets(
    model: nn.Module, make: Callable[[str, nn.Linear], AdaptedLinear], targets: tuple[str, ...] = TARGETS
) -> dict[str, AdaptedLinear]:
    """Freeze the model and put an adapted Linear in place of each target. ValueError when there is none."""
    for p in model.parameters():
        p.requires_grad_(False)
    found = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.Linear) and n.rpartition(".")[2] in targets]
    if not found:
        raise ValueError(f"no Linear named {', '.join(targets)} in {type(model).__name__}")
    layers = {}
    for name, linear in found:
        layer = make(name, linear)
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, layer)
        layers[name] = layer
    return layers
