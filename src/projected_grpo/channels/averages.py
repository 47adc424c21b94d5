"""How a channel's tokens are averaged, so that the parts of a step add up to the step's mean."""

from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor

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
