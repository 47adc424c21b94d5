"""The number of steps of an arm: those of its replicate's vanilla, which stops by itself (run/stopping.py)."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import finished_manifest, plain
from projected_grpo.verdicts.comparison import OF_CHANNELS, SHARED, differences, facts_of, of_arms


def with_horizon(config: TrainConfig) -> TrainConfig:
    """Returns the config with as many steps as the run of `horizon_of` has done. BadInput when that is not this
    replicate's finished vanilla, stopped by its onset."""
    if (run := config.horizon_of) == Path():
        return config
    manifest = own_vanilla(config, run, "--horizon-of")
    if not manifest["config"]["until_onsets"]:
        raise BadInput(f"--horizon-of {run}: ran without --until-onsets, so its length is no horizon; give --steps")
    return replace(config, steps=manifest["steps_done"])


def own_vanilla(config: TrainConfig, run: Path, flag: str) -> Mapping[str, Any]:
    """Returns the manifest of this replicate's finished vanilla run. BadInput when `run`, which `flag` names, is
    another."""
    manifest = finished_manifest(run, ("train",), flag)
    if (arm := manifest["config"]["arm"]) != "vanilla":
        raise BadInput(f"{flag} {run}: is a run of --arm {arm}, where one of --arm vanilla is needed")
    ours = facts_of({"config": plain(config)})
    about = of_arms("vanilla", config.arm) | OF_CHANNELS
    among = [name for name in SHARED if name in ours]  # what is in no config is not known before the first step
    if differing := differences(facts_of(manifest), ours, about, among):
        raise BadInput(f"{flag} {run}: not this replicate's vanilla: {differing}")
    return manifest
