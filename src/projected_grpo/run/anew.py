"""V extracted anew from the *trained* adapter of a finished run: is the V that the run used still the hack direction?

V is written in coordinates that the untrained model gave it. A LoRA's move: dL/dB = (dL/dW) A^T and dL/dA = B^T (dL/dW), so
once A and B have changed, the same row of V is another direction of the weights. The singular basis stays; there the policy
alone moves. Both are measured alike, on the run's own pairs: D of the trained adapter, its V_anew, and of the pairs' mean
gradient how much lies along V_anew before and after the V in use is taken out.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loguru import logger
from torch import Tensor

from projected_grpo.adapters.base import Adapter
from projected_grpo.arms import GATES
from projected_grpo.config import REFRESHED, TrainConfig
from projected_grpo.ledger.anew_file import Anew
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.projection import compared
from projected_grpo.run.prepare import attach, load
from projected_grpo.run.refresh import basis_again, differences_again, sides_again
from projected_grpo.run.vhack_file import load_vhack
from projected_grpo.vhack import Differences, VBasis

KEPT = "adapters"
"""Folder of a run in which --keep-adapter-every keeps adapters, each named by the steps done."""


def kept_path(run: Path, steps: int) -> Path:
    """Where the adapter after so many steps is kept."""
    return run / KEPT / f"step_{steps:03d}.safetensors"


def trained_adapters(run: Path, steps_done: int) -> dict[int, Path]:
    """Adapters of a finished run by the steps that they have done; the last one always."""
    kept = {int(p.stem.removeprefix("step_")): p for p in sorted((run / KEPT).glob("step_*.safetensors"))}
    return dict(sorted({**kept, steps_done: run / "adapter.safetensors"}.items()))


def trained_with(run: Path, manifest: Mapping[str, Any]) -> TrainConfig:
    """The config that a run was trained with. BadInput when it is no finished training run of this version."""
    if manifest.get("kind") != "train" or not manifest.get("finished"):
        what = "not finished" if manifest.get("kind") == "train" else f"a run of kind {manifest.get('kind')!r}"
        raise BadInput(f"{run}: {what}; a finished training run is needed")
    written = manifest["config"]
    known = {f.name: f for f in dataclasses.fields(TrainConfig)}
    if odd := sorted(written.keys() - known.keys()):
        raise BadInput(
            f"{run}: its config has {odd[0]!r}, which this version does not know; use the version that wrote it"
        )
    usual = TrainConfig()
    values: dict[str, Any] = {k: Path(v) if isinstance(getattr(usual, k), Path) else v for k, v in written.items()}
    return TrainConfig(**values)


def config_of(run: Path, manifest: Mapping[str, Any]) -> TrainConfig:
    """The same of a run with a V that is frozen and can be extracted anew; BadInput when it has none."""
    config = trained_with(run, manifest)
    if config.refresh_every:
        raise BadInput(f"{run}: --refresh-every {config.refresh_every} extracts V anew by itself")
    control = (manifest.get("vhack") or {}).get("control")
    if control not in REFRESHED:
        raise BadInput(
            f"{run}: its V is {control or 'not there'}; one of {' or '.join(REFRESHED)} can be extracted anew"
        )
    return config


def measured(run: Path, cache: Path | None = None, vhack: Path | None = None) -> tuple[str, list[Anew]]:
    """Every kept adapter of a finished run, the last one included. Returns the contents' hash of the V that the run used,
    and the records. BadInput as in config_of, load_vhack and sides_again, or when model or V are not the run's."""
    manifest = read_manifest(run)
    config = config_of(run, manifest)
    config = dataclasses.replace(
        config, cache=cache or config.cache, vhack=vhack or config.vhack, device="auto", out=Path(), resume=False
    )
    loaded = load(config)
    if loaded.weights_hash != manifest["model_hash"]:
        raise BadInput(
            f"{run}: trained on weights {manifest['model_hash'][:8]}, {config.model} is {loaded.weights_hash[:8]} here"
        )
    adapter = attach(config, loaded)
    v = load_vhack(config.vhack, loaded, adapter, None, config.k_use, config.noise_floor)
    if (mine := v.meta.get("v_sha256")) != (theirs := manifest["vhack"].get("v_sha256")):
        raise BadInput(f"--vhack {config.vhack}: v_sha256 {mine}, but {run} used {theirs}; name the V that it used")
    sides = sides_again(v, config.pairs, loaded, "V anew is of the same pairs")
    out = []
    for steps, path in trained_adapters(run, manifest["steps_done"]).items():
        adapter.load(path)
        d = differences_again(loaded, adapter, v, sides, config.max_new, config.token_budget)
        out.append(record(adapter, v, d, steps, config.gate))
        one = out[-1]
        logger.info(f"after {steps} steps: overlap {one.overlap:.4f} (unrelated: {one.null:.4f})")
    return str(theirs), out


def record(adapter: Adapter, v: VBasis, d: Differences, steps: int, gate: str) -> Anew:
    """What D [pairs, n] at the adapter as it is now says of the V in use."""
    anew = basis_again(d, v)
    modules = compared(anew, v.basis)
    if not modules:
        raise BadInput("no module has directions now and had them then; nothing can be compared")
    cosines = [_hack_ward(anew[m.name], v.basis[m.name].cpu(), d[m.name].mean(0), gate) for m in modules]
    kinds: dict[str, list[float]] = {}
    for m in modules:
        kinds.setdefault(m.kind, []).append(m.overlap)

    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    return Anew(
        steps, adapter.norm(), mean([m.overlap for m in modules]), mean([m.null for m in modules]),
        mean([before for before, _ in cosines]), mean([after for _, after in cosines]),
        {kind: mean(own) for kind, own in kinds.items()},
    )  # fmt: skip


def _hack_ward(anew: Tensor, used: Tensor, g: Tensor, gate: str) -> tuple[float, float]:
    """||relu(V_anew g)|| / ||g|| of one module, as g is and once `used` was taken out of it."""
    norm = g.norm().clamp(min=1e-30)
    left = g - GATES[gate].taken(used.to(g) @ g) @ used.to(g)
    before, after = ((anew.to(g) @ x).relu().norm() / norm for x in (g, left))
    return float(before), float(after)
