"""A model and its adapter without a number in them: fake tensors of the real shapes and types (torch's FakeTensorMode).

What comes of the model is fake: weights, bases, coordinates, activations, gradients, V. What the loop makes itself is real:
token ids, masks, lengths, rewards. So sizes that hang on masks are the true ones, and only where the loop reads a number
that the model would have computed is it given one that no run stops at (`Answers`).
"""

import copy
import warnings
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_iter

from projected_grpo.adapters.antipasto import AntiPaSTOLinear
from projected_grpo.adapters.base import Adapter, reduce_dtype, replace_targets
from projected_grpo.adapters.lora import attach_lora
from projected_grpo.fits.counter import LiveStorage
from projected_grpo.model.load import LoadedModel, enable_checkpointing, of_shape

aten = torch.ops.aten


def fake_loaded(config: Any, dtype: str, *, checkpointing: bool = False, card: bool = False) -> LoadedModel:
    """A causal language model of a transformers config, frozen, in eval mode (train mode with checkpointing), without
    memory. It has no tokenizer, and nothing ends its completions. `card`: it attends as on a CUDA device."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        own = copy.deepcopy(config)  # a model writes into its config, and this one may be a real model's
        model = of_shape(own, dtype, card=card)
    if checkpointing:
        enable_checkpointing(model)
    return endless(model, "fake")


def endless(model: Any, name: str) -> LoadedModel:
    """A model without a tokenizer, of which nothing ends the completions: no token is -1."""
    return LoadedModel(model, None, name, name, name, frozenset({-1}), 0, int(model.config.max_position_embeddings))


def mode_of(model: nn.Module) -> FakeTensorMode:
    """The mode that a fake model's tensors belong to."""
    weight = next(model.parameters())
    assert isinstance(weight, FakeTensor)
    return weight.fake_mode


def fake_adapter(model: nn.Module, kind: Literal["antipasto", "lora"], rank: int) -> Adapter:
    """The adapter on every target Linear of a fake model. The singular bases have their shapes and are decomposed of
    nothing."""

    def make(name: str, linear: nn.Linear) -> AntiPaSTOLinear:
        d_out, d_in = linear.weight.shape
        r, own = min(d_out, d_in), reduce_dtype(linear.weight)
        return AntiPaSTOLinear(
            name, linear, (torch.empty(d_out, r, dtype=own), torch.empty(r), torch.empty(r, d_in, dtype=own))
        )

    with mode_of(model):
        if kind == "lora":
            return attach_lora(model, rank, 0)
        return Adapter("antipasto", replace_targets(model, make), {})


def fake_basis(model: nn.Module, adapter: Adapter, k: int) -> dict[str, Tensor]:
    """V of k rows (at most n) of every module of a fake model."""
    with mode_of(model):
        return {name: torch.empty(min(k, p.numel()), p.numel(), dtype=p.dtype) for name, p in adapter.vectors.items()}


class Answers(LiveStorage):
    """Counts, and answers what the host asks of fake tensors: True, 1 and 1.0; a mask computed by the model has `found` rows
    that are True. (All losses and gradients are finite then, the gate fires and the adapter has an effect.)"""

    def __init__(
        self, mode: FakeTensorMode, held: Iterable[Tensor] = (), found: Literal["all", "none"] = "none"
    ) -> None:
        super().__init__(held)
        self.mode, self.found = mode, found
        self.reads = 0
        """Numbers that were read off fake tensors."""

    def call(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        fakes = [t for t in tree_iter((args, kwargs)) if isinstance(t, FakeTensor)]
        packet = func._overloadpacket
        if not fakes:
            with self.mode if packet is aten.randint else nullcontext():  # noise for every weight: not to be drawn
                return func(*args, **kwargs)
        if packet is aten._local_scalar_dense:
            self.reads += 1
            return {torch.bool: True}.get(args[0].dtype, 1.0 if args[0].is_floating_point() else 1)
        if packet is aten.nonzero:
            rows = args[0].shape[0] if self.found == "all" else 0
            return torch.arange(rows)[:, None].expand(rows, args[0].dim()).contiguous()
        if packet is aten.bincount:
            return torch.zeros(kwargs.get("minlength", args[2] if len(args) > 2 else 0), dtype=torch.long)
        if packet in (aten.index, aten.index_put, aten.index_put_):
            args = (args[0], _places(args[1]), *args[2:])
        return func(*args, **kwargs)


def _places(indices: Iterable[Tensor | None]) -> list[Tensor | None]:
    """Masks that are known, as the places where they are True: how many there are is then known too."""
    out: list[Tensor | None] = []
    for index in indices:
        known = index is not None and index.dtype == torch.bool and not isinstance(index, FakeTensor)
        out += [*index.nonzero().unbind(1)] if known and index is not None else [index]
    return out


class _NoNumbers(TorchFunctionMode):
    """`.numpy()` of a fake tensor: zeros of its shape. (It is asked for a fingerprint's bytes.)"""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.numpy and isinstance(args[0], FakeTensor):
            return np.zeros(tuple(args[0].shape), dtype=np.uint8)
        return func(*args, **(kwargs or {}))


@contextmanager
def no_memory() -> Generator[None]:
    """Inside, code may ask for the memory that fake tensors have not: `.numpy()` is zeros, `.data_ptr()` 0, no warning."""
    with warnings.catch_warnings(), _NoNumbers():
        warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")
        yield
