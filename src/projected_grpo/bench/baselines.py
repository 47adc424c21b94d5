"""The plain ways that the training step is held against: three matrix products under autograd, and logits at every position.

    y = x W^T + b + ((x Vh^T) * delta_S) U^T        as it is written, autograd keeps what it likes
    log-probabilities from the whole [rows, tokens, vocab] logits tensor

On the very tensors of the adapter at hand, so both ways give a gradient of the same delta_S.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from projected_grpo.adapters.antipasto import AntiPaSTOLinear
from projected_grpo.adapters.base import Adapter
from projected_grpo.bench.measure import UnequalWork
from projected_grpo.bench.world import TEMPERATURE, World
from projected_grpo.losses import advantages, policy_loss
from projected_grpo.model.batches import behaviour_of, micro_batches
from projected_grpo.model.logprobs import token_batch
from projected_grpo.projection import Basis, Projection
from projected_grpo.records import Sample
from projected_grpo.step import Learner, Objective, Plumbing, run_step

Grads = dict[str, Tensor]
TOLERANCE = {"float32": 1e-3, "bfloat16": 1e-1}
"""Relative, over all modules together; bfloat16 rounds activations."""


class PlainLinear(nn.Module):
    """An adapted Linear by plain autograd."""

    def __init__(self, layer: AntiPaSTOLinear) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        own = self.layer
        return F.linear(x, own.weight, own.bias) + ((x @ own.Vh.T) * own.theta.to(x.dtype)) @ own.U.T


@contextmanager
def plain_adapter(model: Any, adapter: Adapter) -> Generator[None]:
    """The model with its adapted Linears computed the plain way inside."""
    places = [(model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2], name) for name in adapter.layers]
    for parent, child, name in places:
        layer = adapter.layers[name]
        assert isinstance(layer, AntiPaSTOLinear)
        setattr(parent, child, PlainLinear(layer))
    try:
        yield
    finally:
        for parent, child, name in places:
            setattr(parent, child, adapter.layers[name])


def objective_of(world: World) -> Objective:
    """Dr. GRPO without a KL term: neither side runs a reference."""
    return Objective("dr_grpo", world.sizes.max_new, TEMPERATURE)


def full_logits_grads(world: World, groups: Sequence[Sequence[Sample]], *, one_by_one: bool = False) -> Grads:
    """The loss's gradient in delta_S from full logits and the plain adapter; micro-batches within the same budget, or one
    row each, so that every sample's own gradient is known before it is added to the sum."""
    model, rows = world.loaded.model, [s for g in groups for s in g]
    a = torch.cat([advantages(torch.tensor([[s.reward for s in g]]), "dr_grpo")[0] for g in groups]).to(world.device)
    budget = 1 if one_by_one else world.sizes.token_budget
    total = {n: torch.zeros_like(p) for n, p in world.adapter.vectors.items()}
    with plain_adapter(model, world.adapter):
        lengths = [len(s.prompt_ids) + len(s.completion_ids) for s in rows]
        for chosen in micro_batches(lengths, budget):
            world.adapter.zero_grad()
            part = [rows[i] for i in chosen]
            batch = token_batch(
                [s.prompt_ids for s in part], [s.completion_ids for s in part], world.loaded.pad_id, world.device
            )
            logits = model(input_ids=batch.input_ids, use_cache=False).logits[:, :-1].float() / TEMPERATURE
            logps = logits.log_softmax(-1).gather(2, batch.targets[..., None]).squeeze(2)
            del logits
            terms = policy_loss(
                logps, batch.loss_mask, a[chosen], kind="dr_grpo", rows=len(rows), max_new=world.sizes.max_new,
                behaviour_logps=behaviour_of(part, logps, batch),
            )  # fmt: skip
            terms.per_sample.sum().backward()
            for name, own in world.adapter.grads().items():
                total[name] += own
    world.adapter.zero_grad()
    return total


class Recorder(torch.optim.Optimizer):
    """Keeps the gradient that it is given and leaves the parameters alone."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__(list(adapter.vectors.values()), {})
        self.adapter = adapter
        self.grads: Grads = {}

    def step(self, closure: Callable | None = None) -> Any:  # noqa: ARG002 - torch's signature
        self.grads = {n: g.detach().clone() for n, g in self.adapter.grads().items()}


def our_grads(
    world: World, groups: Sequence[Sequence[Sample]], *, per_sample: bool, basis: Basis | None = None
) -> Grads:
    """The same gradient from step.run_step itself, its bookkeeping included."""
    recorder = Recorder(world.adapter)
    learner = Learner(world.loaded.model, world.adapter, recorder)
    plumbing = Plumbing(world.loaded.pad_id, world.sizes.token_budget)
    run_step(learner, groups, objective_of(world), Projection(basis), plumbing, step=0, per_sample=per_sample)
    return recorder.grads


def relative_gap(ours: Grads, baseline: Grads) -> float:
    """||ours - baseline|| / ||baseline|| over all modules."""
    gap = sum(float((ours[n].double() - g.double()).square().sum()) for n, g in baseline.items())
    return (gap / sum(float(g.double().square().sum()) for g in baseline.values())) ** 0.5


def check_same_gradient(name: str, ours: Grads, baseline: Grads, tolerance: float) -> float:
    """The relative gap. UnequalWork when two ways of the same gradient differ by more than rounding, or it is zero."""
    if not any(bool(g.any()) for g in baseline.values()):
        raise UnequalWork(f"{name}: the baseline's gradient is zero, so nothing was computed")
    gap = relative_gap(ours, baseline)
    if not gap <= tolerance:
        raise UnequalWork(
            f"{name}: the two gradients differ by {gap:.2g} of their norm (at most {tolerance:g}), so no ratio is taken"
        )
    return gap
