"""What an intervention is, and what it is shown. A hook that a class does not override changes nothing."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Vectors = Mapping[str, Any]
"""A gradient, or minus an update, of every module: name -> [n]. Both point uphill."""


@dataclass(frozen=True)
class Rewards:
    """Rewards of this process's samples, by group, and their advantages."""

    groups: tuple[tuple[float, ...], ...]
    advantages: tuple[float, ...]
    """Flat, as the objective computes them."""
    kind: str
    """The objective: one of `train --loss` (channels/policy.py)."""


@dataclass(frozen=True)
class Contrast:
    """Mean hidden states of the training pairs' completions in the untrained model, float32."""

    hack: Any
    """[n, d]"""
    clean: Any
    """[n, d]"""


@dataclass(frozen=True)
class Shown:
    """What an intervention is shown. run/intervening.py fills it, expensive fields where `Arm.sees` names them."""

    arm: str = ""
    seed: int = 0
    adapter: str = ""
    """The kind of adapter."""
    step: int = -1
    first: int = 0
    """Place of the first sample among those of all processes."""
    coordinates: Any = None
    """Module -> the parameters that train."""
    model: Any = None
    basis: Any = None
    """V: module -> [k, n], orthonormal rows. None without a V."""
    optimizer: Any = None
    """Settings of the optimizer at this step: lr, betas, eps, weight_decay; and max_grad_norm, 0 = none."""
    pairs: Any = None
    """Contrast, at the same layer as `hidden` (half of the depth)."""
    teacher: Any = None
    """The hacky teacher's weights minus the model's: module -> [d_out, d_in]."""
    finished: Any = None
    """theta at the end of the vanilla run that --of names, minus theta at its start: module -> [n]."""
    hidden: Any = None
    """Per sample the mean hidden state over its completion, of the policy before the step: [b, d] float32."""
    text: Sequence[str] | None = None
    """Per sample its completion."""
    score: Sequence[float] | None = None
    """Per sample the judge's score in [0, 1]."""
    truth: Sequence[bool | None] | None = None
    """Per sample whether it is a pure hack, None where ground truth is not known. Filled for oracles (`labels`) alone."""


class Intervention:
    """An arm's intervention: does nothing, at every hook."""

    apart = False
    """Whether the policy that is deployed is another than the one that trains: then both are evaluated at the end."""
    by_prompt = False
    """Whether the coordinates are others for every prompt: then sampling and the step do one prompt at a time (`routed`)."""
    part = ""
    """What of the policy is evaluated by itself too (`alone`), in words; empty: nothing."""
    told = ""
    """One line about what it was made of, logged once."""
    prompt_setup = ""
    """The set-up of the training prompts (prompts.py); empty: the run's own, as in evaluation."""

    def __init__(self, setup: Shown | None = None) -> None:
        """`setup`: what there is before the first step. Raises BadInput on what it cannot work with."""

    @property
    def trained(self) -> Mapping[str, Any]:
        """Parameters of its own, by name: their `grad` is summed over processes as the coordinates' is."""
        return {}

    def advantages(self, rewards: Rewards, shown: Shown) -> Sequence[float] | None:
        """Returns the advantages to use instead, flat; None: as they are."""

    def gradient(self, gradient: Vectors, shown: Shown) -> Vectors | None:
        """Returns the gradient to use instead; None: as it is."""

    def update(self, update: Vectors, shown: Shown) -> Vectors | None:
        """Returns the update to apply instead, as minus the parameter change; None: as it is."""

    @contextmanager
    def training(self) -> Generator[None]:
        """Around everything that trains: sampling, and the step."""
        yield

    @contextmanager
    def deployed(self) -> Generator[None]:
        """Around an evaluation of the policy as it would be deployed."""
        yield

    @contextmanager
    def alone(self) -> Generator[None]:
        """Around an evaluation of `part`."""
        yield

    @contextmanager
    def routed(self, question: Any) -> Generator[None]:  # noqa: ARG002
        """Around what is done with one prompt where `by_prompt`: folding and sampling, forward and backward of its rows.
        Inside deployed() and alone() too; a gradient is there at the end in training alone. `question`: mean hidden state
        of the prompt in the untrained model, [d] float32."""
        yield

    def state(self) -> dict[str, Any]:
        """Returns what has to be kept for --resume: tensors by name."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Loads what `state` returned."""
