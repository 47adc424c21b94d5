"""verify: does V point hack-ward on pairs that it has never seen?"""

from collections.abc import Sequence

from scipy import stats

from projected_grpo.ledger.rates import mean
from projected_grpo.verdicts.probe import ALPHA
from projected_grpo.verdicts.registry import Finding


def _rank_p(observed: float, null: Sequence[float]) -> float:
    """Monte Carlo p-value that the null reaches the observed value: (1 + how many do) / (1 + n)."""
    return (1 + sum(x >= observed for x in null)) / (1 + len(null))


def vhack_verdict(
    energy: Sequence[float],
    null: Sequence[float],
    cosine: Sequence[float],
    random_energy: Sequence[float],
    random_cosine: Sequence[float],
) -> Finding:
    """V on held-out pairs: mean energy and mean hack-ward cosine above those of random bases of the same rank, and more
    pairs hack-ward than chance (sign test). All three at p < 0.05; below 5 pairs the sign test cannot reach that, so
    nothing is claimed."""
    n = len(energy)
    positive = sum(c > 0 for c in cosine)
    mean_energy, mean_null, mean_cos = mean(energy), mean(null), mean(cosine)
    numbers = {"n": n, "energy": mean_energy, "null": mean_null, "cosine": mean_cos, "positive": positive}
    if n < 5 or mean_energy is None or mean_null is None or mean_cos is None:
        return Finding("verify", "NOT_EVALUABLE", f"{n} held-out pairs; at least 5 are needed", numbers)
    sign_p = float(stats.binomtest(positive, n, 0.5, alternative="greater").pvalue)
    energy_p, cosine_p = _rank_p(mean_energy, random_energy), _rank_p(mean_cos, random_cosine)
    ok = max(energy_p, cosine_p, sign_p) < ALPHA
    why = f"held-out energy {mean_energy:.4f} v. null {mean_null:.4f} (p = {energy_p:.2g})"
    why += f"; cosine {mean_cos:+.4f} (p = {cosine_p:.2g}); {positive} of {n} pairs hack-ward (p = {sign_p:.2g})"
    why += f"; each needs p < {ALPHA}; {len(random_energy)} random bases"
    found = {**numbers, "energy_p": energy_p, "cosine_p": cosine_p, "sign_p": sign_p}
    return Finding("verify", "PASS" if ok else "FAIL", why, found)
