"""Live memory and the cost of matrix products, operator by operator: of real tensors and of fake ones alike.

A storage counts from the operator that made it until nobody holds it any more (a weak reference says when; what autograd
saved is held). What a kernel takes for itself inside is not seen: neither its scratch memory nor a library's workspace.
"""

import weakref
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import flop_registry

BLOCK = 512
"""Bytes that CUDA's caching allocator rounds a block up to (c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize)."""
Product = tuple[int, int, torch.dtype]
"""FLOPs of an operator, bytes that it must read and write, and the type that it multiplies."""


class LiveStorage(TorchDispatchMode):
    """Inside, every storage that an operator makes is counted until it dies; those of `held` from the start.

    Each counts with its size rounded up to whole blocks.
    """

    def __init__(self, held: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.live = self.peak = self.operators = 0
        self.products: Counter[Product] = Counter()
        """Operators that have a formula of FLOPs (products and attention, dense), and how often each came."""
        self._known: dict[int, weakref.ref[Any]] = {}
        for t in held:
            self.see(t)

    @property
    def flops(self) -> int:
        """Of all products together."""
        return sum(flops * times for (flops, _, _), times in self.products.items())

    def see(self, t: Tensor) -> None:
        """Count a tensor's storage, unless it counts already."""
        storage = t.untyped_storage()
        key = id(storage)
        if key in self._known:
            return
        size = -(-storage.nbytes() // BLOCK) * BLOCK

        def died(_: Any) -> None:
            self.live -= size
            del self._known[key]

        self._known[key] = weakref.ref(storage, died)
        self.live += size
        self.peak = max(self.peak, self.live)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = self.call(func, args, kwargs or {})
        self.operators += 1
        for t in tree_iter(out):
            if isinstance(t, Tensor):
                self.see(t)
        if (formula := flop_registry.get(func._overloadpacket)) is not None:
            self.products[self._cost(formula, args, kwargs or {}, out)] += 1
        return out

    def call(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The operator itself."""
        return func(*args, **kwargs)

    @staticmethod
    def _cost(formula: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> Product:
        tensors = [t for t in tree_iter((args, kwargs, out)) if isinstance(t, Tensor)]
        # An expanded tensor is read once, a slice of a storage is not the storage.
        moved = sum(min(t.numel() * t.element_size(), t.untyped_storage().nbytes()) for t in tensors)
        return formula(*args, **kwargs, out_val=out), moved, tensors[0].dtype


class Uncounted(LiveStorage):
    """In a counter's place where the device itself tells what it holds: sees nothing, costs nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        pass

    def see(self, t: Tensor) -> None:
        """Nothing is counted."""


def seconds_at_least(
    products: Mapping[Product, float | int], bandwidth: float, rates: Mapping[torch.dtype, float]
) -> float:
    """What no kernel can be faster than: every product takes its FLOPs at the card's peak rate for its type (`rates`,
    FLOP/s; KeyError for one that is not there) or its bytes at `bandwidth` (bytes/s), whichever is longer. Everything
    else, and Python, is taken to cost nothing.
    """
    return sum(
        times * max(flops / rates[dtype], moved / bandwidth) for (flops, moved, dtype), times in products.items()
    )
