"""Channels beside the policy, with the forward passes that they need:

    total = policy + alpha x hint distillation + beta x trace DPO + gamma x TAID

The losses are pages of channels/; here they get log-probabilities and logits from the model, in micro-batches that
model/batches.py collates.

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
from projected_grpo.channels.taid import taid
from projected_grpo.channels.trace_dpo import DPO, Preference, Scored, trace_dpo
from projected_grpo.model.batches import Side, logps_of, two_sided
from projected_grpo.model.logprobs import TokenBatch, completion_states, head_of
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

    def collated(
        self, first: Sequence[Side], second: Sequence[Side]
    ) -> Iterator[tuple[list[int], TokenBatch, TokenBatch]]:
        """As `two_sided`."""
        return two_sided(first, second, self.token_budget, self.pad_id, self.device)


@runtime_checkable
class Signal(Protocol):
    """A channel of a step. ValueError of its constructor: it could teach nothing, or nothing that is meant."""

    @property
    def name(self) -> str: ...
    @property
    def weight(self) -> float: ...
    @property
    def tells(self) -> tuple[str, ...]:
        """What the metrics of each of its parts are: numbers that add up over parts and ranks, as the loss does."""
        ...

    def losses(self, means: Means) -> Iterator[LossOutputs]:
        """This rank's parts, a micro-batch each; over all ranks they add up to the channel's loss, without its weight."""
        ...


def live(signals: Sequence[Signal]) -> list[Signal]:
    """Those that have a weight. ValueError on a weight that is below 0 or not finite, or two signals of one name."""
    names = [s.name for s in signals]
    if twice := [n for n in names if names.count(n) > 1 or n == "policy"]:
        raise ValueError(f"channel {twice[0]!r} is there twice")
    if odd := [s for s in signals if not 0 <= s.weight < float("inf")]:
        raise ValueError(f"channel {odd[0].name!r}: weight {odd[0].weight} is not 0 or more")
    return [s for s in signals if s.weight]


# ---------------------------------------------------------------- distillation


@dataclass(frozen=True)
class Hinted:
    """A completion, the prompt that it was sampled for, and the prompt that its teacher reads. No label."""

    prompt_ids: Ids
    hinted_ids: Ids
    completion_ids: Ids
    behaviour_logps: tuple[float, ...] | None = None


def distilled(
    means: Means,
    rows: Sequence[Hinted],
    states: Callable[[TokenBatch], Float[Tensor, "n d"]],
    part: Callable[[Float[Tensor, "t d"], Float[Tensor, "t e"], Hinted], Float[Tensor, ""]],
) -> Iterator[LossOutputs]:
    """A student reads each completion after its prompt, a teacher after its own.

    states: the teacher's hidden states that predict the completions. part: a row's loss from its student's and its
    teacher's, made again in the backward pass, so that the logits of one row alone are there at a time.
    """
    own = [(r.prompt_ids, r.completion_ids) for r in rows]
    hinted = [(r.hinted_ids, r.completion_ids) for r in rows]
    for chosen, mine, theirs in means.collated(own, hinted):
        picked = [rows[i] for i in chosen]
        lengths = [len(r.completion_ids) for r in picked]
        with torch.no_grad():
            taught = states(theirs).split(lengths)
        learned = completion_states(means.model, mine).split(lengths)
        parts = [
            checkpoint(part, s, t, row, use_reentrant=False, preserve_rng_state=False)
            for s, t, row in zip(learned, taught, picked, strict=True)
        ]
        yield LossOutputs(torch.stack(parts).sum(), {"rows": torch.tensor(float(len(picked)))})


def logits_of(hidden: Float[Tensor, "t d"], model: Any) -> Float[Tensor, "1 t v"]:
    """In float32, or float64 for float64."""
    return (hidden @ head_of(model).weight.T).to(torch.promote_types(hidden.dtype, torch.float32))[None]


@dataclass(frozen=True)
class HintDistill:
    """The model learns to say without the hint what it would say with it."""

    weight: float
    rows: Sequence[Hinted]
    options: Distillation = OPSD
    teacher: Literal["live", "base"] = "live"
    """live: the model as it is; base: without its adapter (delta_S = 0), which stays what it was."""
    asked: int = 0
    """Rows of the step, those without a hinted prompt too, over which "sequences" averages: upstream masks these and divides
    by all (TRL 1.16.0, sdpo_trainer.py, loss.mean()). 0: as many as `rows`."""
    name = "hint_distill"
    tells = ("rows",)

    def __post_init__(self) -> None:
        if idle := [i for i, r in enumerate(self.rows) if r.prompt_ids == r.hinted_ids]:
            raise ValueError(f"hint_distill: row {idle[0]}'s prompt with the hint is the prompt; its hint does nothing")

    def losses(self, means: Means) -> Iterator[LossOutputs]:
        per_token = self.options.average == "tokens"
        whole = means.world.place(
            sum(len(r.completion_ids) for r in self.rows) if per_token else max(self.asked, len(self.rows))
        )[0]

        def states(batch: TokenBatch) -> Float[Tensor, "n d"]:
            with means.adapter.disabled() if self.teacher == "base" else nullcontext():
                return completion_states(means.model, batch)

        def part(own: Float[Tensor, "t d"], theirs: Float[Tensor, "t e"], row: Hinted) -> Float[Tensor, ""]:
            student, teacher = logits_of(own, means.model), logits_of(theirs, means.model)
            behaviour = None if row.behaviour_logps is None else student.new_tensor([row.behaviour_logps])
            ids = torch.tensor([row.completion_ids], dtype=torch.long, device=own.device)
            mask = torch.ones_like(ids, dtype=torch.bool)
            return hint_distill(
                student, teacher, mask, self.options, token_ids=ids, behaviour_logps=behaviour, whole=whole
            ).loss

        yield from distilled(means, self.rows, states, part)


@dataclass(frozen=True)
class Taid:
    """The model learns what another, frozen one would say: by a target that moves from its own to that one's."""

    weight: float
    rows: Sequence[Hinted]
    teacher: Any
    """A causal language model of the same vocabulary."""
    t: float
    """How far the target has moved, 0 to 1."""
    name = "taid"
    tells = ("rows",)

    def losses(self, means: Means) -> Iterator[LossOutputs]:
        whole = means.world.place(sum(len(r.completion_ids) for r in self.rows))[0]

        def part(own: Float[Tensor, "t d"], theirs: Float[Tensor, "t e"], row: Hinted) -> Float[Tensor, ""]:
            mask = torch.ones(1, len(row.completion_ids), dtype=torch.bool, device=own.device)
            return taid(logits_of(own, means.model), logits_of(theirs, self.teacher), mask, self.t, whole=whole).loss

        yield from distilled(means, self.rows, lambda batch: completion_states(self.teacher, batch), part)


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
    tells = ("rows", "margin", "accuracy")

    def __post_init__(self) -> None:
        if idle := [i for i, p in enumerate(self.pairs) if p.chosen_ids == p.rejected_ids]:
            raise ValueError(f"trace_dpo: pair {idle[0]} prefers an action to itself")

    def losses(self, means: Means) -> Iterator[LossOutputs]:
        whole = means.world.place(len(self.pairs))[0]
        chosen = [(p.prompt_ids, p.chosen_ids) for p in self.pairs]
        rejected = [(p.prompt_ids, p.rejected_ids) for p in self.pairs]
        for picked, better, worse in means.collated(chosen, rejected):
            out = trace_dpo(self._scored(means, better), self._scored(means, worse), self.options, whole=whole)
            share = {name: value * len(picked) / whole for name, value in out.metrics.items()}
            yield LossOutputs(out.loss, {"rows": torch.tensor(float(len(picked))), **share})

    def _scored(self, means: Means, batch: TokenBatch) -> Scored:
        """One side's log-probabilities, for dpo those without the adapter too."""
        ref = None
        if self.options.kind == "dpo":
            with torch.no_grad(), means.adapter.disabled():
                ref = logps_of(means.model, batch, 1.0)
        return Scored(logps_of(means.model, batch, 1.0), batch.loss_mask, ref)
