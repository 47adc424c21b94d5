"""Both decoders give the same numbers; the one for CUDA graphs does nothing that a graph cannot hold."""

import pytest
import torch
from harness import shake
from torch.utils._python_dispatch import TorchDispatchMode

import projected_grpo.rollout.decoding as decoding
import projected_grpo.rollout.sample as rollout
from projected_grpo.model.attention import packed_queries
from projected_grpo.rollout.decoding import FixedDecoder, GrowingDecoder, decoder_for
from projected_grpo.rollout.draw import SamplingParams
from projected_grpo.rollout.sample import sample_tokens

PROMPTS = [[5, 6, 7, 8, 9], [10, 11], [12, 13, 14, 15, 16, 17, 18]]
KEYS = ["a", "b", "c"]


@pytest.mark.parametrize("room", [1, 256])
def test_the_fixed_decoder_samples_what_the_growing_one_does(tiny, antipasto, ending, monkeypatch, room):
    shake(antipasto)
    monkeypatch.setattr(decoding, "FIXED_ROOM", room)
    monkeypatch.setattr(GrowingDecoder, "drop_below", 0.5)
    found = []
    for kind in (GrowingDecoder, FixedDecoder):
        monkeypatch.setattr(rollout, "decoder_for", kind)
        ending.clear()  # both sides end their rows at the same calls
        with antipasto.folded():
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


class Seen(TorchDispatchMode):
    """Names of all operations inside."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_a_fixed_step_holds_nothing_that_a_cuda_graph_forbids(tiny):
    """No number is read back, none is brought from the host, and no shape follows from a value."""
    forbidden = {"_local_scalar_dense", "nonzero", "lift_fresh", "masked_select", "unique", "equal"}
    with torch.no_grad(), packed_queries(tiny.model):
        decoder = FixedDecoder(tiny, PROMPTS, 2)
        decoder.step(torch.arange(10, 16))
        with Seen() as seen:
            decoder.forward()
        assert "index_copy_" in seen.names
        assert not forbidden & seen.names
        with Seen() as seen:
            torch.tensor([1.0]).item()
        assert len(forbidden & seen.names) == 2  # it would have been noticed


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
