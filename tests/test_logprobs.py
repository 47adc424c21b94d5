"""Completion log-probabilities against the full [B, T, vocab] way, and with the prompt run once per group."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from harness import put, shake, theta_of
from steps_of import GROUPS, basis_for, take
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import CheckpointPolicy
from torch.utils.flop_counter import FlopCounterMode
from transformers import Qwen3Config, Qwen3ForCausalLM

from projected_grpo.adapters.antipasto import AntiPaSTOLinear
from projected_grpo.adapters.base import Adapter, replace_targets
from projected_grpo.model.checkpointing import _policy, enable_checkpointing
from projected_grpo.model.logprobs import (
    completion_logps,
    head_of,
    shared_batch,
    shared_batches,
    token_batch,
    token_logps,
)
from projected_grpo.projection import Projection
from projected_grpo.step import Objective

PROMPTS = [[5, 6, 7, 8], [9, 10], [5, 6, 7, 8], [11, 12, 13, 14, 15, 16], [9, 10], [9, 10]]
COMPLETIONS = [[20, 21, 22], [23, 24, 25, 26, 27], [28], [], [29, 30], [20, 21, 22]]


@pytest.fixture
def batch(tiny):
    return token_batch(PROMPTS, COMPLETIONS, tiny.pad_id, "cpu")


def full(loaded, batch, temperature):
    """The plain way: logits at all positions, float32 log-softmax, gather."""
    logits = loaded.model(input_ids=batch.input_ids).logits[:, :-1] / temperature
    return logits.log_softmax(-1).gather(2, batch.targets[..., None]).squeeze(2)


@pytest.mark.parametrize(("temperature", "chunk"), [(1.0, 1), (0.7, 3), (1.0, 1024)])
def test_equals_the_full_logits_way(tiny, batch, temperature, chunk):
    got = completion_logps(tiny.model, batch, temperature, chunk)
    expected = torch.where(batch.loss_mask, full(tiny, batch, temperature), torch.zeros(()))
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


def test_gradient_equals_the_full_logits_way(tiny64, batch):
    embedding = tiny64.model.get_input_embeddings().weight.requires_grad_(True)
    completion_logps(tiny64.model, batch, chunk=2).sum().backward()
    got, embedding.grad = embedding.grad, None
    full(tiny64, batch, 1.0)[batch.loss_mask].sum().backward()
    torch.testing.assert_close(got, embedding.grad, rtol=1e-6, atol=1e-7)


def test_no_tensor_of_the_size_of_all_logits_is_made(tiny):
    """The largest tensor that autograd keeps for this part is a chunk of hidden states, not [N, vocab]."""
    vocab = tiny.model.config.vocab_size
    hidden = torch.randn(64, tiny.model.config.hidden_size, requires_grad=True)
    head = tiny.model.get_output_embeddings().weight
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()) or t, lambda t: t):
        token_logps(hidden, head, torch.zeros(64, dtype=torch.long), chunk=8).sum()
    assert not [n for n in saved if n >= 8 * vocab and n != head.numel()]


@pytest.mark.parametrize("name", ["final_logit_softcapping", "logits_scaling", "logit_scale"])
def test_a_model_with_more_to_its_logits_than_a_product_is_refused(tiny, monkeypatch, name):
    """Gemma 2, Granite, Cohere: their log-probabilities would be others than those that they sample by."""
    monkeypatch.setattr(tiny.model.config, name, 30.0, raising=False)
    with pytest.raises(ValueError, match=f"logits with a {name} .30.0. are not supported"):
        head_of(tiny.model)
    monkeypatch.setattr(tiny.model.config, name, None)
    assert head_of(tiny.model) is not None


# ---------------------------------------------------------------- a prompt once for its group


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_same_log_probabilities_and_summed_gradient_as_whole_rows(tiny64, adapter64, temperature):
    shake(adapter64, seed=2)
    weights = torch.randn(6, dtype=torch.float64)
    rows, grads = [], []
    for make in (token_batch, shared_batch):
        adapter64.zero_grad()
        batch = make(PROMPTS, COMPLETIONS, tiny64.pad_id, "cpu")
        assert [t[m].tolist() for t, m in zip(batch.targets, batch.loss_mask, strict=True)] == COMPLETIONS
        logps = completion_logps(tiny64.model, batch, temperature)
        (logps.sum(1) * weights).sum().backward()
        rows.append([p[m] for p, m in zip(logps.detach(), batch.loss_mask, strict=True)])
        grads.append(adapter64.gradient())
    assert batch.prompt_ids.shape == (3, 6)
    for whole, shared in zip(*rows, strict=True):
        torch.testing.assert_close(whole, shared, rtol=1e-12, atol=1e-12)
    for name, g in grads[0].items():
        assert g.abs().max() > 0
        # float64, but for Qwen3's norms, which compute in float32
        assert float((g - grads[1][name]).norm() / g.norm()) < 1e-5


def test_the_gradient_that_reaches_the_prompt_matters(tiny, antipasto):
    """The sneaky fail: a cache computed without gradient gives the same log-probabilities and another gradient."""
    batch = shared_batch(PROMPTS, COMPLETIONS, tiny.pad_id, "cpu")
    completion_logps(tiny.model, batch).sum().backward()
    real = antipasto.gradient()
    antipasto.zero_grad()
    backbone = tiny.model.base_model.forward

    def cut(*args, **kwargs):
        prompt = kwargs["input_ids"].shape[0] == 3
        with torch.set_grad_enabled(not prompt):
            return backbone(*args, **kwargs)

    tiny.model.base_model.forward = cut
    completion_logps(tiny.model, batch).sum().backward()
    assert any(not torch.allclose(g, real[n], rtol=1e-3) for n, g in antipasto.gradient().items())


@pytest.mark.parametrize("budget", [1, 9, 14, 20, 1000])
def test_micro_batches_hold_every_row_once_and_keep_to_the_budget(budget):
    parts = [chosen for chosen, _ in shared_batches(PROMPTS, COMPLETIONS, budget, 0, torch.device("cpu"))]
    assert sorted(i for part in parts for i in part) == list(range(6))
    for part in parts:
        prompts = {tuple(PROMPTS[i]) for i in part}
        tokens = len(prompts) * max(map(len, prompts)) + len(part) * max(len(COMPLETIONS[i]) for i in part)
        assert tokens <= budget or len(part) == 1


def test_groups_with_completions_of_one_length_share_a_micro_batch():
    prompts, completions = [[p] * 4 for p in (1, 1, 2, 2, 3, 3, 4, 4)], [[0] * n for n in (9, 8, 1, 2, 7, 9, 2, 1)]
    parts = [sorted(chosen) for chosen, _ in shared_batches(prompts, completions, 44, 0, torch.device("cpu"))]
    assert parts == [[0, 1, 4, 5], [2, 3, 6, 7]]


def close(a, b):
    """Equal to float32's rounding, which Qwen3's norms compute in; or both null."""
    return a == pytest.approx(b, rel=1e-4, abs=1e-6) if isinstance(a, float) and isinstance(b, float) else a == b


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "budget"), [("nll", 10_000), ("grpo", 8)])
def test_two_steps_of_the_fast_path_are_two_steps_of_the_plain_path(tiny64, adapter64, kind, budget):
    groups = [GROUPS[0], [*GROUPS[1][:1], replace(GROUPS[1][1], reward=3.5)]]
    recipe = Projection(basis_for(adapter64), "update", "no_gate")
    objective = Objective(kind, max_new=8, beta=0.0 if kind == "nll" else 0.1)
    shake(adapter64, seed=1)
    start = theta_of(adapter64)
    found = []
    for per_sample in (True, False):
        put(adapter64, start)
        optimizer = torch.optim.AdamW(list(adapter64.vectors.values()), lr=0.01)
        how = {"optimizer": optimizer, "budget": budget, "max_grad_norm": 1.0, "per_sample": per_sample}
        steps = [take(tiny64, adapter64, groups, objective, recipe, **how) for _ in range(2)]
        found.append((steps, theta_of(adapter64)))
    (plain, theta), (fast, theta_fast) = found
    for name, p in theta.items():
        torch.testing.assert_close(p, theta_fast[name], rtol=1e-4, atol=1e-6)
    for a, b in zip(plain, fast, strict=True):
        rows = [({k: v for k, v in a.step.items() if k != "timing"}, b.step), *zip(b.samples, a.samples, strict=True)]
        for mine, other in rows:
            for key in mine:
                assert close(mine[key], other[key]), key
        for mine, other in zip(a.samples, b.samples, strict=True):
            assert mine["cos_S_contrib"] is not None
            assert {"grad_norm", "cos_S_contrib", "energy_V"} == set(mine) - set(other)


@pytest.mark.parametrize("selective", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_with_gradient_checkpointing_the_numbers_stay_and_each_layer_runs_twice(tiny64, adapter64, shared, selective):
    shake(adapter64, seed=2)
    layer = next(iter(adapter64.layers.values()))
    grads, logps, runs = [], [], []
    layer.register_forward_hook(lambda *_: runs.append(1))
    for turn in range(2):
        adapter64.zero_grad()
        if turn:
            enable_checkpointing(tiny64.model, selective=selective)
        make = shared_batch if shared else token_batch
        found = completion_logps(tiny64.model, make(PROMPTS, COMPLETIONS, tiny64.pad_id, "cpu"))
        found.square().sum().backward()
        grads.append(adapter64.gradient())
        logps.append(found.detach())
        runs.append(0)
    assert torch.equal(*logps)
    for name, g in grads[0].items():
        torch.testing.assert_close(g, grads[1][name], rtol=1e-9, atol=1e-12)
    once = 2 if shared else 1  # prompts, then completions
    assert runs == [*[1] * once, 0, *[1] * 2 * once, 0]


def test_selective_checkpointing_keeps_products_of_tokens_but_for_the_layers_last():
    """down_proj's product is read by no backward pass, and is what the recomputation ends at."""
    weight, tokens = torch.empty(24, 8), torch.empty(5, 24)
    kept = partial(_policy, 5, 24, None, torch.ops.aten.mm.default)
    assert kept(tokens, weight) == CheckpointPolicy.PREFER_RECOMPUTE
    assert kept(tokens[:, :8], weight.T) == CheckpointPolicy.MUST_SAVE
    assert kept(tokens[:4, :8], weight.T) == CheckpointPolicy.PREFER_RECOMPUTE  # of weights alone


def random_layer(name, linear):
    """An adapted Linear with a basis of the right shapes."""
    d_out, d_in = linear.weight.shape
    r = min(d_out, d_in)
    return AntiPaSTOLinear(name, linear, (torch.empty(d_out, r), torch.empty(r), torch.empty(r, d_in)))


@pytest.mark.slow
@pytest.mark.parametrize(("checkpointing", "most"), [("off", 1.25), ("selective", 1.3), ("full", 1.55)])
def test_the_gradient_of_a_4b_layer_takes_little_more_than_its_model_flops(checkpointing, most):
    """Fake tensors, bfloat16: a prompt of 400 tokens, run once, with 8 completions of 1,024. Model FLOPs: 6 a
    parameter and token."""
    prompt, completion, rows = 400, 1024, 8
    sizes = {"hidden_size": 2560, "intermediate_size": 9728, "num_attention_heads": 32, "num_key_value_heads": 8}
    config = Qwen3Config(**sizes, head_dim=128, num_hidden_layers=3, vocab_size=8, tie_word_embeddings=True)
    with FakeTensorMode():
        model = Qwen3ForCausalLM._from_config(config, dtype=torch.bfloat16)
        layers = replace_targets(model, random_layer)
        if checkpointing != "off":
            enable_checkpointing(model, selective=checkpointing == "selective")
        batch = shared_batch([[1] * prompt] * rows, [[2] * completion] * rows, 0, "cpu")
        with Adapter(layers).merged(), FlopCounterMode(display=False) as flops:
            batch.padded_states(model).float().sum().backward()  # fake tensors have no data to choose positions by
    parameters = sum(layer.weight.numel() for layer in layers.values())
    assert flops.get_total_flops() / (6 * parameters * (prompt + rows * completion)) <= most
