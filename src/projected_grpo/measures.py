"""Columns of a step: of every sample, of the gradient and the update against V, of the auxiliary losses. And the
checks that loss and gradient are finite. Nothing here changes a parameter."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from projected_grpo.adapters.base import Adapter
from projected_grpo.channels.policy import LossTerms
from projected_grpo.ledger.errors import NonFinite
from projected_grpo.ledger.step_file import token_crc
from projected_grpo.model.learner import Batch
from projected_grpo.projection import Along, Basis, Projection, Vectors, norm_of, null_cosine, overall, profile
from projected_grpo.records import Sample


@dataclass
class StepResult:
    """Columns of the step file that `run_step` fills; keys are the schema's."""

    samples: list[dict[str, Any]]
    step: dict[str, Any] = field(default_factory=dict)
    modules: dict[str, list[float | int | None]] = field(default_factory=dict)
    """Columns of the side file, one value a module in the adapter's order; empty without V."""


# ---------------------------------------------------------------- samples


class Rows:
    """Columns of this process's samples, and totals over them."""

    def __init__(self, samples: Sequence[Sample], basis: Basis, theta: Tensor) -> None:
        """theta: any module's coordinates, for type and device."""
        self.samples, self.basis = samples, basis
        self.columns: list[dict[str, Any]] = [{} for _ in samples]
        self.totals = dict.fromkeys(("loss", "tokens", "kl"), 0.0)
        self.present: Sequence[int] = ()
        """Rows of the present micro-batch."""
        self.sums = theta.new_zeros(3, len(samples))
        """Of each sample's gradient g_b, over modules: ||g_b||^2; sum_m sum_i V_mi g_bm; ||V g_b||^2."""

    def add_gradients(self, name: str, grads: Float[Tensor, "b n"]) -> None:
        """Adds the per-sample gradients of one module and micro-batch, as the adapter's backward pass hands them
        out."""
        self.sums[0, self.present] += grads.square().sum(1)
        if self.basis and len(v := self.basis[name]):
            c = grads @ v.T
            self.sums[1, self.present] += c.sum(1)
            self.sums[2, self.present] += c.square().sum(1)

    def measure_gradients(self) -> None:
        """Fills grad_norm, energy_V and cos_S_contrib = sum_m sum_i V_mi g_bm / (||g_b|| sqrt(directions)): the last
        two are None with a zero gradient or without V."""
        directions = sum(map(len, self.basis.values()))
        for column, (squared, along, energy) in zip(self.columns, self.sums.T.tolist(), strict=True):
            known = directions > 0 and squared > 0
            column["grad_norm"] = squared**0.5
            column["cos_S_contrib"] = along / (squared * directions) ** 0.5 if known else None
            column["energy_V"] = energy / squared if known else None

    def add(
        self, rows: Sequence[int], batch: Batch, logps: Float[Tensor, "b t"], behaviour: Float[Tensor, "b t"],
        terms: LossTerms, reference: Float[Tensor, "b t"] | None,
    ) -> None:  # fmt: skip
        """Adds a micro-batch: the tensors that its loss was computed from, `logps` detached."""
        samples, mask, totals = [self.samples[i] for i in rows], batch.loss_mask, self.totals
        totals["loss"] += float(terms.per_sample.detach().sum())
        totals["tokens"] += int(mask.sum())
        totals["kl"] += terms.kl_sum
        ratios = (logps - behaviour).exp()
        of_recorded = {
            "ratio": terms.ratio,
            "ratio_low": ratios.masked_fill(~mask, math.inf).amin(1),
            "at_clip": terms.at_clip,
            "behaviour_gap": mean_gap(logps, behaviour, mask),
        }
        numbers = {name: column.tolist() for name, column in of_recorded.items()}
        mean_logp, loss = (logps.sum(1) / mask.sum(1)).tolist(), terms.per_sample.tolist()
        untrained = None if reference is None else mean_gap(reference, behaviour, mask).tolist()
        for i, (row, sample) in enumerate(zip(rows, samples, strict=True)):
            recorded, ids = sample.behaviour_logps, batch.targets[i][mask[i]].tolist()
            self.columns[row] |= {
                "logp": mean_logp[i] if ids else None,
                **{name: known[i] if recorded and math.isfinite(known[i]) else None for name, known in numbers.items()},
                "reference_gap": untrained[i] if sample.foreign and untrained is not None else None,
                "loss": loss[i],
                "loss_tokens_crc": token_crc(ids),  # from the mask that the loss was computed with
            }


def mean_gap(
    logps: Float[Tensor, "b t"], behaviour: Float[Tensor, "b t"], mask: Bool[Tensor, "b t"]
) -> Float[Tensor, " b"]:
    """Returns each sample's mean over tokens of |logp - behaviour logp|, in nats; NaN for an empty completion."""
    return (logps - behaviour).abs().masked_fill(~mask, 0).sum(1) / mask.sum(1)


# ---------------------------------------------------------------- against V


def projection_columns(
    stages: Mapping[str, Vectors], projection: Projection, fired: float, theta: Vectors | None = None
) -> tuple[dict[str, Any], dict[str, list[float | int | None]]]:
    """Returns the columns about V, of the step and of its modules.

    stages: what a step did, in order: `gradient` as accumulated; `used`, the gradient that the optimizer is given,
    before clipping; `proposed`, minus the parameter change that the optimizer made; `applied`, minus the change in
    the end. fired: fraction of modules in which the gate removed anything. theta: where the step began."""
    profiles = {stage: profile(vectors, projection.basis) for stage, vectors in stages.items()}
    gradient, used, proposed, applied = map(overall, profiles.values())
    before, after = ("gradient", "used") if projection.target == "grad" else ("proposed", "applied")
    share, modules = projection.removed_share(stages[before], stages[after], theta)
    whole, left = norm_of(stages["proposed"]), norm_of(stages["applied"])
    columns = {
        "target": None if projection.target == "none" else projection.target,
        "cos_in": gradient["cos"],
        "cos_out": used["cos"],
        "cos_update_in": proposed["cos"],
        "cos_update": applied["cos"],
        "update_norm": left,
        "update_removed": 1 - (left / whole) ** 2 if whole > 0 else None,
        "removed_share": share,
        "frac_removed": modules,
        "cos_null": null_cosine(projection.basis),
        "frac_fired": fired if projection.basis else None,
    }
    return columns, _module_columns(profiles, before, after) if projection.basis else {}


def _module_columns(
    profiles: Mapping[str, dict[str, Along]], before: str, after: str
) -> dict[str, list[float | int | None]]:
    """Returns the columns of the side file. `removed` is of what `before` and `after` name."""
    gradient, proposed = profiles["gradient"], profiles["proposed"]

    def energy(of: dict[str, Along]) -> list[float | int | None]:
        return [(m.along / m.norm) ** 2 if m.known else None for m in of.values()]

    def share(of: dict[str, Along], parts: Iterable[float]) -> list[float | int | None]:
        whole = sum(m.norm**2 for m in of.values())
        return [part / whole if whole > 0 else None for part in parts]

    return {
        "k": [m.k for m in gradient.values()],
        "cos_in": [m.cos if m.known else None for m in gradient.values()],
        "energy_in": energy(gradient),
        "energy_update_in": energy(proposed),
        "grad_share": share(gradient, (m.norm**2 for m in gradient.values())),
        "update_share": share(proposed, (m.norm**2 for m in proposed.values())),
        "removed": share(
            profiles[before], (m.norm**2 - profiles[after][n].norm ** 2 for n, m in profiles[before].items())
        ),
    }


def channel_columns(
    gradients: Mapping[str, Vectors], numbers: Mapping[str, Mapping[str, float | None]], whole: Vectors,
    projection: Projection,
) -> dict[str, dict[str, float | None]]:  # fmt: skip
    """Returns the column `channels`: of every loss its numbers, and its weighted gradient's norm, cosines, energy,
    what the arm's gate would remove of it, and its share of their sum `whole`, <g, whole> / ||whole||^2."""
    squared, columns = norm_of(whole) ** 2, {}
    for name, g in gradients.items():
        norm, removed = norm_of(g), None
        if projection.target != "none" and norm > 0:
            removed = 1 - (norm_of(projection.apply(g)[0]) / norm) ** 2
        along = torch.stack([(g[n] * v).sum() for n, v in whole.items()]).sum()
        columns[name] = {
            **numbers[name], "grad_norm": norm, **overall(profile(g, projection.basis)), "removed": removed,
            "share": float(along) / squared if squared > 0 else None,
        }  # fmt: skip
    return columns


# ---------------------------------------------------------------- checks


def check_loss(where: str, terms: Float[Tensor, " b"], places: Sequence[int]) -> None:
    """Raises NonFinite, naming the sample, when a term of the loss is not a finite number."""
    if bad := (~torch.isfinite(terms)).nonzero().flatten().tolist():
        raise NonFinite(f"{where}, sample {places[bad[0]]}: the loss is {float(terms[bad[0]])}")


def check_gradient(
    where: str, adapter: Adapter, *, loss: float = 0.0, squared: Float[Tensor, " b"] | None = None, first: int = 0
) -> None:
    """Raises NonFinite when a loss or the gradient is not finite, naming the module and, by `squared` norms, the
    sample."""
    if not math.isfinite(loss):
        raise NonFinite(f"{where}: the loss is {loss}")
    for name, vector in adapter.vectors.items():  # at 4B's shapes a copy of a LoRA's gradient is 260 MB
        if vector.grad is not None and not torch.isfinite(vector.grad).all():
            bad = [] if squared is None else (~torch.isfinite(squared)).nonzero().flatten().tolist()
            sample = f", sample {first + bad[0]}" if bad else ""
            raise NonFinite(f"{where}{sample}: the gradient of {name} is not finite")
