"""What the pairs' activations say: a direction from clean to hack, a score along it, a linear probe.

All of them are made before the first step, of the training pairs and the untrained model, and never again.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from projected_grpo.interventions.base import Contrast


def direction_of(pairs: Contrast) -> Float[Tensor, " d"]:
    """Unit vector from the mean of the clean sides to that of the hack sides."""
    between = pairs.hack.mean(0) - pairs.clean.mean(0)
    return between / between.norm().clamp(min=1e-12)


class Score:
    """Where a hidden state lies along the direction: 0 at the clean sides' mean, 1 at the hack sides', cut to [0, 1]."""

    def __init__(self, pairs: Contrast) -> None:
        self.direction = direction_of(pairs)
        self.clean, self.hack = (float(side.mean(0) @ self.direction) for side in (pairs.clean, pairs.hack))

    def __call__(self, hidden: Float[Tensor, "b d"]) -> Float[Tensor, " b"]:
        return ((hidden @ self.direction - self.clean) / max(self.hack - self.clean, 1e-12)).clamp(0, 1)


class Probe:
    """Logistic regression of hack against clean on standardised activations; 1/2 ||w||^2 is added to the summed loss."""

    STEPS = 100

    def __init__(self, pairs: Contrast) -> None:
        x = torch.cat([pairs.hack, pairs.clean]).double()
        y = torch.cat([torch.ones(len(pairs.hack)), torch.zeros(len(pairs.clean))]).to(x)
        self.mean, self.std = x.mean(0), x.std(0).clamp(min=1e-6)
        self.w = torch.zeros(x.shape[1] + 1, dtype=x.dtype, device=x.device, requires_grad=True)
        optimizer = torch.optim.LBFGS([self.w], max_iter=self.STEPS, line_search_fn="strong_wolfe", tolerance_grad=1e-9)

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(self.logits(x), y, reduction="sum")
            loss = loss + self.w[:-1].square().sum() / 2
            loss.backward()
            return loss

        with torch.enable_grad():
            optimizer.step(closure)
        self.w = self.w.detach()

    def logits(self, x: Float[Tensor, "b d"]) -> Float[Tensor, " b"]:
        """Log-odds of a hack."""
        return (x.double() - self.mean) / self.std @ self.w[:-1] + self.w[-1]

    def __call__(self, hidden: Float[Tensor, "b d"]) -> list[bool]:
        """Whether each is a hack more likely than not."""
        return (self.logits(hidden) > 0).tolist()
