"""DiLoCo's outer step: the mean of what replicas have learned since the last round, as one gradient of Nesterov's method.

    origin    coordinates after the last round, the same bits on every replica
    local     what a replica has made of them in its H steps
    pseudo-gradient    origin - local

Source: Douillard et al. 2023 (arXiv:2311.08105), algorithm 1; the outer optimizer is torch.optim.SGD(nesterov=True), as
in torchft's example. Every replica takes the same step on the same numbers, so none has to send the result to another.
"""

import hashlib
from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from projected_grpo.ledger.errors import BrokenWorld


class Flat(nn.Module):
    """A run's coordinates as one vector on the CPU, with a mark per replica behind them: [n + replicas].

    The mark of a replica that brings something is -1, every other and the origin's are 0. In a mean of pseudo-gradients the
    marks then say who brought something, in the same message as the numbers: one that has just come back has nothing to
    bring, and a plain mean over all who met would count it as one that has learned nothing.
    """

    def __init__(self, vectors: Mapping[str, nn.Parameter], replica: int, replicas: int) -> None:
        super().__init__()
        self.vectors, self.replica, self.replicas = dict(vectors), replica, replicas
        values = torch.cat([p.detach().cpu() for p in vectors.values()])
        self.flat = nn.Parameter(torch.cat([values, values.new_zeros(replicas)]))

    @property
    def coordinates(self) -> Float[Tensor, " n"]:
        """The vector without its marks."""
        return self.flat.detach()[: -self.replicas]

    @torch.no_grad()
    def take(self, *, brings: bool) -> None:
        """Copy the run's coordinates here, and mark whether they bring anything."""
        self.coordinates.copy_(torch.cat([p.detach().cpu() for p in self.vectors.values()]))
        self.flat[-self.replicas :] = 0
        self.flat[self.replica - self.replicas] = -float(brings)

    @torch.no_grad()
    def give(self) -> None:
        """Copy what stands here into the run's coordinates."""
        parts = self.coordinates.split([p.numel() for p in self.vectors.values()])
        for p, part in zip(self.vectors.values(), parts, strict=True):
            p.copy_(part)

    def sha256(self) -> str:
        """Of the coordinates' bytes."""
        return hashlib.sha256(self.coordinates.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


class Nesterov(torch.optim.SGD):
    """The outer optimizer. Its gradient is the mean, over all who met, of pseudo-gradients and marks; it steps on the mean
    over those that brought something, and not at all where nobody did."""

    def __init__(self, flat: Flat, lr: float, momentum: float) -> None:
        super().__init__([flat.flat], lr=lr, momentum=momentum, nesterov=momentum > 0)
        self.flat = flat
        self.brought: tuple[int, ...] = ()
        """Replicas of the latest round that brought something."""
        self.done = False
        """Whether `step` was called since somebody last asked: torchft calls it only where a round is good."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # ty: ignore[incompatible-method-override]
        """Step, or only note that nobody brought anything."""
        self.done = True
        grad = self.flat.flat.grad
        assert grad is not None
        assert closure is None
        if not grad.isfinite().all():  # all replicas see the same numbers: all stop
            raise BrokenWorld("a replica brought numbers that are not finite; its log says which step made them")
        marks = grad[-self.flat.replicas :].clone()
        self.brought = tuple(i for i, mark in enumerate(marks.tolist()) if mark > 0)
        if self.brought:
            grad /= marks.sum()
            grad[-self.flat.replicas :] = 0
            super().step()

    @property
    def momentum(self) -> Tensor:
        """[n + replicas]; zeros before the first step."""
        flat = self.flat.flat
        kept = self.state[flat].get("momentum_buffer") if flat in self.state else None
        return torch.zeros_like(flat.detach()) if kept is None else kept

    @momentum.setter
    def momentum(self, value: Tensor) -> None:
        self.state[self.flat.flat]["momentum_buffer"] = value.clone()
