"""What a channel must do at the edges, and by hand: masks, nothing to learn from, numbers that are not numbers."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch

from projected_grpo.channels.dppo import dppo
from projected_grpo.channels.hint_distill import SDPO, Distillation, hint_distill
from projected_grpo.channels.policy import advantages, nll, policy_loss
from projected_grpo.channels.taid import taid
from projected_grpo.channels.trace_dpo import DPO, SIMPO, Preference, Scored, trace_dpo

INF, NAN = float("inf"), float("nan")
MASK = torch.tensor([[True, True, False], [True, False, False]])
NONE = torch.zeros_like(MASK)
IDS = torch.tensor([[0, 4, 2], [3, 3, 3]])
OPTIONS = {
    "distillation": Distillation(), "of KL(q || p)": Distillation(beta=0.0), "clipped": Distillation(token_clip=0.01),
    "of KL(p || q)": Distillation(beta=1.0, temperature=2.0), "top 2": Distillation(top_k=2), "SDPO": SDPO,
}  # fmt: skip


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def logits(seed, shape=(2, 3, 5)):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def logps_of(seed, mask, x):
    """Log-probabilities, with x where they are masked."""
    return torch.where(mask, -1.0 - logits(seed)[..., 0].abs(), x)


# ---------------------------------------------------------------- masks


def policy(kind, mask, x):
    logps, other = logps_of(0, mask, x).requires_grad_(True), logps_of(1, mask, x)
    terms = policy_loss(
        logps, mask, float64([1.0, -1.0]), kind=kind, rows=2, max_new=8, tokens=int(mask.sum()), behaviour_logps=other,
        ref_logps=other, beta=0.1,
    )  # fmt: skip
    return terms.per_sample.sum(), logps


def packed(trainer, inference, advantages, mask):
    return SimpleNamespace(
        trainer_logprobs=trainer, inference_logprobs=inference, advantages=advantages, loss_mask=mask, loss_weights=None
    )


def of_prime_rl(mask, x):
    trainer = torch.where(mask[0], float64([-1.0, -0.5, -2.0]), x).requires_grad_(True)
    others = (torch.where(mask[0], float64(values), x) for values in ([-1.1, -0.6, -1.0], [0.5, -0.5, 1.0]))
    return dppo(packed(trainer, *others, mask[0])).loss, trainer


def distillation(options, mask, x):
    student, teacher = (torch.where(mask[..., None], logits(i), x).requires_grad_(True) for i in (0, 1))
    found = hint_distill(student, teacher, mask, IDS, options).loss
    teacher.register_hook(lambda _: pytest.fail("a gradient reached the teacher"))
    return found, student


def to_teacher(mask, x):
    student = torch.where(mask[..., None], logits(0), x).requires_grad_(True)
    return taid(student, torch.where(mask[..., None], logits(1), x), mask, 0.3).loss, student


def preference(options, mask, x):
    chosen, ref, rejected, its_ref = (logps_of(i, mask, x) for i in range(4))
    chosen.requires_grad_(True)
    return trace_dpo(Scored(chosen, mask, ref), Scored(rejected, mask, its_ref), options).loss, chosen


PER_TOKEN = {
    **{kind: partial(policy, kind) for kind in ("dr_grpo", "grpo", "bnpo", "dapo", "dppo")}, "prime-rl's dppo": of_prime_rl,
    **{name: partial(distillation, options) for name, options in OPTIONS.items()}, "TAID": to_teacher,
}  # fmt: skip
LOSSES = {**PER_TOKEN, "DPO": partial(preference, DPO), "SimPO": partial(preference, SIMPO)}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_what_stands_at_masked_positions_reaches_neither_loss_nor_gradient(loss, bad):
    """0 x inf is NaN: masking by multiplication fails here."""
    found = []
    for x in (-1.0, bad):
        value, leaf = loss(MASK, x)
        value.backward()
        found.append((value.item(), leaf.grad.tolist()))
    assert found[0] == found[1]
    mask = MASK if leaf.dim() > 1 else MASK[0]
    assert leaf.grad[~mask].abs().sum() == 0 < leaf.grad[mask].abs().sum()


@pytest.mark.parametrize("loss", PER_TOKEN.values(), ids=PER_TOKEN)
def test_all_masked_is_an_attached_zero(loss):
    value, leaf = loss(NONE, NAN)
    value.backward()
    assert value.item() == 0
    assert leaf.grad.abs().sum() == 0


@pytest.mark.parametrize("options", [DPO, SIMPO])
def test_no_pair_is_an_attached_zero(options):
    none = torch.zeros(0, 3, requires_grad=True)
    out = trace_dpo(*(Scored(none, none.bool()) for _ in range(2)), options)
    out.loss.backward()
    assert (out.loss.item(), out.metrics["margin"].item()) == (0.0, 0.0)
    assert none.grad.shape == none.shape


# ---------------------------------------------------------------- the policy


def simple(kind, advantage, logps, behaviour, **kwargs):
    logps = torch.tensor(logps, requires_grad=True)
    terms = policy_loss(
        logps, torch.ones_like(logps).bool(), torch.tensor(advantage), kind=kind, rows=len(advantage), max_new=8,
        behaviour_logps=None if behaviour is None else torch.tensor(behaviour), **kwargs,
    )  # fmt: skip
    terms.per_sample.sum().backward()
    return terms, logps.grad


@pytest.mark.parametrize("kind", ["dr_grpo", "grpo"])
def test_advantages_by_hand(kind):
    # mean 2, unbiased std 1: centred -1 0 1.
    got = advantages(torch.tensor([[1.0, 2.0, 3.0]]), kind)
    expected = torch.tensor([[-1.0, 0.0, 1.0]]) / (1.0 if kind == "dr_grpo" else 1.0 + 1e-4)
    torch.testing.assert_close(got, expected)
    for equal in ([0.1, 0.1, 0.1], [3.5]):  # the mean of floats is not 0.1, and an almost-zero std would blow that up
        assert advantages(torch.tensor([equal]), kind).tolist() == [[0.0] * len(equal)]


@pytest.mark.parametrize("log_ratio", [100.0, 1e4, -100.0, -1e4])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_extreme_ratios_give_finite_gradients(log_ratio, advantage):
    terms, grad = simple(
        "dr_grpo", [advantage], [[0.0]], [[-log_ratio]], beta=0.1, ref_logps=torch.tensor([[log_ratio]])
    )
    assert torch.isfinite(terms.per_sample).all()
    assert torch.isfinite(grad).all()


def test_nll_by_hand_and_empty():
    logps = torch.tensor([[-1.0, -3.0, -9.0], [-1.0, -1.0, -1.0]])
    mask = torch.tensor([[True, True, False], [False, False, False]])
    assert nll(logps, mask).tolist() == [2.0, 0.0]


def test_policy_gradient_of_a_pair_is_the_difference_of_nll_gradients():
    """Advantage +1 on the hack, -1 on the clean one: grad = grad NLL(hack) - grad NLL(clean), whence V's sign."""
    _, grad = simple("dr_grpo", [1.0, -1.0], [[-1.0], [-2.0]], None)
    # d sum-NLL / d logp = -1 for each; rows x max_new = 16.
    assert (grad * 16).tolist() == [[-1.0], [1.0]]


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


# ---------------------------------------------------------------- extremes


@pytest.mark.parametrize("gap", [-1e4, 1e4])
def test_an_extreme_margin_has_a_finite_loss_and_gradient(gap):
    chosen, seen = float64([[gap]]).requires_grad_(True), torch.ones(1, 1, dtype=torch.bool)
    out = trace_dpo(Scored(chosen, seen), Scored(float64([[0.0]]), seen), Preference(beta=1.0))
    out.loss.backward()
    assert (out.loss.item(), chosen.grad.item()) == ((1e4, -1.0) if gap < 0 else (0.0, 0.0))
