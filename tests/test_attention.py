"""A decoding step attends as the library does, without a copy of its keys for each query head."""

import pytest
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

import projected_grpo.model.attention as attention
from projected_grpo.model.attention import fuse, fused_sdpa, packed_sdpa
from projected_grpo.model.batches import batches, logps_of
from projected_grpo.records import Sample
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
def test_each_query_head_attends_to_the_keys_of_its_group(heads, kv_heads):
    """Against softmax written out, head by head. The sneaky fail: query heads shared out in another order."""
    query, key, value = states(heads, kv_heads)
    mask = seen()
    got, _ = packed_sdpa(None, query, key, value, mask, scaling=0.3)
    assert got.shape == (3, 1, heads, 16)
    for row in range(3):
        for head in range(heads):
            group = head // (heads // kv_heads)
            scores = key[row, group] @ query[row, head, 0] * 0.3
            weights = scores.masked_fill(~mask[row, 0, 0], float("-inf")).softmax(0)
            torch.testing.assert_close(got[row, 0, head], weights @ value[row, group], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", ["several tokens", "no mask", "a mask for each head", "a bias"])
def test_all_else_is_the_librarys(tiny, case):
    module = tiny.model.model.layers[0].self_attn
    t = 3 if case == "several tokens" else 1
    query, key, value = states(4, 2, t)
    mask = {"no mask": None, "a mask for each head": seen(t).repeat(1, 4, 1, 1)}.get(case, seen(t))
    extra = {"position_bias": torch.randn(1, 4, t, 9)} if case == "a bias" else {}
    ours, _ = packed_sdpa(module, query, key, value, mask, 0.0, 0.3, **extra)
    theirs, _ = sdpa_attention_forward(module, query, key, value, mask, 0.0, 0.3, **extra)
    assert torch.equal(ours, theirs)


def test_sampling_never_copies_its_keys_for_each_query_head(tiny, monkeypatch):
    """The sneaky fail: another name for the attention that the model does not listen to."""
    heads = tiny.model.config.num_attention_heads
    kv_heads = tiny.model.config.num_key_value_heads
    assert heads > kv_heads
    packed = []

    def attend(query, key, *rest, **kwargs):
        packed.append((query.shape[1], key.shape[1]))
        return torch.nn.functional.scaled_dot_product_attention(query, key, *rest, **kwargs)

    def library(module, query, *rest, **kwargs):
        assert query.shape[2] > 1  # the prefill
        return sdpa_attention_forward(module, query, *rest, **kwargs)

    monkeypatch.setattr(attention, "scaled_dot_product_attention", attend)
    monkeypatch.setattr(attention, "sdpa_attention_forward", library)
    sample_tokens(tiny, PROMPTS, 2, SamplingParams(5, 1.0), ["a", "b", "c"])
    assert packed == [(kv_heads, kv_heads)] * (4 * tiny.model.config.num_hidden_layers)


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


def gradients(tiny, adapter):
    """Of the log-probabilities of two rows of unlike lengths, with theta off its start."""
    with torch.no_grad():
        for theta in adapter.vectors.values():
            theta.fill_(0.01)
            theta.grad = None
    rows = [Sample((5, 6, 7, 8), (9, 10), 0.0, None), Sample((11, 12), (13,), 0.0, None)]
    for _, batch in batches(rows, 1000, tiny.pad_id, torch.device("cpu"), whole=True):
        logps_of(tiny.model, batch, 1.0).sum().backward()
    return {name: theta.grad.clone() for name, theta in adapter.vectors.items()}


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (3, 3), (9, 3)])
def test_whole_rows_attend_causally_to_the_keys_of_their_group(tiny, heads, kv_heads):
    """Against softmax written out, head by head."""
    module = tiny.model.model.layers[0].self_attn
    query, key, value = states(heads, kv_heads, 5, 5)
    got, _ = fused_sdpa(module, query, key, value, None, scaling=0.3)
    assert got.shape == (3, 5, heads, 16)
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    for head in range(heads):
        group = head // (heads // kv_heads)
        scores = (query[:, head] @ key[:, group].mT * 0.3).masked_fill(hidden, float("-inf"))
        torch.testing.assert_close(got[:, :, head], scores.softmax(-1) @ value[:, group], rtol=1e-5, atol=1e-6)


def test_whole_rows_ask_for_no_shared_keys(fused, antipasto, monkeypatch):
    """The sneaky fail: `enable_gqa`, for which torch keeps every score of float32 on a GPU."""
    asked = []

    def attend(query, key, *rest, **kwargs):
        asked.append((query.shape[1], key.shape[1], kwargs.get("enable_gqa", False)))
        return torch.nn.functional.scaled_dot_product_attention(query, key, *rest, **kwargs)

    monkeypatch.setattr(attention, "scaled_dot_product_attention", attend)
    monkeypatch.setattr(attention, "sdpa_attention_forward", None)
    gradients(fused, antipasto)
    heads, layers = fused.model.config.num_attention_heads, fused.model.config.num_hidden_layers
    assert asked == [(heads, heads, False)] * layers


@pytest.mark.parametrize("case", ["a mask", "a cache before them", "a bias", "not causal"])
def test_what_is_no_whole_row_is_the_librarys(tiny, case):
    module = tiny.model.model.layers[0].self_attn
    t, cached = (3, 9) if case == "a cache before them" else (5, 5)
    query, key, value = states(4, 2, t, cached)
    mask = seen(5, 5) if case == "a mask" else None
    extra = {"a bias": {"position_bias": torch.randn(1, 4, t, cached)}, "not causal": {"is_causal": False}}.get(
        case, {}
    )
    ours, _ = fused_sdpa(module, query, key, value, mask, 0.0, 0.3, **extra)
    theirs, _ = sdpa_attention_forward(module, query, key, value, mask, 0.0, 0.3, **extra)
    assert torch.equal(ours, theirs)
