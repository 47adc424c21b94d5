"""THE LOOP BODY: backward -> project -> clip -> optimizer -> (or: project the update), the same for train and probe.
Three hooks stand in it, for arms that do something else (interventions/): on the advantages, the gradient, the update.

It receives token ids, rewards and behaviour log-probabilities (`Sample`), never a label, and knows neither rollout nor
grader nor pool. What is measured after projection is read back from the tensors that the optimizer really used.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from projected_grpo.adapters.base import Adapter
from projected_grpo.channels.auxiliary import Means, Signal, live
from projected_grpo.channels.policy import LossTerms, advantages, nll, policy_loss
from projected_grpo.interventions.hooks import Hooks
from projected_grpo.measures import (
    NOT_MEASURED,
    Part,
    PerSample,
    Seen,
    StepResult,
    Stopwatch,
    Tally,
    Used,
    against,
    alone,
    check_channel,
    check_gradient,
    check_loss,
    fingerprint,
    flat_groups,
    module_columns,
    share_of_sum,
    step_columns,
    total_columns,
)
from projected_grpo.model.batches import Batch, batches, behaviour_of, logps_of
from projected_grpo.parallel import ALONE, World
from projected_grpo.projection import Projection
from projected_grpo.records import Sample

ROUNDED = 4
"""Roundings between an optimizer's moment and what is read out of it: its own two, and two of the difference."""


@dataclass(frozen=True)
class Objective:
    """What is minimised. `nll` ignores rewards: the mean NLL of each completion, as v_hack was extracted."""

    kind: Literal["nll", "dr_grpo", "grpo", "bnpo", "dapo", "dppo"]
    max_new: int = 1024
    temperature: float = 1.0
    beta: float = 0.0
    """Weight of the KL term to the model without its adapter; 0 skips the reference forward pass."""
    clip_low: float = 0.2
    clip_high: float = 0.2


@dataclass(frozen=True)
class Learner:
    """What is trained."""

    model: Any
    adapter: Adapter
    optimizer: torch.optim.Optimizer
    max_grad_norm: float = 0.0
    """Clip the projected gradient to this norm; 0 = no clipping."""


@dataclass(frozen=True)
class Plumbing:
    """What a step needs beside the method."""

    pad_id: int
    token_budget: int
    """Most tokens in one forward and backward pass."""
    world: World = ALONE
    hooks: Hooks = field(default_factory=Hooks)
    """Another answer to hacking (interventions/); without one they do nothing."""


@dataclass(frozen=True)
class Share:
    """This rank's samples of a step, and where they stand among those of all ranks."""

    rows: Sequence[Sample]
    advantages: Sequence[float | None]
    """None where the objective has none."""
    everyone: int
    """Rows of all ranks together."""
    first: int
    """Where this rank's begin."""
    tokens: int
    """What the kinds that divide by a number of tokens divide by."""


def run_step(
    learner: Learner,
    groups: Sequence[Sequence[Sample]],
    objective: Objective,
    projection: Projection,
    plumbing: Plumbing,
    *,
    step: int,
    per_sample: bool = True,
    signals: Sequence[Signal] = (),
) -> StepResult:
    """One optimizer step over all samples of all groups. Returns the per-sample and per-step columns. In a world of more
    than one process `groups` are this rank's: gradients are added up before anything is done with them.

    per_sample: every sample's own gradient is measured too (cos_S_contrib, grad_norm; else null). Without it a prompt is
    run once per group: the same summed gradient to rounding, in less time.

    signals: channels beside the policy. Their weighted gradients are added to the policy's before anything is done with it;
    the column `channels` has each one's own against V. Without a weight above 0 nothing of them is called.

    NonFinite when a loss or gradient is NaN or infinite; the parameters are then as they were.
    """
    adapter, world, hooks, clock = learner.adapter, plumbing.world, plumbing.hooks, Stopwatch()
    share = share_of(groups, objective, plumbing, step)
    with world.together():
        tally = backward(learner, share, objective, projection, plumbing, step, per_sample)
        tally.totals |= {"groups": float(len(groups)), "flat_groups": float(flat_groups(groups))}
    world.add_gradients(adapter.vectors)
    if hooks.page.trained:
        world.add_gradients(hooks.page.trained)
    totals = world.add(tally.totals)
    channels = add_signals(learner, live(signals), projection, plumbing, step, totals["loss"])
    seconds = {"backward": clock()}

    fired = None if projection.basis is None else 0.0
    start = {name: p.detach().clone() for name, p in adapter.vectors.items()}
    gradient = {name: g.clone() for name, g in adapter.grads().items()}
    if projection.target == "grad":
        fired = project_gradient(adapter, projection)
    hooks.gradient(adapter, projection.basis, step)
    clipped = clip(learner)
    momentum = first_moments(learner)
    learner.optimizer.step()
    taken_in = gradient_used(learner, momentum, clipped)
    proposed = descent(adapter, start)
    if projection.target == "update":
        fired = project_update(adapter, start, projection)
    hooks.update(adapter, start, projection.basis, learner.optimizer, step, learner.max_grad_norm)

    used = Used(gradient, taken_in, proposed, descent(adapter, start))
    ended = fingerprint(adapter.vectors)  # of what was measured: what changes them from here on shows at the next step
    seen = Seen.of(used, projection)
    policy = objective.kind != "nll"
    columns = {
        **step_columns(used, seen, projection, fired),
        **total_columns(totals, adapter.norm(), ratios=policy, kl=policy and objective.beta > 0),
        "channels": channels,
        "theta_before": fingerprint(start),
        "theta_after": ended,
    }
    adapter.zero_grad()
    modules = module_columns(seen, projection)
    return StepResult(tally.columns, {**columns, "timing": {**seconds, "optimizer": clock()}}, modules)


def backward(
    learner: Learner,
    share: Share,
    objective: Objective,
    projection: Projection,
    plumbing: Plumbing,
    step: int,
    per_sample: bool,
) -> Tally:
    """All micro-batches: gradients accumulate in the adapter, columns and totals in the result."""
    model, adapter, rows = learner.model, learner.adapter, share.rows
    tally, idle = Tally(share.advantages), idle_rows(share, objective, plumbing)
    theta = next(iter(adapter.vectors.values()))
    own = PerSample(projection, theta.new_zeros(4, len(rows)))
    adapter.zero_grad()
    parts = routed_batches(learner, rows, idle, plumbing, theta.device, whole=per_sample)
    with closing(parts), adapter.per_sample(own if per_sample else None):
        for chosen, batch in parts:
            own.rows = chosen
            samples, learns = [rows[i] for i in chosen], chosen[0] not in idle
            with torch.set_grad_enabled(learns):
                logps = logps_of(model, batch, objective.temperature)
                behaviour = behaviour_of(samples, logps, batch)
                a = torch.tensor([share.advantages[i] or 0.0 for i in chosen], device=theta.device)
                ref = reference(learner, samples, batch, objective)
                terms = loss_terms(batch, logps, behaviour, ref, a, objective, share)
            check_loss(step, terms.per_sample.detach(), [share.first + i for i in chosen])
            if learns and terms.per_sample.requires_grad:  # not of empty completions alone
                terms.per_sample.sum().backward()
            tally.add(Part(chosen, samples, batch, logps.detach(), behaviour, terms, ref))
    # Zeros, as the backward pass of an idle row would give: an optimizer passes over what has no gradient.
    for p in (*adapter.vectors.values(), *plumbing.hooks.page.trained.values()) if idle else ():
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    check_gradient(step, adapter, own.squared, share.first)
    for column, measured in zip(
        tally.columns, own.columns() if per_sample else [NOT_MEASURED] * len(rows), strict=True
    ):
        column.update(measured)
    if per_sample and (checked := row_to_check(share, step)) is not None:
        chosen = [rows[checked]]
        terms = lambda logps, batch: loss_terms(  # noqa: E731 - one expression, used once
            batch, logps, behaviour_of(chosen, logps, batch), reference(learner, chosen, batch, objective),
            logps.new_tensor([share.advantages[checked] or 0.0]), objective, share,
        )  # fmt: skip
        with plumbing.hooks.routed(rows[checked].prompt_ids):
            own_columns = alone(model, adapter, rows[checked], terms, objective.temperature, projection)
        tally.columns[checked].update(own_columns)
    return tally


def idle_rows(share: Share, objective: Objective, plumbing: Plumbing) -> frozenset[int]:
    """Rows whose term of the loss is an exact zero with a zero gradient: of a group of equal rewards, where no KL term
    pulls. They need no backward pass. None where a page counts each prompt's gradient."""
    pulled = objective.kind in ("nll", "dppo") or objective.beta > 0  # dppo: a penalty on every row
    if pulled or plumbing.hooks.page.by_prompt:
        return frozenset()
    return frozenset(i for i, a in enumerate(share.advantages) if a == 0)


def routed_batches(
    learner: Learner,
    rows: Sequence[Sample],
    idle: frozenset[int],
    plumbing: Plumbing,
    device: torch.device,
    *,
    whole: bool,
) -> Generator[tuple[list[int], Batch]]:
    """Micro-batches (model/batches.py), idle rows in some of their own, each inside what an arm's page puts around its
    prompt, coordinates of its own among them, for which the weights are then held: its backward pass must be over when the
    next one is asked for."""
    for places, routed in plumbing.hooks.by_prompt([s.prompt_ids for s in rows]):
        with routed, learner.adapter.held():
            for own in ([i for i in places if i not in idle], [i for i in places if i in idle]):
                part = [rows[i] for i in own]
                for chosen, batch in batches(
                    learner.model, part, plumbing.token_budget, plumbing.pad_id, device, whole=whole
                ):
                    yield [own[i] for i in chosen], batch


def row_to_check(share: Share, step: int) -> int | None:
    """The sample whose gradient is taken a second time, by itself: in turn, one that has a gradient. None: there is none."""
    able = [i for i, a in enumerate(share.advantages) if a != 0 and share.rows[i].completion_ids]
    return able[step % len(able)] if able else None


def share_of(groups: Sequence[Sequence[Sample]], objective: Objective, plumbing: Plumbing, step: int) -> Share:
    """This rank's samples, with the advantages that the loss uses: the objective's, or those of an arm's page."""
    rows = [sample for group in groups for sample in group]
    everyone, first = plumbing.world.place(len(rows))
    rewards = [[sample.reward for sample in group] for group in groups]
    used = plumbing.hooks.advantages(rewards, advantages_of(groups, objective), objective.kind, step, first)
    return Share(rows, used, everyone, first, tokens_of(rows, objective.kind, plumbing.world))


def tokens_of(rows: Sequence[Sample], kind: str, world: World) -> int:
    """Completion tokens of all ranks. bnpo: those of this rank times the ranks, so that it averages over its own, and ranks
    over one another (TRL's local batch)."""
    own = sum(len(s.completion_ids) for s in rows)
    return own * world.size if kind == "bnpo" else world.place(own)[0]


def add_signals(
    learner: Learner,
    signals: Sequence[Signal],
    projection: Projection,
    plumbing: Plumbing,
    step: int,
    policy_loss: float,
) -> dict[str, dict[str, float | None]] | None:
    """Add each channel's weighted gradient to the policy's, in place. Returns what the column `channels` says; None where
    the policy is alone.

    Each channel has a backward pass of its own over a graph of its own, so that its gradient is known apart: there is no
    pass that a sum would have saved, only a copy of the coordinates per channel. NonFinite when a channel's loss or gradient
    is.
    """
    if not signals:
        return None
    adapter, world = learner.adapter, plumbing.world
    means = Means(learner.model, adapter, plumbing.pad_id, plumbing.token_budget, world)
    parts = {"policy": {name: g.clone() for name, g in adapter.grads().items()}}
    told: dict[str, dict[str, float | None]] = {"policy": {"weight": 1.0, "loss": policy_loss}}
    for signal in signals:
        adapter.zero_grad()
        with world.together():
            sums = dict.fromkeys(("loss", *signal.tells), 0.0)
            for part in signal.losses(means):
                (signal.weight * part.loss).backward()
                for name, value in {"loss": part.loss, **part.metrics}.items():
                    sums[name] += float(value.detach())
            check_channel(step, signal.name, sums["loss"], adapter)
        world.add_gradients(adapter.vectors)
        parts[signal.name] = {name: g.clone() for name, g in adapter.grads().items()}
        told[signal.name] = {"weight": signal.weight, **world.add(sums)}
    whole = {name: torch.stack([g[name] for g in parts.values()]).sum(0) for name in adapter.vectors}
    for name, p in adapter.vectors.items():
        p.grad = whole[name]
    return {
        name: {**told[name], **against(g, projection), "share": share_of_sum(g, whole)} for name, g in parts.items()
    }


def advantages_of(groups: Sequence[Sequence[Sample]], objective: Objective) -> list[float | None]:
    """Group-relative advantages, groups one after the other; None where the objective has none."""
    if objective.kind == "nll":
        return [None for group in groups for _ in group]
    kind = objective.kind
    return [a for g in groups for a in advantages(torch.tensor([[s.reward for s in g]]), kind)[0].tolist()]


@torch.no_grad()
def reference(
    learner: Learner, samples: Sequence[Sample], batch: Batch, objective: Objective
) -> Float[Tensor, "b t"] | None:
    """Log-probabilities under the untrained model (the adapter off): for the KL, and where a row is of another policy, to
    hold its behaviour log-probabilities against. None where neither asks."""
    if objective.kind == "nll" or not (objective.beta > 0 or any(s.foreign for s in samples)):
        return None
    with learner.adapter.disabled():
        return logps_of(learner.model, batch, objective.temperature)


def loss_terms(
    batch: Batch,
    logps: Float[Tensor, "b t"],
    behaviour: Float[Tensor, "b t"],
    ref: Float[Tensor, "b t"] | None,
    advantage: Float[Tensor, " b"],
    objective: Objective,
    share: Share,
) -> LossTerms:
    """The objective's terms. `ref`: as `reference` gives it."""
    if objective.kind == "nll":
        nan = torch.full((len(logps),), torch.nan, device=logps.device)
        return LossTerms(nll(logps, batch.loss_mask), nan, 0, 0.0, nan)
    return policy_loss(
        logps, batch.loss_mask, advantage, kind=objective.kind, rows=share.everyone, max_new=objective.max_new,
        tokens=share.tokens, behaviour_logps=behaviour, ref_logps=ref, beta=objective.beta, clip_low=objective.clip_low,
        clip_high=objective.clip_high,
    )  # fmt: skip


def project_gradient(adapter: Adapter, projection: Projection) -> float:
    """Take V out of the accumulated gradient, in place. Returns the fraction of modules in which anything was taken."""
    kept, fired = projection.apply(adapter.grads())
    for name, p in adapter.vectors.items():
        p.grad = kept[name]
    return fired


def clip(learner: Learner) -> float:
    """Shorten the gradient to `max_grad_norm`, in place. Returns by how much: 1 where it was not longer."""
    if learner.max_grad_norm <= 0:
        return 1.0
    norm = torch.nn.utils.clip_grad_norm_(list(learner.adapter.vectors.values()), learner.max_grad_norm)
    return min(1.0, learner.max_grad_norm / (float(norm) + 1e-6))  # torch's own rule, torch 2.15 clip_grad.py


def first_moments(learner: Learner) -> dict[str, Tensor]:
    """Copies of the optimizer's first moments, as AdamW keeps them; zeros before its first step."""
    state = learner.optimizer.state
    return {
        n: state[p]["exp_avg"].clone() if "exp_avg" in state.get(p, {}) else torch.zeros_like(p)
        for n, p in learner.adapter.vectors.items()
    }


def gradient_used(learner: Learner, before: Mapping[str, Tensor], clipped: float) -> dict[str, Tensor]:
    """The gradient that the optimizer has just used, from its first moment: m = b1 m_before + (1 - b1) g. What lies in
    `p.grad` by then may have been put there afterwards, and is read where there is no moment alone. At its length before
    clipping. What is no more than the rounding of the moments is none: else a step without a gradient would show noise."""
    state, b1 = learner.optimizer.state, learner.optimizer.param_groups[0].get("betas", (0.0,))[0]
    grads = learner.adapter.grads()

    def new(name: str, moment: Tensor) -> Tensor:
        part = moment - b1 * before[name]
        rounding = ROUNDED * torch.finfo(moment.dtype).eps * moment.abs()
        return torch.where(part.abs() <= rounding, torch.zeros_like(part), part) / ((1 - b1) * clipped)

    return {
        name: new(name, state[p]["exp_avg"])
        if p.grad is not None and "exp_avg" in state.get(p, {})
        else grads[name] / clipped
        for name, p in learner.adapter.vectors.items()
    }


@torch.no_grad()
def project_update(adapter: Adapter, start: Mapping[str, Tensor], projection: Projection) -> float:
    """Take V out of what the optimizer has just applied, in place. Returns as `project_gradient`."""
    kept, fired = projection.apply(descent(adapter, start))
    for name, p in adapter.vectors.items():
        p.copy_(start[name] - kept[name])
    return fired


def descent(adapter: Adapter, start: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Minus the parameter change since `start`: plays the part of a gradient, hack-ward where V d > 0."""
    return {name: start[name] - p.detach() for name, p in adapter.vectors.items()}
