"""How alike two bases of one coordinate space are: principal angles, and how much of one lies in the other.

    cosines of the principal angles = singular values of A B^T, for A [k, n] and B [k', n] with orthonormal rows

Neither the order of the rows, nor their signs, nor any turn within their span changes an angle: two files that hold one
subspace are known as one, whatever their tensors look like.

Source: Björck and Golub 1973 (Math. Comp. 27:579). Computed by scipy.linalg.subspace_angles (Knyazev and Argentati 2002), in
float64: it takes small angles from sines, where arccos of a float32 cosine would not tell .0003 from 0.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from jaxtyping import Float
from scipy.linalg import subspace_angles
from torch import Tensor

SAME = 0.01
"""Radians. Two bases are one subspace when no angle is larger: a row rounded to bfloat16 (2^-9 of a coordinate at most)
turns by about .001, and what two losses make of the same pairs lies apart by many degrees."""


@dataclass(frozen=True)
class ModuleAngles:
    """Both bases in one module; modules without directions in either have none."""

    name: str
    k: int
    """Rows of the smaller basis."""
    n: int
    angles: tuple[float, ...]
    """Radians, ascending, k of them."""
    larger: int
    """Rows of the larger basis."""

    @property
    def kind(self) -> str:
        """q_proj, k_proj, ...: the last part of the name."""
        return self.name.rpartition(".")[2]

    @property
    def overlap(self) -> float:
        """Mean squared cosine, ||A B^T||_F^2 / k: 1 for one subspace."""
        return sum(math.cos(a) ** 2 for a in self.angles) / self.k

    @property
    def null(self) -> float:
        """What unrelated subspaces show: k / n (of the larger rank). The root of it is what one cosine is compared with."""
        return self.larger / self.n

    @property
    def same(self) -> bool:
        """One subspace, to rounding."""
        return max(self.angles) <= SAME


def principal_angles(a: Float[Tensor, "k n"], b: Float[Tensor, "k2 n"]) -> tuple[float, ...]:
    """Angles between the spans of both bases' rows in radians, ascending, min(k, k2) of them. ValueError without rows, or on
    numbers that are not finite."""
    found = subspace_angles(a.detach().double().cpu().numpy().T, b.detach().double().cpu().numpy().T)
    return tuple(sorted(float(x) for x in found))


def compared(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> list[ModuleAngles]:
    """Every module in which both have rows, in the order of the first."""
    return [
        ModuleAngles(
            name, min(len(a[name]), len(b[name])), a[name].shape[1], principal_angles(a[name], b[name]),
            max(len(a[name]), len(b[name])),
        )
        for name in a
        if len(a[name]) and len(b[name])
    ]  # fmt: skip


def overlap(new: Mapping[str, Tensor], old: Mapping[str, Tensor]) -> float:
    """Mean over modules of ||V_new V_old^T||_F^2 / k, k the smaller rank: 1 for the same subspace, k/r for unrelated
    ones. Modules without directions are left out; 0.0 when there is no other."""
    shares = [
        float((new[n] @ old[n].T).square().sum()) / min(len(new[n]), len(old[n]))
        for n in new
        if len(new[n]) and len(old[n])
    ]
    return sum(shares) / len(shares) if shares else 0.0


def one_subspace(modules: Iterable[ModuleAngles]) -> bool:
    """Both bases are the same in most of the modules that can tell: of two losses every module is another, and one
    module that was turned makes no second V. A module whose V spans all of its coordinates cannot tell."""
    telling = [m for m in modules if m.k < m.n]
    return bool(telling) and 2 * sum(m.same for m in telling) > len(telling)
