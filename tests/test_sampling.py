"""Draws: the right distribution, from a number that hangs on a key alone."""

import pytest
import torch
from transformers import TopKLogitsWarper, TopPLogitsWarper

from projected_grpo.rollout.draw import SamplingParams, draw, invert, nucleus, second, top_k_probs, uniforms

P = torch.tensor([0.1, 0.5, 0.0, 0.25, 0.15], dtype=torch.float64)


def test_uniforms_are_one_row_per_completion_and_hang_on_the_key():
    u = uniforms(["a", "b"], 3, 50)
    assert u.shape == (6, 50)
    assert bool(((u >= 0) & (u < 1)).all())
    assert torch.equal(u[3:], uniforms(["b"], 3, 50))
    assert len(u.unique()) == 300


def test_a_draw_is_where_the_cumulative_distribution_passes_u():
    u = torch.tensor([0.0, 0.0999, 0.1001, 0.5999, 0.6001, 0.8499, 0.8501, 1 - 2**-53], dtype=torch.float64)
    token, logp = draw(P.log().expand(len(u), -1), SamplingParams(1, 1.0), u)
    assert token.tolist() == [0, 0, 1, 1, 3, 3, 4, 4]
    torch.testing.assert_close(logp, P[token].log().float())


@pytest.mark.parametrize("top_p", [1.0, 0.6])
def test_draws_follow_the_probabilities_of_the_nucleus(top_p):
    """40,000 draws to within five standard errors, with up to half of them drawn again."""
    n = 40_000
    token, _ = draw(P.log().float().expand(n, -1), SamplingParams(1, 1.0, top_p), uniforms(["x"], n, 1)[:, 0])
    kept = nucleus(P[None], top_p)[0] if top_p < 1 else P
    share, expected = token.bincount(minlength=5) / n, kept / kept.sum()
    assert bool(((share - expected).abs() <= 5 * (expected * (1 - expected) / n).sqrt()).all())


def test_the_second_number_is_uniform_and_tells_nothing_of_the_first_token():
    """The sneaky fail: a second draw that follows from the first."""
    n = 40_000
    u = uniforms(["y"], n, 1)[:, 0]
    token, again = invert(P.expand(n, -1), u), second(u)
    for t in (0, 1, 3, 4):
        inside = again[token == t]
        assert abs(float(inside.mean()) - 0.5) <= 5 * (1 / 12 / len(inside)) ** 0.5
        assert abs(float(inside.var()) - 1 / 12) < 0.005


@pytest.mark.parametrize(
    ("probs", "top_p", "kept"),
    [
        ([0.25, 0.5, 0.1, 0.15], 0.5, [1]),  # the likeliest reaches .5 alone
        ([0.25, 0.5, 0.1, 0.15], 1e-9, [1]),  # the likeliest always stays
        ([0.2, 0.4, 0.2, 0.2], 0.5, [0, 1, 2, 3]),  # equal tokens are inside together
        ([0.2, 0.4, 0.2, 0.2], 0.4, [1]),
    ],
)
def test_nucleus_by_hand(probs, top_p, kept):
    assert nucleus(torch.tensor([probs]), top_p)[0].nonzero().flatten().tolist() == kept


def test_equal_tokens_are_among_the_top_k_together_and_no_other_is_drawn():
    logits = torch.tensor([[0.2, 0.4, 0.2, 0.2]]).log()
    assert (top_k_probs(logits, 2) > 0)[0].tolist() == [True] * 4
    token, _ = draw(logits, SamplingParams(1, 1.0, 1.0, 1), torch.tensor([0.99], dtype=torch.float64))
    assert token.item() == 1


@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.95])
@pytest.mark.parametrize("top_k", [0, 20])
def test_the_tokens_that_can_be_drawn_are_those_of_transformers(top_p, top_k):
    logits = 2 * torch.randn(50, 300, generator=torch.Generator().manual_seed(0))
    expected = TopKLogitsWarper(top_k)(None, logits) if top_k else logits  # ty: ignore[invalid-argument-type]
    expected = TopPLogitsWarper(top_p)(None, expected).softmax(1)  # ty: ignore[invalid-argument-type]
    probs = top_k_probs(logits, top_k) if top_k else logits.softmax(1)
    ours = nucleus(probs, top_p)
    assert torch.equal(ours > 0, expected > 0)
    torch.testing.assert_close(ours / ours.sum(1, keepdim=True), expected)
