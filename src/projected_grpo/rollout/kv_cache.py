"""A key-value cache with spare room: a new token is written in place, where transformers' copies the whole cache for it.

For decoding under no_grad only: what is written in place has no gradient.
"""

from typing import Any

from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

ROOM = 128
"""Positions allocated ahead."""


class RoomyLayer(DynamicLayer):
    """One layer's keys and values, [b, heads, t, d]: views of the first t positions of longer tensors."""

    store: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append new positions; the keys and values of all. See DynamicLayer.update."""
        keys, values = self.keys, self.values
        if keys is None or values is None or not keys.numel():
            return super().update(key_states, value_states, *args, **kwargs)
        t, end = keys.shape[-2], keys.shape[-2] + key_states.shape[-2]
        if self.store is None or end > self.store[0].shape[-2]:
            self.store = (_longer(keys, end + ROOM), _longer(values, end + ROOM))
        for stored, new in zip(self.store, (key_states, value_states), strict=True):
            stored[..., t:end, :] = new
        keys, values = self.store[0][..., :end, :], self.store[1][..., :end, :]
        self.keys, self.values = keys, values
        return keys, values

    def batch_repeat_interleave(self, repeats: int) -> None:
        """See DynamicLayer. Straight into a store with room: the only copy of the prompts' positions."""
        keys, values = self.keys, self.values
        if keys is None or values is None or not keys.numel():
            super().batch_repeat_interleave(repeats)
            return
        t = keys.shape[-2]
        self.store = (_longer(keys, t + ROOM, repeats), _longer(values, t + ROOM, repeats))
        self.keys, self.values = (stored[..., :t, :] for stored in self.store)

    def batch_select_indices(self, indices: Tensor) -> None:
        """See DynamicLayer: rows change, so the store is no longer theirs."""
        super().batch_select_indices(indices)
        self.store = None


def _longer(states: Tensor, length: int, repeats: int = 1) -> Tensor:
    """The states with room for `length` positions, each row `repeats` times in a row."""
    b, heads, t, d = states.shape
    out = states.new_empty((b * repeats, heads, length, d))
    out.unflatten(0, (b, repeats))[..., :t, :] = states[:, None]
    return out


def roomy_cache(config: Any) -> DynamicCache:
    """A cache for decoding. Layers of another kind than full attention (sliding windows) stay transformers'."""
    cache = DynamicCache(config=config)
    cache.layers = [RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache
