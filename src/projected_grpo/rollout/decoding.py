"""The next token's logits, again and again, from a key-value cache.

GrowingDecoder  the cache grows by a position a token and attention reads just what is there: the least work, for a CPU
FixedDecoder    every tensor keeps its place and size for `FIXED_ROOM` tokens, so that a GPU replays one CUDA graph instead
                of a thousand small kernels that Python launches; attention reads the empty positions too, masked out

Both start from the prompts, each prefilled once and its cache repeated for its group. Prompts are padded on the left, so all
rows end at the same position. For use under no_grad, in eval mode.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from loguru import logger
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from projected_grpo.model.load import LoadedModel
from projected_grpo.model.logprobs import left_padded
from projected_grpo.rollout.kv_cache import RoomyLayer, roomy_cache

FIXED_ROOM = 256
"""Positions that a FixedDecoder's cache has ahead: one graph serves so many tokens."""


class GrowingDecoder:
    """Rows of a batch that go on together."""

    stay = 0.75
    """Ended rows SHOULD leave once no more than this share goes on: leaving costs a copy of the cache."""

    def __init__(self, loaded: LoadedModel, prompts: Sequence[Sequence[int]], group_size: int) -> None:
        """Prefill: `group_size` rows per prompt, groups one after the other."""
        self.model = loaded.model
        ids, mask = left_padded(prompts, loaded.pad_id, self.model.device)
        self.cache = roomy_cache(self.model.config)
        out = self.model(
            input_ids=ids,
            attention_mask=mask.long(),
            position_ids=(mask.long().cumsum(1) - 1).clamp(min=0),
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self.cache.batch_repeat_interleave(group_size)
        self.logits: Float[Tensor, "b v"] = out.logits[:, -1].repeat_interleave(group_size, 0)
        """Of the token that comes next."""
        self.mask = mask.repeat_interleave(group_size, 0)
        self.position = self.mask.sum(1)

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Go on with these rows alone."""
        self.cache.batch_select_indices(rows)
        self.mask, self.position = self.mask[rows], self.position[rows]

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
    """One layer's keys and values, [b, heads, room, d], all of which attention reads; a new one is written at `where`."""

    def __init__(self, layer: DynamicLayer, where: Int[Tensor, "1"], room: int) -> None:
        super().__init__()
        filled = int(where)
        self.where = where
        self.keys, self.values = (_with_room(t, filled, room) for t in (layer.keys, layer.values))
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write the new position; the keys and values of all. See DynamicLayer.update."""
        assert self.keys is not None
        assert self.values is not None
        self.keys.index_copy_(2, self.where, key_states)
        self.values.index_copy_(2, self.where, value_states)
        return self.keys, self.values


def _with_room(states: Tensor | None, filled: int, room: int) -> Tensor:
    """Zeros, not empty memory, behind what is filled: a masked position has weight 0, and 0 x NaN is NaN."""
    assert states is not None
    out = states.new_zeros((*states.shape[:2], room, states.shape[3]))
    out[:, :, :filled] = states[:, :, :filled]
    return out


class FixedDecoder(GrowingDecoder):
    """As above, in tensors that stay where they are. On a CUDA device a step is the replay of a graph."""

    stay = 0.5

    def __init__(self, loaded: LoadedModel, prompts: Sequence[Sequence[int]], group_size: int) -> None:
        super().__init__(loaded, prompts, group_size)
        device = self.logits.device
        self.filled = self.room = self.mask.shape[1]
        self.where = torch.tensor([self.filled], device=device)
        self.replay: Callable[[], Tensor] | None = None

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Go on with these rows alone: another shape, so another graph from the next step on."""
        super().keep(rows)
        self.room = self.filled

    def step(self, token: Int[Tensor, " b"]) -> Float[Tensor, "b v"]:
        """Append a token to every row; the logits of the one after it, overwritten by the next step."""
        fresh = self.filled == self.room
        if fresh:
            self._make_room(len(token))
        self.token.copy_(token[:, None])
        self.place.copy_(self.position[:, None])
        self.where.fill_(self.filled)
        self.seen[..., self.filled] = True
        if fresh or self.replay is None:
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
        ).logits[:, -1]

    def _make_room(self, rows: int) -> None:
        self.replay = None  # its graph writes into the tensors that go now
        self.room = self.filled + FIXED_ROOM
        self.where.fill_(self.filled)
        for i, layer in enumerate(self.cache.layers):  # one after the other: never two whole caches
            assert isinstance(layer, DynamicLayer)
            self.cache.layers[i] = FixedLayer(layer, self.where, self.room)
        device = self.logits.device
        self.token, self.place = (torch.zeros((rows, 1), dtype=torch.long, device=device) for _ in range(2))
        self.seen = torch.zeros((rows, 1, 1, self.room), dtype=torch.bool, device=device)
        self.seen[:, 0, 0, : self.mask.shape[1]] = self.mask
        self.seen[..., self.mask.shape[1] : self.filled] = True


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


def decoder_for(loaded: LoadedModel, prompts: Sequence[Sequence[int]], group_size: int) -> GrowingDecoder:
    """The faster one on the model's device. Sliding windows keep another cache, which grows."""
    plain = all(type(layer) is RoomyLayer for layer in roomy_cache(loaded.model.config).layers)
    kind = FixedDecoder if loaded.model.device.type == "cuda" and plain else GrowingDecoder
    return kind(loaded, prompts, group_size)
