"""Channels beside the policy, with the forward passes that they need:

    total = policy + alpha x hint distillation + beta x trace DPO

The losses are pages of channels/; here they get log-probabilities and logits from the model, in micro-batches.

A signal of weight 0 is no signal: nothing of it is called, and the step is plain GRPO bit for bit.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from projected_grpo.adapters.base import Adapter
from projected_grpo.channels.hint_distill import OPSD, Distillation, hint_distill
from projected_grpo.channels.outputs import LossOutputs
from projected_grpo.channels.trace_dpo import DPO, Preference, Scored, trace_dpo
from projected_grpo.model.batches import logps_of, micro_batches
from projected_grpo.model.logprobs import TokenBatch, completion_states, head_of, token_batch
from projected_grpo.parallel import World

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Means:
    """What a signal computes with."""

    model: Any
    adapter: Adapter
    pad_id: int
    token_budget: int
    """Most tokens in one forward and backward pass."""
    world: World

    @property
    def device(self) -> torch.device:
        return next(iter(self.adapter.vectors.values())).device

    def batch(self, prompts: Sequence[Ids], completions: Sequence[Ids]) -> TokenBatch:
        return token_batch(prompts, completions, self.pad_id, self.device)


@runtime_checkable
class Signal(Protocol):
    """A channel of a step. ValueError of its constructor: it could teach nothing, or nothing that is meant."""

    @property
    def name(self) -> str: ...
    @property
    def weight(self) -> float: ...
    def losses(self, means: Means) -> Iterator[LossOutputs]:
        """This rank's parts, a micro-batch each; over all ranks they add up to the channel's loss, without its weight."""
        ...


def live(signals: Sequence[Signal]) -> list[Signal]:
    """Those that have a weight. ValueError on a weight below 0, or two signals of one name."""
    names = [s.name for s in signals]
    if twice := [n for n in names if names.count(n) > 1 or n == "policy"]:
        raise ValueError(f"channel {twice[0]!r} is there twice")
    if below := [s for s in signals if not s.weight >= 0]:
        raise ValueError(f"channel {below[0].name!r}: weight {below[0].weight} is not 0 or more")
    return [s for s in signals if s.weight]


# ---------------------------------------------------------------- hint distillation


@dataclass(frozen=True)
class Hinted:
    """A completion, the prompt that it was sampled for, and that prompt with the hint in it. No label."""

    prompt_ids: Ids
    hinted_ids: Ids
    completion_ids: Ids
    behaviour_logps: tuple[float, ...] | None = None


@dataclass(frozen=True)
class HintDistill:
    """The model learns to say without the hint what it would say with it."""

    weight: float
    rows: Sequence[Hinted]
    options: Distillation = OPSD
    teacher: Literal["live", "base"] = "live"
    """live: the model as it is; base: without its adapter (delta_S = 0), which stays what it was."""
    name = "hint_distill"

    def __post_init__(self) -> None:
        if idle := [i for i, r in enumerate(self.rows) if r.prompt_ids == r.hinted_ids]:
            raise ValueError(f"hint_distill: row {idle[0]}'s prompt with the hint is the prompt; its hint does nothing")

    def losses(self, means: Means) -> Iterator[LossOutputs]:
        per_token = self.options.average == "tokens"
        whole = means.world.place(sum(len(r.completion_ids) for r in self.rows) if per_token else len(self.rows))[0]
        longest = [max(len(r.prompt_ids), len(r.hinted_ids)) + len(r.completion_ids) for r in self.rows]
        for chosen in micro_batches([2 * n for n in longest], means.token_budget):
            rows = [self.rows[i] for i in chosen]
            completions = [r.completion_ids for r in rows]
            with torch.no_grad(), means.adapter.disabled() if self.teacher == "base" else nullcontext():
                theirs = completion_states(means.model, means.batch([r.hinted_ids for r in rows], completions))
            own = completion_states(means.model, means.batch([r.prompt_ids for r in rows], completions))
            lengths, head = [len(c) for c in completions], head_of(means.model).weight
            parts = [
                # Logits of one row at a time, made again in the backward pass: all rows' at once would not fit.
                checkpoint(self._row, s, t, head, row, whole, use_reentrant=False, preserve_rng_state=False)
                for s, t, row in zip(own.split(lengths), theirs.split(lengths), rows, strict=True)
            ]
            yield LossOutputs(torch.stack(parts).sum())

    def _row(
        self, own: Float[Tensor, "t d"], theirs: Float[Tensor, "t d"], head: Tensor, row: Hinted, whole: int
    ) -> Float[Tensor, ""]:
        """One row's part, from the hidden states that predict its completion in each context."""
        student, teacher = ((h @ head.T).to(torch.promote_types(h.dtype, torch.float32))[None] for h in (own, theirs))
        behaviour = None if row.behaviour_logps is None else student.new_tensor([row.behaviour_logps])
        ids = torch.tensor([row.completion_ids], dtype=torch.long, device=own.device)
        mask = torch.ones_like(ids, dtype=torch.bool)
        return hint_distill(
            student, teacher, mask, self.options, token_ids=ids, behaviour_logps=behaviour, whole=whole
        ).loss


# ---------------------------------------------------------------- preferences


@dataclass(frozen=True)
class ActionPair:
    """Two actions at one state: the first is preferred. No label: teachers' votes made it."""

    prompt_ids: Ids
    chosen_ids: Ids
    rejected_ids: Ids


@dataclass(frozen=True)
class TraceDPO:
    """The model learns to prefer what more of the teachers would have done."""

    weight: float
    pairs: Sequence[ActionPair]
    options: Preference = DPO
    name = "trace_dpo"

    def __post_init__(self) -> None:
        if idle := [i for i, p in enumerate(self.pairs) if p.chosen_ids == p.rejected_ids]:
            raise ValueError(f"trace_dpo: pair {idle[0]} prefers an action to itself")

    def losses(self, means: Means) -> Iterator[LossOutputs]:
        whole = means.world.place(len(self.pairs))[0]
        longest = [len(p.prompt_ids) + max(len(p.chosen_ids), len(p.rejected_ids)) for p in self.pairs]
        for picked in micro_batches([2 * n for n in longest], means.token_budget):
            pairs = [self.pairs[i] for i in picked]
            chosen = self._scored(means, pairs, lambda p: p.chosen_ids)
            rejected = self._scored(means, pairs, lambda p: p.rejected_ids)
            yield trace_dpo(chosen, rejected, self.options, whole=whole)

    def _scored(self, means: Means, pairs: Sequence[ActionPair], side: Callable[[ActionPair], Ids]) -> Scored:
        """One side's log-probabilities, for dpo those without the adapter too."""
        batch = means.batch([p.prompt_ids for p in pairs], [side(p) for p in pairs])
        ref = None
        if self.options.kind == "dpo":
            with torch.no_grad(), means.adapter.disabled():
                ref = logps_of(means.model, batch, 1.0)
        return Scored(logps_of(means.model, batch, 1.0), batch.loss_mask, ref)
