"""An option of distillation: the target moves from the student's distribution to the teacher's as fast as the student
follows (TAID, Shing et al. 2025, arXiv:2501.16937).

    p_t  = softmax((1 - t) sg(student logits) + t teacher logits)
    loss = mean over valid tokens of -sum_v p_t log softmax(student logits)

    first call: the loss is stored, and nothing else happens.   Afterwards, with u = step / steps:
    change   = (previous loss - loss) / (previous loss + 1e-15)
    momentum = beta momentum + (1 - beta) change
    delta    = alpha sigmoid(momentum) (1 - t)
    t        = min(t_end, max(t_start + (t_end - t_start) u, t + delta))     not adaptive: t_start + (t_end - t_start) u

Source: SakanaAI/TAID a062892, src/distil_losses/taid.py and fkl.py. Not adaptive there is not bounded by t_end
either.

Deviations: upstream computes in float32, this in the logits' type; only valid positions are computed; all masked is
an exact zero, attached to the graph (upstream: 0 / 0); where t is 0 or 1 the other side's infinite logits do not
count (0 x inf)."""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from projected_grpo.channels.outputs import LossOutputs, shares


@dataclass(frozen=True)
class Schedule:
    """How t moves. The defaults are upstream's."""

    t_start: float = 0.4
    t_end: float = 1.0
    alpha: float = 5e-4
    """Longest step of t that a loss can ask for."""
    beta: float = 0.99
    """How much of the momentum stays."""
    adaptive: bool = True
    """False: t follows the step number alone."""


@dataclass(frozen=True)
class Progress:
    """Where t is, at first t_start; part of a checkpoint."""

    t: float
    previous_loss: float = math.nan
    """NaN before the first call."""
    momentum: float = 0.0


def advance(progress: Progress, schedule: Schedule, loss: float, step: int, steps: int) -> Progress:
    """t after a step with this loss. step: of `steps` in all. The first call only stores the loss."""
    if math.isnan(progress.previous_loss):
        return replace(progress, previous_loss=loss)
    change = (progress.previous_loss - loss) / (progress.previous_loss + 1e-15)
    momentum = schedule.beta * progress.momentum + (1 - schedule.beta) * change
    line = schedule.t_start + (schedule.t_end - schedule.t_start) * step / steps
    if not schedule.adaptive:
        return Progress(line, loss, momentum)
    delta = schedule.alpha * float(torch.sigmoid(torch.tensor(momentum, dtype=torch.float64))) * (1 - progress.t)
    return Progress(min(schedule.t_end, max(line, progress.t + delta)), loss, momentum)


def taid(
    student_logits: Float[Tensor, "b t v"],
    teacher_logits: Float[Tensor, "b t v"],
    mask: Bool[Tensor, "b t"],
    t: float,
    *,
    whole: int | None = None,
) -> LossOutputs:
    """Cross-entropy of the student to the target at t. whole: valid tokens of the whole step; None: of this batch."""
    student, teacher = student_logits[mask], teacher_logits.detach()[mask].to(student_logits)
    logps = student.log_softmax(-1)
    target = (1 - t) * student.detach() + t * teacher
    if t in (0, 1):
        target = teacher if t else student.detach()
    entries = target.softmax(-1) * torch.where(student.isinf(), torch.zeros_like(logps), logps)
    values = -entries.sum(-1)
    return LossOutputs((values * shares(mask, values, "tokens", whole)).sum())
