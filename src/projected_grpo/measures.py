"""What a step writes down: columns of every sample, cosines of the gradient and of the update, and the checks that both are
finite. It changes nothing; step.py does the work and calls it."""

import math
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from projected_grpo.adapters.base import Adapter
from projected_grpo.channels.policy import LossTerms
from projected_grpo.ledger.errors import NonFinite
from projected_grpo.ledger.step_file import RATIO_EDGES, token_crc
from projected_grpo.model.batches import Batch
from projected_grpo.model.logprobs import TokenBatch, token_batch
from projected_grpo.projection import Along, Profile, Projection, Vectors, cosines_of, null_cosine, overall
from projected_grpo.records import SOURCES, Sample


@dataclass
class StepResult:
    """Columns of the step file that the gradient step fills; keys are the schema's."""

    samples: list[dict[str, Any]]
    step: dict[str, Any] = field(default_factory=dict)
    modules: dict[str, list[float | int | None]] = field(default_factory=dict)
    """Columns of the side file, one value a module in the adapter's order; empty without V."""


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
    reference: Float[Tensor, "b t"] | None = None
    """Log-probabilities under the untrained model; None where nothing asked for them. Which rows share a batch may not show:
    only a row of another policy, which always asks, is held against them."""


@dataclass
class PerSample:
    """Sums over modules and micro-batches of each sample's own gradient, filled by the adapter's backward pass."""

    projection: Projection
    sums: Float[Tensor, "4 b"]
    """||g_b||^2; sum_m sum_i V_mi g_bm; ||V g_b||^2; the same of what the gate would leave."""
    rows: Sequence[int] = ()
    """Which samples the present micro-batch holds."""

    def __call__(self, name: str, grads: Float[Tensor, "b n"]) -> None:
        squared = grads.square().sum(1)
        self.sums[0, self.rows] += squared
        basis = self.projection.basis
        if basis is not None and len(basis[name]):
            c = grads @ basis[name].T
            energy, kept = self.projection.own_energy(c, squared)
            self.sums[1, self.rows] += c.sum(1)
            self.sums[2, self.rows] += energy
            self.sums[3, self.rows] += kept

    @property
    def squared(self) -> Float[Tensor, " b"]:
        """||g_b||^2."""
        return self.sums[0]

    def columns(self) -> list[dict[str, float | None]]:
        """grad_norm; cos_S_contrib = sum_m sum_i V_mi g_bm / (||g_b|| sqrt(directions)), in [-1, 1]; energy_V and
        energy_V_kept. All but the first None with a zero gradient or without V."""
        columns, directions = [], directions_of(self.projection)
        for squared, along, energy, kept in self.sums.T.tolist():
            known = directions > 0 and squared > 0
            columns.append(
                {
                    "grad_norm": squared**0.5,
                    "cos_S_contrib": along / (squared * directions) ** 0.5 if known else None,
                    "energy_V": energy / squared if known else None,
                    "energy_V_kept": kept / squared if known else None,
                }
            )
        return columns


def directions_of(projection: Projection) -> int:
    """Rows of V over all modules; 0 without V."""
    return 0 if projection.basis is None else sum(len(v) for v in projection.basis.values())


NOT_MEASURED = {"grad_norm": None, "cos_S_contrib": None, "energy_V": None, "energy_V_kept": None}
"""The columns of a sample whose own gradient was not taken."""
BINS = [f"{source} {i}" for source in SOURCES for i in range(len(RATIO_EDGES) + 1)]


class Tally:
    """Columns of every sample, and totals over all micro-batches of this rank."""

    def __init__(self, advantages: Sequence[float | None]) -> None:
        self.advantages = advantages
        self.columns: list[dict[str, Any]] = [{} for _ in advantages]
        self.totals = {
            "loss": 0.0,
            "tokens": 0.0,
            "clipped": 0.0,
            "kl": 0.0,
            "gap": 0.0,
            "fresh_tokens": 0.0,
            **dict.fromkeys(BINS, 0.0),
        }

    def add(self, part: Part) -> None:
        """Count a micro-batch and fill its samples' columns."""
        mask, totals = part.batch.loss_mask, self.totals
        fresh = torch.tensor([s.fresh and s.behaviour_logps is not None for s in part.samples], device=mask.device)
        totals["loss"] += float(part.terms.per_sample.detach().sum())
        totals["tokens"] += int(mask.sum())
        totals["clipped"] += part.terms.clipped_tokens
        totals["kl"] += part.terms.kl_sum
        totals["gap"] += float((part.logps - part.behaviour).abs()[fresh].sum())
        totals["fresh_tokens"] += int(mask[fresh].sum())
        mean_logp = (part.logps.sum(1) / mask.sum(1)).tolist()
        ratio, loss = part.terms.ratio.tolist(), part.terms.per_sample.tolist()
        ratios = (part.logps - part.behaviour).exp()
        low, high = ratios.masked_fill(~mask, math.inf).amin(1).tolist(), ratios.masked_fill(~mask, 0).amax(1).tolist()
        at_clip, own = part.terms.at_clip.tolist(), mean_gap(part.logps, part.behaviour, mask)
        untrained = None if part.reference is None else mean_gap(part.reference, part.behaviour, mask)
        for source in SOURCES:
            recorded = [i for i, s in enumerate(part.samples) if s.source == source and s.behaviour_logps]
            if recorded:
                self._count(source, ratios[recorded][mask[recorded]])
        for i, (row, ids) in enumerate(zip(part.chosen, part.batch.loss_token_ids(), strict=True)):
            behaviour = part.samples[i].behaviour_logps
            self.columns[row] = {
                "advantage": self.advantages[row],
                "logp": mean_logp[i] if ids else None,
                "behaviour_logp": sum(behaviour) / len(behaviour) if behaviour else None,
                "ratio": ratio[i] if behaviour and math.isfinite(ratio[i]) else None,
                "ratio_low": low[i] if behaviour else None,
                "ratio_high": high[i] if behaviour else None,
                "at_clip": at_clip[i] if behaviour and math.isfinite(at_clip[i]) else None,
                "behaviour_gap": own[i] if behaviour else None,
                "reference_gap": untrained[i] if part.samples[i].foreign and untrained is not None else None,
                "loss": loss[i],
                # From the very tensors that the loss was computed on: a mask that is off shows here.
                "loss_tokens": len(ids),
                "loss_tokens_crc": token_crc(ids),
            }

    def _count(self, source: str, ratios: Float[Tensor, " t"]) -> None:
        """Add tokens' ratios to the histogram of their source."""
        edges = torch.tensor(RATIO_EDGES, device=ratios.device)
        counts = torch.bucketize(ratios, edges).bincount(minlength=len(RATIO_EDGES) + 1).tolist()
        for i, n in enumerate(counts):
            self.totals[f"{source} {i}"] += n


def mean_gap(logps: Float[Tensor, "b t"], behaviour: Float[Tensor, "b t"], mask: Bool[Tensor, "b t"]) -> list[float]:
    """Mean over each sample's tokens of |logp - behaviour logp|, in nats; NaN for an empty completion."""
    return ((logps - behaviour).abs().masked_fill(~mask, 0).sum(1) / mask.sum(1)).tolist()


def flat_groups(groups: Sequence[Sequence[Sample]]) -> int:
    """Groups whose rewards are all the same: they have no advantage, and so no gradient of the policy loss."""
    return sum(len({sample.reward for sample in group}) < 2 for group in groups)


def alone(
    model: Any, adapter: Adapter, sample: Sample, terms: Callable[[Tensor, TokenBatch], LossTerms], temperature: float,
    projection: Projection,
) -> dict[str, float | None]:  # fmt: skip
    """One sample's gradient by the plainest way there is: a forward and a backward pass of it alone, through the whole
    model, the adapter by its definition and autograd, and full logits. What the batched pass says of this sample must
    agree with it.

    terms: log-probabilities [1, t] and their batch -> the sample's term of the step's loss.
    """
    batch = token_batch([sample.prompt_ids], [sample.completion_ids], 0, next(iter(adapter.vectors.values())).device)
    with adapter.by_autograd():
        logits = model(input_ids=batch.input_ids, use_cache=False).logits[:, :-1]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
        logps = logits.log_softmax(-1).gather(-1, batch.targets[..., None]).squeeze(-1)
        loss = terms(torch.where(batch.loss_mask, logps, torch.zeros_like(logps)), batch).per_sample.sum()
        grads = dict(zip(adapter.vectors, torch.autograd.grad(loss, list(adapter.vectors.values())), strict=True))
    norm, directions, cos = norm_of(grads), directions_of(projection), None
    if projection.basis is not None and directions and norm > 0:
        along = sum(float((projection.basis[name] @ g).sum()) for name, g in grads.items())
        cos = along / (norm * directions**0.5)
    return {"grad_norm_alone": norm, "cos_S_alone": cos}


@dataclass(frozen=True)
class Used:
    """What a step really did, in the order in which it happened. Every one is read from the tensors themselves."""

    gradient: Vectors
    """As it was accumulated."""
    taken_in: Vectors
    """The gradient that the optimizer used, read from what it became in there, at its length before clipping."""
    proposed: Vectors
    """Minus the parameter change that the optimizer made of it."""
    applied: Vectors
    """Minus the parameter change in the end."""


@dataclass(frozen=True)
class Seen:
    """The same four against V, module by module; empty without V."""

    gradient: Profile
    taken_in: Profile
    proposed: Profile
    applied: Profile

    @classmethod
    def of(cls, used: Used, projection: Projection) -> "Seen":
        return cls(*map(projection.profile, (used.gradient, used.taken_in, used.proposed, used.applied)))


def step_columns(used: Used, seen: Seen, projection: Projection, fired: float | None) -> dict[str, Any]:
    """The step-level columns about V. `fired`: fraction of modules in which the gate removed anything; None without V."""
    gradient, taken_in, proposed, applied = map(overall, (seen.gradient, seen.taken_in, seen.proposed, seen.applied))
    on_update = projection.target == "update"
    share, modules = projection.removed_share(
        *((used.proposed, used.applied) if on_update else (used.gradient, used.taken_in))
    )
    whole, left = norm_of(used.proposed), norm_of(used.applied)
    return {
        "target": None if projection.target == "none" else projection.target,
        "cos_in": gradient.cos,
        "cos_out": taken_in.cos,
        "cos_signed_in": gradient.cos_signed,
        "cos_signed_out": taken_in.cos_signed,
        "cos_update_in": proposed.cos,
        "cos_update": applied.cos,
        "energy_in": gradient.energy,
        "energy_out": taken_in.energy,
        "energy_update_in": proposed.energy,
        "energy_update": applied.energy,
        "update_norm": left,
        "update_removed": 1 - (left / whole) ** 2 if whole > 0 else None,
        "removed_share": share,
        "frac_removed": modules,
        "cos_null": None if projection.basis is None else null_cosine(projection.basis),
        "frac_fired": fired,
    }


def module_columns(seen: Seen, projection: Projection) -> dict[str, list[float | int | None]]:
    """The columns of the side file; empty without V. What is removed is told from what was there before and after."""
    if not seen.gradient:
        return {}
    before, after = (seen.gradient, seen.taken_in) if projection.target == "grad" else (seen.proposed, seen.applied)

    def shares(of: Profile, parts: Sequence[float]) -> list[float | None]:
        whole = sum(m.norm**2 for m in of.values())
        return [part / whole if whole > 0 else None for part in parts]

    columns: dict[str, list[float | int | None]] = {"k": [m.k for m in seen.gradient.values()]}
    for name, profile, of in (
        ("cos_in", seen.gradient, lambda m: cosines_of(m)[0]),
        ("cos_signed_in", seen.gradient, lambda m: cosines_of(m)[1]),
        ("cos_update_in", seen.proposed, lambda m: cosines_of(m)[0]),
        ("cos_update", seen.applied, lambda m: cosines_of(m)[0]),
        ("cos_signed_update", seen.applied, lambda m: cosines_of(m)[1]),
        ("energy_in", seen.gradient, energy_of),
        ("energy_update_in", seen.proposed, energy_of),
    ):
        columns[name] = [of(m) if m.known else None for m in profile.values()]
    columns["grad_share"] = shares(seen.gradient, [m.norm**2 for m in seen.gradient.values()])
    columns["update_share"] = shares(seen.proposed, [m.norm**2 for m in seen.proposed.values()])
    columns["removed"] = shares(before, [m.norm**2 - after[name].norm ** 2 for name, m in before.items()])
    return columns


def energy_of(m: Along) -> float:
    """Of one module's vector, the energy along its V."""
    return (m.along / m.norm) ** 2


def total_columns(totals: Mapping[str, float], norm: float, ratios: bool, kl: bool) -> dict[str, Any]:
    """The step-level columns about tokens. `totals` over all ranks; `norm` of the coordinates; `ratios`, `kl`: whether there
    are any."""
    tokens = max(totals["tokens"], 1)
    counts = {s: [int(totals[f"{s} {i}"]) for i in range(len(RATIO_EDGES) + 1)] for s in SOURCES}
    return {
        "delta_S_norm": norm,
        "clip_frac": totals["clipped"] / tokens if ratios else None,
        "flat_groups": totals["flat_groups"] / totals["groups"] if ratios and totals.get("groups") else None,
        "ratio_hist": {source: bins for source, bins in counts.items() if sum(bins)} if ratios else {},
        "logp_gap": totals["gap"] / totals["fresh_tokens"] if totals["fresh_tokens"] else None,
        "kl": totals["kl"] / tokens if kl else None,
    }


def against(gradient: Vectors, projection: Projection) -> dict[str, float | None]:
    """A channel's own gradient: its norm and, against V, what cos_in, cos_signed_in and energy_in say of the whole; and the
    energy that the arm's gate would take out of it alone (None where the arm takes nothing out, or there is no gradient)."""
    seen, norm = projection.measure(gradient), norm_of(gradient)
    removed = None
    if projection.target != "none" and projection.basis is not None and norm > 0:
        removed = 1 - (norm_of(projection.apply(gradient)[0]) / norm) ** 2
    return {
        "grad_norm": norm,
        "cos": seen.cos,
        "cos_signed": seen.cos_signed,
        "energy": seen.energy,
        "removed": removed,
    }


def share_of_sum(part: Vectors, whole: Vectors) -> float | None:
    """<part, whole> / ||whole||^2, all modules together: the parts of a sum have shares that add up to 1. None where the sum
    is 0."""
    along = torch.stack([(part[name] * g).sum() for name, g in whole.items()]).sum()
    squared = norm_of(whole) ** 2
    return float(along) / squared if squared > 0 else None


def bytes_of(vectors: Vectors) -> bytes:
    """All numbers, as they lie in memory."""
    flat = torch.cat([v.detach().flatten() for v in vectors.values()]).cpu().contiguous()
    return flat.view(torch.uint8).numpy().tobytes()


def fingerprint(vectors: Vectors) -> int:
    """CRC-32 of all numbers: the same bits, the same number."""
    return zlib.crc32(bytes_of(vectors))


def norm_of(vectors: Vectors) -> float:
    """Norm of all modules together."""
    return float(torch.linalg.vector_norm(torch.stack([v.norm() for v in vectors.values()])))


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


def check_channel(step: int, name: str, loss: float, adapter: Adapter) -> None:
    """NonFinite, naming channel and module, when a channel's loss or gradient is not finite."""
    if not math.isfinite(loss):
        raise NonFinite(f"step {step}, channel {name}: the loss is {loss}")
    for module, g in adapter.grads().items():
        if not torch.isfinite(g).all():
            raise NonFinite(f"step {step}, channel {name}: the gradient of {module} is not finite")


class Stopwatch:
    """Seconds since the last look."""

    def __init__(self) -> None:
        self.last = time.perf_counter()

    def __call__(self) -> float:
        before, self.last = self.last, time.perf_counter()
        return self.last - before
