"""THE IDEA: take the hack component out of a gradient, and measure what was there before and after.

Per module, with orthonormal rows V [k, n] oriented so that V g > 0 pushes hack-ward, and c = V g:

    removed = overshoot taken(c) V         taken: the gate (gates.py), e.g. relu(c) for one_sided, c for no_gate
    kept    = g - removed                  rescaled to ||g|| with preserve_magnitude

Under one_sided and no_gate the hack-ward fraction afterwards is 0 by construction: an identity, not evidence. What is
evidence is measured again by the caller on the tensor that the optimizer is really given (`measure`), on the applied
update, and in the signed cosines.

Exactly the identity for a module whose V has no rows. Reference: github.com/wassname/grpo_proj2 (25ad306)
src/projected_grpo/proj.py:20-59; the expected numbers are in tests/references.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from projected_grpo.gates import GATES, GateName

Vectors = Mapping[str, Float[Tensor, " _n"]]
"""A gradient (or minus an update) of every module."""
Basis = Mapping[str, Float[Tensor, "_k _n"]]
"""V of every module; a module may have no rows."""
TINY = 1e-12


@dataclass(frozen=True)
class Hackward:
    """A gradient against V, averaged over the modules that have directions and a gradient. None: there is no such module."""

    cos: float | None
    """||relu(V g)|| / ||g||, hack-ward fraction in [0, 1]."""
    cos_signed: float | None
    """sum_i (V g)_i / ||g||: also counts what points away from the hack."""


@dataclass(frozen=True)
class Projection:
    """What is done with V: measured only (`target` none), or taken out of the gradient or of the update."""

    basis: Basis | None = None
    target: Literal["none", "grad", "update"] = "none"
    gate: GateName = "no_gate"
    overshoot: float = 1.0
    """Scales what is removed."""
    preserve_magnitude: bool = False
    """Rescale what is left to the norm it had."""

    def apply(self, vectors: Vectors) -> tuple[dict[str, Float[Tensor, " _n"]], float]:
        """(projected vectors, fraction of all modules in which the gate removed anything). ValueError without V."""
        if self.basis is None:
            raise ValueError("no V to project with")
        kept, fired = {}, 0
        for name, g in vectors.items():
            kept[name], removed = project_vector(
                g, self.basis[name], self.gate, self.overshoot, self.preserve_magnitude
            )
            fired += bool(removed.any())
        return kept, fired / max(len(vectors), 1)

    def measure(self, vectors: Vectors) -> Hackward:
        """Hack-ward fractions; both None without V."""
        return Hackward(None, None) if self.basis is None else measure(vectors, self.basis)


def hackward(g: Float[Tensor, " n"], v: Float[Tensor, "k n"]) -> tuple[Tensor, Tensor]:
    """(||relu(V g)||, sum_i (V g)_i), each over max(||g||, 1e-12)."""
    c = v @ g
    norm = g.norm().clamp(min=TINY)
    return c.relu().norm() / norm, c.sum() / norm


def project_vector(
    g: Float[Tensor, " n"],
    v: Float[Tensor, "k n"],
    gate: GateName,
    overshoot: float = 1.0,
    preserve_magnitude: bool = False,
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """(kept, removed) of one module's gradient. `removed` has the overshoot in it but not the rescale. ValueError on a gate
    that is not in the registry."""
    if gate not in GATES:
        raise ValueError(f"unknown gate {gate!r}: one of {', '.join(GATES)}")
    removed = overshoot * (GATES[gate].taken(v @ g) @ v)
    kept = g - removed
    if preserve_magnitude:
        kept = kept * (g.norm() / kept.norm().clamp(min=TINY))
    return kept, removed


def measure(vectors: Vectors, basis: Basis) -> Hackward:
    """Hack-ward fractions of a gradient (or of minus an update), averaged over modules."""
    pairs = [hackward(g, basis[m]) for m, g in vectors.items() if len(basis[m]) and float(g.norm()) > 0]
    if not pairs:
        return Hackward(None, None)
    cos, signed = (float(torch.stack(column).mean()) for column in zip(*pairs, strict=True))
    return Hackward(cos, signed)


def null_cosine(basis: Basis) -> float | None:
    """Expected ||V g|| / ||g|| of a random direction: mean over modules of sqrt(k / n). None without directions.

    The one-sided measure of a random direction is about this over sqrt(2): half of the axes are negative.
    """
    ratios = [(v.shape[0] / v.shape[1]) ** 0.5 for v in basis.values() if len(v)]
    return sum(ratios) / len(ratios) if ratios else None
