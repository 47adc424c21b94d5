"""Exact algebra of the adapters: each fact of DESIGN's section on them has an equality test."""

import pytest
import torch
from harness import attached, shake, tensor
from torch import nn

from projected_grpo.adapters.antipasto import AntiPaSTOLinear, attach_antipasto
from projected_grpo.adapters.lora_adapter import attach_lora, warm_point
from projected_grpo.channels.policy import nll
from projected_grpo.ledger.errors import BadInput
from projected_grpo.model.checkpointing import enable_checkpointing
from projected_grpo.model.logprobs import completion_logps, token_batch
from projected_grpo.worlds.models import load_model

PROMPTS = [[5, 6, 7, 8], [9, 10], [11, 12, 13, 14, 15, 16]]
COMPLETIONS = [[20, 21, 22], [23, 24, 25, 26, 27], [28]]


def batch_of(loaded, rows=(0, 1, 2)):
    return token_batch([PROMPTS[i] for i in rows], [COMPLETIONS[i] for i in rows], loaded.pad_id, "cpu")


def logits(loaded):
    return loaded.model(input_ids=batch_of(loaded).input_ids).logits


@pytest.fixture
def upstream(golden):
    """One Linear of upstream in float64: its adapted layer, inputs and expected numbers."""
    case = golden["adapter"]["linear"]["cases"][0]
    linear, svd = nn.Linear(8, 12, bias=False, dtype=torch.float64), case["svd"]
    linear.weight.data.copy_(tensor(case["inputs"]["W"]))
    layer = AntiPaSTOLinear("w", linear, (tensor(svd["U"]), tensor(svd["S"]), tensor(svd["V"]).T.contiguous()))
    layer.theta.data.copy_(tensor(case["inputs"]["delta"]))
    return layer, case["inputs"], case["expected"]


EXACT = {"rtol": 1e-10, "atol": 1e-12}


def test_linear_and_its_gradients_equal_upstream_in_float64(upstream):
    layer, i, e = upstream
    weight = layer.weight + layer.delta_weight(layer.theta)
    torch.testing.assert_close(weight, tensor(e["W_effective"]), **EXACT)
    got = {}
    layer.sink = lambda name, grads: got.update({name: grads})
    x, g, mask = tensor(i["x"]), tensor(i["g"]), tensor(i["mask"])
    x.requires_grad_(True)
    y = layer(x)
    torch.testing.assert_close(y, tensor(e["y_delta"]), **EXACT)
    (y * g).sum().backward()
    torch.testing.assert_close(got["w"], tensor(e["per_sample_grad_delta"]), **EXACT)
    torch.testing.assert_close(layer.theta.grad, tensor(e["grad_delta"]), **EXACT)
    torch.testing.assert_close(x.grad, tensor(e["grad_x"]), **EXACT)
    (layer(x) * g * mask[..., None]).sum().backward()
    torch.testing.assert_close(got["w"], tensor(e["per_sample_grad_delta_masked"]), **EXACT)
    with torch.no_grad():
        layer.theta.zero_()
    torch.testing.assert_close(layer(x), tensor(e["y_base"]), **EXACT)


def test_the_summed_gradient_equals_upstream_with_few_tokens_and_with_many(upstream):
    """Few take the way of a sample, many the one through g^T x; both are the reference's sum over samples."""
    layer, i, e = upstream
    x, g = tensor(i["x"]).reshape(-1, 8), tensor(i["g"]).reshape(-1, 12)
    assert len(x) >= 12
    torch.testing.assert_close(layer.summed(x, g, layer.theta), tensor(e["grad_delta"]), **EXACT)
    few = sum(layer.summed(a, b, layer.theta) for a, b in zip(x.split(4), g.split(4), strict=True))
    torch.testing.assert_close(few, tensor(e["grad_delta"]), **EXACT)


@pytest.mark.parametrize("kind", ["antipasto", "lora"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_zero_is_the_base_model_bit_for_bit(cache, dtype, kind):
    """And so is an adapter that is off, whether the weights are merged or not."""
    loaded = load_model("tiny", dtype, "cpu", 41, cache)
    with torch.no_grad():
        base = logits(loaded)
        adapter = attached(kind, loaded, cache / "svd")
        assert torch.equal(logits(loaded), base)
        shake(adapter)
        assert not torch.equal(logits(loaded), base)
        with adapter.disabled():
            assert torch.equal(logits(loaded), base)
        with adapter.merged(), adapter.disabled():
            assert torch.equal(logits(loaded), base)
        assert not torch.equal(logits(loaded), base)


def test_every_linear_is_adapted_and_the_old_weights_come_back_even_when_the_rollout_fails(tiny, adapter):
    assert len(adapter.sizes) == 7 * tiny.model.config.num_hidden_layers
    assert sum(p.requires_grad for p in tiny.model.parameters()) == len(adapter.sizes)
    shake(adapter)
    before = {n: m.weight.clone() for n, m in adapter.layers.items()}
    with pytest.raises(RuntimeError, match="boom"), adapter.merged():  # noqa: PT012 - what is merged, and a fault in it
        assert any(not torch.equal(m.weight, before[n]) for n, m in adapter.layers.items())
        raise RuntimeError("boom")
    assert all(torch.equal(m.weight, before[n]) for n, m in adapter.layers.items())
    assert all(m.enabled for m in adapter.layers.values())


def backward(loaded, rows):
    """Of the mean NLL of each row."""
    batch = batch_of(loaded, rows)
    nll(completion_logps(loaded.model, batch), batch.loss_mask).sum().backward()


def collect(loaded, adapter, rows):
    """Per-sample gradients {module: [b, n]}, and their sum, from one backward pass."""
    got = {}
    adapter.zero_grad()
    with adapter.per_sample(lambda name, g: got.update({name: g.clone()})):
        backward(loaded, rows)
    return got, adapter.gradient()


def test_one_batched_backward_gives_every_samples_own_gradient(tiny64, adapter64):
    """Against the naive way: one sample, one backward. With gradient checkpointing, too."""
    tiny, adapter = tiny64, adapter64
    shake(adapter)
    singles = [collect(tiny, adapter, (i,))[1] for i in range(3)]
    for checkpointing in (False, True):
        if checkpointing:
            enable_checkpointing(tiny.model)
        batched, summed = collect(tiny, adapter, (0, 1, 2))
        for name, grads in batched.items():
            for i in range(3):
                torch.testing.assert_close(grads[i], singles[i][name], rtol=1e-7, atol=1e-12)
            torch.testing.assert_close(grads.sum(0), summed[name], rtol=1e-9, atol=1e-13)
        assert len(batched) == len(adapter.sizes)


def test_no_activation_beside_x_is_saved(antipasto):
    layer = next(iter(antipasto.layers.values()))
    saved = []
    x = torch.randn(2, 5, layer.weight.shape[1], requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.shape) or t, lambda t: t):
        layer(x)
    assert sorted(saved) == sorted([x.shape, layer.theta.shape])


def test_save_and_load(tiny, cache, antipasto, tmp_path):
    shake(antipasto)
    antipasto.save(tmp_path / "a.safetensors", {"note": "x"})
    other = load_model("tiny", "float32", "cpu", 41, cache)
    again = attach_antipasto(other.model, cache / "svd")
    assert again.load(tmp_path / "a.safetensors")["note"] == "x"
    with torch.no_grad():
        assert torch.equal(logits(other), logits(tiny))
    lora = attach_lora(load_model("tiny", "float32", "cpu", 41, cache).model, 4, 41)
    with pytest.raises(BadInput, match="adapter=antipasto, this adapter has adapter=lora"):
        lora.load(tmp_path / "a.safetensors")


def test_the_warm_point_fills_only_the_columns_of_b_that_are_zero(tiny):
    """A trained B is the policy as it is; row i of A has a gradient wherever column i of B is not zero."""
    adapter = attach_lora(tiny.model, 4, 41)
    layers = adapter.layers.values()
    with torch.no_grad():
        for layer in layers:
            layer.split(layer.theta)[1][:, 1] = 0.25
            layer.split(layer.theta)[1][0, 1] = 0.0  # a zero in a trained column
    trained = adapter.values()
    with warm_point(adapter):
        for layer in layers:
            a, b = (part.detach() for part in layer.split(layer.theta))
            assert b[:, 1].tolist() == [0.0] + [0.25] * (len(b) - 1)
            rest = [0, 2, 3]
            ratio = (b[:, rest] @ a[rest]).norm() / layer.weight.norm()
            assert float(ratio) == pytest.approx(1e-3, rel=1e-3)
    assert all(torch.equal(p, trained[n]) for n, p in adapter.vectors.items())
    shake(adapter)
    before = adapter.values()
    with warm_point(adapter):
        assert all(torch.equal(p, before[n]) for n, p in adapter.vectors.items())


def total_of(loaded, adapter):
    """The summed gradient of two backward passes over different rows."""
    adapter.zero_grad()
    for rows in ((0, 1), (2,)):
        backward(loaded, rows)
    return adapter.gradient()


def test_the_summed_gradient_is_the_same_where_weights_are_folded(tiny64, adapter64):
    shake(adapter64, seed=5)
    apart = total_of(tiny64, adapter64)
    with adapter64.merged():
        total_of(tiny64, adapter64)
        assert adapter64.kind != "antipasto" or all(p.grad is None for p in adapter64.vectors.values()), (
            "gathered first"
        )
    for name, g in adapter64.gradient().items():
        torch.testing.assert_close(g, apart[name], rtol=1e-9, atol=1e-12)
        assert adapter64.layers[name].gathered() is None, "nothing is kept afterwards"


@pytest.mark.parametrize(("dtype", "kind"), [("float32", "antipasto"), ("bfloat16", "antipasto"), ("float32", "lora")])
def test_the_trained_policy_is_the_sampled_one_to_the_bit(cache, dtype, kind):
    """Merged for sampling, or for a step, or merged anew at every pass: the same weights, so the same
    log-probabilities."""
    loaded = load_model("tiny", dtype, "cpu", 41, cache)
    adapter = attached(kind, loaded, cache / "svd")
    shake(adapter, scale=1e-3)
    with torch.no_grad(), adapter.merged():
        sampled = logits(loaded)
    with adapter.merged():
        trained = logits(loaded)
    assert trained.requires_grad
    assert torch.equal(sampled, trained)
    assert torch.equal(sampled, logits(loaded))
