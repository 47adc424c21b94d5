"""Calls an arm's intervention from the loop. `Hooks()` changes nothing, bit for bit: arms without an intervention use it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from projected_grpo.adapters.base import Adapter
from projected_grpo.interventions.base import Intervention, Rewards, Shown, Vectors
from projected_grpo.projection import Basis


@dataclass
class Hooks:
    """An arm's intervention in the loop."""

    page: Intervention = field(default_factory=Intervention)
    shown: Shown = field(default_factory=Shown)
    """What the intervention is shown at this step; `session.take` renews it."""
    question: Callable[[Sequence[int]], Any] | None = None
    """Token ids of a prompt -> what `routed` is given."""

    def routed(self, prompt_ids: Sequence[int]) -> AbstractContextManager[None]:
        """Around whatever is done with the rows of one prompt."""
        if not self.page.by_prompt:
            return nullcontext()
        assert self.question is not None
        return self.page.routed(self.question(prompt_ids))

    def by_prompt(self, prompts: Sequence[Sequence[int]]) -> list[tuple[list[int], AbstractContextManager[None]]]:
        """Which rows go through the model together, by their prompts, and what stands around them: all, and nothing, unless
        the page has other coordinates for every prompt."""
        if not self.page.by_prompt:
            return [(list(range(len(prompts))), nullcontext())]
        places: dict[tuple[int, ...], list[int]] = {}
        for i, prompt in enumerate(prompts):
            places.setdefault(tuple(prompt), []).append(i)
        return [(rows, self.routed(prompt)) for prompt, rows in places.items()]

    def placed(
        self, weights: Callable[[], AbstractContextManager[None]]
    ) -> tuple[AbstractContextManager[None], Callable[[Sequence[int]], AbstractContextManager[None]] | None]:
        """How the policy's weights are put in place for sampling: once for all prompts, or (the second) anew for each."""
        if not self.page.by_prompt:
            return weights(), None

        @contextmanager
        def each(prompt_ids: Sequence[int]) -> Any:
            with ExitStack() as both:
                both.enter_context(self.routed(prompt_ids))
                both.enter_context(weights())
                yield

        return nullcontext(), each

    def advantages(
        self, rewards: Sequence[Sequence[float]], before: list[float | None], kind: str, step: int, first: int
    ) -> list[float | None]:
        """The advantages that the loss uses."""
        if kind == "nll":
            return before
        rows = Rewards(tuple(map(tuple, rewards)), tuple(a or 0.0 for a in before), kind)
        found = self.page.advantages(rows, replace(self.shown, step=step, first=first))
        return before if found is None else [float(a) for a in found]

    def gradient(self, adapter: Adapter, basis: Basis | None, step: int) -> None:
        """Replace the accumulated gradient by the intervention's."""
        found = self.page.gradient(adapter.grads(), replace(self.shown, step=step, basis=basis))
        if found is not None:
            for name, p in adapter.vectors.items():
                p.grad = found[name]

    @torch.no_grad()
    def update(
        self,
        adapter: Adapter,
        start: Vectors,
        basis: Basis | None,
        optimizer: torch.optim.Optimizer,
        step: int,
        max_grad_norm: float = 0.0,
    ) -> None:
        """Replace what the optimizer has just applied by the intervention's update."""
        proposed = {name: start[name] - p.detach() for name, p in adapter.vectors.items()}
        settings = {**optimizer.param_groups[0], "params": (), "max_grad_norm": max_grad_norm}
        found = self.page.update(proposed, replace(self.shown, step=step, basis=basis, optimizer=settings))
        if found is not None:
            for name, p in adapter.vectors.items():
                p.copy_(start[name] - found[name])
