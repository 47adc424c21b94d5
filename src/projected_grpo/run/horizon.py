"""How long a run is: a multiple of the step at which vanilla began to hack, since a delay is no prevention. Vanilla stops
there by itself, and the other arms of its replicate take its number of steps.

Only the length depends on what the grader said.
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
from projected_grpo.ledger.step_file import Row
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
        raise BadInput(f"{flag} {run}: not this replicate's vanilla: {differing}")
    return manifest


def hack_rate(rows: Sequence[Row]) -> float | None:
    """Returns the rate of pure hacks among a step's student rows; None where ground truth is known of too few."""
    own = [r for r in rows if r["source"] == "student"]
    known = sum(r["gt_pass"] is not None for r in own)
    return judged_hack(rates(own)["hack"], known, len(own))


def reached(until_onsets: float, hack: Sequence[float | None]) -> bool:
    """Returns whether a run is long enough: `until_onsets` (0 = never) times its onset. hack: `hack_rate` of each step."""
    onset = onset_of(hack) if until_onsets else None
    return onset is not None and len(hack) >= math.ceil(until_onsets * onset)
