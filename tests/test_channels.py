"""What a channel must do at the edges, and by hand: masks, nothing to learn from, numbers that are not numbers."""

from types import SimpleNamespace

import pytest
import torch

from projected_grpo.channels.dppo import dppo
from projected_grpo.channels.hint_distill import SDPO, Distillation, hint_distill
from projected_grpo.channels.policy import policy_loss
from projected_grpo.channels.taid import taid
from projected_grpo.channels.trace_dpo import DPO, SIMPO, Preference, Scored, trace_dpo

INF, NAN = float("inf"), float("nan")
NOT_NUMBERS = [NAN, INF, -INF]


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def learned(values):
    return float64(values).requires_grad_(True)


# ---------------------------------------------------------------- dppo


def packed(trainer, inference, advantages, mask):
    return SimpleNamespace(
        trainer_logprobs=trainer, inference_logprobs=inference, advantages=advantages, loss_mask=mask, loss_weights=None
    )


@pytest.mark.parametrize("bad", NOT_NUMBERS)
def test_what_stands_at_masked_tokens_never_reaches_dppo(bad):
    found = []
    for x in (0.0, bad):
        trainer = learned([-1.0, x])
        loss = dppo(packed(trainer, float64([-1.1, x]), float64([0.5, x]), torch.tensor([True, False]))).loss
        loss.backward()
        found.append((loss.item(), trainer.grad.tolist()))
    assert found[0] == found[1]


def test_dppo_in_the_loop_is_dppo_of_prime_rl_with_the_step_as_one_pack():
    g = torch.Generator().manual_seed(0)
    logps, behaviour = (-torch.rand(3, 5, generator=g, dtype=torch.float64) * 2 for _ in range(2))
    mask, a = torch.rand(3, 5, generator=g) < 0.7, float64([1.0, -2.0, 0.0])
    n = int(mask.sum())
    terms = policy_loss(logps, mask, a, kind="dppo", rows=3, max_new=9, tokens=n, behaviour_logps=behaviour)
    one = packed(logps.flatten(), behaviour.flatten(), a[:, None].expand(3, 5).flatten(), mask.flatten())
    torch.testing.assert_close(terms.per_sample.sum(), dppo(one).loss / n)
    dropped = terms.at_clip @ mask.sum(1).to(terms.at_clip)
    assert float(dropped) == pytest.approx(float(dppo(one).metrics["is_masked"]) * n)
    assert dropped > 0


# ---------------------------------------------------------------- distillation


def random_logits(seed, shape=(2, 3, 5)):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


MASK = torch.tensor([[True, True, False], [True, False, False]])
IDS = torch.tensor([[0, 4, 2], [3, 3, 3]])
ALL_OPTIONS = [
    Distillation(), Distillation(beta=0.0), Distillation(beta=1.0, temperature=2.0), Distillation(token_clip=0.01),
    Distillation(top_k=2), SDPO,
]  # fmt: skip


@pytest.mark.parametrize("options", ALL_OPTIONS)
@pytest.mark.parametrize("bad", NOT_NUMBERS)
def test_logits_at_masked_positions_never_reach_the_gradient_and_none_reaches_the_teacher(options, bad):
    teacher = random_logits(1).requires_grad_(True)
    grads = []
    for x in (0.0, bad):
        student = torch.where(MASK[..., None], random_logits(0), x).requires_grad_(True)
        hint_distill(student, torch.where(MASK[..., None], teacher, x), MASK, IDS, options).loss.backward()
        grads.append(student.grad)
    assert torch.equal(*grads)
    assert teacher.grad is None
    assert grads[0][~MASK].abs().sum() == 0 < grads[0][MASK].abs().sum()


@pytest.mark.parametrize("options", ALL_OPTIONS)
def test_all_masked_is_an_attached_zero(options):
    student = random_logits(0).requires_grad_(True)
    out = hint_distill(student, random_logits(1), torch.zeros_like(MASK), IDS, options)
    out.loss.backward()
    assert out.loss.item() == out.metrics["divergence"].item() == 0
    assert student.grad.tolist() == torch.zeros(2, 3, 5).tolist()


@pytest.mark.parametrize("options", [Distillation(), Distillation(beta=0.0), Distillation(beta=1.0)])
def test_tokens_that_neither_can_say_count_for_nothing(options):
    """A logit of -inf on both sides, as a masked vocabulary has: the others' loss and gradient."""
    gone = torch.tensor([False, False, True, False, False])
    losses, grads = [], []
    for keep in (torch.ones_like(gone), ~gone):
        student = torch.where(gone, -INF, random_logits(0))[..., keep].requires_grad_(True)
        out = hint_distill(student, torch.where(gone, -INF, random_logits(1))[..., keep], MASK, IDS, options)
        out.loss.backward()
        losses.append(out.loss)
        grads.append(student.grad)
    torch.testing.assert_close(losses[0], losses[1])
    torch.testing.assert_close(grads[0][..., ~gone], grads[1])
    assert grads[0][..., gone].abs().sum() == 0


# ---------------------------------------------------------------- TAID


@pytest.mark.parametrize("bad", NOT_NUMBERS)
@pytest.mark.parametrize("mask", [MASK, torch.zeros_like(MASK)], ids=["some", "all masked"])
def test_masked_positions_never_reach_taid(bad, mask):
    student = torch.where(mask[..., None], random_logits(0), bad).requires_grad_(True)
    out = taid(student, torch.where(mask[..., None], random_logits(1), bad), mask, 0.3)
    out.loss.backward()
    assert out.loss.isfinite()
    assert student.grad.isfinite().all()
    assert student.grad[~mask].abs().sum() == 0
    assert bool(mask.any()) == (out.loss.item() > 0)


# ---------------------------------------------------------------- preferences


def scored(rows, mask=None, ref=None):
    logps = rows if isinstance(rows, torch.Tensor) else learned(rows)
    mask = torch.ones_like(logps).bool() if mask is None else torch.tensor(mask, dtype=torch.bool)
    return Scored(logps, mask.view(logps.shape), None if ref is None else float64(ref))


@pytest.mark.parametrize("options", [DPO, SIMPO])
@pytest.mark.parametrize("bad", NOT_NUMBERS)
def test_masked_tokens_never_reach_a_preference(options, bad):
    chosen = scored([[-1.0, bad]], [[True, False]], [[-1.5, bad]])
    rejected = scored([[bad, -2.0]], [[False, True]], [[bad, -1.0]])
    out = trace_dpo(chosen, rejected, options)
    out.loss.backward()
    assert out.loss.item() == pytest.approx(
        trace_dpo(scored([[-1.0]], ref=[[-1.5]]), scored([[-2.0]], ref=[[-1.0]]), options).loss.item()
    )
    assert chosen.logps.grad[0, 1] == rejected.logps.grad[0, 0] == 0


@pytest.mark.parametrize("options", [DPO, SIMPO])
def test_no_pair_is_an_attached_zero(options):
    chosen, rejected = (scored(torch.zeros(0, t, requires_grad=True)) for t in (3, 2))
    out = trace_dpo(chosen, rejected, options)
    out.loss.backward()
    assert (out.loss.item(), out.metrics["margin"].item()) == (0.0, 0.0)
    assert chosen.logps.grad.shape == chosen.logps.shape


@pytest.mark.parametrize("gap", [-1e4, 1e4])
def test_an_extreme_margin_has_a_finite_loss_and_gradient(gap):
    chosen = scored([[gap]])
    out = trace_dpo(chosen, scored([[0.0]]), Preference(beta=1.0))
    out.loss.backward()
    assert (out.loss.item(), chosen.logps.grad.item()) == ((1e4, -1.0) if gap < 0 else (0.0, 0.0))
