"""What train and probe share: open a run, load model, adapter and V, take steps, write them, resume.

open_session(config, ...) -> Session;  session.take(step, groups) writes step_NNN.jsonl.gz and the checkpoint
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from loguru import logger

from projected_grpo.adapters import Adapter
from projected_grpo.config import Gradient
from projected_grpo.interventions.hooks import Hooks
from projected_grpo.ledger import module_file
from projected_grpo.ledger.by_source import LOGP_GAP, LOST_RATIO, source_lines
from projected_grpo.ledger.console import channel_line, step_header, step_legend, step_line
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import DEPLOYED, open_run, read_manifest, update_manifest
from projected_grpo.ledger.rows import rows_of
from projected_grpo.ledger.step_file import Row, write_step
from projected_grpo.model.load import LoadedModel
from projected_grpo.parallel import ALONE, World
from projected_grpo.projection import Projection
from projected_grpo.records import Group
from projected_grpo.run.channels import Beside
from projected_grpo.run.checkpoint import read_checkpoint, restore, save_checkpoint
from projected_grpo.run.intervening import shown
from projected_grpo.run.judging import Judging
from projected_grpo.step import Learner, Objective, Plumbing, run_step
from projected_grpo.vhack import VBasis


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
    v: VBasis | None = None
    checkpoint_every: int = 1
    """0: whoever takes the steps says when (`checkpoint`)."""
    world: World = ALONE
    hooks: Hooks = field(default_factory=Hooks)
    """What the arm's page does, where it has one."""
    beside: Beside = field(default_factory=Beside)
    """What is learned from beside the policy."""
    judge: Judging | None = None
    """Scores every rollout, where the run has one."""
    next_step: int = 0
    finished: bool = False
    """Whether the run that was to be resumed had ended: it is left as it is."""
    warned: bool = False
    """Whether the warning about rows of another policy was given."""
    v_overlap: float | None = None
    """Of the latest refreshed V with the one before it; written with the next step."""
    replica: str | None = None
    """Which of several replicas the run is, as the step files say it."""
    outer: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """What a replica keeps from one outer round to the next; in the checkpoint."""

    def start(self, total: int, **facts: Any) -> None:
        """Open (or resume) the run directory and log what is about to happen. `facts` go into the manifest.

        BadInput as in open_run and read_checkpoint, or when the run has already done more than `total` steps.
        """
        facts = {
            "model_hash": self.loaded.weights_hash,
            "tokenizer_hash": self.loaded.tokenizer_hash,
            "adapter": self.adapter.metadata(),
            "modules": len(self.adapter.sizes),
            "vhack": self.v.meta if self.v else {},
            "processes": self.world.size,
            **self.beside.facts(),
            **({"judge": self.judge.told} if self.judge else {}),
            **facts,
        }
        self.world.from_first(lambda: open_run(self.run, self.kind, self.config, resume=self.config.resume, **facts))
        if self.config.resume and self._was_finished():
            return
        if self.config.resume:
            self._resume()
            with self.world.together():
                self._check_left(total)

    def _was_finished(self) -> bool:
        """Whether there is nothing to go on with; next_step is then what was done."""
        manifest = self.world.from_first(lambda: read_manifest(self.run))
        self.finished = bool(manifest["finished"])
        if self.finished:
            self.next_step = manifest["steps_done"]
            logger.info(f"{self.run}: finished after {self.next_step} steps; nothing is left to resume")
        return self.finished

    def _resume(self) -> None:
        state = self.world.from_first(lambda: read_checkpoint(self.run))
        self.next_step, basis = restore(state, self.adapter, self.optimizer)
        self.hooks.page.restore(state.get("page", {}))
        self.beside.restore(state.get("channels", {}))
        self.outer = state.get("outer", {})
        if basis and self.v:
            self.use(dataclasses.replace(self.v, basis=basis))

    def _check_left(self, total: int) -> None:
        logger.info(f"resumed after step {self.next_step - 1} of {total}")
        if self.next_step > total:
            raise BadInput(f"--resume {self.run}: has done {self.next_step} steps already, {total} are asked for")

    def use(self, v: VBasis) -> None:
        """Measure and project with this V from now on."""
        self.v = v
        self.projection = dataclasses.replace(self.projection, basis=v.basis)

    def refresh(self, v: VBasis, overlap: float) -> None:
        """Use a V that was extracted anew, and log how much of the one before it is in it."""
        self.use(v)
        self.v_overlap = overlap

    def take(
        self, step: int, total: int, groups: Sequence[Group], timing: dict[str, float], *, per_sample: bool = True
    ) -> list[Row]:
        """One gradient step on graded groups (of several ranks: this one's). Returns the rows of all; their file and the
        checkpoint are on disk when this returns."""
        clock, scores = time.perf_counter(), None
        if self.judge:
            with self.world.together():
                scores = self.judge.scores(groups)
            judged, clock = clock, time.perf_counter()
            timing = {**timing, "judge": clock - judged}
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.lr * min(1.0, (step + 1) / (self.config.warmup + 1))
        learner = Learner(self.loaded.model, self.adapter, self.optimizer, self.config.max_grad_norm)
        self.hooks.shown = shown(self.config, groups, self.loaded, scores)
        plumbing = Plumbing(self.loaded.pad_id, self.config.token_budget, self.world, self.hooks)
        samples = [g.samples() for g in groups]
        with self.hooks.page.training():
            result = run_step(
                learner, samples, self.objective, self.projection, plumbing, step=step, per_sample=per_sample,
                signals=self.beside.signals(step, groups),
            )  # fmt: skip
        self.beside.took(step, result.step["channels"])
        taken = {**timing, **result.step["timing"]}
        taken["total"] = sum(timing.values()) + time.perf_counter() - clock
        self.world.check_equal(step, self.adapter.vectors)
        values = {**result.step, "timing": self.world.slowest(taken), "v_overlap": self.v_overlap,
                  "replica": self.replica}  # fmt: skip
        self.v_overlap = None
        for sample, score in zip(result.samples, scores or (), strict=scores is not None):
            sample["judge"] = score
        own = rows_of(
            groups, result.samples, values, step=step, arm=self.config.arm, seed=self.config.seed,
            keep_token_logps=self.config.keep_token_logps,
        )  # fmt: skip
        rows = self.world.gather(own)
        self.world.from_first(lambda: self._keep(step, total, rows, result.modules))
        return rows

    def _keep(self, step: int, total: int, rows: Sequence[Row], modules: module_file.Values) -> None:
        """Write a step, what it shows module by module, and its checkpoint, and log it."""
        write_step(self.run, step, rows)
        if modules:
            sizes = self.adapter.sizes
            module_file.append(self.run, step, list(sizes), list(sizes.values()), modules)
        if self.checkpoint_every and ((step + 1) % self.checkpoint_every == 0 or step + 1 == total):
            self._save(step)
        if step == self.next_step:
            for line in step_legend():
                logger.debug(line)
            logger.info(step_header())
        logger.info(step_line(rows))
        for line in filter(None, (*source_lines(rows), channel_line(rows))):
            logger.info(line)
        self._warn_off_policy(step, rows)
        if (gap := rows[0]["logp_gap"]) is not None and gap > LOGP_GAP:
            logger.warning(
                f"step {step}: rollout and training log-probabilities differ by {gap:.3f} nats a token (SHOULD be < "
                f"{LOGP_GAP}): the rollouts are not of the policy that is trained"
            )

    def checkpoint(self, step: int) -> None:
        """Save the state after `step`, as it is now."""
        self.world.from_first(lambda: self._save(step))

    def _save(self, step: int) -> None:
        basis = self.v.basis if self.v else {}
        save_checkpoint(
            self.run,
            step,
            self.adapter,
            self.optimizer,
            basis,
            self.hooks.page.state(),
            self.beside.state(),
            self.outer,
        )

    def _warn_off_policy(self, step: int, rows: Sequence[Row]) -> None:
        """Say, once, how much of what another policy wrote cannot be learned from: a token's gradient is multiplied by its
        ratio, and where this policy would hardly have written it that is near 0, whatever the clip fraction says."""
        known = [r["ratio_low"] for r in rows if r["source"] != "student" and r["ratio_low"] is not None]
        lost = sum(low < LOST_RATIO for low in known)
        if lost and not self.warned:
            self.warned = True
            logger.warning(
                f"step {step}: {lost} of {len(known)} cached rows have a token whose ratio to its own policy is below "
                f"{LOST_RATIO} (the smallest {min(known):.1e}): its gradient counts for less than a tenth, clip_frac does "
                "not show it (columns ratio_low, ratio_hist)"
            )

    def keep_adapter(self, path: Path) -> None:
        """Keep the trained coordinates as they are now, beside those that the run will end with."""
        self.world.from_first(lambda: self._save_adapter(path))

    def _save_adapter(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        self.adapter.save(path, {"weights_hash": self.loaded.weights_hash})

    def finish(self, steps: int) -> None:
        """Save the adapter and mark the run complete, after so many steps of all calls together. One that had ended stays
        as it is."""
        if self.finished:
            return
        self.world.from_first(lambda: self._finish(steps))

    def _finish(self, steps: int) -> None:
        if steps > self.next_step:  # a run that stops early may end between two checkpoints
            self._save(steps - 1)
        self._save_adapter(self.run / "adapter.safetensors")
        if self.hooks.page.apart:
            with self.hooks.page.deployed():
                self._save_adapter(self.run / DEPLOYED)
        update_manifest(self.run, steps_done=steps, finished=True)
