"""Load what a run needs: model, adapter, V. Nothing is written, so whatever is refused leaves nothing half-made."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from statistics import fmean

import torch
from loguru import logger

from loophole_grader import isolation
from projected_grpo.adapters import ADAPTERS
from projected_grpo.adapters.base import Adapter
from projected_grpo.arms import ARMS
from projected_grpo.config import Common, Gradient, TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.step_file import read_modules
from projected_grpo.model.checkpointing import enable_checkpointing
from projected_grpo.model.load import LoadedModel, fixed_order, pick_device
from projected_grpo.parallel import ALONE, Ranks
from projected_grpo.projection import Projection
from projected_grpo.records import Group
from projected_grpo.run.auxiliary_losses import auxiliary_losses
from projected_grpo.run.extraction import show_text, vhack_of
from projected_grpo.run.intervening import intervention_for, judge_for
from projected_grpo.run.policy import Policy
from projected_grpo.step import Objective
from projected_grpo.vhack import VBasis, load_vhack
from projected_grpo.worlds.models import load_model
from projected_grpo.worlds.registry import MODELS


def load(config: Common, teacher: str | None = None, ranks: Ranks = ALONE) -> LoadedModel:
    """Returns the config's model (with `teacher`, that LoRA merged into it) on this rank's device."""
    if config.base_seed and config.model not in MODELS:
        raise BadInput(f"--base-seed {config.base_seed}: --model {config.model} is not built here; leave it out")
    torch.manual_seed(config.seed)
    device = ranks.device(config.device)
    if config.deterministic:
        fixed_order(pick_device(device))
    loaded = load_model(config.model, config.dtype, device, config.base_seed, config.cache, teacher)
    if config.gradient_checkpointing != "off":
        enable_checkpointing(loaded.model, selective=config.gradient_checkpointing == "selective")
    n = sum(p.numel() for p in loaded.model.parameters())
    merged = f" + teacher {teacher}" if teacher else ""
    logger.info(
        f"model {config.model}{merged}: {n:,} parameters, {config.dtype} on {loaded.model.device}, weights "
        f"{loaded.weights_hash[:8]}"
    )
    return loaded


def attach(config: Common, loaded: LoadedModel) -> Adapter:
    """The config's adapter on the loaded model."""
    module, _, function = ADAPTERS[config.adapter].partition(":")
    adapter = getattr(import_module(f"projected_grpo.adapters.{module}"), function)(loaded.model, config)
    trained = sum(adapter.sizes.values())
    logger.info(f"adapter {config.adapter}: {len(adapter.sizes)} modules, {trained:,} trainable numbers")
    return adapter


def log_isolation() -> None:
    """Say which layers stand between model-written code and this machine."""
    layers = isolation()
    missing = "; ".join(f"{name}: {why}" for name, why in layers.missing.items()) or "none"
    logger.info(f"grader: {len(layers.active)} isolation layers, missing: {missing}")
    logger.debug(f"layers: {', '.join(layers.active)}")


def prepare(config: Gradient, ranks: Ranks = ALONE) -> Policy:
    """Loads everything that a training run, or a replay of the probe, trains or reads at a step. Nothing is written,
    so whatever is refused leaves nothing half-made.

    BadInput as in load_model, load_vhack, intervention_for and auxiliary_losses; what needs no model, run/inputs.py
    has checked."""
    loaded = ranks.in_rank_order(lambda: load(config, ranks=ranks))
    adapter = ranks.in_rank_order(lambda: attach(config, loaded))
    logger.info(f"{config.arm}: {ARMS[config.arm].help}")
    projection, v = ranks.in_rank_order(lambda: projection_for(config, loaded, adapter))
    optimizer = torch.optim.AdamW(
        list(adapter.vectors.values()), lr=config.lr, betas=(0.9, 0.95), weight_decay=config.weight_decay
    )
    intervention = intervention_for(config, loaded, adapter, v)
    policy = Policy(config, loaded, adapter, optimizer, Objective("nll"), projection, v, ranks, intervention)
    if not isinstance(config, TrainConfig):
        return policy
    return replace(
        policy,
        objective=objective_of(config),
        auxiliary=auxiliary_losses(config, loaded, policy.prompt_setup, ranks),
        judge=ranks.in_rank_order(lambda: judge_for(config, loaded, adapter)) if config.judge else None,
    )


def objective_of(config: TrainConfig) -> Objective:
    """Returns the policy loss of a training run."""
    return Objective(
        config.loss,
        config.max_new,
        config.temperature,
        beta=config.kl_beta if ARMS[config.arm].more_kl else config.beta,
        clip_low=config.clip_low,
        clip_high=config.clip_high,
    )


def projection_for(config: Gradient, loaded: LoadedModel, adapter: Adapter) -> tuple[Projection, VBasis | None]:
    """Returns how V is removed and V; neither does anything for an arm that needs no V and was given none. BadInput
    as in vhack_of and load_vhack."""
    arm = ARMS[config.arm]
    if config.vhack == Path() and not arm.needs_v:
        return Projection(), None
    path = vhack_of(config, loaded, adapter)
    k_use = 0 if arm.matches else config.k_use  # that of the run that it matches
    v = load_vhack(path, loaded, adapter, arm.vhack, k_use, config.noise_floor)
    logger.info(
        f"V: {v.directions} directions (control={v.meta['control']}, loss={v.meta['loss']}) from {path}; "
        f"{config.arm}: {config.recipe.description if arm.projects else 'only measured'}"
        f"{': its length alone' if arm.shrinks else ''}"
    )
    target = config.project if arm.projects else "none"
    shares = removed_by(config.share_of) if isinstance(config, TrainConfig) and arm.matches else {}
    how = (config.gate, config.overshoot, config.preserve_magnitude, arm.shrinks)
    return Projection(v.basis, target, *how, shares), v


def removed_by(run: Path) -> dict[str, float]:
    """Returns the share of each module's update that a run removed, its mean over steps. BadInput when it made no
    update of some module."""
    found, shares = read_modules(run), defaultdict[str, list[float]](list)
    for step in found.steps:
        for name, removed, of in zip(found.names, step["removed"], step["update_share"], strict=True):
            if of:
                shares[name].append(removed / of)
    if without := [name for name in found.names if not shares[name]]:
        raise BadInput(
            f"--share-of {run}: no step updated {without[0]}, so no share of it was removed; name a run that learned"
        )
    return {name: fmean(of) for name, of in shares.items()}


def dump_first_batch(groups: Sequence[Group]) -> None:
    """Logs the first rendered prompt and completion, special tokens visible, so that a wrong prompt is seen at
    once."""
    r = groups[0].rollouts[0]
    show_text(f"first prompt of {len(groups)}, {len(r.prompt_ids)} tokens, as the model reads it", r.prompt)
    show_text(f"first completion, {len(r.completion_ids)} tokens, {r.source}", r.completion)
