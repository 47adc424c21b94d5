"""Where the loop calls a page.

    hooks = Hooks(arm, page, seed);  hooks.advantages(...);  hooks.gradient(...);  hooks.update(...)

`Hooks()` without a page is the identity everywhere, bit for bit: that is what every arm without a page is run with.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from projected_grpo.adapters.base import Adapter
from projected_grpo.arms import Arm
from projected_grpo.interventions.base import Intervention, Rewards, Vectors, View
from projected_grpo.projection import Basis


@dataclass
class Hooks:
    """A page in the loop. It builds the views, so that a page sees nothing that its entry does not declare."""

    arm: Arm | None = None
    page: Intervention = field(default_factory=Intervention)
    seed: int = 0
    outside: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    """What the run shows in this step beyond what the step itself has (run/intervening.py)."""
    question: Callable[[Sequence[int]], Any] | None = None
    """Token ids of a prompt -> the field `question`."""

    def view(self, step: int, first: int = 0, **fields: Callable[[], Any]) -> View:
        """What the page is shown now."""
        assert self.arm is not None
        return View(self.arm, {**self.outside, **fields}, step=step, seed=self.seed, first=first)

    def routed(self, prompt_ids: Sequence[int]) -> AbstractContextManager[None]:
        """Around whatever is done with the rows of one prompt."""
        if not self.page.by_prompt:
            return nullcontext()
        assert self.question is not None
        ask = self.question
        return self.page.routed(self.view(-1, question=lambda: ask(prompt_ids)))

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
        """The advantages that the loss uses. ValueError when the page gives another number of them."""
        if self.arm is None or kind == "nll":
            return before
        shown = lambda: Rewards(tuple(map(tuple, rewards)), tuple(a or 0.0 for a in before), kind)  # noqa: E731
        found = self.page.advantages(self.view(step, first, rewards=shown))
        if found is not None and len(found) != len(before):
            raise ValueError(f"arm {self.arm.name}: {len(found)} advantages of {len(before)} samples")
        return before if found is None else [float(a) for a in found]

    def gradient(self, adapter: Adapter, basis: Basis | None, step: int) -> None:
        """Put the page's gradient in the place of the accumulated one."""
        if self.arm is None:
            return
        found = self.page.gradient(self.view(step, gradient=adapter.grads, basis=lambda: basis))
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
        """Put the page's update in the place of what the optimizer has just applied."""
        if self.arm is None:
            return
        proposed = lambda: {name: start[name] - p.detach() for name, p in adapter.vectors.items()}  # noqa: E731
        settings = lambda: {**optimizer.param_groups[0], "params": (), "max_grad_norm": max_grad_norm}  # noqa: E731
        found = self.page.update(self.view(step, update=proposed, basis=lambda: basis, optimizer=settings))
        if found is not None:
            for name, p in adapter.vectors.items():
                p.copy_(start[name] - found[name])
