"""Load what a run needs: model, adapter, V. Nothing is written, so whatever is refused leaves nothing half-made."""

from collections.abc import Sequence
from pathlib import Path

import torch
from loguru import logger

from loophole_grader import isolation
from projected_grpo.adapters.antipasto import attach_antipasto
from projected_grpo.adapters.base import Adapter
from projected_grpo.adapters.lora_adapter import attach_lora
from projected_grpo.arms import ARMS
from projected_grpo.config import Common, Gradient, TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.model.checkpointing import enable_checkpointing
from projected_grpo.model.load import LoadedModel, fixed_order, pick_device
from projected_grpo.parallel import ALONE, World
from projected_grpo.projection import Projection
from projected_grpo.records import Group
from projected_grpo.run.intervening import intervention_for, judge_for
from projected_grpo.run.session import Session
from projected_grpo.step import Objective
from projected_grpo.vhack import VBasis, load_vhack
from projected_grpo.worlds.models import BUILT, load_model


def load(config: Common, teacher: str | None = None, world: World = ALONE) -> LoadedModel:
    """Returns the config's model (with `teacher`, that LoRA merged into it) on this rank's device."""
    if config.base_seed and config.model not in BUILT:
        raise BadInput(f"--base-seed {config.base_seed}: --model {config.model} is not built here; leave it out")
    torch.manual_seed(config.seed)
    device = world.device(config.device)
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
    if config.adapter == "lora":
        adapter = attach_lora(loaded.model, config.lora_rank, config.lora_seed)
    else:
        adapter = attach_antipasto(loaded.model, config.cache / "svd")
    trained = sum(adapter.sizes.values())
    logger.info(f"adapter {config.adapter}: {len(adapter.sizes)} modules, {trained:,} trainable numbers")
    return adapter


def log_isolation() -> None:
    """Say which layers stand between model-written code and this machine."""
    layers = isolation()
    missing = "; ".join(f"{name}: {why}" for name, why in layers.missing.items()) or "none"
    logger.info(f"grader: {len(layers.active)} isolation layers, missing: {missing}")
    logger.debug(f"layers: {', '.join(layers.active)}")


def prepare(config: Gradient, world: World = ALONE) -> Session:
    """Loads everything that a training run, or a replay of the probe, needs. Nothing is written, so whatever is refused
    leaves nothing half-made.

    BadInput as in load_model, load_vhack and intervention_for; what needs no model, run/inputs.py has checked.
    """
    every, objective, judge = 1, Objective("nll"), None
    if isinstance(config, TrainConfig):
        every = 0 if config.meet else config.checkpoint_every
        kl_weight = config.kl_beta if ARMS[config.arm].more_kl else config.beta
        objective = Objective(
            config.loss, config.max_new, config.temperature, kl_weight, config.clip_low, config.clip_high
        )
    loaded = world.by_turns(lambda: load(config, world=world))
    adapter = world.by_turns(lambda: attach(config, loaded))
    logger.info(f"{config.arm}: {ARMS[config.arm].help}")
    projection, v = projection_for(config, loaded, adapter)
    optimizer = torch.optim.AdamW(
        list(adapter.vectors.values()), lr=config.lr, betas=(0.9, 0.95), weight_decay=config.weight_decay
    )
    intervention = intervention_for(config, loaded, adapter, v)
    if isinstance(config, TrainConfig) and config.judge:
        judge = world.by_turns(lambda: judge_for(config, loaded, adapter))
    return Session(
        config, loaded, adapter, optimizer, objective, projection, v, every, world, intervention, judge=judge
    )


def projection_for(config: Gradient, loaded: LoadedModel, adapter: Adapter) -> tuple[Projection, VBasis | None]:
    """Returns how V is removed and V; without --vhack neither does anything. BadInput as in load_vhack."""
    if config.vhack == Path():
        return Projection(), None
    arm = ARMS[config.arm]
    v = load_vhack(config.vhack, loaded, adapter, arm.vhack, config.k_use, config.noise_floor)
    logger.info(
        f"V: {v.directions} directions (control={v.meta['control']}, loss={v.meta['loss']}) from {config.vhack}; "
        f"{config.arm}: {config.recipe.description if arm.projects else 'only measured'}"
        f"{': its length alone' if arm.shrinks else ''}"
    )
    target = config.project if arm.projects else "none"
    return Projection(v.basis, target, config.gate, config.overshoot, config.preserve_magnitude, arm.shrinks), v


def dump_first_batch(groups: Sequence[Group]) -> None:
    """Logs the first rendered prompt and completion, special tokens visible, so that a wrong prompt is seen at once."""
    r = groups[0].rollouts[0]
    show_text(f"first prompt of {len(groups)}, {len(r.prompt_ids)} tokens, as the model reads it", r.prompt)
    show_text(f"first completion, {len(r.completion_ids)} tokens, {r.source}", r.completion)


def show_text(what: str, text: str, ends: int = 90) -> None:
    """One line with both ends of a text to the terminal, the whole to log.txt."""
    short = text if len(text) <= 2 * ends else f"{text[:ends]} […] {text[-ends:]}"
    logger.info(f"{what}: {short!r}")
    logger.debug(f"{what}:\n{text}⏎")
