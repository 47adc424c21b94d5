"""Attention without what the library's costs here: one new token to many cached ones without a copy of the cache for each
query head, and float32 on a GPU without the scores of every two tokens.
"""

from collections.abc import Generator
from contextlib import contextmanager
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
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """As transformers' `sdpa`. query [b, heads, t, d]; key, value [b, kv_heads, cached, d]; mask [b, 1, t, cached], True
    where a token is seen. Returns [b, t, heads, d].

    With a mask and one query token, query heads that share keys become rows of one head: [b, kv_heads, heads / kv_heads, d].
    transformers 5.17 copies the keys for each of them instead (5.23 no longer does): 4 times the whole cache of Qwen3-4B, in
    every layer, for every token. All else is the library's.
    """
    if query.shape[2] > 1 or attention_mask is None or attention_mask.shape[1] > 1 or not _ordinary(kwargs):
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **kwargs)
    b, heads, _, d = query.shape
    rows = query.reshape(b, key.shape[1], heads // key.shape[1], d)
    seen = scaled_dot_product_attention(rows, key, value, attention_mask, dropout, scale=scaling)
    return seen.reshape(b, 1, heads, value.shape[-1]), None


def fused_sdpa(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The same, for float32 on a GPU.

    Rows without a mask, as long as their keys, have the keys copied for each query head. The library passes keys that are
    shared, for which torch has no fused kernel in float32: it takes the scores of every two tokens, [b, heads, t, t], and
    keeps them for the way back.
    """
    t = query.shape[2]
    whole = attention_mask is None and t > 1 and t == key.shape[2]
    if not whole or not _ordinary(kwargs) or not module.is_causal or kwargs.get("is_causal") is False:
        return packed_sdpa(module, query, key, value, attention_mask, dropout, scaling, **kwargs)
    key, value = (repeat_kv(states, query.shape[1] // key.shape[1]) for states in (key, value))
    seen = scaled_dot_product_attention(query, key, value, None, dropout, is_causal=True, scale=scaling)
    return seen.transpose(1, 2).contiguous(), None


def _ordinary(kwargs: dict[str, Any]) -> bool:
    """Nothing is asked for that the library adds to torch's attention."""
    return all(kwargs.get(k) is None for k in ("position_bias", "softcap", "cache"))


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
