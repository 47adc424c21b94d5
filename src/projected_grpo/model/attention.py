"""Attention without what the library's costs here: one new token to many cached ones without a copy of the cache for each
query head, and float32 on a GPU without the scores of every two tokens.
"""

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

PLAIN, PACKED, FUSED = "sdpa", "sdpa_packed", "sdpa_fused"


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
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """As transformers' `sdpa`. query [b, heads, t, d]; key, value [b, kv_heads, cached, d]; mask [b, 1, t, cached], True
    where a token is seen. Returns [b, t, heads, d].

    With a mask and one query token, query heads that share keys become rows of one head: [b, kv_heads, heads / kv_heads, d].
    transformers 5.17 copies the keys for each of them instead (5.23 no longer does): 4 times the whole cache of Qwen3-4B, in
    every layer, for every token.

    `copies`, for float32 on a GPU: rows without a mask, as long as their keys, have the keys copied for each query head. The
    library passes keys that are shared, for which torch has no fused kernel in float32: it takes the scores of every two
    tokens, [b, heads, t, t], and keeps them for the way back. All else is the library's.
    """
    (b, heads, t, d), kv_heads = query.shape, key.shape[1]
    ordinary = all(kwargs.get(k) is None for k in ("position_bias", "softcap", "cache"))
    if ordinary and t == 1 and attention_mask is not None and attention_mask.shape[1] == 1:
        rows = query.reshape(b, kv_heads, heads // kv_heads, d)
        seen = scaled_dot_product_attention(rows, key, value, attention_mask, dropout, scale=scaling)
        return seen.reshape(b, 1, heads, value.shape[-1]), None
    if copies and ordinary and attention_mask is None and 1 < t == key.shape[2] and _causal(module, kwargs):
        key, value = (repeat_kv(states, heads // kv_heads) for states in (key, value))
        seen = scaled_dot_product_attention(query, key, value, None, dropout, is_causal=True, scale=scaling)
        return seen.transpose(1, 2).contiguous(), None
    return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **kwargs)


def _causal(module: Any, kwargs: dict[str, Any]) -> bool:
    return module.is_causal and kwargs.get("is_causal") is not False


fused_sdpa = partial(packed_sdpa, copies=True)
"""For float32 on a GPU."""
for name, attend in ((PACKED, packed_sdpa), (FUSED, fused_sdpa)):
    AttentionInterface.register(name, attend)
    AttentionMaskInterface.register(name, sdpa_mask)


def attend_fused(model: Any) -> None:
    """From now on a float32 model that attends by `sdpa` does so by `fused_sdpa`: for a GPU. Others stay as they are."""
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
