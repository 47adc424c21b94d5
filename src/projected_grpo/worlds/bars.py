"""Compares the rollouts of a model that is built here with its world's bars: verdicts of the project's
specification."""

from collections.abc import Sequence

from projected_grpo.ledger.rates import TITLES, rates
from projected_grpo.ledger.step_file import Row
from projected_grpo.verdicts.registry import Finding
from projected_grpo.worlds.world import Bars


def compared_with_bars(source: str, bars: Bars, rows: Sequence[Row]) -> list[Finding]:
    """Returns one verdict per bar of a `base` or a `teacher`."""
    measured = rates(rows)
    found = []
    for name, (low, high) in bars.items():
        rate, title = measured[name], f"{source} {TITLES[name]}"
        if rate is None:
            found.append(Finding(title, "NOT_EVALUABLE", "no rollout with known ground truth"))
            continue
        why = f"{rate:.4f} of {len(rows)} rollouts (needs {low:g} to {high:g})"
        found.append(Finding(title, "PASS" if low <= rate <= high else "FAIL", why, {name: rate}))
    return found
