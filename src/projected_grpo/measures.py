"""What a step writes down: columns of every sample, cosines of the gradient and of the update, and the checks that both are
finite. It changes nothing; step.py does the work and calls it."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from projected_grpo.adapters.base import Adapter
from projected_grpo.ledger.errors import NonFinite
from projected_grpo.ledger.step_file import token_crc
from projected_grpo.losses import LossTerms
from projected_grpo.model.batches import Batch
from projected_grpo.projection import Basis, Hackward, Projection, null_cosine
from projected_grpo.records import Sample


@dataclass
class StepResult:
    """Columns of the step file that the gradient step fills; keys are the schema's."""

    samples: list[dict[str, Any]]
    step: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """One micro-batch after its forward pass."""

    chosen: Sequence[int]
    """Which samples of this rank it holds."""
    samples: Sequence[Sample]
    batch: Batch
    logps: Float[Tensor, "b t"]
    """Detached."""
    behaviour: Float[Tensor, "b t"]
    terms: LossTerms


@dataclass
class PerSample:
    """Sums over modules and micro-batches of each sample's own gradient, filled by the adapter's backward pass."""

    basis: Basis | None
    along: Float[Tensor, " b"]
    """sum_m sum_i V_mi g_bm."""
    squared: Float[Tensor, " b"]
    """||g_b||^2."""
    rows: Sequence[int] = ()
    """Which samples the present micro-batch holds."""

    def __call__(self, name: str, grads: Float[Tensor, "b n"]) -> None:
        self.squared[self.rows] += grads.square().sum(1)
        if self.basis is not None and len(self.basis[name]):
            self.along[self.rows] += (grads @ self.basis[name].T).sum(1)

    def columns(self) -> list[dict[str, float | None]]:
        """grad_norm, and cos_S_contrib = sum_m sum_i V_mi g_bm / (||g_b|| sqrt(directions)), in [-1, 1]; that one None with
        a zero gradient or without V."""
        directions = 0 if self.basis is None else sum(len(v) for v in self.basis.values())
        norms, along = self.squared.sqrt().tolist(), self.along.tolist()
        return [
            {"grad_norm": norm, "cos_S_contrib": dot / (norm * directions**0.5) if directions and norm > 0 else None}
            for norm, dot in zip(norms, along, strict=True)
        ]


NOT_MEASURED = {"grad_norm": None, "cos_S_contrib": None}
"""The columns of a sample whose own gradient was not taken."""


class Tally:
    """Columns of every sample, and totals over all micro-batches of this rank."""

    def __init__(self, advantages: Sequence[float | None]) -> None:
        self.advantages = advantages
        self.columns: list[dict[str, Any]] = [{} for _ in advantages]
        self.totals = {"tokens": 0.0, "clipped": 0.0, "kl": 0.0, "gap": 0.0, "fresh_tokens": 0.0}

    def add(self, part: Part) -> None:
        """Count a micro-batch and fill its samples' columns."""
        mask, totals = part.batch.loss_mask, self.totals
        fresh = torch.tensor([s.fresh and s.behaviour_logps is not None for s in part.samples], device=mask.device)
        totals["tokens"] += int(mask.sum())
        totals["clipped"] += part.terms.clipped_tokens
        totals["kl"] += part.terms.kl_sum
        totals["gap"] += float((part.logps - part.behaviour).abs()[fresh].sum())
        totals["fresh_tokens"] += int(mask[fresh].sum())
        mean_logp = (part.logps.sum(1) / mask.sum(1)).tolist()
        ratio, loss = part.terms.ratio.tolist(), part.terms.per_sample.tolist()
        for i, (row, ids) in enumerate(zip(part.chosen, part.batch.loss_token_ids(), strict=True)):
            behaviour = part.samples[i].behaviour_logps
            self.columns[row] = {
                "advantage": self.advantages[row],
                "logp": mean_logp[i] if ids else None,
                "behaviour_logp": sum(behaviour) / len(behaviour) if behaviour else None,
                "ratio": ratio[i] if behaviour and math.isfinite(ratio[i]) else None,
                "loss": loss[i],
                # From the very tensors that the loss was computed on: a mask that is off shows here.
                "loss_tokens": len(ids),
                "loss_tokens_crc": token_crc(ids),
            }


@dataclass(frozen=True)
class Removal:
    """What projection did to a gradient or an update."""

    before: Hackward
    after: Hackward
    """Measured again on what is really used."""
    fired: float | None
    """Fraction of modules in which the gate removed anything; None without V."""


def step_columns(
    removal: Removal, applied: Hackward, projection: Projection, norm: float, totals: Mapping[str, float],
    ratios: bool, kl: bool,
) -> dict[str, Any]:  # fmt: skip
    """The step-level columns. `applied`: of the update; `totals` over all ranks; `ratios`, `kl`: whether there are any."""
    tokens = max(totals["tokens"], 1)
    return {
        "cos_in": removal.before.cos,
        "cos_out": removal.after.cos,
        "cos_signed_in": removal.before.cos_signed,
        "cos_signed_out": removal.after.cos_signed,
        "cos_update": applied.cos,
        "cos_null": None if projection.basis is None else null_cosine(projection.basis),
        "frac_fired": removal.fired,
        "delta_S_norm": norm,
        "clip_frac": totals["clipped"] / tokens if ratios else None,
        "logp_gap": totals["gap"] / totals["fresh_tokens"] if totals["fresh_tokens"] else None,
        "kl": totals["kl"] / tokens if kl else None,
    }


def check_loss(step: int, terms: Float[Tensor, " b"], names: Sequence[int]) -> None:
    """NonFinite, naming the sample, when a term of the loss is not a finite number."""
    bad = (~torch.isfinite(terms)).nonzero().flatten().tolist()
    if bad:
        raise NonFinite(f"step {step}, sample {names[bad[0]]}: the loss is {float(terms[bad[0]])}")


def check_gradient(step: int, adapter: Adapter, squared: Float[Tensor, " b"], first: int) -> None:
    """NonFinite, naming the module and (where it is known) the sample, when the gradient is not finite."""
    for name, g in adapter.grads().items():
        if not torch.isfinite(g).all():
            bad = (~torch.isfinite(squared)).nonzero().flatten().tolist()
            who = f"sample {first + bad[0]}" if bad else "the sum over samples"
            raise NonFinite(f"step {step}, {who}: the gradient of {name} is not finite")


class Stopwatch:
    """Seconds since the last look."""

    def __init__(self) -> None:
        self.last = time.perf_counter()

    def __call__(self) -> float:
        before, self.last = self.last, time.perf_counter()
        return self.last - before
