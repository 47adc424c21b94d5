"""Auxiliary losses, with the forward passes that they need:

    total = policy + alpha x hint distillation + beta x trace DPO + gamma x TAID

The losses themselves are pages of channels/; here they get log-probabilities and logits from the model, in
micro-batches that model/logprobs.py collates. A loss of weight 0 is never called, and the step is plain GRPO bit for
bit."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from projected_grpo.channels.hint_distill import OPSD, Distillation, hint_distill
from projected_grpo.channels.outputs import LossOutputs
from projected_grpo.channels.taid import taid
from projected_grpo.channels.trace_dpo import DPO, Preference, Scored, trace_dpo
from projected_grpo.model.learner import Learner
from projected_grpo.model.logprobs import TokenBatch, completion_logps, head_of, two_sided

Ids = tuple[int, ...]


@runtime_checkable
class AuxiliaryLoss(Protocol):
    """A loss that is added to the policy's. `metrics`: names of numbers that add up over micro-batches and processes,
    as the loss does."""

    @property
    def name(self) -> str: ...
    @property
    def weight(self) -> float: ...
    @property
    def metrics(self) -> tuple[str, ...]: ...

    def losses(self, learner: Learner) -> Iterator[LossOutputs]:
        """Yields this process's micro-batches; over all processes they add up to the loss, without its weight."""
        ...


def accumulate(learner: Learner, loss: AuxiliaryLoss) -> dict[str, float]:
    """Adds the loss's weighted gradient to the adapter's. Returns the sums of the loss and of its metrics."""
    sums = dict.fromkeys(("loss", *loss.metrics), 0.0)
    for part in loss.losses(learner):
        (loss.weight * part.loss).backward()
        for name, value in {"loss": part.loss, **part.metrics}.items():
            sums[name] += float(value.detach())
    return sums


# ---------------------------------------------------------------- distillation


@dataclass(frozen=True)
class Hinted:
    """A completion, the prompt that it was sampled for, and the prompt that its teacher reads. No label."""

    prompt_ids: Ids
    hinted_ids: Ids
    completion_ids: Ids
    behaviour_logps: tuple[float, ...] | None = None


def distilled(
    learner: Learner, rows: Sequence[Hinted], teacher: Any, loss: Callable[[Tensor, Tensor, Hinted], Tensor],
    reading: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Iterator[LossOutputs]:  # fmt: skip
    """Yields a distillation loss: the student reads each completion after its prompt, the teacher after the hinted
    one.

    reading: a context around the teacher's pass. loss: a row's loss from the student's and the teacher's logits [1,
    t, v]; computed again in the backward pass, so that only one row's logits are in memory."""

    def logits(hidden: Float[Tensor, "t d"], model: Any) -> Float[Tensor, "1 t v"]:
        return (hidden @ head_of(model).weight.T).to(torch.promote_types(hidden.dtype, torch.float32))[None]

    def part(ours: Float[Tensor, "t d"], theirs: Float[Tensor, "t e"], row: Hinted) -> Float[Tensor, ""]:
        return loss(logits(ours, learner.model), logits(theirs, teacher), row)

    plain = [(r.prompt_ids, r.completion_ids) for r in rows]
    hinted = [(r.hinted_ids, r.completion_ids) for r in rows]
    for chosen, student, hints in two_sided(plain, hinted, learner.token_budget, learner.pad_id, learner.device):
        picked = [rows[i] for i in chosen]
        lengths = [len(r.completion_ids) for r in picked]
        with torch.no_grad(), reading():
            theirs = hints.states(teacher).split(lengths)
        ours = student.states(learner.model).split(lengths)
        parts = [
            checkpoint(part, *states, use_reentrant=False, preserve_rng_state=False)
            for states in zip(ours, theirs, picked, strict=True)
        ]
        yield LossOutputs(torch.stack(parts).sum(), {"rows": torch.tensor(float(len(picked)))})


@dataclass(frozen=True)
class HintDistill:
    """The model is distilled from itself: without the hint it learns to say what it would say with it."""

    weight: float
    rows: Sequence[Hinted]
    options: Distillation = OPSD
    teacher: Literal["live", "base"] = "live"
    """live: the model as it is; base: without its adapter (delta_S = 0), which stays what it was."""
    asked: int = 0
    """Rows that "sequences" averages over, those without a hinted prompt too: upstream masks these and divides by all
    (TRL 1.16.0, sdpo_trainer.py, loss.mean()). 0: as many as `rows`."""
    name = "hint_distill"
    metrics = ("rows",)

    def losses(self, learner: Learner) -> Iterator[LossOutputs]:
        per_token = self.options.average == "tokens"
        whole = learner.ranks.span(
            sum(len(r.completion_ids) for r in self.rows) if per_token else max(self.asked, len(self.rows))
        )[0]

        def loss(student: Float[Tensor, "1 t v"], teacher: Float[Tensor, "1 t v"], row: Hinted) -> Float[Tensor, ""]:
            behaviour = None if row.behaviour_logps is None else student.new_tensor([row.behaviour_logps])
            ids = torch.tensor([row.completion_ids], dtype=torch.long, device=student.device)
            mask = torch.ones_like(ids, dtype=torch.bool)
            return hint_distill(student, teacher, mask, ids, self.options, behaviour_logps=behaviour, whole=whole).loss

        reading = learner.adapter.disabled if self.teacher == "base" else nullcontext
        return distilled(learner, self.rows, learner.model, loss, reading)


@dataclass(frozen=True)
class Taid:
    """The model is distilled from a frozen teacher, by a target that moves from student to teacher."""

    weight: float
    rows: Sequence[Hinted]
    teacher: Any
    """A causal language model of the same vocabulary."""
    t: float
    """How far the target has moved, 0 to 1."""
    name = "taid"
    metrics = ("rows",)

    def losses(self, learner: Learner) -> Iterator[LossOutputs]:
        whole = learner.ranks.span(sum(len(r.completion_ids) for r in self.rows))[0]

        def loss(student: Float[Tensor, "1 t v"], teacher: Float[Tensor, "1 t v"], _: Hinted) -> Float[Tensor, ""]:
            mask = torch.ones(student.shape[:2], dtype=torch.bool, device=student.device)
            return taid(student, teacher, mask, self.t, whole=whole).loss

        return distilled(learner, self.rows, self.teacher, loss)


# ---------------------------------------------------------------- preferences


@dataclass(frozen=True)
class ActionPair:
    """Two actions at one state: the first is preferred. No label: teachers' votes made it."""

    prompt_ids: Ids
    chosen_ids: Ids
    rejected_ids: Ids


@dataclass(frozen=True)
class TraceDPO:
    """The model learns to prefer the actions that more of the teachers would have taken."""

    weight: float
    pairs: Sequence[ActionPair]
    options: Preference = DPO
    name = "trace_dpo"
    metrics = ("rows", "margin", "accuracy")

    def losses(self, learner: Learner) -> Iterator[LossOutputs]:
        whole = learner.ranks.span(len(self.pairs))[0]
        chosen = [(p.prompt_ids, p.chosen_ids) for p in self.pairs]
        rejected = [(p.prompt_ids, p.rejected_ids) for p in self.pairs]
        for picked, better, worse in two_sided(chosen, rejected, learner.token_budget, learner.pad_id, learner.device):
            out = trace_dpo(self._scored(learner, better), self._scored(learner, worse), self.options, whole=whole)
            share = {name: value * len(picked) / whole for name, value in out.metrics.items()}
            yield LossOutputs(out.loss, {"rows": torch.tensor(float(len(picked))), **share})

    def _scored(self, learner: Learner, batch: TokenBatch) -> Scored:
        """Returns one side's log-probabilities; for dpo, the untrained model's too."""
        ref = learner.base_logps(batch, 1.0) if self.options.kind == "dpo" else None
        return Scored(completion_logps(learner.model, batch), batch.loss_mask, ref)
