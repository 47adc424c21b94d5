"""How long a run is: a multiple of the step at which vanilla began to hack, since a delay is no prevention. Vanilla stops
there by itself, and the other arms of its replicate take its number of steps.

Only the length depends on what the grader said: this module reads finished steps and answers yes or no.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import finished_manifest, plain
from projected_grpo.ledger.rates import judged_hack, onset_of, rates
from projected_grpo.ledger.step_file import Row, read_step, step_path
from projected_grpo.verdicts.comparison import OF_CHANNELS, SHARED, differences, facts_of, of_arms


def with_horizon(config: TrainConfig) -> TrainConfig:
    """Returns the config with as many steps as the run of `horizon_of` has done. BadInput when that is not this replicate's
    finished vanilla, stopped by its onset."""
    if (run := config.horizon_of) == Path():
        return config
    manifest = own_vanilla(config, run, "--horizon-of")
    if not manifest["config"]["until_onsets"]:
        raise BadInput(f"--horizon-of {run}: ran without --until-onsets, so its length is no horizon; give --steps")
    return replace(config, steps=manifest["steps_done"])


def own_vanilla(config: TrainConfig, run: Path, flag: str) -> Mapping[str, Any]:
    """Returns the manifest of this replicate's finished vanilla run. BadInput when `run`, which `flag` names, is another."""
    manifest = finished_manifest(run, ("train",), flag)
    if (arm := manifest["config"]["arm"]) != "vanilla":
        raise BadInput(f"{flag} {run}: is a run of --arm {arm}, where one of --arm vanilla is needed")
    ours = facts_of({"config": plain(config)})
    about = of_arms("vanilla", config.arm) | OF_CHANNELS
    among = [name for name in SHARED if name in ours]  # what is in no config is not known before the first step
    if differing := differences(facts_of(manifest), ours, about, among):
        raise BadInput(f"{flag} {run}: not this replicate's vanilla: {'; '.join(differing)}")
    return manifest


class Horizon:
    """Says when a run has gone on for long enough. `steps`: how many an earlier call has written."""

    def __init__(self, config: TrainConfig, run: Path, steps: int = 0) -> None:
        self.config = config
        self.hack: list[float | None] = []
        for step in range(steps if config.until_onsets else 0):
            self.add(read_step(step_path(run, step)))

    def add(self, rows: Sequence[Row]) -> None:
        """Takes in one more step."""
        own = [r for r in rows if r["source"] == "student"]
        known = sum(r["gt_pass"] is not None for r in own)
        self.hack.append(judged_hack(rates(own)["hack"], known, len(own)))

    @property
    def reached(self) -> bool:
        """Returns whether the steps so far are enough: `until_onsets` times the onset, where there is one."""
        onset = onset_of(self.hack) if self.config.until_onsets else None
        return onset is not None and len(self.hack) >= math.ceil(self.config.until_onsets * onset)
