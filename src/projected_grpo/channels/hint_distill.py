"""The channel that teaches a model what it would say with a hint: the same model, the hint in its context, is the
teacher.

    p = student, q = teacher (frozen), both softmax(logits / temperature); m = (1 - beta) p + beta q
    D_t = sum_v [ beta q log(q / m) + (1 - beta) p log(p / m) ]      beta = 0: KL(q || p);  beta = 1: KL(p || q)

The generalised Jensen-Shannon divergence (Agarwal et al. 2024, arXiv:2306.13649, equation 1), averaged over valid
tokens. No factor T^2 makes up for the temperature: upstream has none.

    OPSD   Distillation(): mean over tokens; top_k of the teacher, token_clip    siyan-zhao/OPSD 590ec26, opsd_trainer.py:374
    GKD    Distillation(), `whole` = num_items_in_batch    TRL 1.16.0 trl/experimental/gkd/gkd_trainer.py:238
    SDPO   SDPO, below                                     TRL 1.16.0 trl/experimental/sdpo/loss_utils.py

OPSD's token_clip caps every *entry of the vocabulary* before the sum over it (its later commit 8ae338d), not the sum:
entries below 0 stay, so that a clipped divergence can be negative. SDPO's default compares the two models at the
sampled token alone: (log p - log q), not differentiated, times log p.

Deviations: only valid positions are computed, so that NaN or infinite logits at masked ones reach neither loss nor
gradient; an entry of probability 0 counts as 0 (upstream: NaN where its logit is -inf); all masked is an exact zero,
attached to the graph.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from projected_grpo.channels.outputs import Average, LossOutputs, shares

LOG_RATIO_BOUND = 20.0
"""SDPO's importance ratio is taken of a log-ratio within this (loss_utils.py)."""


@dataclass(frozen=True)
class Distillation:
    """What is compared, and how it is averaged. The defaults are OPSD's."""

    mode: Literal["vocabulary", "sampled_token"] = "vocabulary"
    """sampled_token: reverse KL at the sampled token alone (SDPO's default), whatever beta, token_clip and top_k
    are."""
    beta: float = 0.5
    """Share of the teacher in the mixture: 0 is KL(teacher || student), 1 is KL(student || teacher)."""
    temperature: float = 1.0
    token_clip: float | None = None
    """Largest entry of the vocabulary's sum."""
    top_k: int | None = None
    """Compare the teacher's most likely tokens alone, this many, renormalised."""
    importance_cap: float | None = None
    """Weigh a token by student / behaviour probability, at most this; needs behaviour_logps (SDPO: 2)."""
    average: Average = "tokens"


OPSD = Distillation()
"""The default, and GKD's."""
SDPO = Distillation(mode="sampled_token", beta=1.0, importance_cap=2.0, average="sequences")
"""TRL's defaults of SDPO."""


def hint_distill(
    student_logits: Float[Tensor, "b t v"],
    teacher_logits: Float[Tensor, "b t v"],
    mask: Bool[Tensor, "b t"],
    token_ids: Int[Tensor, "b t"],
    options: Distillation = OPSD,
    *,
    behaviour_logps: Float[Tensor, "b t"] | None = None,
    whole: int | None = None,
) -> LossOutputs:
    """Mean divergence of the student from the teacher over the completion's tokens.

    student_logits, teacher_logits: at the positions that predict the same tokens, the teacher's in the hinted
    context; no gradient reaches the teacher. mask: valid tokens. token_ids: the sampled tokens. behaviour_logps: of
    the policy that sampled them; None: on-policy, every weight 1. whole: valid tokens (average "sequences":
    sequences) of the whole step; None: of this batch.

    Metric `divergence`: mean over this batch's valid tokens, before weights.
    """
    student, teacher = student_logits[mask], teacher_logits.detach()[mask].to(student_logits)

    def of_sampled(logits: Float[Tensor, "n v"]) -> Float[Tensor, " n"]:
        logps = (logits / options.temperature).log_softmax(-1)
        return logps.gather(-1, token_ids[mask][:, None]).squeeze(-1)

    if options.mode == "sampled_token":
        ours, theirs = of_sampled(student), of_sampled(teacher)
        values = (ours - theirs).detach() * ours  # its gradient is the policy gradient of the reverse KL
    else:
        values = divergence(student, teacher, options)
    mean = values.detach().sum() / max(len(values), 1)
    if options.importance_cap is not None and behaviour_logps is not None:
        logps = of_sampled(student.detach())
        log_ratio = (logps - behaviour_logps.detach()[mask].to(logps)).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
        values = values * log_ratio.exp().clamp(max=options.importance_cap)
    return LossOutputs((values * shares(mask, values, options.average, whole)).sum(), {"divergence": mean})


def divergence(
    student_logits: Float[Tensor, "n v"], teacher_logits: Float[Tensor, "n v"], options: Distillation
) -> Float[Tensor, " n"]:
    """Generalised Jensen-Shannon divergence at each position."""
    student, teacher = student_logits / options.temperature, teacher_logits / options.temperature
    if options.top_k is not None:
        chosen = teacher.topk(options.top_k, -1).indices
        student, teacher = student.gather(-1, chosen), teacher.gather(-1, chosen)
    student, teacher = student.log_softmax(-1), teacher.log_softmax(-1)
    beta = options.beta
    if beta == 0:
        entries = _relative_entropy(teacher, student)
    elif beta == 1:
        entries = _relative_entropy(student, teacher)
    else:
        lowest = torch.finfo(student.dtype).min / 2  # two entries of -inf would have a NaN gradient
        mixture = torch.logaddexp(
            student.clamp(min=lowest) + math.log1p(-beta), teacher.clamp(min=lowest) + math.log(beta)
        )
        entries = beta * _relative_entropy(teacher, mixture) + (1 - beta) * _relative_entropy(student, mixture)
    return (entries if options.token_clip is None else entries.clamp(max=options.token_clip)).sum(-1)


def _relative_entropy(p: Float[Tensor, "n v"], q: Float[Tensor, "n v"]) -> Float[Tensor, "n v"]:
    """p log(p / q) of each entry, from log p and log q; 0 where p is 0."""
    mass = p.exp()
    there = mass > 0
    zero = torch.zeros_like(p)
    return mass * (torch.where(there, p, zero) - torch.where(there, q, zero))
