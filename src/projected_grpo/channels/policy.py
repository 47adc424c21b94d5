"""The channel that every run has: the policy gradient on the run's rollouts. The per-sample terms sum to the loss.

    dr_grpo   sum_b sum_t m_bt l_bt / (rows x max_new)              (Liu et al. 2025, arXiv:2503.20783, section 3.2)
    grpo      sum_b [ sum_t m_bt l_bt / max(1, sum_t m_bt) ] / rows  (Shao et al. 2024, arXiv:2402.03300, equation 3)
    bnpo      sum_b sum_t m_bt l_bt / tokens, of the local batch
    dapo      sum_b sum_t m_bt l_bt / tokens, of the whole step      (Yu et al. 2025, arXiv:2503.14476, equation 8)
    dppo      the same denominator, another l_bt: dppo.py
    l_bt    = -min(rho_bt A_b, clip(rho_bt, 1 - low, 1 + high) A_b) + beta k3_bt
    rho_bt  = exp(logp_bt - behaviour_logp_bt)
    k3_bt   = exp(ref - logp) - (ref - logp) - 1                     (Schulman 2020, joschu.net/blog/kl-approx.html)

Reference implementations that tests/references pins these to: huggingface/trl 1.16.0 trl/trainer/grpo_trainer.py
(GRPOTrainer._compute_loss, loss_type grpo, dr_grpo, bnpo, dapo), sail-sg/oat c1a074c with understand-r1-zero dfca49d
(train_zero_math.py:286-308), lsdefine/simple_GRPO 4ab94c6, PrimeIntellect-ai/prime-rl 559b447 (dppo).

Deviations: `rows` and `tokens` are given by the caller, so that micro-batches add up to the whole; an empty
completion contributes 0 (simple_GRPO: NaN); log-ratios of the clipped kinds are clamped to where exp and its gradient
stay finite (TRL: NaN gradients there). Masked positions are replaced by exact zeros before any arithmetic, never
multiplied away: 0 x inf is NaN."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from projected_grpo.channels import dppo
from projected_grpo.losses import POLICY_LOSSES, LossName

ADVANTAGE_EPS = 1e-4
"""Added to the group's standard deviation (TRL 1.16.0, grpo_trainer.py)."""
AT_BOUND = 1e-5
"""A ratio this near to a clip bound is at it: float32 rounds one by less."""


@dataclass(frozen=True)
class LossTerms:
    """What a policy loss gives back."""

    per_sample: Float[Tensor, " b"]
    """Each sample's term; their sum over all rows of the step is the loss."""
    ratio: Float[Tensor, " b"]
    """Mean over its tokens of rho; NaN for an empty completion."""
    kl_sum: float
    """Sum over tokens of k3; 0 with beta = 0."""
    at_clip: Float[Tensor, " b"]
    """Share of its tokens whose rho is at or beyond a clip bound, whichever branch is the smaller (dppo: that are
    dropped); NaN for an empty completion."""


def advantages(rewards: Float[Tensor, "p g"], kind: LossName) -> Float[Tensor, "p g"]:
    """Group-relative advantages. dr_grpo and dppo: R - mean. The others: also divided by the unbiased std + 1e-4.

    A group of equal rewards and a group of one give exact zeros.
    """
    centred = rewards - rewards.mean(1, keepdim=True)
    equal = (rewards == rewards[:, :1]).all(1, keepdim=True)
    centred = torch.where(equal, torch.zeros_like(centred), centred)
    if POLICY_LOSSES[kind].centred:
        return centred
    std = rewards.std(1, keepdim=True, correction=1) if rewards.shape[1] > 1 else torch.zeros_like(rewards)
    return centred / (std + ADVANTAGE_EPS)


def _exp(log_ratio: Tensor) -> Tensor:
    """exp whose value and gradient are finite for any finite input: beyond half of the type's range it is flat."""
    bound = 0.5 * math.log(torch.finfo(log_ratio.dtype).max)
    return log_ratio.clamp(-bound, bound).exp()


def nll(logps: Float[Tensor, "b t"], mask: Bool[Tensor, "b t"]) -> Float[Tensor, " b"]:
    """Mean negative log-likelihood per completion token of each sample; 0 for an empty completion."""
    kept = torch.where(mask, logps, torch.zeros_like(logps))
    return -kept.sum(1) / mask.sum(1).clamp(min=1)


def policy_loss(
    logps: Float[Tensor, "b t"],
    mask: Bool[Tensor, "b t"],
    advantage: Float[Tensor, " b"],
    *,
    kind: LossName,
    rows: int,
    max_new: int,
    tokens: int | None = None,
    behaviour_logps: Float[Tensor, "b t"] | None = None,
    ref_logps: Float[Tensor, "b t"] | None = None,
    beta: float = 0.0,
    bias_corrected_kl: bool = False,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> LossTerms:
    """Policy-gradient loss with a k3 KL penalty.

    rows: samples in the whole step (P x G), whatever part of them this batch holds. max_new: configured longest
    completion, in tokens. tokens: completion tokens of the whole step (bnpo: of the local batch), read by bnpo, dapo
    and dppo alone. behaviour_logps None: the policy itself, ratio 1 with the on-policy gradient. bias_corrected_kl: a
    token's k3 is weighed by its ratio (TRL's use_bias_correction_kl). clip_low, clip_high: how far the ratio may go
    below and above 1; of dppo, how far the token's probability may have moved. ValueError when beta > 0 without
    ref_logps, or where the kind needs tokens and has none."""
    if beta > 0 and ref_logps is None:
        raise ValueError(f"beta={beta} needs ref_logps")
    loss = POLICY_LOSSES[kind]
    if loss.divisor in ("local_tokens", "all_tokens") and tokens is None:
        raise ValueError(f"{kind} needs tokens, the number of completion tokens that it divides by")
    zero = torch.zeros_like(logps)
    logps = torch.where(mask, logps, zero)
    behaviour = logps.detach() if behaviour_logps is None else torch.where(mask, behaviour_logps.to(logps), zero)
    ratio = _exp(logps - behaviour)
    a = advantage.to(logps)[:, None]
    if not loss.clipped:
        per_token, cut = dppo.token_losses(
            logps, behaviour, a.expand_as(logps), mask, dppo_mask_low=clip_low, dppo_mask_high=clip_high
        )
    else:
        plain, clipped = ratio * a, ratio.clamp(1 - clip_low, 1 + clip_high) * a
        per_token, cut = -torch.minimum(plain, clipped), clipped < plain
    kl_sum = 0.0
    if beta > 0 and ref_logps is not None:
        gap = torch.where(mask, ref_logps.to(logps), zero) - logps
        k3 = _exp(gap) - gap - 1
        k3 = k3 * ratio if bias_corrected_kl else k3
        per_token = per_token + beta * k3
        kl_sum = float(k3.detach().sum())
    per_token = torch.where(mask, per_token, zero)
    lengths = mask.sum(1)
    with torch.no_grad():
        mean_ratio = torch.where(mask, ratio, zero).sum(1) / lengths
        beyond = (ratio <= 1 - clip_low + AT_BOUND) | (ratio >= 1 + clip_high - AT_BOUND)
        at_clip = (mask & (beyond if loss.clipped else cut)).sum(1) / lengths  # dppo bounds probabilities, not ratios
    if loss.divisor == "max_new":
        count = torch.full_like(lengths, max_new) * rows
    elif loss.divisor == "own_tokens":
        count = lengths.clamp(min=1) * rows
    else:
        count = lengths.new_tensor(max(tokens or 0, 1))
    return LossTerms(per_token.sum(1) / count, mean_ratio, kl_sum, at_clip)
