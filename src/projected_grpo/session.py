"""What train and probe share: open a run, load model, adapter and V, take steps, write them, resume.

open_session(config, ...) -> Session;  session.take(step, groups) writes step_NNN.jsonl.gz and the checkpoint
"""

import dataclasses
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from loguru import logger

from loophole_grader import isolation
from projected_grpo.adapters import Adapter, attach_antipasto, attach_lora
from projected_grpo.checkpoint import read_checkpoint, restore, save_checkpoint
from projected_grpo.config import CONTROL_OF_ARM, Common, Gradient
from projected_grpo.errors import BadInput
from projected_grpo.model import LoadedModel, enable_checkpointing, load_model
from projected_grpo.parallel import ALONE, World
from projected_grpo.projection import null_cosine
from projected_grpo.records import Group
from projected_grpo.rows import rows_of
from projected_grpo.runs import (
    FREE_TO_CHANGE,
    check_new,
    open_run,
    plain,
    step_header,
    step_legend,
    step_line,
    update_manifest,
)
from projected_grpo.step import Objective, Projection, run_step
from projected_grpo.steps import Row, write_step
from projected_grpo.vhack import VHack, load_vhack

LOGP_GAP = 0.05
"""Nats per token; folding in bfloat16 rounds to well below it."""


@dataclass
class Session:
    """A run: prepared (nothing written yet), then started, then taking steps."""

    config: Gradient
    kind: str
    run: Path
    loaded: LoadedModel
    adapter: Adapter
    optimizer: torch.optim.Optimizer
    objective: Objective
    projection: Projection
    v: VHack | None = None
    checkpoint_every: int = 1
    world: World = ALONE
    next_step: int = 0
    v_overlap: float | None = None
    """Of the latest refreshed V with the one before it; written with the next step."""

    def start(self, total: int, **facts: Any) -> None:
        """Open (or resume) the run directory and log what is about to happen. `facts` go into the manifest.

        BadInput as in open_run and read_checkpoint, or when the run has already done more than `total` steps.
        """
        facts = {
            "model_hash": self.loaded.weights_hash, "tokenizer_hash": self.loaded.tokenizer_hash,
            "adapter": self.adapter.metadata(), "modules": len(self.adapter.sizes),
            "vhack": self.v.meta if self.v else {}, "processes": self.world.size, **facts,
        }  # fmt: skip
        with self.world.together():
            self.world.check_same(lambda: {**self._settings(), **facts, "coordinates": self._coordinates()})
        self.world.from_first(lambda: open_run(self.run, self.kind, self.config, resume=self.config.resume, **facts))
        if self.config.resume:
            self._resume()
            with self.world.together():
                self._check_left(total)

    def _settings(self) -> dict[str, Any]:
        """The config, but for what may differ between ranks as between a run and its continuation."""
        return {k: v for k, v in plain(self.config).items() if k not in FREE_TO_CHANGE}

    def _coordinates(self) -> str:
        """A fingerprint of what must be the same bits on every rank from the start: parameters, their coordinates, V."""
        parts = (self.adapter.vectors, self.adapter.basis_probes(), self.v.basis if self.v else {})
        flat = torch.cat([t.detach().float().flatten().cpu() for tensors in parts for t in tensors.values()])
        return f"{zlib.crc32(flat.numpy().tobytes()):08x}"

    def _resume(self) -> None:
        state = self.world.from_first(lambda: read_checkpoint(self.run))
        self.next_step, basis = restore(state, self.adapter, self.optimizer)
        if basis and self.v:
            self.use(dataclasses.replace(self.v, basis=basis))

    def _check_left(self, total: int) -> None:
        logger.info(f"resumed after step {self.next_step - 1} of {total}")
        if self.next_step > total:
            raise BadInput(f"--resume {self.run}: has done {self.next_step} steps already, {total} are asked for")

    def use(self, v: VHack) -> None:
        """Measure and project with this V from now on."""
        self.v = v
        self.projection = dataclasses.replace(self.projection, basis=v.basis)

    def refresh(self, v: VHack, overlap: float) -> None:
        """Use a V that was extracted anew, and log how much of the one before it is in it."""
        self.use(v)
        self.v_overlap = overlap

    def take(
        self, step: int, total: int, groups: Sequence[Group], timing: dict[str, float], *, per_sample: bool = True
    ) -> list[Row]:
        """One gradient step on graded groups (of several ranks: this one's). Returns the rows of all; their file and the
        checkpoint are on disk when this returns."""
        clock = time.perf_counter()
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.lr * min(1.0, (step + 1) / (self.config.warmup + 1))
        result = run_step(
            self.loaded.model, self.adapter, self.optimizer, [g.samples() for g in groups], self.objective,
            self.projection, step=step, pad_id=self.loaded.pad_id, token_budget=self.config.token_budget,
            max_grad_norm=self.config.max_grad_norm, per_sample=per_sample, world=self.world,
        )  # fmt: skip
        taken = {**timing, **result.step["timing"]}
        taken["total"] = sum(timing.values()) + time.perf_counter() - clock
        self.world.check_equal(step, self.adapter.vectors)
        values = {**result.step, "timing": self.world.slowest(taken), "v_overlap": self.v_overlap}
        self.v_overlap = None
        own = rows_of(groups, result.samples, values, step=step, arm=self.config.arm, seed=self.config.seed)
        rows = self.world.gather(own)
        self.world.from_first(lambda: self._keep(step, total, rows))
        return rows

    def _keep(self, step: int, total: int, rows: Sequence[Row]) -> None:
        """Write a step and its checkpoint, and log it."""
        write_step(self.run, step, rows)
        if (step + 1) % self.checkpoint_every == 0 or step + 1 == total:
            basis = self.v.basis if self.v else {}
            save_checkpoint(self.run, step, self.adapter, self.optimizer, basis)
        if step == self.next_step:
            for line in step_legend():
                logger.debug(line)
            logger.info(step_header())
        logger.info(step_line(rows))
        if (gap := rows[0]["logp_gap"]) is not None and gap > LOGP_GAP:
            logger.warning(
                f"step {step}: rollout and training log-probabilities differ by {gap:.3f} nats a token (SHOULD be < "
                f"{LOGP_GAP}): the rollouts are not of the policy that is trained"
            )

    def finish(self) -> None:
        """Save the adapter and mark the run complete."""
        self.world.from_first(self._finish)

    def _finish(self) -> None:
        self.adapter.save(self.run / "adapter.safetensors", {"weights_hash": self.loaded.weights_hash})
        update_manifest(self.run, finished=True)


def load(config: Common, teacher: str | None = None, world: World = ALONE) -> LoadedModel:
    """The config's model (with `teacher`, that LoRA merged into it) on this rank's device."""
    clock = time.perf_counter()
    torch.manual_seed(config.seed)
    loaded = load_model(config.model, config.dtype, world.device(config.device), config.seed, config.cache, teacher)
    if config.gradient_checkpointing:
        enable_checkpointing(loaded.model)
    n = sum(p.numel() for p in loaded.model.parameters())
    merged = f" + teacher {teacher}" if teacher else ""
    logger.info(
        f"model {config.model}{merged}: {n:,} parameters, {config.dtype} on {loaded.model.device}, weights "
        f"{loaded.weights_hash[:8]} ({time.perf_counter() - clock:.1f} s)"
    )
    return loaded


def attach(config: Common, loaded: LoadedModel) -> Adapter:
    """The config's adapter on the loaded model."""
    clock = time.perf_counter()
    if config.adapter == "lora":
        adapter = attach_lora(loaded.model, config.lora_rank, config.seed)
    else:
        adapter = attach_antipasto(loaded.model, config.cache / "svd")
    logger.info(
        f"adapter {config.adapter}: {len(adapter.sizes)} modules, {sum(adapter.sizes.values()):,} trainable numbers "
        f"({time.perf_counter() - clock:.1f} s)"
    )
    return adapter


def log_isolation() -> None:
    """Say which layers stand between model-written code and this machine."""
    layers = isolation()
    missing = "; ".join(f"{name}: {why}" for name, why in layers.missing.items())
    logger.info(
        f"grader: {len(layers.active)} isolation layers, " + (f"MISSING {missing}" if missing else "none missing")
    )
    logger.debug(f"layers: {', '.join(layers.active)}")


def default_out(config: Common, kind: str, name: str) -> Path:
    """`--out`, or out/<kind>/<name>."""
    return config.out if config.out != Path() else Path("out") / kind / name


def prepare(
    config: Gradient, kind: str, objective: Objective, checkpoint_every: int = 1, world: World = ALONE
) -> Session:
    """Load everything that a run needs; nothing is written, so whatever is refused leaves nothing half-made.

    BadInput as in load_model, load_vhack and check_new.
    """
    run = default_out(config, kind, f"{config.arm}_seed{config.seed}")
    check_new(run, resume=config.resume)
    loaded = world.by_turns(lambda: load(config, world=world))
    adapter = world.by_turns(lambda: attach(config, loaded))
    projection, v = Projection(), None
    if config.vhack != Path():
        v = load_vhack(config.vhack, loaded, adapter, CONTROL_OF_ARM[config.arm], config.k_use, config.noise_floor)
        target = "none" if config.arm == "vanilla" else config.project
        projection = Projection(v.basis, target, config.gate, config.overshoot, config.preserve_magnitude)
        logger.info(
            f"V: {v.directions} directions (control={v.meta['control']}, loss={v.meta['loss']}) from {config.vhack}; a "
            f"random direction of this rank would show cos {null_cosine(v.basis):.4f}"
        )
    optimizer = torch.optim.AdamW(
        list(adapter.vectors.values()), lr=config.lr, betas=(0.9, 0.95), weight_decay=config.weight_decay
    )
    return Session(config, kind, run, loaded, adapter, optimizer, objective, projection, v, checkpoint_every, world)


def dump_first_batch(groups: Sequence[Group]) -> None:
    """The first rendered prompt and completion, special tokens visible: whole in log.txt, its ends on the terminal, so
    that a wrong prompt is seen at once."""
    r = groups[0].rollouts[0]
    show_text(f"first prompt of {len(groups)}, {len(r.prompt_ids)} tokens, as the model reads it", r.prompt)
    show_text(f"first completion, {len(r.completion_ids)} tokens, {r.source}", r.completion)


def show_text(what: str, text: str, ends: int = 90) -> None:
    """One line with both ends of a text to the terminal, the whole to log.txt."""
    short = text if len(text) <= 2 * ends else f"{text[:ends]} […] {text[-ends:]}"
    logger.info(f"{what}: {short!r}")
    logger.debug(f"{what}:\n{text}⏎")
