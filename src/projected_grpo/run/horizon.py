"""What a run takes from other runs of its replicate: its number of steps from vanilla, which stops by itself
(run/stopping.py), and how much it removes from projected."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from projected_grpo.arms import ARMS
from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import finished_manifest, plain
from projected_grpo.verdicts.comparison import OF_CHANNELS, SHARED, differences, facts_of, of_arms


def with_horizon(config: TrainConfig) -> TrainConfig:
    """Returns the config with as many steps as the run of `horizon_of` has done, and with the `k_use` of the run of
    `share_of`. BadInput when these are not this replicate's finished vanilla, stopped by its onset, and the run that
    the arm matches."""
    if (run := config.share_of) != Path():
        k_use = finished_manifest(run, ("train",), "--share-of")["config"]["k_use"]
        config = replace(config, k_use=k_use)
        own_run(config, run, "--share-of", ARMS[config.arm].matches)
    if (run := config.horizon_of) == Path():
        return config
    manifest = own_run(config, run, "--horizon-of")
    if not manifest["config"]["until_onsets"]:
        raise BadInput(f"--horizon-of {run}: ran without --until-onsets, so its length is no horizon; give --steps")
    return replace(config, steps=manifest["steps_done"])


def own_run(config: TrainConfig, run: Path, flag: str, arm: str = "vanilla") -> Mapping[str, Any]:
    """Returns the manifest of this replicate's finished run of an arm. BadInput when `run`, which `flag` names, is
    another."""
    manifest = finished_manifest(run, ("train",), flag)
    if (theirs := manifest["config"]["arm"]) != arm:
        raise BadInput(f"{flag} {run}: is a run of --arm {theirs}, where one of --arm {arm} is needed")
    ours = facts_of({"config": plain(config)})
    about = of_arms(arm, config.arm) | OF_CHANNELS
    among = [name for name in SHARED if name in ours]  # what is in no config is not known before the first step
    if differing := differences(facts_of(manifest), ours, about, among):
        raise BadInput(f"{flag} {run}: not this replicate's {arm}: {differing}")
    return manifest
