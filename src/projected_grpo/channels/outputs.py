"""What a channel gives back."""

from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class LossOutputs:
    """A channel's part of the loss. The names are prime-rl's (src/prime_rl/trainer/rl/loss.py at 559b447), whose trainer
    reads `loss` and `metrics` and nothing else."""

    loss: Float[Tensor, ""]
    """Attached to the graph, also where there was nothing to learn from: then it is an exact zero with zero gradients."""
    metrics: dict[str, Tensor] = field(default_factory=dict)
    """Detached; scalars."""
