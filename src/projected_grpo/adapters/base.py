"""What every adapter is: one flat trainable vector `theta` per Linear, zero effect at the start, and per-sample
gradients of that vector handed out during the one batched backward pass.

The forward of an adapted Linear is y = x W^T + b + term(x; theta). A custom autograd Function computes the term and its
gradients, keeps x and no activation of its own, and while a sink is set also gives the sink the gradient of every
sample of the batch, [b, n] float32, before they are summed. What the sink does with them (project on V, take norms,
keep them) is its own affair, so no adapter knows of v_hack and large per-sample gradients need not be kept.

In float32 and float64 the term is taken inside the weight, y = x (W + delta_weight)^T + b, where the tokens are so many that
building the sum is cheaper than the term's products, or where it is built already (`held`).

In bfloat16 a small term survives one rounding and no second: an output that is rounded already does not change when less
than half of its last place is added, and neither does a weight. So the term is h R^T for two factors, and product and term
are one product of concatenated matrices, [x, h] [W, R]^T + b, summed in float32 and rounded once at its end; dL/dx likewise.
Nothing concatenated is kept. A folded weight is rounded at random instead (`rounded_at_random`).

theta without effect is the base model bit for bit in every type. A concatenated product with zeros need not be, as another
inner length may be summed in another order, so in bfloat16 such a theta takes the plain Linear's own path (`idle`).
"""

import hashlib
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from projected_grpo.ledger.console import progress
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
Sink = Callable[[str, Float[Tensor, "b n"]], None]
"""Receives (module name, per-sample gradients of one micro-batch) once per module and backward pass."""


def rounded_at_random(values: Float[Tensor, "d_out d_in"], name: str) -> Float[Tensor, "d_out d_in"]:
    """Float32 values as bfloat16, each rounded to one of its two neighbours with the probability that keeps its mean; what
    bfloat16 holds already stays as it is. The draw depends on `name` and the shape alone: it is the same at every fold, on
    every rank, after a resume, and a weight changes only when its own value passes its own threshold.

    Source: Gupta et al. 2015 (arXiv:1502.02551), section 3.1, "stochastic rounding".
    """
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "little")
    draw = torch.Generator(values.device).manual_seed(seed)
    below = torch.randint(2**16, values.shape, generator=draw, dtype=torch.int32, device=values.device)
    # A bfloat16 is the upper half of a float32: a carry from the lower half, r / 2^16 of the time, is the next number away
    # from zero, and without one the rest is cut off.
    return ((values.view(torch.int32) + below) & -(2**16)).view(torch.float32).to(torch.bfloat16)


def reduce_dtype(weight: Tensor) -> torch.dtype:
    """Type of theta and of every reduction: float32, or float64 for a float64 model."""
    return torch.float64 if weight.dtype == torch.float64 else torch.float32


class AdaptedLinear(nn.Module, ABC):
    """A frozen Linear with trainable coordinates `theta`. Subclasses give the four pieces of algebra below."""

    theta: nn.Parameter
    """[n] trainable coordinates, float32."""

    def __init__(self, name: str, linear: nn.Linear) -> None:
        super().__init__()
        self.name = name
        self.weight = linear.weight.requires_grad_(False)
        self.bias = linear.bias if linear.bias is None else linear.bias.requires_grad_(False)
        self.enabled = True
        self.by_autograd = False
        self.sink: Sink | None = None
        self.holding = False
        self._held: Tensor | None = None
        self._gathered: Tensor | None = None
        self._looked_up: tuple[Tensor, int, int, bool] | None = None

    @abstractmethod
    def factors(self, x: Tensor, theta: Tensor) -> tuple[Float[Tensor, "... m"], Float[Tensor, "d_out m"]]:
        """h and R, of x's type, for x [..., d_in]: what is added to x W^T + b is h R^T. Zero at the start."""

    @abstractmethod
    def factors_backward(self, g: Tensor, theta: Tensor) -> tuple[Float[Tensor, "... m"], Float[Tensor, "m d_in"]]:
        """h and L, of g's type, for g = dL/dy [..., d_out]: the term's share of dL/dx is h L."""

    @abstractmethod
    def effective(self, theta: Tensor) -> Tensor:
        """The part of theta that is all zero exactly where the term is, whatever x."""

    @abstractmethod
    def per_sample(self, x: Float[Tensor, "b t d_in"], g: Float[Tensor, "b t d_out"], theta: Tensor) -> Tensor:
        """dL/dtheta of every sample, [b, n], summed over its own tokens only."""

    def summed(self, x: Float[Tensor, "t d_in"], g: Float[Tensor, "t d_out"], theta: Tensor) -> Tensor:
        """dL/dtheta [n] of all tokens together."""
        return self.per_sample(x[None], g[None], theta)[0]

    @abstractmethod
    def delta_weight(self, theta: Tensor) -> Float[Tensor, "d_out d_in"]:
        """W' - W: the adapter folded into the weight."""

    def gather(self, x: Float[Tensor, "t d_in"], g: Float[Tensor, "t d_out"]) -> bool:
        """Add these tokens to what dL/dtheta is taken from at the end of `Adapter.held`; False: not this adapter, or not
        now, and the gradient is to be had from `summed`."""
        del x, g
        return False

    def gathered(self) -> Float[Tensor, " n"] | None:
        """dL/dtheta of all that was gathered, which is then forgotten; None where nothing was."""
        return None

    def hold(self, holding: bool) -> None:
        """From here on W' is kept once it is built; or what was kept is forgotten."""
        self.holding, self._held, self._gathered = holding, None, None

    def effective_weight(self, x: Tensor, theta: Tensor) -> Float[Tensor, "d_out d_in"] | None:
        """W', or None where the term is to stand apart from W for these inputs: it would round, or cost more."""
        d_out, d_in = self.weight.shape
        if theta.dtype != self.weight.dtype:
            return None
        if self.holding:
            if self._held is None:
                self._held = self.weight + self.delta_weight(theta)
            return self._held
        if x.numel() // d_in * (d_in + d_out) < d_in * d_out:
            return None
        return self.weight + self.delta_weight(theta)

    def folded_weight(self) -> Float[Tensor, "d_out d_in"]:
        """W' in the type of W."""
        whole = self.weight.to(reduce_dtype(self.weight)) + self.delta_weight(self.theta)
        return rounded_at_random(whole, self.name) if self.weight.dtype == torch.bfloat16 else whole

    def idle(self) -> bool:
        """Whether theta has no effect. That it has one is looked up once per change of theta, by its version counter, since
        on a GPU each look waits for the device; that it has none each time: fused optimizers and writes through `theta.data`
        pass that counter by."""
        theta, seen = self.theta, self._looked_up
        if seen is None or seen[0] is not theta or seen[1:3] != (theta.data_ptr(), theta._version) or seen[3]:
            none = not bool(self.effective(theta.detach()).any())
            seen = self._looked_up = (theta, theta.data_ptr(), theta._version, none)
        return seen[3]

    def product(self, x: Tensor, theta: Tensor) -> Tensor:
        """y of x [..., d_in], with the term, rounded once."""
        if (folded := self.effective_weight(x, theta)) is not None:
            return F.linear(x, folded, self.bias)
        if theta.dtype == x.dtype:
            h, right = self.factors(x, theta)
            return F.linear(x, self.weight, self.bias) + h @ right.T
        if self.idle():
            return F.linear(x, self.weight, self.bias)
        h, right = self.factors(x, theta)
        return F.linear(torch.cat([x, h], -1), torch.cat([self.weight, right], 1), self.bias)

    def product_backward(self, x: Tensor, g: Tensor, theta: Tensor) -> Tensor:
        """dL/dx of g = dL/dy [..., d_out], rounded once."""
        # Built again where it is not held: kept, it would be a second copy of every weight until here.
        if (folded := self.effective_weight(x, theta)) is not None:
            return g @ folded
        if theta.dtype == g.dtype:
            h, left = self.factors_backward(g, theta)
            return g @ self.weight + h @ left
        if self.idle():
            return g @ self.weight
        h, left = self.factors_backward(g, theta)
        return torch.cat([g, h], -1) @ torch.cat([self.weight, left])

    @abstractmethod
    def basis_probe(self) -> Float[Tensor, " p"]:
        """A fingerprint of the coordinates that theta is written in (V means nothing in other coordinates)."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.enabled:
            return F.linear(x, self.weight, self.bias)
        if (
            self.by_autograd
        ):  # the sum is built again in the backward pass: kept, it would be a second copy of every weight
            return checkpoint(self._plainly, x, self.theta, use_reentrant=False)
        return _AdaptedForward.apply(x, self.theta, self)

    def _plainly(self, x: Tensor, theta: Tensor) -> Tensor:
        """y by the definition, in the reductions' type: x (W + delta_weight(theta))^T + b."""
        whole = self.weight.to(theta.dtype) + self.delta_weight(theta)
        y = F.linear(x.to(theta.dtype), whole, self.bias if self.bias is None else self.bias.to(theta.dtype))
        return y.to(x.dtype)


class _AdaptedForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, theta: Tensor, layer: AdaptedLinear) -> Tensor:
        # theta is saved, not read from the layer later: an optimizer step between forward and backward raises.
        ctx.save_for_backward(x, theta)
        ctx.layer = layer
        return layer.product(x, theta)

    @staticmethod
    def backward(ctx, g: Tensor):  # ty: ignore[incompatible-method-override]
        layer: AdaptedLinear = ctx.layer
        sink = layer.sink
        x, theta = ctx.saved_tensors
        grad_x = grad_theta = None
        if ctx.needs_input_grad[0]:
            grad_x = layer.product_backward(x, g, theta)
        if ctx.needs_input_grad[1]:
            if sink is None:
                tokens = x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1])
                if not layer.gather(*tokens):
                    grad_theta = layer.summed(*tokens, theta)
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

    def gradient(self) -> dict[str, Float[Tensor, " n"]]:
        """Returns copies of `grads`."""
        return {name: g.clone() for name, g in self.grads().items()}

    def set_gradient(self, gradient: Mapping[str, Float[Tensor, " n"]]) -> None:
        """Replaces the accumulated gradient by copies."""
        for name, p in self.vectors.items():
            p.grad = gradient[name].clone()

    def values(self) -> dict[str, Float[Tensor, " n"]]:
        """Returns copies of theta of every module."""
        return {name: p.detach().clone() for name, p in self.vectors.items()}

    def descent(self, start: Mapping[str, Float[Tensor, " n"]]) -> dict[str, Float[Tensor, " n"]]:
        """Returns minus the change of theta since `start`: like a gradient, hack-ward where V d > 0."""
        return {name: start[name] - p.detach() for name, p in self.vectors.items()}

    @torch.no_grad()
    def set_values(self, values: Mapping[str, Float[Tensor, " n"]]) -> None:
        """Sets theta of every module."""
        for name, p in self.vectors.items():
            p.copy_(values[name])

    def move(self, start: Mapping[str, Float[Tensor, " n"]], descent: Mapping[str, Float[Tensor, " n"]]) -> None:
        """Sets theta to `start` minus `descent`."""
        self.set_values({name: start[name] - descent[name] for name in self.vectors})

    def zero_grad(self) -> None:
        """Forget accumulated gradients."""
        for p in self.vectors.values():
            p.grad = None

    def norm(self) -> float:
        """Norm of all trainable coordinates together."""
        return float(torch.linalg.vector_norm(torch.stack([p.detach().norm() for p in self.vectors.values()])))

    def checksum(self) -> int:
        """Returns the CRC-32 of all trainable coordinates: the same bits, the same number."""
        flat = torch.cat([p.detach() for p in self.vectors.values()]).cpu().contiguous()
        return zlib.crc32(flat.view(torch.uint8).numpy().tobytes())

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
    def by_autograd(self) -> Generator[None]:
        """The definition itself, differentiated by autograd: slow, and none of this package's own backward passes. What
        these say is held against it."""
        for layer in self.layers.values():
            layer.by_autograd = True
        try:
            yield
        finally:
            for layer in self.layers.values():
                layer.by_autograd = False

    @contextmanager
    def folded(self) -> Generator[None]:
        """W' = W + delta_weight in place and the plain Linear's forward, for rollouts at the plain model's speed.

        The original weights are kept aside and put back bit for bit: subtracting would round. In bfloat16 the sum is
        rounded at random: W lies on bfloat16's grid, and to the nearest a small term would be lost.
        """
        originals = self._originals()
        with torch.no_grad():
            for layer in self.layers.values():
                layer.weight.copy_(layer.folded_weight())
        try:
            with self.disabled():
                yield
        finally:
            for name, layer in self.layers.items():
                layer.weight.data.copy_(originals[name])

    def _originals(self) -> dict[str, Tensor]:
        """Copies of the frozen weights; those of a GPU on the host, made once: the GPU's room is the cache's."""
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

    @contextmanager
    def held(self) -> Generator[None]:
        """For backward passes of one theta, which must not change inside: W' is built once for all, and what the summed
        gradient is taken from is gathered first, so that `grads` are whole only when this is over (torch.autograd.grad gives
        none of theta, and leaves it in `grads` all the same). It costs a second and a
        third copy of the adapted weights meanwhile, where those are float32 or float64; bfloat16 has neither.

        RuntimeError when theta was changed inside (but not by what passes its version counter by: a fused optimizer), and
        when they are held already: what was gathered would be lost.
        """
        if any(layer.holding for layer in self.layers.values()):
            raise RuntimeError("the weights are held already; one `held` at a time")
        before = {name: layer.theta._version for name, layer in self.layers.items()}
        for layer in self.layers.values():
            layer.hold(True)
        try:
            yield
            if changed := [n for n, layer in self.layers.items() if layer.theta._version != before[n]]:
                raise RuntimeError(f"{changed[0]}: theta changed while its weight was held")
            for layer in self.layers.values():
                if (gradient := layer.gathered()) is not None:
                    layer.theta.grad = gradient if layer.theta.grad is None else layer.theta.grad + gradient
        finally:
            for layer in self.layers.values():
                layer.hold(False)

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

    def load(self, path: Path) -> dict[str, str]:
        """Reads what `save` wrote. Returns the metadata. BadInput names both sides when it is of another adapter."""
        with safe_open(path, "pt") as f:
            meta = f.metadata()
            tensors = {k: f.get_tensor(k) for k in f.keys()}  # noqa: SIM118 - safe_open is no dict
        for key, value in self.metadata().items():
            if meta.get(key) != value:
                raise BadInput(f"{path}: saved with {key}={meta.get(key)}, this adapter has {key}={value}")
        there = {name: t.numel() for name, t in tensors.items()}
        if odd := sorted(set(there.items()) ^ set(self.sizes.items())):
            name = odd[0][0]
            raise BadInput(
                f"{path}: {name} has {there.get(name)} coordinates, here {self.sizes.get(name)}; another model?"
            )
        self.set_values(tensors)
        return meta


def replace_targets(
    model: nn.Module,
    make: Callable[[str, nn.Linear], AdaptedLinear],
    targets: tuple[str, ...] = TARGETS,
    what: str = "adapters",
) -> dict[str, AdaptedLinear]:
    """Freeze the model and put an adapted Linear in place of each target, with a bar that says `what` takes so long.
    ValueError when there is none."""
    for p in model.parameters():
        p.requires_grad_(False)
    found = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.Linear) and n.rpartition(".")[2] in targets]
    if not found:
        raise ValueError(f"no Linear named {', '.join(targets)} in {type(model).__name__}")
    layers = {}
    for name, linear in progress(found, what):
        layer = make(name, linear)
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, layer)
        layers[name] = layer
    return layers
