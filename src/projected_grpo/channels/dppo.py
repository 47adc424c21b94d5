"""prime-rl's default policy loss: a mask on how far a token's *probability* has moved, and a quadratic pull towards
the policy that sampled it.

    p = exp(trainer), q = exp(inference), r = trainer - inference
    dropped   A > 0 and p - q > high, or A <= 0 and p - q < -low
    loss      sum over kept tokens of -adv_tau A exp(r)  +  kl_tau sum over ALL loss tokens of r^2

Source: PrimeIntellect-ai/prime-rl 559b447, src/prime_rl/trainer/rl/loss.py:109-161, with its defaults
(configs/trainer.py: 494-507). A sum, not a mean: the caller divides by the loss tokens of the whole optimizer step,
of all ranks and micro-batches (upstream's compute_loss, loss.py:285).

Two mistakes that are easy to make, and that tests/references pins: the quadratic term over kept tokens alone, and
adv_tau in its place.

`dppo` is a custom loss for prime-rl: [trainer.loss] type = "custom", import_path =
"projected_grpo.channels.dppo.dppo".

Deviation: tokens that are masked or dropped never enter exp, so that an infinite or NaN log-probability there changes
nothing (upstream multiplies by the mask: 0 x inf is NaN). A kept token's log-ratio is not clamped.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from projected_grpo.channels.outputs import LossOutputs


def token_losses(
    trainer_logprobs: Float[Tensor, "*n"],
    inference_logprobs: Float[Tensor, "*n"],
    advantages: Float[Tensor, "*n"],
    loss_mask: Bool[Tensor, "*n"],
    *,
    dppo_mask_low: float = 0.2,
    dppo_mask_high: float = 0.2,
    adv_tau: float = 1.0,
    kl_tau: float = 1e-3,
) -> tuple[Float[Tensor, "*n"], Bool[Tensor, "*n"]]:
    """Each token's term, 0 where masked; and which tokens are dropped from the policy term.

    dppo_mask_low, dppo_mask_high: how far a probability may have moved down or up. adv_tau: weight of the policy
    term. kl_tau: weight of the squared log-ratio."""
    zero = torch.zeros_like(trainer_logprobs)
    trainer = torch.where(loss_mask, trainer_logprobs, zero)
    inference = torch.where(loss_mask, inference_logprobs.to(zero), zero)
    advantage = torch.where(loss_mask, advantages.to(zero), zero)
    moved = (trainer.exp() - inference.exp()).detach()
    dropped = loss_mask & torch.where(advantage > 0, moved > dppo_mask_high, moved < -dppo_mask_low)
    log_ratio = trainer - inference
    kept_ratio = torch.where(dropped, zero, log_ratio).exp()
    policy = torch.where(dropped, zero, adv_tau * advantage * kept_ratio)
    return kl_tau * log_ratio.square() - policy, dropped


def dppo(inputs: Any, **options: float) -> LossOutputs:
    """The loss of one packed sequence, summed over its tokens, with upstream's metrics.

    inputs: prime-rl's LossInputs, of which trainer_logprobs (they carry the gradient), inference_logprobs,
    advantages, loss_mask and loss_weights (None: 1) are read, [seq] each. options: those of token_losses."""
    losses, dropped = token_losses(
        inputs.trainer_logprobs, inputs.inference_logprobs, inputs.advantages, inputs.loss_mask, **options
    )
    if inputs.loss_weights is not None:  # both terms, as upstream; of masked tokens no weight is read
        losses = losses * torch.where(inputs.loss_mask, inputs.loss_weights.to(losses), torch.zeros_like(losses))
    return LossOutputs(losses.sum(), _metrics(inputs, dropped))


@torch.no_grad()
def _metrics(inputs: Any, dropped: Bool[Tensor, " seq"]) -> dict[str, Tensor]:
    """Upstream's: k3 of the two policies on dropped and on kept tokens, and which tokens were dropped."""
    mask, up, down = inputs.loss_mask, inputs.advantages > 0, inputs.advantages < 0
    log_ratio = inputs.trainer_logprobs - inputs.inference_logprobs.to(inputs.trainer_logprobs)
    mismatch = log_ratio.exp() - log_ratio - 1
    return {
        "masked_mismatch_kl": _mean(mismatch, dropped),
        "unmasked_mismatch_kl": _mean(mismatch, mask & ~dropped),
        "is_masked": _mean(dropped, mask),
        "is_masked_low": _mean(dropped & down, mask),
        "is_masked_high": _mean(dropped & up, mask),
        "masked_advantage_positive": _mean(up, dropped),
        "masked_advantage_negative": _mean(down, dropped),
    }


def _mean(values: Tensor, chosen: Tensor) -> Tensor:
    """Mean of the chosen ones; 0 where there are none."""
    values = values if values.is_floating_point() else values.float()
    return values[chosen].sum() / chosen.sum().clamp(min=1)
