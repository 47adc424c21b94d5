"""A decoding step attends as the library does, without a copy of its keys for each query head."""

import pytest
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

import projected_grpo.model.attention as attention
from projected_grpo.model.attention import fuse, fused_sdpa, packed_sdpa
from projected_grpo.model.logprobs import completion_logps, token_batch
from projected_grpo.rollout.draw import SamplingParams
from projected_grpo.rollout.sample import sample_tokens

PROMPTS = [[5, 6, 7, 8, 9], [10, 11], [12, 13, 14, 15, 16, 17, 18]]


def states(heads, kv_heads, t=1, cached=9):
    generator = torch.Generator().manual_seed(0)
    shapes = ((3, heads, t, 16), (3, kv_heads, cached, 16), (3, kv_heads, cached, 16))
    return [torch.randn(shape, generator=generator) for shape in shapes]


def seen(t=1, cached=9):
    """Rows whose first 0, 2 and 5 places are padding; of several new tokens, each sees up to itself."""
    causal = torch.ones(t, cached, dtype=torch.bool).tril(cached - t)
    return torch.stack([(causal & (torch.arange(cached) >= pad))[None] for pad in (0, 2, 5)])


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (6, 2), (3, 3), (4, 1)])
@pytest.mark.parametrize(("attend", "t", "cached"), [(packed_sdpa, 1, 9), (fused_sdpa, 5, 5)])
def test_each_query_head_attends_to_the_keys_of_its_group(tiny, attend, t, cached, heads, kv_heads):
    """One new token with a mask, and whole rows without: against softmax written out, head by head. The sneaky fail:
    query heads shared out in another order."""
    query, key, value = states(heads, kv_heads, t, cached)
    mask = seen() if t == 1 else None
    got, _ = attend(tiny.model.model.layers[0].self_attn, query, key, value, mask, scaling=0.3)
    assert got.shape == (3, t, heads, 16)
    visible = mask[:, 0] if t == 1 else torch.ones(t, t, dtype=torch.bool).tril()
    for head in range(heads):
        group = head // (heads // kv_heads)
        scores = (query[:, head] @ key[:, group].mT * 0.3).masked_fill(~visible, float("-inf"))
        torch.testing.assert_close(got[:, :, head], scores.softmax(-1) @ value[:, group], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("attend", "t", "cached", "mask", "extra"),
    [
        pytest.param(packed_sdpa, 3, 9, seen(3), {}, id="several tokens"),
        pytest.param(packed_sdpa, 1, 9, None, {}, id="no mask"),
        pytest.param(packed_sdpa, 1, 9, seen().repeat(1, 4, 1, 1), {}, id="a mask for each head"),
        pytest.param(fused_sdpa, 5, 5, seen(5, 5), {}, id="whole rows with a mask"),
        pytest.param(fused_sdpa, 3, 9, None, {}, id="a cache before them"),
        pytest.param(fused_sdpa, 5, 5, None, {"is_causal": False}, id="not causal"),
    ],
)
def test_all_else_is_the_librarys(tiny, attend, t, cached, mask, extra):
    module = tiny.model.model.layers[0].self_attn
    query, key, value = states(4, 2, t, cached)
    ours, _ = attend(module, query, key, value, mask, 0.0, 0.3, **extra)
    theirs, _ = sdpa_attention_forward(module, query, key, value, mask, 0.0, 0.3, **extra)
    assert torch.equal(ours, theirs)


def asked_for(monkeypatch):
    """Heads of queries and of keys, and whether keys are shared, of each call to torch's attention from here on."""
    asked, attend = [], torch.nn.functional.scaled_dot_product_attention

    def spy(query, key, *rest, **kwargs):
        asked.append((query.shape[1], key.shape[1], kwargs.get("enable_gqa", False)))
        return attend(query, key, *rest, **kwargs)

    monkeypatch.setattr(attention, "scaled_dot_product_attention", spy)
    return asked


def test_sampling_never_copies_its_keys_for_each_query_head(tiny, monkeypatch):
    """The sneaky fail: another name for the attention that the model does not listen to."""
    asked = asked_for(monkeypatch)

    def library(module, query, *rest, **kwargs):
        assert query.shape[2] > 1  # the prefill
        return sdpa_attention_forward(module, query, *rest, **kwargs)

    monkeypatch.setattr(attention, "sdpa_attention_forward", library)
    sample_tokens(tiny, PROMPTS, 2, SamplingParams(5, 1.0), ["a", "b", "c"])
    config = tiny.model.config
    assert config.num_attention_heads > config.num_key_value_heads
    assert asked == [(config.num_key_value_heads, config.num_key_value_heads, False)] * 4 * config.num_hidden_layers


# ---------------------------------------------------------------- float32 on a GPU


@pytest.fixture
def fused(tiny):
    """The tiny model as a GPU has it in float32."""
    fuse(tiny.model)
    yield tiny
    tiny.model.set_attn_implementation("sdpa")
    for module in tiny.model.modules():
        vars(module).pop("forward", None)


def test_a_fused_norm_is_the_librarys(fused):
    norms = [module for module in fused.model.modules() if "forward" in vars(module)]
    assert len(norms) == 1 + 4 * fused.model.config.num_hidden_layers
    for norm in norms:
        x = torch.randn(3, norm.weight.numel()) * 5
        torch.testing.assert_close(norm(x), type(norm).forward(norm, x), rtol=1e-6, atol=1e-6)


def test_whole_rows_ask_for_no_shared_keys(fused, monkeypatch):
    """The sneaky fail: `enable_gqa`, for which torch keeps every score of float32 on a GPU."""
    asked = asked_for(monkeypatch)
    monkeypatch.setattr(attention, "sdpa_attention_forward", None)
    completion_logps(fused.model, token_batch([[5, 6, 7, 8], [11, 12]], [[9, 10], [13]], fused.pad_id, "cpu"))
    heads, layers = fused.model.config.num_attention_heads, fused.model.config.num_hidden_layers
    assert asked == [(heads, heads, False)] * layers
