"""Attention that saves memory: one new token to many cached ones without a copy of the cache for each query head, and
float32 on a GPU without the scores of every two tokens.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from projected_grpo.adapters.base import mm_float32

PLAIN, PACKED, FUSED = "sdpa", "sdpa_packed", "sdpa_fused"


@dataclass(frozen=True)
class PromptStates:
    """What a model keeps of p prompts, once each, for the rows that go on from them."""

    keys: Sequence[Float[Tensor, "p kv t d"]]
    """Of every layer."""
    values: Sequence[Float[Tensor, "p kv t d"]]
    hidden: Bool[Tensor, "b 1 1 t"]
    """True where row b's prompt is padded."""
    group_size: int
    """Most rows of a prompt."""
    places: Int[Tensor, " b"]
    """Row b is number places[b] % group_size of prompt places[b] // group_size."""

    def of_rows(self, rows: Int[Tensor, " kept"]) -> "PromptStates":
        """Returns the states that these rows go on from."""
        left, prompt = (self.places[rows] // self.group_size).unique(return_inverse=True)
        places = prompt * self.group_size + self.places[rows] % self.group_size
        keys, values = ([states[left] for states in of] for of in (self.keys, self.values))
        return PromptStates(keys, values, self.hidden[rows], self.group_size, places)


def grouped_attention(
    rows: Float[Tensor, "b kv m d"],
    own_keys: Float[Tensor, "b kv room d"],
    own_values: Float[Tensor, "b kv room d"],
    own_seen: Bool[Tensor, "1 1 1 room"],
    prompts: PromptStates,
    layer: int,
    scale: float,
) -> Float[Tensor, "b kv m d"]:
    """Returns the attention of one new token a row, m query heads to a key head, to its prompt and to its own tokens.

    A group's rows are one batch of queries to their prompt, so its keys are read once a group and not once a row.
    """
    b, kv, m, d = rows.shape
    keys, values = prompts.keys[layer], prompts.values[layer]
    p, g, t = len(keys), prompts.group_size, keys.shape[2]
    whole = b == p * g  # no row has left: nothing to gather

    def to_prompts(states: Tensor) -> Tensor:
        """[b, kv, m, n] -> [p kv, g m, n]; zeros for rows that have left."""
        n = states.shape[3]
        if not whole:
            states = states.new_zeros((p * g, kv, m, n)).index_copy_(0, prompts.places, states)
        return states.view(p, g, kv, m, n).transpose(1, 2).reshape(p * kv, g * m, n)

    def to_rows(states: Tensor) -> Tensor:
        """The way back."""
        n = states.shape[2]
        states = states.view(p, kv, g, m, n).transpose(1, 2).reshape(p * g, kv, m, n)
        return states if whole else states[prompts.places]

    scores = torch.cat([
        to_rows(mm_float32(to_prompts(rows), keys.flatten(0, 1).mT)).masked_fill(prompts.hidden, -torch.inf),
        mm_float32(rows.flatten(0, 1), own_keys.flatten(0, 1).mT).view(b, kv, m, -1).masked_fill(~own_seen, -torch.inf),
    ], 3)  # fmt: skip
    weights = (scores * scale).softmax(3).to(values.dtype)
    of_prompt = mm_float32(to_prompts(weights[..., :t]), values.flatten(0, 1))
    own = mm_float32(weights[..., t:].flatten(0, 1), own_values.flatten(0, 1)).view(b, kv, m, d)
    return (to_rows(of_prompt) + own).to(rows.dtype)


def packed_sdpa(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    *,
    copies: bool = False,
    prompts: PromptStates | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """As transformers' `sdpa`. query [b, heads, t, d]; key, value [b, kv_heads, cached, d]; mask [b, 1, t, cached],
    True where a token is seen. Returns [b, t, heads, d].

    With a mask and one query token, query heads that share keys become rows of one head: [b, kv_heads, heads /
    kv_heads, d]. transformers 5.17 copies the keys for each of them instead (5.23 no longer does): 4 times the whole
    cache of Qwen3-4B, in every layer, for every token.

    `copies`, for float32 on a GPU: rows without a mask, as long as their keys, have the keys copied for each query
    head. The library passes keys that are shared, for which torch has no fused kernel in float32: it takes the scores
    of every two tokens, [b, heads, t, t], and keeps them for the way back. All else is the library's."""
    (b, heads, t, d), kv_heads = query.shape, key.shape[1]
    ordinary = all(kwargs.get(k) is None for k in ("position_bias", "softcap", "cache"))
    if ordinary and t == 1 and attention_mask is not None and attention_mask.shape[1] == 1:
        rows = query.reshape(b, kv_heads, heads // kv_heads, d)
        if prompts is not None:
            scale = d**-0.5 if scaling is None else scaling
            seen = grouped_attention(rows, key, value, attention_mask, prompts, module.layer_idx, scale)
            return seen.reshape(b, 1, heads, -1), None
        seen = scaled_dot_product_attention(rows, key, value, attention_mask, dropout, scale=scaling)
        return seen.reshape(b, 1, heads, value.shape[-1]), None
    whole = attention_mask is None and 1 < t == key.shape[2] and kwargs.get("is_causal") is not False
    if copies and ordinary and whole and module.is_causal:
        key, value = (repeat_kv(states, heads // kv_heads) for states in (key, value))
        seen = scaled_dot_product_attention(query, key, value, None, dropout, is_causal=True, scale=scaling)
        return seen.transpose(1, 2).contiguous(), None
    return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **kwargs)


fused_sdpa = partial(packed_sdpa, copies=True)
"""For float32 on a GPU."""
for name, attend in ((PACKED, packed_sdpa), (FUSED, fused_sdpa)):
    AttentionInterface.register(name, attend)
    AttentionMaskInterface.register(name, sdpa_mask)


def fuse(model: Any) -> None:
    """For a GPU: from now on norms are one kernel each instead of eight, and a float32 model that attends by `sdpa`
    does so by `fused_sdpa`. Other norms than Llama's and other attention stay as they are."""
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon"):
            weight = module.weight
            module.forward = partial(
                rms_norm, normalized_shape=weight.shape, weight=weight, eps=module.variance_epsilon
            )
    if model.config._attn_implementation == PLAIN and model.dtype == torch.float32:
        model.set_attn_implementation(FUSED)


@contextmanager
def packed_queries(model: Any) -> Generator[None]:
    """Inside, a model that attends by `sdpa` attends by `packed_sdpa`; one that attends otherwise stays as it is."""
    if model.config._attn_implementation != PLAIN:
        yield
        return
    model.set_attn_implementation(PACKED)
    try:
        yield
    finally:
        model.set_attn_implementation(PLAIN)
