"""Sampling records what it did; both decoders give the same numbers, and the one for CUDA graphs does nothing that a
graph cannot hold."""

import pytest
import torch
from harness import shake
from torch.utils._python_dispatch import TorchDispatchMode

import projected_grpo.rollout.decoding as decoding
import projected_grpo.rollout.sample as rollout
from projected_grpo.ledger.errors import NonFinite
from projected_grpo.model.attention import packed_queries
from projected_grpo.model.checkpointing import enable_checkpointing
from projected_grpo.model.logprobs import completion_logps, token_batch
from projected_grpo.rollout.decoding import FixedDecoder, GrowingDecoder, decoder_for
from projected_grpo.rollout.draw import SamplingParams
from projected_grpo.rollout.sample import Prompt, sample_rollouts, sample_tokens

PROMPTS = [[5, 6, 7, 8, 9], [10, 11], [12, 13, 14, 15, 16, 17, 18]]
KEYS = ["a", "b", "c"]


def assert_recorded(loaded, sampled, temperature=1.0):
    """On-policy gap in float32: decoding with a cache against one forward pass over each finished completion."""
    prompts = [p for p in PROMPTS for _ in range(len(sampled) // len(PROMPTS))]
    batch = token_batch(prompts, [t for t, _ in sampled], loaded.pad_id, "cpu")
    with torch.no_grad():
        logps = completion_logps(loaded.model, batch, temperature)
    for i, (_, recorded) in enumerate(sampled):
        torch.testing.assert_close(logps[i][batch.loss_mask[i]], torch.tensor(recorded), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("temperature", "checkpointing"), [(1.0, False), (0.7, True)])
def test_recorded_logps_are_those_that_training_computes(tiny, antipasto, temperature, checkpointing):
    """Checkpointed layers must keep the cache."""
    shake(antipasto)
    if checkpointing:
        enable_checkpointing(tiny.model)
    with antipasto.merged():
        sampled = sample_tokens(tiny, PROMPTS, 2, SamplingParams(12, temperature, 0.9, 50), KEYS)
    assert_recorded(tiny, sampled, temperature)


@pytest.mark.parametrize("vocab_wide", [{}, {"top_k": 5}, {"top_p": 0.9}])
def test_a_model_that_is_not_finite_is_told_so(tiny, vocab_wide):
    """On a card a token beyond the vocabulary would take the whole process down."""
    tiny.model.get_output_embeddings().weight.data[7] = torch.nan
    with pytest.raises(NonFinite, match="logits are not finite"):
        sample_tokens(tiny, PROMPTS, 1, SamplingParams(3, 1.0, **vocab_wide), KEYS)


def test_near_greedy_sampling_equals_transformers_generate(tiny):
    ids = torch.tensor([PROMPTS[0]])
    expected = tiny.model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=10, do_sample=False, pad_token_id=tiny.pad_id
    )
    assert sample_tokens(tiny, [PROMPTS[0]], 1, SamplingParams(10, 1e-4), KEYS[:1])[0][0] == expected[0, 5:].tolist()


@pytest.mark.usefixtures("ending")
def test_a_completion_ends_with_its_first_eos_or_is_truncated(tiny):
    prompt = Prompt("p", "x", (5, 6, 7))
    ((ended, other),) = sample_rollouts(tiny, [prompt], 2, SamplingParams(9, 1.0), KEYS[:1], "student")
    assert len(ended.completion_ids) == len(ended.behaviour_logps) == 5
    assert ended.completion_ids.index(tiny.tokenizer.eos_token_id) == 4
    assert not ended.truncated
    assert "<|im_end|>" not in ended.completion
    assert (len(other.completion_ids), other.truncated, other.source) == (9, True, "student")


@pytest.mark.parametrize("room", [1, 128])
def test_rows_that_ended_leave_and_the_others_stay_what_they_are(tiny, antipasto, ending, monkeypatch, room):
    """The sneaky fail: a cache, a mask or a record that keeps the order of before, also where the cache has grown."""
    monkeypatch.setattr(decoding, "ROOM", room)
    shake(antipasto)
    with antipasto.merged():
        sampled = sample_tokens(tiny, PROMPTS, 4, SamplingParams(9, 1.0), KEYS)
    assert_recorded(tiny, sampled)
    assert ending[0] == 12
    assert ending[-1] < ending[0]  # some have left
    assert len({len(t) for t, _ in sampled}) > 2
    assert all(tokens.count(tiny.tokenizer.eos_token_id) <= 1 for tokens, _ in sampled)


def test_a_group_is_drawn_the_same_alone_in_a_batch_and_in_another_order(tiny):
    """Batching, order and the number of processes are no part of the randomness: the key alone is."""
    params = SamplingParams(12, 1.0, 0.95)
    together = sample_tokens(tiny, PROMPTS, 2, params, KEYS)
    assert together[:2] != together[2:4]
    for i, (prompt, key) in enumerate(zip(PROMPTS, KEYS, strict=True)):
        alone = sample_tokens(tiny, [prompt], 2, params, [key])
        assert [t for t, _ in alone] == [t for t, _ in together[2 * i : 2 * i + 2]]
    turned = sample_tokens(tiny, PROMPTS[::-1], 2, params, KEYS[::-1])
    assert [t for t, _ in turned[4:]] == [t for t, _ in together[:2]]


# ---------------------------------------------------------------- two decoders


@pytest.mark.parametrize("room", [1, 256])
def test_the_fixed_decoder_samples_what_the_growing_one_does(tiny, antipasto, ending, monkeypatch, room):
    shake(antipasto)
    monkeypatch.setattr(decoding, "FIXED_ROOM", room)
    monkeypatch.setattr(GrowingDecoder, "drop_below", 0.5)
    found = []
    for kind in (GrowingDecoder, FixedDecoder):
        monkeypatch.setattr(rollout, "decoder_for", kind)
        ending.clear()  # both sides end their rows at the same calls
        with antipasto.merged():
            found.append(sample_tokens(tiny, PROMPTS, 4, SamplingParams(14, 1.0, 0.9), KEYS))
    growing, fixed = found
    assert [t for t, _ in fixed] == [t for t, _ in growing]
    assert len({len(t) for t, _ in fixed}) > 3
    for (_, one), (_, other) in zip(fixed, growing, strict=True):
        torch.testing.assert_close(torch.tensor(one), torch.tensor(other), rtol=1e-4, atol=1e-5)


def test_empty_positions_are_never_seen(tiny):
    """The sneaky fail: a mask that lets attention read what was not written yet."""
    with torch.no_grad(), packed_queries(tiny.model):
        decoder, other = (FixedDecoder(tiny, PROMPTS, 2) for _ in range(2))
        token = torch.arange(10, 16)
        for d in (decoder, other):
            d.step(token)
        for layer in other.cache.layers:
            layer.keys[:, :, other.filled :] = 100.0
            layer.values[:, :, other.filled :] = 100.0
        assert torch.equal(decoder.step(token), other.step(token))


@pytest.mark.parametrize("kind", [GrowingDecoder, FixedDecoder])
def test_room_is_made_for_a_whole_completion(tiny, kind):
    """The sneaky fail: a preflight that samples into a cache smaller than the run's."""
    with torch.no_grad(), packed_queries(tiny.model):
        decoder = kind(tiny, PROMPTS, 2)
        decoder.make_room(300)
        assert decoder.step(torch.arange(10, 16)).isfinite().all()
    assert all(layer.keys.shape[0] == 6 and layer.keys.shape[2] >= 300 for layer in decoder.cache.layers)


class Names(TorchDispatchMode):
    """Names of all operations inside."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_a_fixed_step_holds_nothing_that_a_cuda_graph_forbids(tiny):
    """No number is read back, none is brought from the host, and no shape follows from a value."""
    forbidden = {"_local_scalar_dense", "nonzero", "lift_fresh", "masked_select", "unique", "equal"}
    with torch.no_grad(), packed_queries(tiny.model):
        decoder = FixedDecoder(tiny, PROMPTS, 2)
        decoder.step(torch.arange(10, 16))
        with Names() as step:
            decoder.forward()
        with Names() as reading:  # it would have been noticed
            torch.tensor([1.0]).item()
    assert "index_copy_" in step.seen
    assert not forbidden & step.seen
    assert len(forbidden & reading.seen) == 2


def test_the_cpu_and_sliding_windows_take_the_growing_one(tiny, monkeypatch):
    with torch.no_grad(), packed_queries(tiny.model):
        assert type(decoder_for(tiny, PROMPTS, 2)) is GrowingDecoder
        monkeypatch.setattr(type(tiny.model), "device", property(lambda _: torch.device("cuda")))
        for kind in (GrowingDecoder, FixedDecoder):
            monkeypatch.setattr(kind, "__init__", lambda *_: None)
        taken = [type(decoder_for(tiny, PROMPTS, 2))]
        monkeypatch.setattr(tiny.model.config, "layer_types", ["sliding_attention"] * 2)
        monkeypatch.setattr(tiny.model.config, "sliding_window", 8)
        taken.append(type(decoder_for(tiny, PROMPTS, 2)))
    assert taken == [FixedDecoder, GrowingDecoder]
