"""What a page of this folder is, and what it is shown. Torch-free, and importing the registry of arms alone: a file of
another package that adds an arm is read while that registry is made, and may hold the arm's page too.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from projected_grpo.arms import SEES, Arm

Vectors = Mapping[str, Any]
"""A gradient, or minus an update, of every module: name -> [n]."""


class UndeclaredError(AttributeError):
    """A page read what its entry does not declare, or what is not shown at this hook."""


@dataclass(frozen=True)
class Rewards:
    """The field `rewards`: what this process's samples earned, groups one after the other."""

    groups: tuple[tuple[float, ...], ...]
    """By prompt."""
    advantages: tuple[float, ...]
    """Flat, as the objective makes them of the rewards."""
    kind: str
    """How it does: one of `train --loss` (channels/policy.py)."""


@dataclass(frozen=True)
class Contrast:
    """The field `pairs`: mean hidden states of the training pairs' completions in the untrained model, float32."""

    hack: Any
    """[n, d]"""
    clean: Any
    """[n, d]"""


class View:
    """What one hook of one arm is shown. Of the fields that it is made with it keeps those that the entry declares.

    Fields, each made when it is first read:
    gradient, update    module -> [n]; the update as minus the parameter change, so that both point uphill
    basis               V: module -> [k, n], orthonormal rows; None where the run has none
    rewards             Rewards
    truth               of every sample, whether it is a pure hack; None where ground truth is not known (oracles alone)
    hidden              of every sample the mean hidden state over its completion, of the policy as it is: [b, d] float32
    text                of every sample its completion's text
    score               of every sample the judge's score in [0, 1]
    question            of one prompt the mean hidden state over its tokens, of the untrained model: [d] float32, same layer
    pairs               Contrast, at the same layer as `hidden` (half of the depth)
    coordinates         module -> the parameters that train themselves: to write to them is to train
    optimizer           settings of the optimizer at this step: lr, betas, eps, weight_decay; and max_grad_norm, 0 = none
    model               the model itself
    teacher             the hacky teacher's weights minus the model's: module -> [d_out, d_in]
    prompt              nothing to read: that an arm is told by a prompt (`prompt_setup`)
    finished            theta at the end of the vanilla run that --of names, minus theta at its start: module -> [n]
    step, seed, first   always there: the step, the run's seed, the place of the first sample among those of all processes
    adapter             always there before the first step: the kind of adapter
    """

    def __init__(
        self,
        arm: Arm,
        fields: Mapping[str, Callable[[], Any]],
        *,
        step: int = -1,
        seed: int = 0,
        first: int = 0,
        adapter: str = "",
    ) -> None:
        self.arm, self.step, self.seed, self.first, self.adapter = arm.name, step, seed, first, adapter
        self._declared = arm.sees
        self._fields = {name: made for name, made in fields.items() if name in arm.sees}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._fields:
            value = self.__dict__[name] = self._fields[name]()
            return value
        if name not in self._declared:
            known = "declare it in its entry (arms.py, sees)" if name in SEES else f"there is {', '.join(SEES)}"
            raise UndeclaredError(f"arm {self.arm} reads {name!r} and declares {', '.join(self._declared)}: {known}")
        raise UndeclaredError(f"arm {self.arm} reads {name!r}, which is not shown at this hook")


class Intervention:
    """A page: does nothing, at every hook."""

    apart = False
    """Whether the policy that is deployed is another than the one that trains: then both are evaluated at the end."""
    by_prompt = False
    """Whether the coordinates are others for every prompt: then sampling and the step do one prompt at a time (`routed`)."""
    part = ""
    """What of the policy is evaluated by itself too (`alone`), in words; empty: nothing."""
    told = ""
    """One line about what the page was made of, logged once."""
    prompt_setup = ""
    """The set-up of the training prompts (prompts.py); empty: the run's own, as in evaluation."""

    def __init__(self, setting: View | None = None) -> None:
        """`setting`: what there is before the first step. BadInput on what the page cannot work with."""

    @property
    def trained(self) -> Mapping[str, Any]:
        """Parameters of the page's own, by name: their `grad` is summed over processes as the coordinates' is."""
        return {}

    def advantages(self, view: View) -> Sequence[float] | None:
        """The advantages to use instead, flat; None: as they are."""

    def gradient(self, view: View) -> Vectors | None:
        """The gradient to use instead; None: as it is."""

    def update(self, view: View) -> Vectors | None:
        """The update to apply instead, as minus the parameter change; None: as it is."""

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
    def routed(self, view: View) -> Generator[None]:  # noqa: ARG002 - a page reads it
        """Around what is done with one prompt where `by_prompt`: folding and sampling, forward and backward of its rows.
        Inside deployed() and alone() too; a gradient is there at the end in training alone."""
        yield

    def state(self) -> dict[str, Any]:
        """What has to be kept for --resume: tensors by name."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` gave."""
