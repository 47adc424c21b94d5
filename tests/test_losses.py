"""Losses against upstream's own numbers, by hand, and at the edges."""

import math

import pytest
import torch
from harness import tensor

from projected_grpo.channels.policy import advantages, nll, policy_loss
from projected_grpo.model.logprobs import token_logps


def loss_and_grad(case, kind, max_new):
    i, p = case["inputs"], case["params"]
    logps = tensor(i["per_token_logps"]).requires_grad_(True)
    mask = tensor(i["completion_mask"]).bool()
    if "tool_mask" in i:
        mask = mask & tensor(i["tool_mask"]).bool()
    ref = None if p["beta"] == 0 else tensor(i["ref_per_token_logps"])
    old = None if i["old_per_token_logps"] is None else tensor(i["old_per_token_logps"])
    eps = p.get("epsilon_low", p.get("cliprange"))
    terms = policy_loss(
        logps, mask, tensor(i["advantages"]).flatten(), kind=kind, rows=len(mask), max_new=max_new, behaviour_logps=old,
        ref_logps=ref, beta=p["beta"], bias_corrected_kl=p.get("use_bias_correction_kl", False),
        clip_low=eps, clip_high=p.get("epsilon_high", eps),
    )  # fmt: skip
    terms.per_sample.sum().backward()
    return terms, logps.grad


@pytest.mark.parametrize(
    ("group", "kind", "longest", "n"),
    [
        ("trl_grpo", "grpo", "max_completion_length", 5),
        ("trl_dr_grpo", "dr_grpo", "max_completion_length", 5),
        ("dr_grpo_oat", "dr_grpo", "generate_max_length", 1),
    ],
)
def test_equals_trl_and_oat(golden, group, kind, longest, n):
    cases = golden["losses"][group]["cases"]
    assert len(cases) >= n
    for case in cases:
        assert all(m == 1 for m in case["inputs"].get("loss_masks", ()))
        terms, grad = loss_and_grad(case, kind, case["params"][longest])
        torch.testing.assert_close(terms.per_sample.sum().item(), case["expected"]["loss"], rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(grad, tensor(case["expected"]["grad_per_token_logps"]), rtol=1e-10, atol=1e-14)


def test_kl_and_clip_metrics_equal_trls(golden):
    case = golden["losses"]["trl_grpo"]["cases"][0]
    terms, _ = loss_and_grad(case, "grpo", 16)
    mask = tensor(case["inputs"]["completion_mask"]).bool()
    assert terms.kl_sum / int(mask.sum()) == pytest.approx(case["expected"]["metrics"]["kl"], rel=1e-6)


def test_equals_simple_grpo_from_logits(golden):
    """Their loss starts at the logits: token_logps (identity head) and policy_loss together must give theirs."""
    for case in golden["losses"]["simple_grpo"]["cases"]:
        i, p = case["inputs"], case["params"]
        logits = tensor(i["logits"]).requires_grad_(True)
        ids = tensor(i["input_ids"]).long()
        b, t, v = logits.shape
        logps = token_logps(logits[:, :-1].reshape(-1, v), torch.eye(v, dtype=logits.dtype), ids[:, 1:].reshape(-1))
        logps = logps.view(b, t - 1)[:, p["plen"] - 1 :]
        torch.testing.assert_close(logps.detach(), tensor(case["expected"]["per_token_logps"]), rtol=1e-12, atol=1e-12)
        terms = policy_loss(
            logps, tensor(i["completion_mask"]).bool(), tensor(i["advantages"]).flatten(),
            kind="grpo", rows=b, max_new=1, behaviour_logps=tensor(i["gen_logps"]),
            ref_logps=tensor(i["ref_per_token_logps"]), beta=p["beta"],
            clip_low=p["clip_param"], clip_high=p["clip_param"],
        )  # fmt: skip
        terms.per_sample.sum().backward()
        torch.testing.assert_close(terms.per_sample.sum().item(), case["expected"]["loss"], rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(logits.grad, tensor(case["expected"]["grad_logits"]), rtol=1e-8, atol=1e-12)


def simple(kind, advantage, logps, behaviour, mask=None, **kwargs):
    logps = torch.tensor(logps, requires_grad=True)
    mask = torch.ones_like(logps).bool() if mask is None else torch.tensor(mask)
    terms = policy_loss(
        logps, mask, torch.tensor(advantage), kind=kind, rows=len(advantage), max_new=8,
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


@pytest.mark.parametrize("kind", ["dr_grpo", "grpo"])
@pytest.mark.parametrize("rewards", [[0.1, 0.1, 0.1], [3.5]], ids=["equal", "group of one"])
def test_a_group_without_contrast_is_exactly_zero(kind, rewards):
    """0.1 three times: the mean of floats is not 0.1, and an almost-zero std would blow the rounding up."""
    assert advantages(torch.tensor([rewards]), kind).tolist() == [[0.0] * len(rewards)]


@pytest.mark.parametrize("kind", ["dr_grpo", "grpo"])
def test_empty_and_all_masked_rows_contribute_zero(kind):
    terms, grad = simple(kind, [1.0, 1.0], [[-1.0, -2.0], [-5.0, -5.0]], None, mask=[[True, True], [False, False]])
    assert terms.per_sample[1].item() == 0.0
    assert grad[1].tolist() == [0.0, 0.0]
    assert torch.isnan(terms.ratio[1])
    assert torch.isfinite(terms.per_sample).all()


@pytest.mark.parametrize("kind", ["bnpo", "dapo", "dppo"])
def test_a_step_without_a_token_is_an_exact_zero(kind):
    logps, mask = [[math.nan, math.inf], [-math.inf, -1.0]], [[False, False], [False, False]]
    terms, grad = simple(kind, [1.0, -1.0], logps, None, mask=mask, tokens=0)
    assert terms.per_sample.tolist() == [0.0, 0.0]
    assert grad.tolist() == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_garbage_at_masked_positions_never_reaches_the_gradient(bad):
    """0 x inf is NaN: masking by multiplication fails here."""
    ref = torch.tensor([[-1.0, 0.0]])
    terms, grad = simple("dr_grpo", [1.0], [[-1.0, bad]], [[-1.0, 0.0]], mask=[[True, False]], beta=0.1, ref_logps=ref)
    assert torch.isfinite(terms.per_sample).all()
    assert torch.isfinite(grad).all()
    assert grad[0, 1] == 0


@pytest.mark.parametrize("log_ratio", [100.0, 1e4, -100.0, -1e4])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_extreme_ratios_give_finite_gradients(log_ratio, advantage):
    terms, grad = simple(
        "dr_grpo", [advantage], [[0.0]], [[-log_ratio]], beta=0.1, ref_logps=torch.tensor([[log_ratio]])
    )
    assert torch.isfinite(terms.per_sample).all()
    assert torch.isfinite(grad).all()
    if advantage > 0 and log_ratio > 0:
        without_kl = simple("dr_grpo", [advantage], [[0.0]], [[-log_ratio]])[1]
        assert without_kl.item() == 0.0  # clipped: no gradient


def test_nll_by_hand_and_empty():
    logps = torch.tensor([[-1.0, -3.0, -9.0], [-1.0, -1.0, -1.0]])
    mask = torch.tensor([[True, True, False], [False, False, False]])
    assert nll(logps, mask).tolist() == [2.0, 0.0]


def test_policy_gradient_of_a_pair_is_the_difference_of_nll_gradients():
    """Advantage +1 on the hack, -1 on the clean one: grad = grad NLL(hack) - grad NLL(clean), whence V's sign."""
    _, grad = simple("dr_grpo", [1.0, -1.0], [[-1.0], [-2.0]], None)
    # d sum-NLL / d logp = -1 for each; rows x max_new = 16.
    assert (grad * 16).tolist() == [[-1.0], [1.0]]
