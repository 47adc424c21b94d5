"""One optimizer step: backward -> project the gradient -> clip -> AdamW -> project the update -> columns.

It receives token ids, rewards and behaviour log-probabilities (`Sample`), never a label. Training and the probe's
replays take the same step. What is measured is read from the tensors that the optimizer and the model really use."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from projected_grpo.channels.auxiliary import AuxiliaryLoss, accumulate
from projected_grpo.channels.policy import LossTerms, advantages, nll, policy_loss
from projected_grpo.interventions.base import Intervention, StepContext
from projected_grpo.ledger.errors import BadInput
from projected_grpo.losses import POLICY_LOSSES, LossName
from projected_grpo.measures import Rows, StepResult, channel_columns, check_gradient, check_loss, projection_columns
from projected_grpo.model.learner import Batch, Learner
from projected_grpo.model.logprobs import completion_logps
from projected_grpo.parallel import Ranks
from projected_grpo.projection import Basis, Projection, norm_of, overall, profile
from projected_grpo.records import Sample

NO_INTERVENTION, NO_CONTEXT = Intervention(), StepContext()
Reference = Float[Tensor, "b t"] | None


@dataclass(frozen=True)
class Objective:
    """What is minimised. `nll` ignores rewards: the mean NLL of each completion, as v_hack was extracted."""

    kind: LossName | Literal["nll"]
    max_new: int = 1024
    temperature: float = 1.0
    beta: float = 0.0
    """Weight of the KL term to the model without its adapter; 0 skips the reference forward pass."""
    clip_low: float = 0.2
    clip_high: float = 0.2


@dataclass(frozen=True)
class StepBatch:
    """This process's samples of a step, their loss, and what it divides by: rows and tokens of all processes."""

    objective: Objective
    samples: Sequence[Sample]
    advantages: Sequence[float | None]
    """None where the objective has none."""
    rewards_used: Sequence[float | None]
    """The rewards that they are of, where the intervention changed them; else None."""
    all_rows: int
    all_tokens: int
    first: int
    """Place of the first sample among those of all processes."""


def run_step(
    learner: Learner,
    groups: Sequence[Sequence[Sample]],
    objective: Objective,
    projection: Projection,
    *,
    step: int,
    per_sample: bool = True,
    auxiliary: Sequence[AuxiliaryLoss] = (),
    intervention: Intervention = NO_INTERVENTION,
    context: StepContext = NO_CONTEXT,
) -> StepResult:
    """Takes one optimizer step over all samples of this process's groups. Returns the step's columns.

    per_sample: measure every sample's gradient too (cos_S_contrib, grad_norm; else null). Without it a prompt is run
    once per group: the same summed gradient to rounding, in less time. context: what the intervention reads of the
    rollouts.

    Raises NonFinite when a loss or gradient is NaN or infinite; the parameters are then as they were.
    """
    adapter, ranks, began = learner.adapter, learner.ranks, time.perf_counter()
    settings = {**learner.optimizer.param_groups[0], "max_grad_norm": learner.max_grad_norm}
    context = replace(context, step=step, basis=projection.basis, optimizer=settings)

    # The gradient: of the policy loss, then of the auxiliary losses, summed over samples and processes.
    batch = make_batch(ranks, groups, objective, intervention, context)
    with ranks.raise_together():
        rows = backward(learner, batch, projection.basis, intervention, step, per_sample)
    for parameters in filter(None, (adapter.vectors, intervention.trained)):
        ranks.add_gradients(parameters)
    totals = ranks.add(rows.totals)
    channels = add_auxiliary(learner, [a for a in auxiliary if a.weight], projection, step, totals["loss"])
    accumulated = time.perf_counter()

    # Project the gradient (the arm `literal`), clip, let AdamW step, project the update (`projected`).
    start, gradient = adapter.values(), adapter.gradient()
    kept, fired = projection.apply_to("grad", gradient)
    adapter.set_gradient(intervention.gradient(kept, context))
    used = adapter.gradient()
    if learner.max_grad_norm > 0:
        torch.nn.utils.clip_grad_norm_(list(adapter.vectors.values()), learner.max_grad_norm)
    learner.optimizer.step()
    proposed = adapter.negative_update(start)
    kept, fired_on_update = projection.apply_to("update", proposed, start)
    kept = intervention.update(kept, context)
    if kept is not proposed:  # else the optimizer's values stay, bit for bit
        adapter.set_values({name: start[name] - kept[name] for name in start})

    # Measure.
    stages = {"gradient": gradient, "used": used, "proposed": proposed, "applied": adapter.negative_update(start)}
    columns, modules = projection_columns(stages, projection, fired + fired_on_update, start)
    columns |= {
        "kl": totals["kl"] / max(totals["tokens"], 1) if objective.kind != "nll" and objective.beta > 0 else None,
        "delta_S_norm": norm_of(adapter.values()), "channels": channels,
        "theta_V": overall(profile(adapter.values(), projection.basis))["energy"],
    }  # fmt: skip
    adapter.zero_grad()
    ranks.check_equal(step, adapter.checksum)
    unknown = [None] * len(rows.columns)
    for row, score, flag in zip(rows.columns, context.score or unknown, intervention.flagged or unknown, strict=True):
        row |= {"judge": score, "flagged": flag}
    timing = {"backward": accumulated - began, "optimizer": time.perf_counter() - accumulated}
    return StepResult(rows.columns, {**columns, "timing": timing}, modules)


def make_batch(
    ranks: Ranks, groups: Sequence[Sequence[Sample]], objective: Objective, intervention: Intervention,
    context: StepContext,
) -> StepBatch:  # fmt: skip
    """Returns the samples with the advantages that the loss uses: the objective's, or the intervention's."""
    samples, kind = [sample for group in groups for sample in group], objective.kind
    used: list[float | None] = [None] * len(samples)
    changed: list[float | None] = [None] * len(samples)
    all_rows, first = ranks.span(len(samples))
    tokens = sum(len(s.completion_ids) for s in samples)
    all_tokens = ranks.span(tokens)[0]
    if kind != "nll":
        if POLICY_LOSSES[kind].divisor == "local_tokens":  # and then the mean over processes
            all_tokens = tokens * ranks.size
        paid = tuple(tuple(s.reward for s in group) for group in groups)
        context = replace(context, first=first, rewards=paid, loss=kind)
        intervention.flagged = ()
        rewards = intervention.rewards(paid, context)
        if [len(group) for group in rewards] != [len(group) for group in paid]:
            what = f"rewards() of {type(intervention).__name__}: other groups than it was given"
            raise BadInput(f"{what}; return one reward a sample")
        if rewards is not paid:
            changed = [reward for group in rewards for reward in group]
        usual = tuple(a for group in rewards for a in advantages(torch.tensor([group]), kind)[0].tolist())
        used = [float(a) for a in intervention.advantages(usual, replace(context, rewards=rewards))]
    return StepBatch(objective, samples, used, changed, all_rows, all_tokens, first)


def backward(
    learner: Learner, batch: StepBatch, basis: Basis, intervention: Intervention, step: int, per_sample: bool
) -> Rows:
    """Runs all micro-batches. Gradients accumulate in the adapter; returns the samples' columns and their totals."""
    samples, adapter = batch.samples, learner.adapter
    rows = Rows(samples, basis, next(iter(adapter.vectors.values())))
    no_backward = zero_gradient_rows(batch, intervention)
    adapter.zero_grad()
    for places, routed in intervention.by_prompts([s.prompt_ids for s in samples]):
        with routed:
            passes = micro_batches(learner, batch, places, no_backward, whole=per_sample)
            with adapter.merged(), adapter.per_sample(rows.add_gradients if per_sample else None):
                for chosen, tokens, learns, reference in passes:
                    rows.present = chosen
                    with torch.set_grad_enabled(learns):
                        logps, behaviour, terms = forward(learner, batch, chosen, tokens, reference)
                    check_loss(f"step {step}", terms.per_sample.detach(), [batch.first + i for i in chosen])
                    if learns and terms.per_sample.requires_grad:  # False for empty completions only
                        terms.per_sample.sum().backward()
                    rows.add(chosen, tokens, logps.detach(), behaviour, terms, reference)
    check_gradient(f"step {step}", adapter, squared=rows.sums[0], first=batch.first)
    if per_sample:
        rows.measure_gradients()
    for row, advantage, reward in zip(rows.columns, batch.advantages, batch.rewards_used, strict=True):
        row |= {"advantage": advantage, "reward_used": reward}
    return rows


def zero_gradient_rows(batch: StepBatch, intervention: Intervention) -> frozenset[int]:
    """Returns the rows that need no backward pass: zero advantage and nothing else in their loss term (a loss that
    is not clipped has a penalty on every row). Empty where an intervention counts each prompt's gradient."""
    kind, beta = batch.objective.kind, batch.objective.beta
    if kind == "nll" or not POLICY_LOSSES[kind].clipped or beta > 0 or intervention.by_prompt:
        return frozenset()
    return frozenset(i for i, a in enumerate(batch.advantages) if a == 0)


def micro_batches(
    learner: Learner, batch: StepBatch, places: Sequence[int], no_backward: frozenset[int], *, whole: bool
) -> list[tuple[list[int], Batch, bool, Reference]]:
    """Returns the passes over these rows, those that learn before the others: the rows, their tokens, whether they
    learn, and their log-probabilities under the untrained model. That pass runs here, with the adapter off, before
    the weights are merged."""
    objective, passes = batch.objective, []
    for learns in (True, False):
        part = [i for i in places if (i in no_backward) != learns]
        for chosen, tokens in learner.batches([batch.samples[i] for i in part], whole=whole):
            rows = [part[i] for i in chosen]
            # For the KL, and for rows of another policy, whose recorded log-probabilities are compared with these.
            needed = objective.kind != "nll" and (objective.beta > 0 or any(batch.samples[i].foreign for i in rows))
            reference = learner.base_logps(tokens, objective.temperature) if needed else None
            passes.append((rows, tokens, learns, reference))
    return passes


def forward(
    learner: Learner, batch: StepBatch, rows: Sequence[int], tokens: Batch, reference: Reference
) -> tuple[Float[Tensor, "b t"], Float[Tensor, "b t"], LossTerms]:
    """Returns one micro-batch's log-probabilities, the behaviour policy's, and the loss terms."""
    objective = batch.objective
    logps = completion_logps(learner.model, tokens, objective.temperature)
    behaviour = behaviour_of([batch.samples[i] for i in rows], logps, tokens)
    if objective.kind == "nll":
        nan = torch.full((len(logps),), torch.nan, device=logps.device)
        return logps, behaviour, LossTerms(nll(logps, tokens.loss_mask), nan, 0.0, nan)
    advantage = torch.tensor([batch.advantages[i] for i in rows], device=logps.device)
    terms = policy_loss(
        logps, tokens.loss_mask, advantage, kind=objective.kind, rows=batch.all_rows, max_new=objective.max_new,
        tokens=batch.all_tokens, behaviour_logps=behaviour, ref_logps=reference,
        beta=objective.beta, clip_low=objective.clip_low, clip_high=objective.clip_high,
    )  # fmt: skip
    return logps, behaviour, terms


def behaviour_of(rows: Sequence[Sample], logps: Float[Tensor, "b t"], batch: Batch) -> Float[Tensor, "b t"]:
    """Behaviour log-probabilities at the positions of `logps`; a sample without them is taken as on-policy."""
    out = logps.detach().clone()
    for i, sample in enumerate(rows):
        if sample.behaviour_logps is not None:
            out[i, batch.loss_mask[i]] = torch.tensor(sample.behaviour_logps, dtype=out.dtype, device=out.device)
    return out


def add_auxiliary(
    learner: Learner, losses: Sequence[AuxiliaryLoss], projection: Projection, step: int, policy_loss: float
) -> dict[str, dict[str, float | None]] | None:
    """Adds each auxiliary loss's weighted gradient to the policy's. Returns the column `channels`; None without such
    a loss.

    Each has a backward pass of its own, so that its gradient is known by itself. Raises NonFinite as `run_step`.
    """
    if not losses:
        return None
    adapter, ranks = learner.adapter, learner.ranks
    gradients, numbers = {"policy": adapter.gradient()}, {"policy": {"weight": 1.0, "loss": policy_loss}}
    for loss in losses:
        adapter.zero_grad()
        with ranks.raise_together():
            sums = accumulate(learner, loss)
            check_gradient(f"step {step}, channel {loss.name}", adapter, loss=sums["loss"])
        ranks.add_gradients(adapter.vectors)
        gradients[loss.name], numbers[loss.name] = adapter.gradient(), {"weight": loss.weight, **ranks.add(sums)}
    adapter.set_gradient({n: torch.stack([g[n] for g in gradients.values()]).sum(0) for n in adapter.vectors})
    return channel_columns(gradients, numbers, adapter.gradient(), projection)
