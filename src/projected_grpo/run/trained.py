"""Loads the policy of a finished run."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from projected_grpo.adapters.base import Adapter
from projected_grpo.arms import ARMS
from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import DEPLOYED, not_whole, read_manifest
from projected_grpo.model.load import LoadedModel
from projected_grpo.run.anew import trained_adapters, trained_with
from projected_grpo.run.intervening import intervention_class
from projected_grpo.run.prepare import attach, load


@dataclass(frozen=True)
class Trained:
    """A run's policy after `steps` steps."""

    run: Path
    config: TrainConfig
    manifest: dict[str, Any]
    loaded: LoadedModel
    adapter: Adapter
    """On the loaded model, with the coordinates of the file."""
    steps: int
    sha256: str
    """Of the adapter's file."""
    deployed: bool
    """Whether it is what its arm deploys, where that is another policy than it trained."""


def load_trained(run: Path, step: int = 0, cache: Path | None = None, device: str = "cpu") -> Trained:
    """The policy of a finished run, after all of its steps or after `step` of them.

    BadInput when the run is not finished, that step was not kept, the model is not the one that it was trained on, or its
    policy is no one set of weights.
    """
    manifest = read_manifest(run)
    config = trained_with(run, manifest)
    done = manifest["steps_done"]
    files = trained_adapters(run, done)
    steps = step or done
    if steps not in files:
        raise BadInput(
            f"--step {step}: {run} kept its adapter after {', '.join(map(str, files))} steps; choose one of them"
        )
    arm = ARMS[config.arm]
    if arm.page and intervention_class(arm).by_prompt:
        raise BadInput(f"{run}: --arm {arm.name} mixes its coordinates anew for every prompt; no one folder holds that")
    if (apart := run / DEPLOYED).exists() and steps != done:
        raise BadInput(
            f"--step {step}: kept as it trained, and --arm {arm.name} deploys another policy; leave --step out"
        )
    if why := not_whole(run, manifest):
        raise BadInput(f"{run}: {why}")
    config = replace(config, cache=cache or config.cache, device=device, out=Path(), resume=False)
    loaded = load(config)
    if loaded.weights_hash != manifest["model_hash"]:
        raise BadInput(
            f"{run}: trained on weights {manifest['model_hash'][:8]}, {config.model} is {loaded.weights_hash[:8]} here"
        )
    adapter = attach(config, loaded)
    adapter.load(files[steps])
    path = files[steps]
    if apart.exists():
        adapter.load(path := apart)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return Trained(run, config, manifest, loaded, adapter, steps, sha256, path == apart)
