"""What one step's rows come to: a number each for the run's series."""

import statistics
from collections.abc import Callable, Mapping, Sequence

from loophole_grader import LABELS
from projected_grpo.ledger.rates import TITLES, any_hack, mean, pure_hack, rates
from projected_grpo.ledger.step_file import Row, in_groups
from projected_grpo.records import PHRASE

COSINES = ("cos_in", "cos_out", "cos_update_in", "cos_update", "cos_null")
ENERGIES = ("energy_in", "energy_update", "update_norm", "update_removed")
PER_CHANNEL = ("loss", "cos", "cos_signed", "energy", "removed", "share")
"""Of the column `channels`: series `CHANNEL.NUMBER`, where that channel is on at any step."""
KINDS: Mapping[str, Callable[[Row], bool]] = {
    "hack": lambda row: pure_hack(row) is True,
    "correct": lambda row: row["gt_pass"] is True and not any_hack(row),
    "all": lambda _: True,
}
"""Kinds of rows whose energy along V has separate numbers: `energy_V of KIND`, and `removed of KIND`, what a gate takes."""
SHARES = (*TITLES, *LABELS, "flat_groups", "phrase")
"""Series that are shares: of rollouts, of groups."""


def step_numbers(rows: Sequence[Row]) -> dict[str, float | None]:
    """The step's values, from its first row, and what its student's rows say; None = not known."""
    first, student = rows[0], [r for r in rows if r["source"] == "student"]
    labelled = [r["label"] for r in student if r["label"] is not None]
    energies: dict[str, float | None] = {}
    for kind, of_kind in KINDS.items():
        both = [(r["energy_V"], r["energy_V_kept"]) for r in student if r["energy_V"] is not None and of_kind(r)]
        energies[f"energy_V of {kind}"] = mean([before for before, _ in both])
        energies[f"removed of {kind}"] = mean([before - kept for before, kept in both if kept is not None])
    return {
        **rates(student),
        **{label: mean([float(x == label) for x in labelled]) for label in LABELS},
        **{name: first[name] for name in (*COSINES, *ENERGIES, "delta_S_norm")},
        "removed_share": None if first["target"] is None else first["removed_share"],
        **energies,
        **{
            f"{channel}.{name}": of.get(name)
            for channel, of in (first["channels"] or {}).items()
            for name in PER_CHANNEL
        },
        "flat_groups": mean([float(len({r["reward"] for r in group}) < 2) for group in in_groups(rows)]),
        "reward_spread": reward_spread(student),
        "phrase": mean([float(bool(PHRASE.search(r["completion"]))) for r in student]),
        "known": float(sum(r["gt_pass"] is not None for r in student)),
        "own": float(len(student)),
        "seconds": first["timing"].get("total"),
    }


def reward_spread(rows: Sequence[Row]) -> float | None:
    """Standard deviation of the rewards within a step's groups, mean over groups; None without rows."""
    return mean([statistics.pstdev([row["reward"] for row in group]) for group in in_groups(rows)])
