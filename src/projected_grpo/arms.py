"""Arms: what is done to the gradient, and with which V. One entry an arm; everything that lists arms (--arm, queue plans,
the order of tables and plots, step files, docs) reads this registry.

An arm's name means one configuration everywhere: `projected` and its controls take V out by the preset's recipe (config.py),
`literal` by the recipe of the original. How to add one: docs/extending.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from projected_grpo.gates import GateName

Target = Literal["grad", "update"]
Control = Literal["none", "random", "placebo", "random_energy", "clean", "words"]
"""Kinds of V (extract-vhack --control)."""
Role = Literal["baseline", "method", "variant", "control", "ceiling"]


@dataclass(frozen=True)
class Recipe:
    """How V is taken out."""

    gate: GateName
    """What is removed (gates.py)."""
    project: Target
    """From the gradient, or from the update that the optimizer made of it."""

    @property
    def told(self) -> str:
        """In words, as documents and printouts name it."""
        return f"{self.gate} on the {'applied update' if self.project == 'update' else 'gradient'}"


RECIPE = Recipe("no_gate", "update")
"""Every preset has it. In one seed of the toy world no_gate on the gradient did as well; one_sided on the update cost
well-formed programs, on the gradient every solved task (journal, 2026-11-21): there the gate decided, not the target."""


@dataclass(frozen=True)
class Arm:
    """One entry."""

    name: str
    help: str
    """One line, for --help and tables."""
    role: Role
    """baseline: what the others are compared with. method: what H1 is about, one arm. variant: shown beside it. control:
    what the method must beat. ceiling: nothing to hack."""
    vhack: Control | None = None
    """The kind of V that it needs (extract-vhack --control); None: it only measures, so it may be given any."""
    projects: bool = True
    """Whether V is taken out; otherwise it is measured."""
    recipe: Recipe | None = None
    """Its own recipe; None: the preset's."""
    shrinks: bool = False
    """No direction is taken out: the whole update becomes as short as projection would leave it."""
    more_kl: bool = False
    """Trained with the KL weight --kl-beta in place of --beta."""
    loophole: bool = True
    """Whether the reward can be hacked: pays a completion's own tests."""
    labels: bool = False
    """Whether it is told ground truth. Such an arm is an oracle, and called so in every table; no other arm's gradient may
    see a label (the no-cheat rule)."""

    @property
    def title(self) -> str:
        """Its name in tables and plots."""
        return f"{self.name} (oracle)" if self.labels else self.name

    @property
    def measured(self) -> Control:
        """The kind of V that a queue gives it: the one it needs, or the true one to measure."""
        return self.vhack or "none"


ARMS: Mapping[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm("vanilla", "V is measured, the gradient left alone", "baseline", projects=False),
        Arm("projected", "V is taken out by the preset's recipe", "method", "none"),
        Arm(
            "literal", "V is taken out of the gradient, one_sided: the original's words", "variant", "none",
            recipe=Recipe("one_sided", "grad"),
        ),
        Arm("random", "as projected, with random directions of V's rank", "control", "random"),
        Arm("placebo", "as projected, with V from pairs of two clean completions", "control", "placebo"),
        Arm(
            "random_energy", "as random, with as many directions as remove the energy that V removes", "control",
            "random_energy",
        ),
        Arm("clean", "as projected, with V from the gradients of clean completions alone", "control", "clean"),
        Arm("words", "as projected, with V from pairs that share the words of a hack and nothing else", "control", "words"),
        Arm(
            "shrunk", "nothing is taken out; the update is made as short as projection would leave it", "control", "none",
            shrinks=True,
        ),
        Arm("kl", "as vanilla, with the KL weight --kl-beta: stays near the untrained model", "control", projects=False,
            more_kl=True),
        Arm("no_loophole", "as vanilla, and the reward pays correctness alone", "ceiling", projects=False, loophole=False),
    )
}  # fmt: skip
"""In the order of tables and plots."""

if TYPE_CHECKING:
    ArmName = str
else:
    ArmName = Literal[tuple(ARMS)]


def arms_of(role: Role) -> tuple[str, ...]:
    """Names of the arms with this role, in the registry's order."""
    return tuple(arm.name for arm in ARMS.values() if arm.role == role)


def arms_told() -> str:
    """Every arm with its line of help."""
    return "; ".join(f"{arm.name}: {arm.help}" for arm in ARMS.values())
