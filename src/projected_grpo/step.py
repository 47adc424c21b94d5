"""The loop body: one gradient step over groups of samples, the same for train and probe.

    forward -> per-sample loss terms -> one batched backward (summed and per-sample gradients)
            -> project the gradient -> clip -> optimizer -> (or: project the update) -> measures

It receives token ids, rewards and behaviour log-probabilities (`Sample`), never a label, and knows neither rollout nor
grader nor pool. What is measured after projection is read back from the tensors that the optimizer really used.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from projected_grpo.adapters.base import Adapter
from projected_grpo.ledger.errors import NonFinite
from projected_grpo.ledger.step_file import token_crc
from projected_grpo.losses import LossTerms, advantages, nll, policy_loss
from projected_grpo.model.batches import Batch, batches, behaviour_of, logps_of
from projected_grpo.parallel import ALONE, World
from projected_grpo.projection import Basis, Gate, Measure, measure, null_cosine, project
from projected_grpo.records import Sample


@dataclass(frozen=True)
class Objective:
    """What is minimised. `nll` ignores rewards: the mean NLL of each completion, as v_hack was extracted."""

    kind: Literal["nll", "dr_grpo", "grpo"]
    max_new: int = 1024
    temperature: float = 1.0
    beta: float = 0.0
    clip_low: float = 0.2
    clip_high: float = 0.2


@dataclass(frozen=True)
class Projection:
    """What is done with V. `target` none measures and leaves the gradient alone (vanilla)."""

    basis: Basis | None = None
    target: Literal["none", "grad", "update"] = "none"
    gate: Gate = "one_sided"
    overshoot: float = 1.0
    preserve_magnitude: bool = False

    def apply(self, vectors: dict[str, Tensor]) -> tuple[dict[str, Tensor], float]:
        """(projected vectors, fraction of modules that fired)."""
        if self.basis is None:
            raise ValueError("no V to project with")
        return project(vectors, self.basis, self.gate, self.overshoot, self.preserve_magnitude)

    def measure(self, vectors: dict[str, Tensor]) -> Measure:
        """Hack-ward fractions; all None without V."""
        return Measure(None, None) if self.basis is None else measure(vectors, self.basis)


@dataclass
class StepResult:
    """Columns of the step file that the gradient step fills; keys are the schema's."""

    samples: list[dict[str, Any]]
    step: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Accumulator:
    """Per-sample sums over modules and micro-batches, filled by the adapter's backward pass."""

    basis: Basis | None
    along: Float[Tensor, " b"]
    squared: Float[Tensor, " b"]
    rows: list[int] = field(default_factory=list)

    def __call__(self, name: str, grads: Float[Tensor, "b n"]) -> None:
        self.squared[self.rows] += grads.square().sum(1)
        if self.basis is not None and len(self.basis[name]):
            self.along[self.rows] += (grads @ self.basis[name].T).sum(1)


def _loss_terms(
    model: Any,
    adapter: Adapter,
    batch: Batch,
    logps: Float[Tensor, "b t"],
    behaviour: Float[Tensor, "b t"],
    advantage: Float[Tensor, " b"],
    objective: Objective,
    rows: int,
) -> LossTerms:
    mask = batch.loss_mask
    if objective.kind == "nll":
        nan = torch.full((len(logps),), torch.nan, device=logps.device)
        return LossTerms(nll(logps, mask), nan, 0, 0.0)
    ref = None
    if objective.beta > 0:
        with torch.no_grad(), adapter.disabled():
            ref = logps_of(model, batch, objective.temperature)
    return policy_loss(
        logps, mask, advantage, kind=objective.kind, rows=rows, max_new=objective.max_new, behaviour_logps=behaviour,
        ref_logps=ref, beta=objective.beta, clip_low=objective.clip_low, clip_high=objective.clip_high,
    )  # fmt: skip


def _advantages(groups: Sequence[Sequence[Sample]], objective: Objective) -> list[float | None]:
    if objective.kind == "nll":
        return [None for group in groups for _ in group]
    kind = objective.kind
    return [a for g in groups for a in advantages(torch.tensor([[s.reward for s in g]]), kind)[0].tolist()]


def _check_finite(step: int, terms: Float[Tensor, " b"], rows: Sequence[int]) -> None:
    bad = (~torch.isfinite(terms)).nonzero().flatten().tolist()
    if bad:
        raise NonFinite(f"step {step}, sample {rows[bad[0]]}: the loss is {float(terms[bad[0]])}")


def _check_gradient(step: int, adapter: Adapter, squared: Float[Tensor, " b"], first: int) -> None:
    for name, g in adapter.grads().items():
        if not torch.isfinite(g).all():
            bad = (~torch.isfinite(squared)).nonzero().flatten().tolist()
            who = f"sample {first + bad[0]}" if bad else "the sum over samples"
            raise NonFinite(f"step {step}, {who}: the gradient of {name} is not finite")


def run_step(
    model: Any,
    adapter: Adapter,
    optimizer: torch.optim.Optimizer,
    groups: Sequence[Sequence[Sample]],
    objective: Objective,
    projection: Projection,
    *,
    step: int,
    pad_id: int,
    token_budget: int,
    max_grad_norm: float = 0.0,
    per_sample: bool = True,
    world: World = ALONE,
) -> StepResult:
    """One optimizer step over all samples of all groups. Returns the per-sample and per-step columns. In a `world` of more
    than one process `groups` are this rank's: gradients are added up before anything is done with them.

    per_sample: every sample's own gradient is measured too (cos_S_contrib, grad_norm; else null). Without it a prompt is
    run once per group: the same summed gradient to rounding, in less time.

    NonFinite when a loss or gradient is NaN or infinite; the parameters are then as they were.
    """
    clock = time.perf_counter()
    rows = [sample for group in groups for sample in group]
    advantage = _advantages(groups, objective)
    place = world.place(len(rows))
    with world.together():
        result, sums, own = _backward(model, adapter, rows, advantage, objective, projection, step, pad_id, token_budget,
                                      place, per_sample=per_sample)  # fmt: skip
    world.add_gradients(adapter.vectors)
    totals = world.add(own)
    _fill_cosines(result.samples, sums if per_sample else None, projection)
    backward_s = time.perf_counter() - clock

    before_step = {n: p.detach().clone() for n, p in adapter.vectors.items()}
    before, after, fired = _project_gradient(adapter, projection)
    if max_grad_norm > 0:
        torch.nn.utils.clip_grad_norm_(list(adapter.vectors.values()), max_grad_norm)
    optimizer.step()
    if projection.target == "update":
        before, after, fired = _project_update(adapter, before_step, projection)
    tokens = max(totals["tokens"], 1)
    has_ratio = objective.kind != "nll"
    result.step = {
        "cos_in": before.cos,
        "cos_out": after.cos,
        "cos_signed_in": before.cos_signed,
        "cos_signed_out": after.cos_signed,
        "cos_update": projection.measure(_descent(adapter, before_step)).cos,
        "cos_null": None if projection.basis is None else null_cosine(projection.basis),
        "frac_fired": fired,
        "delta_S_norm": adapter.norm(),
        "clip_frac": totals["clipped"] / tokens if has_ratio else None,
        "logp_gap": totals["gap"] / totals["fresh_tokens"] if totals["fresh_tokens"] else None,
        "kl": totals["kl"] / tokens if has_ratio and objective.beta > 0 else None,
        "timing": {"backward": backward_s, "optimizer": time.perf_counter() - clock - backward_s},
    }
    adapter.zero_grad()
    return result


def _backward(
    model: Any,
    adapter: Adapter,
    rows: Sequence[Sample],
    advantage: Sequence[float | None],
    objective: Objective,
    projection: Projection,
    step: int,
    pad_id: int,
    token_budget: int,
    place: tuple[int, int],
    *,
    per_sample: bool,
) -> tuple[StepResult, _Accumulator, dict[str, float]]:
    """All micro-batches: gradients accumulate in the adapter, per-sample columns in the result. `place` = World.place."""
    theta = next(iter(adapter.vectors.values()))
    device, zeros = theta.device, torch.zeros(len(rows), dtype=theta.dtype, device=theta.device)
    sums = _Accumulator(projection.basis, zeros.clone(), zeros.clone())
    totals = {"tokens": 0.0, "clipped": 0.0, "kl": 0.0, "gap": 0.0, "fresh_tokens": 0.0}
    columns: list[dict[str, Any]] = [{} for _ in rows]
    adapter.zero_grad()
    with adapter.per_sample(sums if per_sample else None):
        for chosen, batch in batches(model, rows, token_budget, pad_id, device, whole=per_sample):
            sums.rows = chosen
            part = [rows[i] for i in chosen]
            logps = logps_of(model, batch, objective.temperature)
            behaviour = behaviour_of(part, logps, batch)
            a = torch.tensor([advantage[i] or 0.0 for i in chosen], device=device)
            terms = _loss_terms(model, adapter, batch, logps, behaviour, a, objective, place[0])
            _check_finite(step, terms.per_sample.detach(), [place[1] + i for i in chosen])
            terms.per_sample.sum().backward()
            fresh = torch.tensor([s.fresh and s.behaviour_logps is not None for s in part], device=device)
            totals["tokens"] += int(batch.loss_mask.sum())
            totals["clipped"] += terms.clipped_tokens
            totals["kl"] += terms.kl_sum
            totals["gap"] += float((logps.detach() - behaviour).abs()[fresh].sum())
            totals["fresh_tokens"] += int(batch.loss_mask[fresh].sum())
            _fill_columns(columns, chosen, part, batch, logps.detach(), terms, advantage)
    _check_gradient(step, adapter, sums.squared, place[1])
    return StepResult(columns), sums, totals


def _fill_columns(
    columns: list[dict[str, Any]],
    chosen: Sequence[int],
    part: Sequence[Sample],
    batch: Batch,
    logps: Float[Tensor, "b t"],
    terms: LossTerms,
    advantage: Sequence[float | None],
) -> None:
    mean_logp = (logps.sum(1) / batch.loss_mask.sum(1)).tolist()
    ratio, loss = terms.ratio.tolist(), terms.per_sample.tolist()
    for i, (row, ids) in enumerate(zip(chosen, batch.loss_token_ids(), strict=True)):
        behaviour = part[i].behaviour_logps
        columns[row] = {
            "advantage": advantage[row],
            "logp": mean_logp[i] if ids else None,
            "behaviour_logp": sum(behaviour) / len(behaviour) if behaviour else None,
            "ratio": ratio[i] if behaviour and math.isfinite(ratio[i]) else None,
            "loss": loss[i],
            # From the very tensors that the loss was computed on: a mask that is off shows here.
            "loss_tokens": len(ids),
            "loss_tokens_crc": token_crc(ids),
        }


def _fill_cosines(columns: list[dict[str, Any]], sums: _Accumulator | None, projection: Projection) -> None:
    """cos_S_contrib = sum_m sum_i V_mi g_bm / (||g_b|| sqrt(directions)), in [-1, 1]; None with a zero gradient, or where
    samples were not told apart."""
    if sums is None:
        for row in columns:
            row["grad_norm"] = row["cos_S_contrib"] = None
        return
    directions = 0 if projection.basis is None else sum(len(v) for v in projection.basis.values())
    norms, along = sums.squared.sqrt().tolist(), sums.along.tolist()
    for row, norm, dot in zip(columns, norms, along, strict=True):
        row["grad_norm"] = norm
        row["cos_S_contrib"] = dot / (norm * directions**0.5) if directions and norm > 0 else None


def _project_gradient(adapter: Adapter, projection: Projection) -> tuple[Measure, Measure, float | None]:
    """Project the accumulated gradient in place. (before, after as read back, fraction fired; None without V)."""
    before = projection.measure(adapter.grads())
    if projection.target != "grad":
        return before, projection.measure(adapter.grads()), None if projection.basis is None else 0.0
    kept, fired = projection.apply(adapter.grads())
    for name, p in adapter.vectors.items():
        p.grad = kept[name]
    return before, projection.measure(adapter.grads()), fired


def _descent(adapter: Adapter, before_step: dict[str, Tensor]) -> dict[str, Tensor]:
    """Minus the parameter change: plays the part of a gradient, hack-ward where V d > 0."""
    return {n: before_step[n] - p.detach() for n, p in adapter.vectors.items()}


@torch.no_grad()
def _project_update(
    adapter: Adapter, before_step: dict[str, Tensor], projection: Projection
) -> tuple[Measure, Measure, float]:
    """Take the hack component out of what the optimizer has just applied, in place."""
    proposed = _descent(adapter, before_step)
    before = projection.measure(proposed)
    kept, fired = projection.apply(proposed)
    for name, p in adapter.vectors.items():
        p.copy_(before_step[name] - kept[name])
    return before, projection.measure(_descent(adapter, before_step)), fired
