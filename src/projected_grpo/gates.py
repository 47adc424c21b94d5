"""Gates: which part of a gradient's component along V is taken out. One entry a gate; everything that lists gates (--gate,
projection, docs) reads this registry.

Per module, with orthonormal rows V [k, n] turned so that V g > 0 pushes hack-ward, and c = V g [k], a gate says
`removed = taken(c) V`. Torch-free: it calls the tensor's own methods. How to add one: docs/extending.md.

Source of the three: github.com/wassname/grpo_proj2 (25ad306) src/projected_grpo/proj.py:20-59.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Gate:
    """One way to choose what is removed."""

    name: str
    help: str
    """One line, for --help and tables."""
    taken: "Callable[[torch.Tensor], torch.Tensor]"
    """c [k] -> the coefficients on V's rows that are removed, [k]."""


GATES = {
    gate.name: gate
    for gate in (
        Gate("one_sided", "relu(V g): what pushes hack-ward, row by row", lambda c: c.relu()),
        Gate("no_gate", "V g: the whole component along V", lambda c: c),
        Gate("reverse", "2 V g: the component along V changes its sign", lambda c: 2 * c),
    )
}

if TYPE_CHECKING:
    GateName = str
else:
    GateName = Literal[tuple(GATES)]


def gates_told() -> str:
    """Every gate with its line of help."""
    return "; ".join(f"{gate.name} removes {gate.help}" for gate in GATES.values())
