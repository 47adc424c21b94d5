"""The channel that teaches a model what it would say with a hint: the same model, the hint in its context, is the teacher.

    p = student, q = teacher (frozen), both softmax(logits / temperature); m = (1 - beta) p + beta q
    D_t = sum_v [ beta q log(q / m) + (1 - beta) p log(p / m) ]      beta = 0: KL(q || p);  beta = 1: KL(p || q)

The generalised Jensen-Shannon divergence (Agarwal et al. 2024, arXiv:2306.13649, equation 1), averaged over valid tokens. No
factor T^2 makes up for the temperature: upstream has none.

    OPSD   Distillation(): mean over tokens; top_k of the teacher, token_clip    siyan-zhao/OPSD 590ec26, opsd_trainer.py:374
    GKD    Distillation(), `whole` = num_items_in_batch    TRL 1.16.0 trl/experimental/gkd/gkd_trainer.py:238
    SDPO   SDPO, below; top_k of the student, with a tail  TRL 1.16.0 trl/experimental/sdpo/loss_utils.py

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
TAIL_FLOOR = -1e-7
"""Highest log of the mass within top_k: what is left for the tail stays above 0 (loss_utils.py)."""


@dataclass(frozen=True)
class Distillation:
    """What is compared, and how it is averaged. The defaults are OPSD's. ValueError on values that mean nothing."""

    mode: Literal["vocabulary", "sampled_token"] = "vocabulary"
    """sampled_token: reverse KL at the sampled token alone (SDPO's default); needs beta = 1."""
    beta: float = 0.5
    """Share of the teacher in the mixture: 0 is KL(teacher || student), 1 is KL(student || teacher)."""
    temperature: float = 1.0
    token_clip: float | None = None
    """Largest entry of the vocabulary's sum."""
    top_k: int | None = None
    """Compare this many tokens of the vocabulary alone, renormalised."""
    top_of: Literal["teacher", "student"] = "teacher"
    """Whose most likely tokens (OPSD: the teacher's; SDPO: the student's)."""
    tail: bool = False
    """With top_k: one more entry holds the rest of the mass, and nothing is renormalised."""
    importance_cap: float | None = None
    """Weigh a token by student / behaviour probability, at most this; needs behaviour_logps (SDPO: 2)."""
    average: Average = "tokens"

    def __post_init__(self) -> None:
        if not 0 <= self.beta <= 1:
            raise ValueError(f"beta={self.beta} is not between 0 and 1")
        if not self.temperature > 0:
            raise ValueError(f"temperature={self.temperature} is not above 0")
        if self.mode == "sampled_token" and (self.beta != 1 or self.top_k is not None or self.token_clip is not None):
            raise ValueError(
                "mode sampled_token is reverse KL at one token: it needs beta=1, no top_k and no token_clip"
            )
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k={self.top_k} is not at least 1")
        if self.tail and self.top_k is None:
            raise ValueError("tail=True needs top_k")


OPSD = Distillation()
"""The default, and GKD's."""
SDPO = Distillation(mode="sampled_token", beta=1.0, importance_cap=2.0, average="sequences")
"""TRL's defaults of SDPO."""


def hint_distill(
    student_logits: Float[Tensor, "b t v"],
    teacher_logits: Float[Tensor, "b t v"],
    mask: Bool[Tensor, "b t"],
    options: Distillation = OPSD,
    *,
    token_ids: Int[Tensor, "b t"] | None = None,
    behaviour_logps: Float[Tensor, "b t"] | None = None,
    whole: int | None = None,
) -> LossOutputs:
    """Mean divergence of the student from the teacher over the completion's tokens.

    student_logits, teacher_logits: at the positions that predict the same tokens, the teacher's in the hinted context;
    no gradient reaches the teacher. mask: valid tokens. token_ids: the sampled tokens, for mode sampled_token and for
    importance_cap. behaviour_logps: of the policy that sampled them; None: on-policy, every weight 1. whole: valid tokens
    (average "sequences": sequences) of the whole step; None: of this batch.

    ValueError where the mode needs token_ids and has none, or with importance_cap and behaviour_logps but no token_ids.
    Metric `divergence`: mean over this batch's valid tokens, before weights.
    """
    sampled = options.mode == "sampled_token"
    weighted = options.importance_cap is not None and behaviour_logps is not None
    if token_ids is None and (sampled or weighted):
        raise ValueError("token_ids are needed for mode sampled_token and for importance_cap")
    student, teacher = student_logits[mask], teacher_logits.detach()[mask].to(student_logits)
    if token_ids is not None and sampled:
        values = at_sampled_token(student / options.temperature, teacher / options.temperature, token_ids[mask])
    else:
        values = divergence(student, teacher, options)
    mean = values.detach().sum() / max(len(values), 1)
    if weighted and token_ids is not None and behaviour_logps is not None and options.importance_cap is not None:
        logps = student.detach() / options.temperature
        logps = logps.log_softmax(-1).gather(-1, token_ids[mask][:, None]).squeeze(-1)
        values = values * importance(logps, behaviour_logps[mask].to(logps), options.importance_cap)
    return LossOutputs((values * shares(mask, values, options.average, whole)).sum(), {"divergence": mean})


def divergence(
    student_logits: Float[Tensor, "n v"], teacher_logits: Float[Tensor, "n v"], options: Distillation
) -> Float[Tensor, " n"]:
    """Generalised Jensen-Shannon divergence at each position."""
    student, teacher = _supported(student_logits / options.temperature, teacher_logits / options.temperature, options)
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


def _supported(
    student: Float[Tensor, "n v"], teacher: Float[Tensor, "n v"], options: Distillation
) -> tuple[Float[Tensor, "n k"], Float[Tensor, "n k"]]:
    """Both log-probabilities on the tokens that are compared."""
    if options.top_k is None:
        return student.log_softmax(-1), teacher.log_softmax(-1)
    chosen = (teacher if options.top_of == "teacher" else student.detach()).topk(options.top_k, -1).indices
    if not options.tail:
        return student.gather(-1, chosen).log_softmax(-1), teacher.gather(-1, chosen).log_softmax(-1)
    # Not log_softmax: where hardly anything is left for the tail, its rounding is not upstream's in the ninth digit.
    held = (side.gather(-1, chosen) - side.logsumexp(-1, keepdim=True) for side in (student, teacher))
    student_held, teacher_held = map(_with_tail, held)
    return student_held, teacher_held


def _with_tail(logps: Float[Tensor, "n k"]) -> Float[Tensor, "n k1"]:
    """One more entry: the log of the mass that the others leave."""
    held = logps.logsumexp(-1, keepdim=True).clamp(max=TAIL_FLOOR)
    return torch.cat([logps, (-held.expm1()).log()], -1)


def at_sampled_token(
    student_logits: Float[Tensor, "n v"], teacher_logits: Float[Tensor, "n v"], token_ids: Int[Tensor, " n"]
) -> Float[Tensor, " n"]:
    """(log p - log q), held fixed, times log p: its gradient is the policy gradient of the reverse KL."""
    student, teacher = (
        logits.log_softmax(-1).gather(-1, token_ids[:, None]).squeeze(-1) for logits in (student_logits, teacher_logits)
    )
    return (student - teacher).detach() * student


def importance(logps: Float[Tensor, " n"], behaviour_logps: Float[Tensor, " n"], cap: float) -> Float[Tensor, " n"]:
    """exp(logp - behaviour), at most `cap`; not differentiated."""
    return (logps - behaviour_logps).detach().clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp().clamp(max=cap)
