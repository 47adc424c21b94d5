"""Quarantine ("evil expert"): the hack component of every gradient trains a second delta_S, which is deleted at
deployment.

    theta = keep + q                     what samples and trains
    keep    AdamW on g - V^T V g         deployed
    q       AdamW on V^T V g             deleted

Each has separate moments, so this is not vanilla with V removed at its end (post_hoc): there one optimizer mixes
both. The weight decay of the run's optimizer acts on theta, so on both. q's gradient is not clipped: AdamW does not
heed its length. theta is what is saved as adapter.safetensors, keep as deployed.safetensors. `quarantine_random`
routes along a V of random directions: shrinkage alone can look like absorption.

Deviations: gradient routing masks by a label of the data, here by a direction of the gradient, for every rollout
alike.

Source: Cloud et al. 2024, "Gradient Routing", arXiv:2410.04332; github.com/wassname/vGROUT_pub (712a197), which
routes by an activation's score into two adapter blocks."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from projected_grpo.interventions.base import Intervention, Setup, StepContext, Vectors
from projected_grpo.interventions.trusted import within


class Quarantine(Intervention):
    """Two experts, one of them deleted."""

    separate_deployment = True

    def __init__(self, setup: Setup) -> None:
        self.theta = setup.coordinates
        self.q = {name: torch.nn.Parameter(torch.zeros_like(p)) for name, p in self.theta.items()}
        self.optimizer = torch.optim.AdamW(list(self.q.values()), lr=0.0, weight_decay=0.0)

    def gradient(self, gradient: Vectors, context: StepContext) -> Vectors:
        hack = within(gradient, context.basis)
        for name, p in self.q.items():
            p.grad = hack[name]
        return {name: g - hack[name] for name, g in gradient.items()}

    def update(self, update: Vectors, context: StepContext) -> Vectors:
        settings = context.optimizer
        self.optimizer.param_groups[0].update({key: settings[key] for key in ("lr", "betas", "eps")})
        before = {name: p.detach().clone() for name, p in self.q.items()}
        self.optimizer.step()
        added = {name: before[name] - p.detach() for name, p in self.q.items()}
        for name, p in self.q.items():  # the run's optimizer has decayed theta, of which q is a part
            p.data.sub_(settings["lr"] * settings["weight_decay"] * before[name])
        return {name: d + added[name] for name, d in update.items()}

    @contextmanager
    def deployed(self) -> Generator[None]:
        whole = {name: p.detach().clone() for name, p in self.theta.items()}
        for name, p in self.theta.items():
            p.data.sub_(self.q[name].data)
        try:
            yield
        finally:
            for name, p in self.theta.items():
                p.data.copy_(whole[name])

    def state(self) -> dict[str, Any]:
        return {"q": {name: p.detach() for name, p in self.q.items()}, "optimizer": self.optimizer.state_dict()}

    def restore(self, state: Mapping[str, Any]) -> None:
        for name, p in self.q.items():
            p.data.copy_(state["q"][name])
        self.optimizer.load_state_dict(state["optimizer"])
