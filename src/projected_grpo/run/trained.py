"""Finished training runs: which adapters they kept, and the policy that each of these is."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from projected_grpo.adapters.base import Adapter
from projected_grpo.arms import ARMS
from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import DEPLOYED, finished_manifest
from projected_grpo.model.load import LoadedModel
from projected_grpo.run.intervening import intervention_class
from projected_grpo.run.prepare import attach, load


def kept_path(run: Path, steps: int) -> Path:
    """Returns where --keep-adapter-every keeps the adapter after so many steps."""
    return run / "adapters" / f"step_{steps:03d}.safetensors"


def trained_adapters(run: Path, steps_done: int) -> dict[int, Path]:
    """Returns the adapters of a finished run by the steps that they have done; the last one always."""
    kept = {int(p.stem.removeprefix("step_")): p for p in sorted(run.glob("adapters/step_*.safetensors"))}
    return {**kept, steps_done: run / "adapter.safetensors"}


def trained_with(run: Path) -> tuple[dict[str, Any], TrainConfig]:
    """Returns a run's manifest and the config that it was trained with. BadInput when it is no finished training run
    of this version."""
    manifest = finished_manifest(run, ("train",))
    written, usual = manifest["config"], TrainConfig()
    if odd := sorted(written.keys() - vars(usual).keys()):
        raise BadInput(f"{run}: its config has {odd[0]!r}, unknown to this version; use the version that wrote it")
    values: dict[str, Any] = {k: Path(v) if isinstance(getattr(usual, k), Path) else v for k, v in written.items()}
    return manifest, replace(TrainConfig(**values), out=Path(), resume=False)


def load_base(run: Path, manifest: Mapping[str, Any], config: TrainConfig) -> tuple[LoadedModel, Adapter]:
    """Returns the model that a run was trained on and its untrained adapter. BadInput when the model is another."""
    loaded = load(config)
    here, theirs = loaded.weights_hash, manifest["model_hash"]
    if here != theirs:
        raise BadInput(f"{run}: trained on weights {theirs[:8]}, {config.model} is {here[:8]} here")
    return loaded, attach(config, loaded)


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


def load_trained(run: Path, step: int = 0, cache: Path | None = None, device: str = "cpu") -> Trained:
    """Returns the policy of a finished run, after all of its steps or after `step` of them.

    BadInput when the run is not finished, that step was not kept, the model is not the one that it was trained on, or
    its policy is no one set of weights."""
    manifest, config = trained_with(run)
    last = manifest["steps_done"]
    files, steps, deployed = trained_adapters(run, last), step or last, run / DEPLOYED
    arm = ARMS[config.arm]
    if arm.intervention and intervention_class(arm).by_prompt:
        raise BadInput(f"{run}: --arm {arm.name} mixes its coordinates for every prompt; no one folder holds that")
    if steps not in files:
        raise BadInput(f"--step {step}: {run} kept its adapter after {', '.join(map(str, files))} steps; choose one")
    if deployed.exists() and steps != last:
        raise BadInput(f"--step {step}: as trained, and --arm {arm.name} deploys another policy; leave --step out")
    config = replace(config, cache=cache or config.cache, device=device)
    loaded, adapter = load_base(run, manifest, config)
    adapter.load(deployed if deployed.exists() else files[steps])
    return Trained(run, config, manifest, loaded, adapter, steps)
