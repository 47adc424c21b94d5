"""THE IDEA: take the hack component out of a gradient, and measure what was there before and after.

Per module, with orthonormal rows V [k, n] oriented so that V g > 0 pushes hack-ward, and c = V g:

    removed = overshoot taken(c) V         taken: the gate (arms.py), e.g. relu(c) for one_sided, c for no_gate
    kept    = g - removed                  rescaled to ||g|| with preserve_magnitude

Under one_sided and no_gate the hack-ward fraction afterwards is 0 by construction: an identity, not evidence. What is
evidence is measured again by the caller on the tensor that the optimizer is really given (`measure`), on the applied
update, and in the signed cosines.

Exactly the identity for a module whose V has no rows. Reference: github.com/wassname/grpo_proj2 (25ad306)
src/projected_grpo/proj.py:20-59; the expected numbers are in tests/references.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

import torch
from jaxtyping import Float
from scipy.linalg import subspace_angles
from torch import Tensor

from projected_grpo.arms import GATES, OF_POSITION, GateName

Vectors = Mapping[str, Float[Tensor, " _n"]]
"""A gradient (or minus an update) of every module."""
Basis = Mapping[str, Float[Tensor, "_k _n"]]
"""V of every module; a module may have no rows."""
TINY = 1e-12
ROUNDING = 1e-5
"""What a gate takes below this share of a vector is rounding of the products, not something to take."""


@dataclass(frozen=True)
class Along:
    """One module's gradient (or minus its update) against its V."""

    k: int
    """Rows of V; 0: nothing can be said."""
    hackward: float
    """||relu(V g)||."""
    signed: float
    """sum_i (V g)_i."""
    along: float
    """||V g||."""
    norm: float
    """||g||."""

    @property
    def known(self) -> bool:
        """Whether there are directions, and a gradient."""
        return self.k > 0 and self.norm > 0

    @property
    def cos(self) -> float:
        """Hack-ward fraction of the gradient."""
        return self.hackward / max(self.norm, TINY)


@dataclass(frozen=True)
class Projection:
    """What is done with V: measured only (`target` none), or removed from the gradient or from the update."""

    basis: Basis = field(default_factory=dict)
    """Empty without V."""
    target: Literal["none", "grad", "update"] = "none"
    gate: GateName = "no_gate"
    overshoot: float = 1.0
    """Scales what is removed."""
    preserve_magnitude: bool = False
    """Rescale what is left to the norm it had."""
    shrink: bool = False
    """Take no direction out: make the whole vector as short as what would be left. The control for a smaller step."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Of a module's energy, to be removed each time: by as many of its first rows as hold it. Empty: all rows are."""

    def position(self, theta: Vectors | None, name: str) -> Tensor | float:
        """Returns where a module's update starts, for a gate of the position; 0 for any other."""
        return theta[name] if theta and self.gate in OF_POSITION else 0.0

    def rows(self, name: str, g: Float[Tensor, " n"]) -> Float[Tensor, "k n"]:
        """Returns the rows of V that are removed from one module's vector: all, or the first ones by which its `shares`
        is removed. Of those the last is shorter than 1, so that it is removed in part and the share is met."""
        v = self.basis[name]
        if name not in self.shares:
            return v
        c = v @ g
        taken = GATES[self.gate](c)
        energy = taken * (2 * c - taken)  # that each row takes away: c^2 - (c - taken)^2
        lacking = self.shares[name] * g.square().sum() - energy.cumsum(0)
        whole = int((lacking > 0).sum())
        if whole == len(v):
            return v
        part = (lacking[whole] / energy[whole] + 1).clamp(0, 1)  # of this row's energy
        return torch.cat([v[:whole], (v[whole] * (1 - (1 - part).sqrt()).sqrt())[None]])

    def apply(self, vectors: Vectors, theta: Vectors | None = None) -> tuple[dict[str, Float[Tensor, " _n"]], float]:
        """(projected vectors, fraction of all modules in which the gate removed anything). theta: where the update
        starts, for a gate of the position."""
        kept, fired = {}, 0
        for name, g in vectors.items():
            at = self.position(theta, name)
            v = self.rows(name, g)
            kept[name], removed = project_vector(g, v, self.gate, self.overshoot, self.preserve_magnitude, at)
            if self.shrink:
                kept[name] = g * (kept[name].norm() / g.norm().clamp(min=TINY))
            fired += bool(removed.any())
        return kept, fired / max(len(vectors), 1)

    def apply_to(
        self, target: Literal["grad", "update"], vectors: Vectors, theta: Vectors | None = None
    ) -> tuple[Vectors, float]:
        """As `apply` where this is the projection's target; else (the vectors themselves, 0)."""
        return self.apply(vectors, theta) if self.target == target else (vectors, 0.0)

    def removed_share(
        self, before: Vectors, after: Vectors, theta: Vectors | None = None
    ) -> tuple[float | None, float | None]:
        """Of what the gate removes from `before` at overshoot 1, e, how much is gone in `after`: <before - after, e>
        / ||e||^2 per module, as (its mean, the fraction of modules in which it is within a tenth of 1). Modules with
        nothing to take are left out; Nones where there is no other, or where nothing is to be removed at all."""
        if self.target == "none":
            return None, None
        shares = []
        for name, g in before.items():
            at = self.position(theta, name)
            v = self.rows(name, g)
            taken = GATES[self.gate](v @ (g - at)) @ v
            if float(taken.norm()) > ROUNDING * float(g.norm()):
                shares.append(((g - after[name]) @ taken) / taken.square().sum())
        if not shares:
            return None, None
        found = torch.stack(shares)
        return float(found.mean()), float(((found - 1).abs() <= 0.1).float().mean())


def project_vector(
    g: Float[Tensor, " n"],
    v: Float[Tensor, "k n"],
    gate: GateName,
    overshoot: float = 1.0,
    preserve_magnitude: bool = False,
    at: Float[Tensor, " n"] | float = 0.0,
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """(kept, removed) of one module's gradient. `removed` has the overshoot in it but not the rescale."""
    removed = overshoot * (GATES[gate](v @ (g - at)) @ v)
    kept = g - removed
    if preserve_magnitude:
        kept = kept * (g.norm() / kept.norm().clamp(min=TINY))
    return kept, removed


def profile(vectors: Vectors, basis: Basis) -> dict[str, Along]:
    """Every module against its V, read from the device at once; empty without V."""
    if not basis or not vectors:
        return {}
    rows = []
    for name, g in vectors.items():
        c = basis[name] @ g
        rows.append(torch.stack([c.relu().norm(), c.sum(), c.norm(), g.norm()]))
    return {n: Along(len(basis[n]), *row) for n, row in zip(vectors, torch.stack(rows).tolist(), strict=True)}


def overall(found: Mapping[str, Along]) -> dict[str, float | None]:
    """All modules together, from each one's; Nones where no module has both directions and a gradient.

    cos: hack-ward fraction ||relu(V g)|| / ||g|| in [0, 1], its mean over those modules. cos_signed: the same of
    sum_i (V g)_i / ||g||, which also counts what points away from the hack. energy: sum_m ||V_m g_m||^2 / ||g||^2 in
    [0, 1]."""
    seen = [m for m in found.values() if m.known]
    if not seen:
        return dict.fromkeys(("cos", "cos_signed", "energy"))
    energy = sum(m.along**2 for m in seen) / sum(m.norm**2 for m in found.values())
    signed = sum(m.signed / max(m.norm, TINY) for m in seen)
    return {"cos": sum(m.cos for m in seen) / len(seen), "cos_signed": signed / len(seen), "energy": energy}


def norm_of(vectors: Vectors) -> float:
    """Returns the norm over all modules."""
    return float(torch.linalg.vector_norm(torch.stack([v.norm() for v in vectors.values()])))


def null_cosine(basis: Basis) -> float | None:
    """Expected ||V g|| / ||g|| of a random direction: mean over modules of sqrt(k / n). None without directions.

    The one-sided measure of a random direction is about this over sqrt(2): half of the axes are negative.
    """
    ratios = [(v.shape[0] / v.shape[1]) ** 0.5 for v in basis.values() if len(v)]
    return sum(ratios) / len(ratios) if ratios else None


# ---------------------------------------------------------------- two V against each other

SAME = 0.01
"""Radians. Two bases are one subspace when no angle is larger: a row rounded to bfloat16 (2^-9 of a coordinate at
most) turns by about .001, and what two losses make of the same pairs lies apart by many degrees."""


@dataclass(frozen=True)
class ModuleAngles:
    """Both bases in one module; modules without directions in either have none."""

    name: str
    n: int
    angles: tuple[float, ...]
    """Radians, ascending, as many as the smaller basis has rows."""
    null: float
    """Overlap of unrelated subspaces: k / n (of the larger rank). The root of it is what one cosine is compared
    with."""

    @property
    def overlap(self) -> float:
        """Mean squared cosine, ||A B^T||_F^2 / k: 1 for one subspace."""
        return sum(math.cos(a) ** 2 for a in self.angles) / len(self.angles)


def compared(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> list[ModuleAngles]:
    """Principal angles between the spans of both bases' rows, of every module in which both have rows, in the order
    of the first. ValueError on numbers that are not finite.

    cosines of the principal angles = singular values of A B^T, for A [k, n] and B [k', n] with orthonormal rows

    Neither the order of the rows, nor their signs, nor a rotation within their span changes an angle. Source: Björck
    and Golub 1973 (Math. Comp. 27:579), computed by scipy.linalg.subspace_angles (Knyazev and Argentati 2002) in
    float64: it takes small angles from sines, where arccos of a float32 cosine would not tell .0003 from 0."""
    found = []
    for name, v in a.items():
        n, ranks = v.shape[1], (len(v), len(b[name]))
        if min(ranks):
            angles = subspace_angles(*(rows.detach().double().cpu().numpy().T for rows in (v, b[name])))
            found.append(ModuleAngles(name, n, tuple(sorted(map(float, angles))), max(ranks) / n))
    return found


def overlap(new: Mapping[str, Tensor], old: Mapping[str, Tensor]) -> float:
    """Mean over modules of `ModuleAngles.overlap`."""
    return fmean(module.overlap for module in compared(new, old))


def one_subspace(modules: Sequence[ModuleAngles]) -> bool:
    """Both bases are the same in most of the modules that can tell: of two losses every module is another, and one
    module that was turned makes no second V. A module whose V spans all of its coordinates cannot tell."""
    telling = [m for m in modules if len(m.angles) < m.n]
    return bool(telling) and 2 * sum(max(m.angles) <= SAME for m in telling) > len(telling)
