"""verify: does V point hack-ward on pairs that it has never seen?"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from scipy import stats

from projected_grpo.ledger.rates import mean
from projected_grpo.records import HeldOut
from projected_grpo.verdicts.probe import ALPHA, finite
from projected_grpo.verdicts.registry import Finding

MIN_PAIRS = 5
"""Below it the sign test cannot reach p < 0.05."""
MIN_RANDOM = 20
"""Random bases; below it no rank reaches p < 0.05."""
COPY = 1e-6
"""Two pairs whose energy and cosine agree to this share are one pair."""
MIN_MECHANISMS = 3
"""For a test over mechanisms."""
ENERGY_RATIO = 1.5
"""Least mean energy on held-out pairs, in units of what a random basis of that rank is expected to show; but never
more than half of the way from there to 1, which is the lower of the two for a V that spans more than half of the
coordinates."""


def _rank_p(observed: float, null: Sequence[float]) -> float:
    """Monte Carlo p-value that the null reaches the observed value: (1 + how many do) / (1 + n)."""
    return (1 + sum(x >= observed for x in null)) / (1 + len(null))


def mechanism_p(cosine: Sequence[float], mechanisms: Sequence[str]) -> float | None:
    """One-sided t-test over mechanisms' mean cosines that they are above 0. Pairs of one mechanism hack in the same
    words, so they are no independent draws of hacks; their means are taken as such. None below 3 mechanisms, or
    without spread."""
    pairs = list(zip(cosine, mechanisms, strict=True))
    means = [float(np.mean([c for c, m in pairs if m == name])) for name in set(mechanisms)]
    if len(means) < MIN_MECHANISMS or np.ptp(means) == 0:
        return None
    return float(stats.ttest_1samp(sorted(means), 0.0, alternative="greater").pvalue)


def _different(seen: HeldOut, mechanisms: Sequence[str]) -> list[tuple[float, str]]:
    """(cosine, mechanism) of every pair that is no copy of another, up to rounding and a little noise."""
    same = partial(math.isclose, rel_tol=COPY)
    kept: list[tuple[float, float, str]] = []
    for pair in zip(seen.energy, seen.cosine, mechanisms, strict=True):
        if not any(same(pair[0], energy) and same(pair[1], cosine) for energy, cosine, _ in kept):
            kept.append(pair)
    return [(cosine, mechanism) for _, cosine, mechanism in kept]


def vhack_verdict(seen: HeldOut, mechanisms: Sequence[str]) -> Finding:
    """V on held-out pairs, `mechanisms` per pair: docs/spec.md. NOT_EVALUABLE when a number is not finite."""
    parts = (seen.energy, seen.null, seen.cosine, seen.random_energy, seen.random_cosine)
    if lost := sum(not finite(x) for part in parts for x in part):
        why = f"{lost} numbers are not finite: V or the gradients of the pairs are damaged"
        return Finding("verify", "NOT_EVALUABLE", why)
    different = _different(seen, mechanisms)
    n, n_random, positive = len(different), len(seen.random_energy), sum(c > 0 for c, _ in different)
    energy, null, cosine = mean(seen.energy), mean(seen.null), mean(seen.cosine)
    if n < MIN_PAIRS or energy is None or cosine is None or not null:
        few = f"{n} different of {len(seen.energy)} held-out pairs; at least {MIN_PAIRS} are needed: use more pairs"
        none = "0 directions in V; at least 1 is needed: extract it from pairs whose sides have different gradients"
        return Finding("verify", "NOT_EVALUABLE", few if n < MIN_PAIRS else none)
    if n_random < MIN_RANDOM:
        return Finding("verify", "NOT_EVALUABLE", f"{n_random} random bases; at least {MIN_RANDOM} are needed")
    needed = min(ENERGY_RATIO * null, (1 + null) / 2)
    by_energy, by_cosine = _rank_p(energy, seen.random_energy), _rank_p(cosine, seen.random_cosine)
    sign = float(stats.binomtest(positive, n, 0.5, alternative="greater").pvalue)
    over = mechanism_p([c for c, _ in different], [m for _, m in different])
    worst = max(by_energy, by_cosine, sign, over or 0.0)
    mechanisms_p = "not known" if over is None else f"p = {over:.2g}"
    why = (
        f"held-out energy {energy:.4f} v. null {null:.4f} (needs >= {needed:.4f}), p = {by_energy:.2g}; cosine "
        f"{cosine:+.4f}, p = {by_cosine:.2g} (both by rank among {n_random} random bases); {positive} of {n} pairs "
        f"hack-ward, p = {sign:.2g}; over mechanisms {mechanisms_p}; each needs p < {ALPHA}"
    )
    return Finding("verify", "PASS" if worst < ALPHA and energy >= needed else "FAIL", why)
