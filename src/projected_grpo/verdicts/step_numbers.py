"""What one step's rows come to: a number each for the run's series."""

from collections.abc import Sequence

from loophole_grader import LABELS
from projected_grpo.ledger.rates import TITLES, mean, rates
from projected_grpo.ledger.step_file import Row, in_groups

COSINES = ("cos_in", "cos_out", "cos_update_in", "cos_update", "cos_null")
UPDATE = ("update_norm", "update_removed")
PER_CHANNEL = ("loss", "cos", "cos_signed", "energy", "removed", "share")
"""Of the column `channels`: series `CHANNEL.NUMBER`, where that channel is on at any step."""
SHARES = (*TITLES, *LABELS, "flat_groups")
"""Series that are shares: of rollouts, of groups."""


def step_numbers(rows: Sequence[Row]) -> dict[str, float | None]:
    """The step's values, from its first row, and what its student's rows say; None = not known."""
    first, student = rows[0], [r for r in rows if r["source"] == "student"]
    labelled = [r["label"] for r in student if r["label"] is not None]
    return {
        **rates(student),
        **{label: mean([float(x == label) for x in labelled]) for label in LABELS},
        **{name: first[name] for name in (*COSINES, *UPDATE, "delta_S_norm")},
        "removed_share": None if first["target"] is None else first["removed_share"],
        **{
            f"{channel}.{name}": of.get(name)
            for channel, of in (first["channels"] or {}).items()
            for name in PER_CHANNEL
        },
        "flat_groups": mean([float(len({r["reward"] for r in group}) < 2) for group in in_groups(rows)]),
        "known": float(sum(r["gt_pass"] is not None for r in student)),
        "own": float(len(student)),
        "seconds": first["timing"].get("total"),
    }
