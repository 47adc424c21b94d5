"""Completion log-probabilities against the full [B, T, vocab] way."""

import pytest
import torch

from projected_grpo.model.logprobs import completion_logps, head_of, token_batch, token_logps

PROMPTS = [[5, 6, 7, 8], [9, 10], [11, 12, 13, 14, 15, 16]]
COMPLETIONS = [[20, 21, 22], [23, 24, 25, 26, 27], []]


@pytest.fixture
def batch(tiny):
    return token_batch(PROMPTS, COMPLETIONS, tiny.pad_id, "cpu")


def full(tiny, batch, temperature):
    """The plain way: logits at all positions, float32 log-softmax, gather."""
    logits = tiny.model(input_ids=batch.input_ids).logits[:, :-1] / temperature
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
    assert max((n for n in saved if n != head.numel()), default=0) < 64 * vocab
    assert not [n for n in saved if n >= 8 * vocab and n != head.numel()]


@pytest.mark.parametrize("name", ["final_logit_softcapping", "logits_scaling", "logit_scale"])
def test_a_model_with_more_to_its_logits_than_a_product_is_refused(tiny, monkeypatch, name):
    """Gemma 2, Granite, Cohere: their log-probabilities would be others than those that they sample by."""
    monkeypatch.setattr(tiny.model.config, name, 30.0, raising=False)
    with pytest.raises(ValueError, match=f"logits with a {name} .30.0. are not supported"):
        head_of(tiny.model)
    monkeypatch.setattr(tiny.model.config, name, None)
    assert head_of(tiny.model) is not None
