"""What only a card shows, on the tiny model. Skipped where there is none: `pytest -m cuda` is the first thing to run on
one."""

import pytest
import torch
from harness import attached

from projected_grpo.config import TrainConfig
from projected_grpo.model.checkpointing import enable_checkpointing
from projected_grpo.model.logprobs import completion_logps, shared_batch, token_batch
from projected_grpo.projection import Projection
from projected_grpo.rollout import sample as rollout
from projected_grpo.rollout.decoding import FixedDecoder, GrowingDecoder
from projected_grpo.rollout.draw import SamplingParams
from projected_grpo.rollout.sample import Prompt, sample_tokens
from projected_grpo.run.policy import Policy
from projected_grpo.run.preflight import preflight
from projected_grpo.step import Objective
from projected_grpo.worlds.models import load_model

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
PROMPTS = [[5, 6, 7, 8], [9, 10], [11, 12, 13]]
COMPLETIONS = [[20, 21, 22], [23, 24, 25, 26, 27], [28]]


@pytest.fixture
def card(cache):
    """The tiny model in float32 on the card, with its adapter moved off its start."""
    loaded = load_model("tiny", "float32", "cuda", 41, cache)
    adapter = attached("antipasto", loaded, cache / "svd")
    moved(adapter)
    return loaded, adapter


def moved(adapter):
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in adapter.vectors.values():
            p.add_(torch.randn(p.shape, generator=g).to(p) * 0.05)


def gradient_of(loaded, adapter, make=token_batch):
    adapter.zero_grad()
    batch = make(PROMPTS, COMPLETIONS, loaded.pad_id, "cuda")
    completion_logps(loaded.model, batch).square().sum().backward()
    return adapter.gradient()


def test_recorded_graphs_sample_what_eager_steps_do(card, monkeypatch):
    loaded, adapter = card
    found = []
    for kind in (GrowingDecoder, FixedDecoder):
        monkeypatch.setattr(rollout, "decoder_for", kind)
        with adapter.merged():
            found.append(sample_tokens(loaded, PROMPTS, 4, SamplingParams(24, 1.0), ["a", "b", "c"]))
    for (tokens, logps), (others, recorded) in zip(*found, strict=True):
        assert tokens == others
        torch.testing.assert_close(torch.tensor(logps), torch.tensor(recorded), rtol=1e-3, atol=1e-4)


def test_weights_are_merged_in_place_and_come_back_bit_for_bit(card):
    """A recorded graph reads where the weight lies."""
    _, adapter = card
    before = {name: (layer.weight.data_ptr(), layer.weight.clone()) for name, layer in adapter.layers.items()}
    with adapter.merged():
        assert all(layer.weight.data_ptr() == before[name][0] for name, layer in adapter.layers.items())
        assert any(not torch.equal(layer.weight, before[name][1]) for name, layer in adapter.layers.items())
    assert all(torch.equal(layer.weight, before[name][1]) for name, layer in adapter.layers.items())


@pytest.mark.parametrize("make", [token_batch, shared_batch])
def test_selective_checkpointing_leaves_the_gradient_as_it_is(card, make):
    loaded, adapter = card
    plain = gradient_of(loaded, adapter, make)
    enable_checkpointing(loaded.model, selective=True)
    for name, g in gradient_of(loaded, adapter, make).items():
        torch.testing.assert_close(g, plain[name], rtol=1e-4, atol=1e-6)


def test_per_sample_gradients_add_up_to_the_gradient(card):
    loaded, adapter = card
    each = {}
    with adapter.per_sample(lambda name, grads: each.update({name: grads.clone()})):
        summed = gradient_of(loaded, adapter)
    for name, g in summed.items():
        torch.testing.assert_close(each[name].sum(0), g, rtol=1e-4, atol=1e-6)


def test_the_backward_pass_of_left_padded_rows_is_finite_in_bfloat16(cache):
    """cuDNN's attention gives NaN where a row is masked whole and the length is 64 modulo 128."""
    loaded = load_model("tiny", "bfloat16", "cuda", 41, cache)
    adapter = attached("antipasto", loaded, cache / "svd")
    prompts, completions = [[5] * 192, [6] * 100], [[20] * 64, [21] * 64]
    completion_logps(loaded.model, token_batch(prompts, completions, loaded.pad_id, "cuda")).sum().backward()
    assert all(torch.isfinite(g).all() for g in adapter.gradient().values())
    assert not torch.backends.cuda.cudnn_sdp_enabled()


def test_preflight_tries_both_batches_and_leaves_no_gradient(card):
    loaded, adapter = card
    config = TrainConfig(max_new=8, prompts_per_step=2, group_size=4)
    optimizer = torch.optim.AdamW(list(adapter.vectors.values()))
    policy = Policy(config, loaded, adapter, optimizer, Objective("nll"), Projection())
    preflight(policy, config, [Prompt("p", "", (5, 6, 7)), Prompt("q", "", (8, 9))])
    assert all(p.grad is None for p in adapter.vectors.values())
