"""Steps of the tiny model on given groups."""

import torch

from projected_grpo.model.learner import Learner
from projected_grpo.projection import Projection
from projected_grpo.records import Sample
from projected_grpo.step import Objective, run_step
from projected_grpo.vhack import random_basis

GROUPS = [
    [Sample((5, 6, 7), (20, 21), 3.5, (-7.6, -7.6)), Sample((5, 6, 7), (22, 23, 24), 0.0, (-7.6, -7.6, -7.6))],
    [Sample((8, 9), (25,), 0.5, (-7.6,)), Sample((8, 9), (26, 27, 28, 29), 0.5)],
]


NLL, DR = Objective("nll"), Objective("dr_grpo", max_new=8)


def basis_for(adapter, k=2):
    return {n: random_basis((k, p.numel()), 7, n).to(p.dtype) for n, p in adapter.vectors.items()}


def take(
    loaded, adapter, groups=GROUPS, objective=DR, projection=None, lr=0.1, budget=10_000, max_grad_norm=0.0,
    optimizer=None, **kwargs,
):  # fmt: skip
    optimizer = optimizer or torch.optim.AdamW(list(adapter.vectors.values()), lr=lr, weight_decay=0.0)
    projection = projection or Projection(basis_for(adapter))
    learner = Learner(loaded.model, adapter, optimizer, loaded.pad_id, budget, max_grad_norm)
    return run_step(learner, groups, objective, projection, step=3, **kwargs)
