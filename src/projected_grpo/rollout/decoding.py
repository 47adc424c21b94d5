"""The next token's logits, again and again, from a key-value cache.

GrowingDecoder  the cache grows by a position a token and attention reads just what is there: the least work, for a CPU
FixedDecoder    every tensor keeps its place and size for `FIXED_ROOM` tokens, so that a GPU replays one CUDA graph instead
                of a thousand small kernels that Python launches; attention reads the empty positions too, masked out

Both start from the prompts, each prefilled once and its cache repeated for its group. Prompts are padded on the left,
so all rows end at the same position. For use under no_grad, in eval mode."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from loguru import logger
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from projected_grpo.model.attention import FUSED, PACKED, PromptStates
from projected_grpo.model.load import LoadedModel
from projected_grpo.model.logprobs import left_padded

ROOM = 128
"""Positions that a growing cache allocates ahead."""
FIXED_ROOM = 256
"""Positions that a FixedDecoder's cache has ahead: one graph serves so many tokens."""


class RoomyLayer(DynamicLayer):
    """One layer's keys and values, [b, heads, t, d]: views of the first t positions of longer tensors. A new token is
    written in place, where transformers' layer copies the whole cache for it; so it has no gradient."""

    store: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append new positions; the keys and values of all. See DynamicLayer.update."""
        keys, values = self.keys, self.values
        if keys is None or values is None or not keys.numel():
            return super().update(key_states, value_states, *args, **kwargs)
        t, end = keys.shape[-2], keys.shape[-2] + key_states.shape[-2]
        if self.store is None or end > self.store[0].shape[-2]:
            more = (0, 0, 0, end + ROOM - t)
            self.store = (pad(keys, more), pad(values, more))
        for stored, new in zip(self.store, (key_states, value_states), strict=True):
            stored[..., t:end, :] = new
        keys, values = self.store[0][..., :end, :], self.store[1][..., :end, :]
        self.keys, self.values = keys, values
        return keys, values

    def batch_select_indices(self, indices: Tensor) -> None:
        """See DynamicLayer: rows change, so the store is no longer theirs."""
        super().batch_select_indices(indices)
        self.store = None


def roomy_cache(config: Any) -> DynamicCache:
    """A cache for decoding. Layers of another kind than full attention (sliding windows) stay transformers'."""
    cache = DynamicCache(config=config)
    cache.layers = [RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def prefill(
    loaded: LoadedModel, prompts: Sequence[Sequence[int]], multiple: int = 1
) -> tuple[DynamicCache, Bool[Tensor, "p t"], Float[Tensor, "p v"]]:
    """Returns the prompts' keys and values, which of their positions are no padding, and the logits of the next
    token."""
    ids, mask = left_padded(prompts, loaded.pad_id, loaded.model.device, multiple)
    cache = roomy_cache(loaded.model.config)
    out = loaded.model(
        input_ids=ids,
        attention_mask=mask.long(),
        position_ids=(mask.long().cumsum(1) - 1).clamp(min=0),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return cache, mask, out.logits[:, -1]


class GrowingDecoder:
    """Rows of a batch that go on together."""

    drop_below = 0.75
    """Ended rows are dropped once no more than this share goes on: that costs a copy of the cache."""

    def __init__(self, loaded: LoadedModel, prompts: Sequence[Sequence[int]], group_size: int) -> None:
        """Prefill: `group_size` rows per prompt, groups one after the other."""
        self.model = loaded.model
        self.cache, mask, logits = prefill(loaded, prompts)
        self.cache.batch_repeat_interleave(group_size)
        self.logits: Float[Tensor, "b v"] = logits.repeat_interleave(group_size, 0)
        """Of the token that comes next."""
        self.mask = mask.repeat_interleave(group_size, 0)
        self.position = self.mask.sum(1)

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Go on with these rows alone."""
        self.cache.batch_select_indices(rows)
        self.mask, self.position = self.mask[rows], self.position[rows]

    def make_room(self, tokens: int) -> None:
        """Makes the cache as large as after so many sampled tokens."""
        layers: list[Any] = self.cache.layers
        for layer in layers:
            b, heads, _, d = layer.keys.shape
            layer.update(*(layer.keys.new_zeros((b, heads, tokens, d)) for _ in range(2)))
        self.mask = pad(self.mask, (0, tokens))

    def step(self, token: Int[Tensor, " b"]) -> Float[Tensor, "b v"]:
        """Append a token to every row; the logits of the one after it."""
        self.mask = torch.cat([self.mask, torch.ones_like(self.mask[:, :1])], 1)
        logits = self.model(
            input_ids=token[:, None],
            attention_mask=self.mask.long(),
            position_ids=self.position[:, None],
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        self.position = self.position + 1
        return logits


class FixedLayer(DynamicLayer):
    """One layer's keys and values of the sampled tokens, [b, heads, room, d]; a new one is written at `where`."""

    def __init__(self, like: Tensor, rows: int, where: Int[Tensor, "1"], room: int) -> None:
        super().__init__()
        self.where = where
        shape = (rows, like.shape[1], room, like.shape[3])
        # Zeros, not empty memory: a masked position has weight 0, and 0 x NaN is NaN.
        self.keys, self.values = like.new_zeros(shape), like.new_zeros(shape)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write the new position; the keys and values of all. See DynamicLayer.update."""
        assert self.keys is not None
        assert self.values is not None
        self.keys.index_copy_(2, self.where, key_states)
        self.values.index_copy_(2, self.where, value_states)
        return self.keys, self.values


class FixedDecoder:
    """As above, in tensors that stay where they are. On a CUDA device a step is the replay of a graph. A prompt's
    keys are kept once for its group; the cache holds what is sampled."""

    drop_below = 0.5

    def __init__(self, loaded: LoadedModel, prompts: Sequence[Sequence[int]], group_size: int) -> None:
        self.model = loaded.model
        cache, mask, logits = prefill(loaded, prompts, multiple=8)  # tensor cores read bfloat16 by 16 bytes
        n, device = len(prompts) * group_size, logits.device
        self.logits: Float[Tensor, "b v"] = logits.repeat_interleave(group_size, 0)
        self.position = mask.sum(1).repeat_interleave(group_size)
        filled: list[Any] = cache.layers
        keys, values = [layer.keys for layer in filled], [layer.values for layer in filled]
        hidden = ~mask.repeat_interleave(group_size, 0)[:, None, None]
        self.prompts = PromptStates(keys, values, hidden, group_size, torch.arange(n, device=device))
        self.where, self.filled, self.room = torch.tensor([0], device=device), 0, FIXED_ROOM
        self.cache = cache
        cache.layers = [FixedLayer(like, n, self.where, self.room) for like in keys]
        self._place_inputs()

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Go on with these rows alone: another shape, so another graph from the next step on."""
        self.cache.batch_select_indices(rows)
        self.position = self.position[rows]
        self.prompts = self.prompts.of_rows(rows)
        self._place_inputs()

    def make_room(self, tokens: int) -> None:
        """Makes the cache as large as after so many sampled tokens."""
        self.room = -(-tokens // FIXED_ROOM) * FIXED_ROOM
        layers: list[Any] = self.cache.layers
        for layer in layers:  # one after the other: never two whole caches
            longer = (pad(t, (0, 0, 0, self.room - t.shape[2])) for t in (layer.keys, layer.values))
            layer.keys, layer.values = longer
        self._place_inputs()

    def step(self, token: Int[Tensor, " b"]) -> Float[Tensor, "b v"]:
        """Append a token to every row; the logits of the one after it, overwritten by the next step."""
        if self.filled == self.room:
            self.make_room(self.room + 1)
        self.token.copy_(token[:, None])
        self.place.copy_(self.position[:, None])
        self.where.fill_(self.filled)
        self.seen[..., self.filled] = True
        if self.replay is None:
            self.replay = captured(self.forward) if self.logits.is_cuda else self.forward
        logits = self.replay()
        self.position = self.position + 1
        self.filled += 1
        return logits

    def forward(self) -> Float[Tensor, "b v"]:
        """One step on the tensors as they are: no shape, no number and no branch in it depends on their values."""
        return self.model(
            input_ids=self.token,
            attention_mask=self.seen,
            position_ids=self.place,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
            prompts=self.prompts,
        ).logits[:, -1]

    def _place_inputs(self) -> None:
        """New places for a step's inputs; a graph that read the old ones goes."""
        self.replay: Callable[[], Tensor] | None = None
        rows, device = len(self.position), self.logits.device
        self.token, self.place = (torch.zeros((rows, 1), dtype=torch.long, device=device) for _ in range(2))
        self.seen = torch.arange(self.room, device=device)[None, None, None] < self.filled


def captured(forward: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """`forward` as the replay of a CUDA graph; itself, and a warning with the reason, where it cannot be captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # libraries choose their kernels and allocate before the capture, as CUDA demands
        for _ in range(2):
            forward()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        # Separate memory for each graph: a pool cannot be shared with one that is gone.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            logits = forward()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as e:
        logger.warning(f"sampling without CUDA graphs, several times slower: {str(e).splitlines()[0]:.200}")
        return forward

    def replay() -> Tensor:
        graph.replay()
        return logits

    return replay


def decoder_for(
    loaded: LoadedModel, prompts: Sequence[Sequence[int]], group_size: int
) -> GrowingDecoder | FixedDecoder:
    """The faster one on the model's device. Sliding windows keep another cache, and other attention than torch's
    knows nothing of prompts that are shared: theirs grow."""
    config = loaded.model.config
    plain = all(type(layer) is RoomyLayer for layer in roomy_cache(config).layers)
    fixed = loaded.model.device.type == "cuda" and plain and config._attn_implementation in (PACKED, FUSED)
    return (FixedDecoder if fixed else GrowingDecoder)(loaded, prompts, group_size)
