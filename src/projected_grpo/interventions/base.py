"""What an intervention is, and what it reads. A hook that a class does not override changes nothing."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from projected_grpo.projection import Vectors

PromptIds = Sequence[int]
Rewards = Sequence[Sequence[float]]
"""Of this rank's samples, by group."""
EachPrompt = Callable[[PromptIds], AbstractContextManager[None]]


@dataclass(frozen=True)
class Contrast:
    """Mean hidden states of the training pairs' completions in the untrained model, float32."""

    hack: Any
    """[n, d]"""
    clean: Any
    """[n, d]"""

    @property
    def direction(self) -> Any:
        """Unit vector [d] from the mean of the clean sides to that of the hack sides."""
        between = self.hack.mean(0) - self.clean.mean(0)
        return between / between.norm().clamp(min=1e-12)

    def turned(self, seed: int) -> "Contrast":
        """Returns the same states with the hack sides as far from the clean ones in a random direction."""
        between = self.hack.mean(0) - self.clean.mean(0)
        drawn = torch.randn(len(between), generator=torch.Generator().manual_seed(seed)).to(between)
        return Contrast(self.hack - between + drawn * between.norm() / drawn.norm(), self.clean)


@dataclass(frozen=True)
class Setup:
    """What an intervention is made of. run/intervening.py fills it, expensive fields where `Arm.sees` names them."""

    arm: str = ""
    seed: int = 0
    adapter: str = ""
    """The kind of adapter."""
    coordinates: Any = None
    """Module -> the parameters that train."""
    model: Any = None
    basis: Any = None
    """V: module -> [k, n], orthonormal rows. None without a V."""
    pairs: Any = None
    """Contrast, read as `StepContext.hidden` is."""
    teacher: Any = None
    """The hacky teacher's weights minus the model's: module -> [d_out, d_in]."""
    finished: Any = None
    """theta at the end of the vanilla run that --of names, minus theta at its start: module -> [n]."""
    prompt_state: Callable[[PromptIds], Any] | None = None
    """A prompt's token ids -> its mean hidden state in the untrained model, [d] float32."""


@dataclass(frozen=True)
class StepContext:
    """What an intervention reads at a step. run/intervening.py fills in what is about rollouts, `run_step` the
    rest."""

    step: int = -1
    first: int = 0
    """Place of the first sample among those of all processes."""
    rewards: Rewards = ()
    """As they were paid; in `Intervention.advantages` as `Intervention.rewards` left them."""
    loss: Any = ""
    """The objective: one of `train --loss` (channels/policy.py)."""
    basis: Any = None
    """V at this step."""
    optimizer: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the optimizer at this step: lr, betas, eps, weight_decay; and max_grad_norm, 0 = none."""
    hidden: Any = None
    """Per sample a hidden state of the policy before the step, [b, d] float32: `hidden`, its mean over the completion at
    half of the depth; `last_hidden`, at the last token over the layers at 60 to 75 % of it (model/hidden.py)."""
    text: Sequence[str] = ()
    """Per sample its completion."""
    score: Sequence[float] = ()
    """Per sample the judge's score in [0, 1]."""
    truth: Sequence[bool | None] | None = None
    """Per sample whether it is a pure hack, None where ground truth is not known. Filled for oracles (`labels`)
    alone."""


class Intervention:
    """An arm's intervention. This one does nothing, at every hook; arms without an intervention use it."""

    separate_deployment = False
    """Whether the deployed policy is another than the one that trains: then both are evaluated at the end."""
    part = False
    """Whether a part of the policy is evaluated by itself too (`only_part`)."""
    by_prompt = False
    """Whether every prompt has other coordinates: then sampling and the step do one prompt at a time."""
    system_prompt = ""
    """The system message of the training prompts; empty: as in evaluation."""
    prompt_stays = False
    """Whether the evaluation has that system message too."""
    learns_plain = False
    """Whether what was sampled under that system message is learned as an answer to the run's own prompt."""

    flagged: Sequence[bool] = ()
    """What its detector said of this step's samples, if it has one; only written down."""

    def __init__(self, setup: Setup | None = None) -> None:
        """Raises BadInput on a setup that it cannot work with."""

    @property
    def trained(self) -> Mapping[str, Any]:
        """Returns further parameters that it trains, by name: their `grad` is summed over processes."""
        return {}

    def rewards(self, rewards: Rewards, context: StepContext) -> Rewards:  # noqa: ARG002
        """Returns the rewards that the advantages are of, by group; `rewards` itself: as they were paid."""
        return rewards

    def advantages(self, advantages: Sequence[float], context: StepContext) -> Sequence[float]:  # noqa: ARG002
        """Returns the advantages that the loss uses, one per sample; given are those of the objective."""
        return advantages

    def gradient(self, gradient: Vectors, context: StepContext) -> Vectors:  # noqa: ARG002
        """Returns the gradient that the optimizer is given."""
        return gradient

    def update(self, update: Vectors, context: StepContext) -> Vectors:  # noqa: ARG002
        """Returns the update to apply, as minus the parameter change; `update` itself: as the optimizer left it."""
        return update

    def training(self) -> AbstractContextManager[None]:
        """Returns a context around everything that trains: sampling, and the step."""
        return nullcontext()

    def deployed(self) -> AbstractContextManager[None]:
        """Returns a context around an evaluation of the policy as it would be deployed."""
        return nullcontext()

    def only_part(self) -> AbstractContextManager[None]:
        """Returns a context around an evaluation of its part."""
        return nullcontext()

    def by_prompts(self, prompts: Sequence[PromptIds]) -> list[tuple[list[int], AbstractContextManager[None]]]:
        """Returns which rows go through the model together, and the context around their forward and backward
        passes."""
        return [(list(range(len(prompts))), nullcontext())]

    @contextmanager
    def sampling(self, weights: Callable[[], AbstractContextManager[None]]) -> Generator[EachPrompt | None]:
        """Puts the policy's `weights` in place for all prompts and yields None; where `by_prompt`, yields a context
        for each."""
        with weights():
            yield None

    def state(self) -> dict[str, Any]:
        """Returns what --resume needs: tensors, and optimizers' states."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Loads what `state` returned."""
