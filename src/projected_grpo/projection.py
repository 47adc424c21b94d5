"""Take the hack component out of a gradient, and measure what was there before and after.

Per module, with orthonormal rows V [k, n] oriented so that V g > 0 pushes hack-ward, and c = V g:

    one_sided   removed = relu(c) V      no_gate   removed = c V      reverse   removed = 2 c V

`overshoot` scales removed; `preserve_magnitude` rescales what is left to ||g||. Under one_sided the hack-ward fraction
afterwards is 0 by construction: an identity, not evidence. What is evidence is measured again by the caller on the
tensor that the optimizer is really given (`measure`), on the applied update, and in the signed cosines.

Exactly the identity for a module whose V has no rows. Reference: github.com/wassname/grpo_proj2 (25ad306)
src/projected_grpo/proj.py:20-59; the expected numbers are in tests/references.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

Gate = Literal["one_sided", "no_gate", "reverse"]
Basis = Mapping[str, Float[Tensor, "_k _n"]]
"""V of every module; a module may have no rows."""
TINY = 1e-12


@dataclass(frozen=True)
class Measure:
    """A gradient against V, averaged over the modules that have directions and a gradient; None if none has."""

    cos: float | None
    """||relu(V g)|| / ||g||, hack-ward fraction in [0, 1]."""
    cos_signed: float | None
    """sum_i (V g)_i / ||g||: also counts what points away from the hack."""


def hackward(g: Float[Tensor, " n"], v: Float[Tensor, "k n"]) -> tuple[Tensor, Tensor]:
    """(||relu(V g)||, sum_i (V g)_i), each over max(||g||, 1e-12)."""
    c = v @ g
    norm = g.norm().clamp(min=TINY)
    return c.relu().norm() / norm, c.sum() / norm


def project_vector(
    g: Float[Tensor, " n"],
    v: Float[Tensor, "k n"],
    gate: Gate,
    overshoot: float = 1.0,
    preserve_magnitude: bool = False,
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """(kept, removed) of one module's gradient. `removed` has the overshoot in it but not the rescale."""
    c = v @ g
    if gate == "one_sided":
        c = c.relu()
    elif gate == "reverse":
        c = 2 * c
    elif gate != "no_gate":
        raise ValueError(f"unknown gate {gate!r}: one_sided, no_gate or reverse")
    removed = overshoot * (c @ v)
    kept = g - removed
    if preserve_magnitude:
        kept = kept * (g.norm() / kept.norm().clamp(min=TINY))
    return kept, removed


def measure(grads: Mapping[str, Float[Tensor, " _n"]], basis: Basis) -> Measure:
    """Hack-ward fractions of a gradient (or of minus an update), averaged over modules."""
    pairs = [hackward(g, basis[m]) for m, g in grads.items() if len(basis[m]) and float(g.norm()) > 0]
    if not pairs:
        return Measure(None, None)
    cos, signed = (float(torch.stack(column).mean()) for column in zip(*pairs, strict=True))
    return Measure(cos, signed)


def project(
    grads: Mapping[str, Float[Tensor, " _n"]],
    basis: Basis,
    gate: Gate,
    overshoot: float = 1.0,
    preserve_magnitude: bool = False,
) -> tuple[dict[str, Float[Tensor, " _n"]], float]:
    """(kept gradients, fraction of all modules in which the gate removed anything)."""
    kept, fired = {}, 0
    for name, g in grads.items():
        kept[name], removed = project_vector(g, basis[name], gate, overshoot, preserve_magnitude)
        fired += bool(removed.any())
    return kept, fired / max(len(grads), 1)


def null_cosine(basis: Basis) -> float | None:
    """Expected ||V g|| / ||g|| of a random direction: mean over modules of sqrt(k / n). None without directions.

    The one-sided measure of a random direction is about this over sqrt(2): half of the axes are negative.
    """
    ratios = [(v.shape[0] / v.shape[1]) ** 0.5 for v in basis.values() if len(v)]
    return sum(ratios) / len(ratios) if ratios else None
