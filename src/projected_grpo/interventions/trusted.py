"""Trusted subspace: of every gradient only what lies in the span of clean completions' gradients is kept.

    kept_m = V_m^T V_m g_m        V_m [k, n]: top right singular vectors of the clean sides' gradients, orthonormal

The opposite of the projection: what is not known to be clean goes, where projection removes what is known to be a
hack. The identity for a module whose V spans all of it; nothing trains in a module whose V has no rows.

Deviations from TDGA (only its abstract and summaries were at hand):
1. its subspace is that of a parameter change in a short clean warm-up; here it is the span of clean completions' gradients;
2. its directions are weighted by their singular values; here every one in the span counts in full;
3. `Update` is ours: the optimizer turns a projected gradient out of the span again, so the applied update is held in it.

Source: Deng et al. 2026, "Directional Alignment Mitigates Reward Hacking" (TDGA), arXiv:2605.25189.
"""

from projected_grpo.interventions.base import Intervention, StepContext, Vectors
from projected_grpo.projection import Basis


def within(vectors: Vectors, basis: Basis) -> Vectors:
    """V^T V g of every module."""
    return {name: basis[name].T @ (basis[name] @ g) for name, g in vectors.items()}


class Gradient(Intervention):
    """The gradient is held in the span, as in the source."""

    def gradient(self, gradient: Vectors, context: StepContext) -> Vectors:
        return within(gradient, context.basis)


class Update(Intervention):
    """The applied update is held in the span, whatever the optimizer made of the gradient."""

    def update(self, update: Vectors, context: StepContext) -> Vectors:
        return within(update, context.basis)
