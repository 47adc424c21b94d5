"""How long a run is: a multiple of the step at which vanilla began to hack, since a delay is no prevention. Vanilla
stops there by itself, and the other arms of its replicate take its number of steps (run/horizon.py).

Only the length depends on what the grader said.
"""

import math
from collections.abc import Sequence

from projected_grpo.config import TrainConfig
from projected_grpo.ledger.rates import judged_hack, onset_of, rates
from projected_grpo.ledger.step_file import Row, read_step, step_path
from projected_grpo.run.run_folder import RunFolder


class StoppingRule:
    """Says when a run of --until-onsets is long enough: at that multiple of its onset. Without it never."""

    def __init__(self, config: TrainConfig, run: RunFolder) -> None:
        self.onsets, self.hack = config.until_onsets, list[float | None]()
        if self.onsets:
            before = range(run.next_step)
            self.hack = run.ranks.on_rank0(lambda: [hack_rate(read_step(step_path(run.path, n))) for n in before])

    def add(self, rows: Sequence[Row]) -> None:
        """Adds the rows of a step."""
        self.hack.append(hack_rate(rows))

    @property
    def reached(self) -> bool:
        """Returns whether the run is long enough."""
        return reached(self.onsets, self.hack)


def reached(until_onsets: float, hack: Sequence[float | None]) -> bool:
    """Returns whether a run is long enough: `until_onsets` (0 = never) times its onset. hack: `hack_rate` of each
    step."""
    onset = onset_of(hack) if until_onsets else None
    return onset is not None and len(hack) >= math.ceil(until_onsets * onset)


def hack_rate(rows: Sequence[Row]) -> float | None:
    """Returns the rate of pure hacks among a step's student rows; None where ground truth is known of too few."""
    own = [r for r in rows if r["source"] == "student"]
    known = sum(r["gt_pass"] is not None for r in own)
    return judged_hack(rates(own)["hack"], known, len(own))
