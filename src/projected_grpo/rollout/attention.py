"""Attention of one new token to many cached ones, without a copy of the cache for each query head."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "sdpa_packed"


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
    plain = all(kwargs.get(k) is None for k in ("position_bias", "softcap", "cache"))
    if query.shape[2] > 1 or attention_mask is None or attention_mask.shape[1] > 1 or not plain:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **kwargs)
    b, heads, _, d = query.shape
    rows = query.reshape(b, key.shape[1], heads // key.shape[1], d)
    seen = scaled_dot_product_attention(rows, key, value, attention_mask, dropout, scale=scaling)
    return seen.reshape(b, 1, heads, value.shape[-1]), None


AttentionInterface.register(NAME, packed_sdpa)
AttentionMaskInterface.register(NAME, sdpa_mask)


@contextmanager
def packed_queries(model: Any) -> Generator[None]:
    """Inside, a model that attends by `sdpa` attends by `packed_sdpa`; one that attends otherwise stays as it is."""
    if model.config._attn_implementation != "sdpa":
        yield
        return
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.set_attn_implementation("sdpa")
