"""What a run reads and where it writes, checked before torch is loaded: a mistake is named within seconds."""

from dataclasses import fields, replace
from pathlib import Path

from projected_grpo.arms import ARMS
from projected_grpo.config import Common, ExtractConfig, Gradient, TrainConfig, flag
from projected_grpo.data.pairs import load_pairs, pairs_for
from projected_grpo.data.problems import check_problems
from projected_grpo.data.vhack_meta import check_meta, pairs_of, vhack_meta
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import check_new, finished_manifest
from projected_grpo.ledger.step_file import published_files
from projected_grpo.presets import presets
from projected_grpo.run.horizon import own_run


def check_inputs(config: Gradient) -> None:
    """BadInput when the run's folder is taken, or what the run reads is missing or of another kind. A file of
    problems is read whole, and each problem given its hint."""
    check_new(config.run_folder, resume=config.resume)
    check_problems("--problems", config.problems, config.hint, config.prompt_setup)
    for name in ("teacher_pool", "pool"):
        if (pool := getattr(config, name, "")) not in ("", "pairs"):
            check_pool(flag(name), Path(pool), config)
    arm, meta = ARMS[config.arm], {}
    if config.vhack != Path():
        meta = vhack_meta(config.vhack)
        check_meta(config.vhack, meta, {"model": config.model, "adapter": config.adapter}, arm.vhack)
    elif arm.needs_v:
        pairs_for(settings_for(config))
    if not isinstance(config, TrainConfig):
        return
    if config.eval_every:
        check_problems("--eval-problems", config.eval_problems, config.hint, config.prompt_setup)
    if config.refresh_every and meta:
        pairs_of(meta, config.pairs, "--refresh-every needs the same pairs")
    elif "pairs" in arm.sees:
        load_pairs(config.pairs, config.modes)
    if config.of != Path():
        own_run(config, config.of, "--of")


def settings_for(config: Gradient) -> ExtractConfig:
    """Returns how the preset extracts the V that the arm of a run needs: of the run's model, adapter, seed and
    pairs."""
    usual = presets(ExtractConfig).get(config.preset, ExtractConfig())
    shared = {of.name: getattr(config, of.name) for of in fields(Common)}
    pairs = getattr(config, "pairs", usual.pairs)
    modes = getattr(config, "modes", ()) or (usual.modes if pairs == usual.pairs else ())
    return replace(usual, **{**shared, "out": Path()}, pairs=pairs, modes=modes, control=ARMS[config.arm].measured)


def check_pool(given: str, folder: Path, config: Gradient) -> None:
    """BadInput when there is no pool or another kind of run, or when a run mixes in a pool that was sampled at
    another temperature (its ratios would be of another distribution) or paid in another way than this arm pays.
    Published pools have no manifest."""
    if not folder.is_dir():
        raise BadInput(f"{given} {folder}: no such directory; sample one with `just probe-teacher-pool`")
    if published_files(folder):
        return
    theirs = finished_manifest(folder, ("teacher_pool",), given)["config"]
    if not isinstance(config, TrainConfig):
        return
    if (sampled_at := theirs["temperature"]) != (asked := config.temperature):
        raise BadInput(f"--temperature {asked}: {given} {folder} was sampled at --temperature {sampled_at}; use it")
    paid = ARMS[theirs["arm"]].loophole
    if paid != config.loophole:
        raise BadInput(
            f"{given} {folder}: its rewards {'pay' if paid else 'do not pay'} the loophole, --arm {config.arm} "
            f"{'does not' if paid else 'does'}; sample one with `probe_distill --teacher-only --arm {config.arm}`"
        )
