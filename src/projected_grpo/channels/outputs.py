"""What a channel gives back, and how its tokens are averaged, so that the parts of a step add up to the step's
mean."""

from dataclasses import dataclass, field
from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True)
class LossOutputs:
    """A channel's part of the loss. The names are prime-rl's (src/prime_rl/trainer/rl/loss.py at 559b447), whose
    trainer reads `loss` and `metrics` and nothing else."""

    loss: Float[Tensor, ""]
    """Attached to the graph, also where there was nothing to learn from: then it is an exact zero with zero
    gradients."""
    metrics: dict[str, Tensor] = field(default_factory=dict)
    """Detached; scalars."""


Average = Literal["tokens", "sequences"]
"""tokens: every valid token counts the same. sequences: every sequence does, an empty one as 0."""


def shares(mask: Bool[Tensor, "b t"], like: Tensor, average: Average, whole: int | None) -> Float[Tensor, " n"]:
    """Weight of each valid token, in the order of `x[mask]` and of `like`'s type.

    whole: valid tokens (or sequences) of the whole step, of which this batch may be a part; None: of this batch.
    """
    lengths = mask.sum(1)
    if average == "tokens":
        return like.new_full((int(lengths.sum()),), 1 / max(int(lengths.sum()) if whole is None else whole, 1))
    rows = max(len(mask) if whole is None else whole, 1)
    return (1 / (lengths.clamp(min=1).to(like) * rows))[:, None].expand(mask.shape)[mask]
