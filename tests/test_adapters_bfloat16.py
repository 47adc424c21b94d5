"""In bfloat16 the adapter's term reaches the output, the gradient and the merged weight whole, however small it is.

The gain of a way of computing is <what it adds, the exact term> / <the exact term, the exact term>, exact in float64:
1 when the term arrives, 0 when it is rounded away."""

import math

import pytest
import torch
from torch import nn

from projected_grpo.adapters.antipasto import AntiPaSTOLinear
from projected_grpo.adapters.base import bits16, rounded_at_random
from projected_grpo.adapters.lora_adapter import LoRALinear

SIZES = (1e-4, 1e-1)
"""Root mean square of delta_S, or of B."""
RANK = 8


@pytest.fixture(params=["antipasto", "lora"])
def kind(request):
    return request.param


def linear_of(kind, d_out=320, d_in=256):
    """One adapted Linear with weights as a trained model's: outputs of the size of the inputs."""
    draw = torch.Generator().manual_seed(1)
    linear = nn.Linear(d_in, d_out, bias=False, dtype=torch.bfloat16)
    with torch.no_grad():
        linear.weight.copy_(torch.randn(d_out, d_in, generator=draw) / d_in**0.5)
    if kind == "lora":
        return LoRALinear("m", linear, RANK, 0)
    r = min(d_out, d_in)
    u, v = (torch.linalg.qr(torch.randn(n, r, generator=draw))[0] for n in (d_out, d_in))
    return AntiPaSTOLinear("m", linear, (u.bfloat16(), torch.ones(r), v.T.bfloat16()))


def move(layer, size):
    """delta_S or B of this size; A stays."""
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        coordinates = layer.theta if isinstance(layer, AntiPaSTOLinear) else layer.split(layer.theta)[1]
        coordinates.copy_(torch.randn(coordinates.shape, generator=draw) * size)


def exact_change(layer):
    """W' - W in float64."""
    theta = layer.theta.detach().double()
    if isinstance(layer, AntiPaSTOLinear):
        return layer.U.double() @ torch.diag(theta) @ layer.Vh.double()
    a, b = layer.split(theta)
    return b @ a


def inputs(layer, tokens):
    """x and dL/dy."""
    draw = torch.Generator().manual_seed(3)
    d_out, d_in = layer.weight.shape
    return tuple(torch.randn(1, tokens, n, generator=draw).to(layer.weight) for n in (d_in, d_out))


def both_passes(layer, x, g):
    """y and dL/dx."""
    x = x.clone().requires_grad_(True)
    y = layer(x)
    y.backward(g)
    return y.detach(), x.grad


def gain(found, exact):
    return float((found.detach() * exact).sum() / exact.square().sum())


@pytest.mark.slow
def test_the_term_arrives_whole_in_both_passes(kind):
    """In the forward pass and in dL/dx."""
    layer = linear_of(kind, 1280, 1024)
    x, g = inputs(layer, 2048)
    weight = layer.weight.float()  # the same sums, in a tenth of the time where a processor has no bfloat16
    base = [(x.float() @ weight.T).bfloat16().double(), (g.float() @ weight).bfloat16().double()]
    move(layer, SIZES[0])
    w = exact_change(layer)
    exact = (x.double() @ w.T, g.double() @ w)
    for found, before, term in zip(both_passes(layer, x, g), base, exact, strict=True):
        assert gain(found.double() - before, term) == pytest.approx(1.0, abs=0.02)


def folded_gain(kind, size):
    layer = linear_of(kind, 1280, 1024)
    move(layer, size)
    return gain(layer.merged_weight(layer.theta).double() - layer.weight.double(), exact_change(layer))


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_a_folded_weight_keeps_the_term_on_average(kind, size):
    assert folded_gain(kind, size) == pytest.approx(1.0, abs=0.02)


@pytest.mark.slow
def test_a_weight_rounded_to_the_nearest_loses_the_term(kind, monkeypatch):
    """The test above, seen red."""
    monkeypatch.setattr("projected_grpo.adapters.base.rounded_at_random", lambda values, name: values.bfloat16())  # noqa: ARG005
    assert folded_gain(kind, 4.5e-4) < 0.5


def test_the_bits_of_rounding_are_the_same_on_every_device():
    """A generator's depend on the card: a resumed or exported policy would be another one."""
    seed = 12345 + 7 * 2**31

    def by_hand(i):
        x = (i * (seed % 2**31 | 1) + seed // 2**31 % 2**31) % 2**32
        x = (x ^ x >> 16) * 0x7FEB352D % 2**32
        x = (x ^ x >> 15) * 0x846CA68B % 2**32
        return (x ^ x >> 16) & 0xFFFF

    found = bits16(200_000, seed, torch.device("cpu"))
    assert found[:1000].tolist() == [by_hand(i) for i in range(1000)]
    counts = torch.bincount(found >> 12, minlength=16) / 12_500  # sixteenths, each a sixteenth of the time
    assert float((counts - 1).abs().max()) < 0.04


def test_random_rounding_takes_the_two_neighbours_in_proportion():
    """1 + t/128 lies between 1 and 1 + 1/128, bfloat16's next number."""
    for sign in (1.0, -1.0):
        for t in (0.0, 0.25, 0.5, 0.9):
            found = rounded_at_random(torch.full((400, 400), sign * (1 + t / 128)), "m").double() * sign
            assert set(found.unique().tolist()) <= {1.0, 1 + 1 / 128}
            # binomial: 160,000 draws, five standard deviations
            assert float((found - 1).mean()) * 128 == pytest.approx(t, abs=5 * math.sqrt(t * (1 - t) / 160_000) + 1e-9)
    held = torch.tensor([[0.0, 1.5, -(2.0**-130), 3e38]]).bfloat16()
    assert torch.equal(rounded_at_random(held.float(), "m"), held)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_per_sample_gradients_are_float64s_to_a_hundredth(kind, size):
    """With a small B, too: A's gradient is proportional to it."""
    layer = linear_of(kind)
    move(layer, size)
    got = {}
    layer.sink = lambda name, grads: got.update({name: grads})
    x, g = (t.view(8, 64, -1) for t in inputs(layer, 512))
    both_passes(layer, x, g)
    weight = torch.einsum("bto,bti->boi", g.double(), x.double())  # dL/dW of every sample
    if kind == "antipasto":
        exact = torch.einsum("or,boi,ri->br", layer.U.double(), weight, layer.Vh.double())
        parts = [(got["m"], exact)]
    else:
        a, b = layer.split(layer.theta.detach().double())
        cut = layer.rank * layer.d_in
        parts = [(got["m"][:, :cut], (b.T @ weight).flatten(1)), (got["m"][:, cut:], (weight @ a.T).flatten(1))]
    for found, exact in parts:
        assert found.dtype == torch.float32
        assert float(((found - exact).norm(dim=1) / exact.norm(dim=1)).max()) < 0.01


@pytest.mark.parametrize("size", SIZES)
def test_the_summed_gradient_of_many_tokens_is_float64s(size):
    """By way of g^T x, whose sums are float32."""
    layer = linear_of("antipasto")
    move(layer, size)
    x, g = (t[0] for t in inputs(layer, 4096))
    found = layer.summed(x, g, layer.theta.detach()).double()
    exact = ((layer.U.double().T @ (g.double().T @ x.double())) * layer.Vh.double()).sum(1)
    assert float(torch.cosine_similarity(found, exact, 0)) > 0.9999
