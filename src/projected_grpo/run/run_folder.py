"""A run's folder while it runs: opened or resumed, a step file a step, checkpoints, finished. It holds no model.

run = RunFolder.open(config, policy);  run.write(step, groups, result, ...);  run.finish(steps, policy)
"""

import io
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from loguru import logger

from projected_grpo.arms import ARMS
from projected_grpo.config import Gradient, TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.ledger.folder import DEPLOYED, open_run, read_manifest, update_manifest
from projected_grpo.ledger.rows import rows_of
from projected_grpo.ledger.step_file import Row, append_modules, cut_run, write_step
from projected_grpo.ledger.step_log import DOSE_STEPS, log_dose, log_step
from projected_grpo.measures import StepResult
from projected_grpo.parallel import Ranks
from projected_grpo.records import Group
from projected_grpo.run.policy import Policy

CHECKPOINT = "checkpoint.pt"


@dataclass
class RunFolder:
    """The folder of one run. Every rank calls every method; rank 0 alone reads and writes."""

    config: Gradient
    ranks: Ranks
    sizes: Mapping[str, int]
    """Trained numbers of each module."""
    next_step: int = 0
    finished: bool = False
    """Whether a run that was to be resumed had finished: it is left as it is, and `next_step` is its number of
    steps."""
    outer: Mapping[str, Any] = field(default_factory=dict)
    """What a replica keeps from one outer round to the next."""

    @property
    def path(self) -> Path:
        """The folder."""
        return self.config.run_folder

    @classmethod
    def open(cls, config: Gradient, policy: Policy, **facts: Any) -> "RunFolder":
        """Returns the run's new folder, or with --resume the one that is there, its checkpoint loaded into the
        policy. `facts` go into the manifest. Whenever the run is cut after this, --resume goes on with it. BadInput
        as in open_run, or when there is no checkpoint to go on from."""
        run, facts = cls(config, policy.ranks, policy.adapter.sizes), {**policy.facts, **facts}
        kind = "train" if isinstance(config, TrainConfig) else "probe_distill"
        policy.ranks.on_rank0(lambda: open_run(run.path, kind, config, resume=config.resume, **facts))
        if not policy.ranks.on_rank0(lambda: (run.path / CHECKPOINT).exists() or any(run.path.glob("step_*"))):
            run.checkpoint(-1, policy)
        if config.resume:
            run._resume(policy)
        return run

    def _resume(self, policy: Policy) -> None:
        manifest = self.ranks.on_rank0(lambda: read_manifest(self.path))
        before, asked = (c.get("steps") for c in (manifest["config"], vars(self.config)))
        self.finished = bool(manifest["finished"]) and asked == before
        if self.finished:
            self.next_step = manifest["steps_done"]
            return
        state = self.ranks.on_rank0(self._last_checkpoint)
        self.next_step, self.outer = state["step"] + 1, state["outer"]
        policy.restore(state)
        logger.info(f"resumed after {self.next_step} steps")
        if asked != before:
            config = {**manifest["config"], "steps": asked}
            self.ranks.on_rank0(lambda: update_manifest(self.path, config=config, finished=False))
            logger.info(f"--steps {asked}: the run was started with --steps {before}")

    def _last_checkpoint(self) -> dict[str, Any]:
        """Returns what `checkpoint` saved last, on the CPU, and removes the files of later steps. BadInput when there
        is none."""
        path = self.path / CHECKPOINT
        if not path.exists():
            raise BadInput(f"--resume: {path}: no such file; start the run again with another --out")
        state = torch.load(path, map_location="cpu", weights_only=True)
        cut_run(self.path, state["step"])
        return state

    def write(
        self, step: int, groups: Sequence[Group], result: StepResult, timing: Mapping[str, float], began: float
    ) -> list[Row]:
        """Writes the step's file from this rank's groups and measurements, and a line of the log. Returns the rows of
        all ranks. timing: seconds of sampling and grading. began: time.perf_counter() at the start of the step."""
        seconds = {**timing, **result.step["timing"], "total": time.perf_counter() - began}
        values, keep_logps = {**result.step, "timing": seconds}, self.config.keep_token_logps
        rows = self.ranks.gather(rows_of(groups, result.samples, values, step=step, keep_token_logps=keep_logps))

        def write() -> None:
            write_step(self.path, step, rows)
            if result.modules:
                append_modules(self.path, step, self.sizes, result.modules)
            log_step(step, rows, first=step == self.next_step)
            if step < DOSE_STEPS and ARMS[self.config.arm].role == "method" and rows[0]["target"] == "update":
                log_dose(rows)

        self.ranks.on_rank0(write)
        return rows

    def checkpoint(self, step: int, policy: Policy, outer: Mapping[str, Any] | None = None) -> None:
        """Saves all that the run needs to go on to the same numbers after `step`; -1 is before the first step. outer:
        of a replica, its state after a new round."""
        self.outer = self.outer if outer is None else outer

        def save() -> None:
            out = io.BytesIO()
            torch.save(copied({"step": step, "outer": self.outer, **policy.state()}), out)
            write_atomic(self.path / CHECKPOINT, out.getvalue())

        self.ranks.on_rank0(save)

    def finish(self, steps: int, policy: Policy) -> None:
        """Saves the adapter and marks the run finished after `steps` steps."""
        if steps > self.next_step:  # a run that stops early may end between two checkpoints
            self.checkpoint(steps - 1, policy)
        policy.save(self.path / "adapter.safetensors")
        if policy.intervention.separate_deployment:
            with policy.intervention.deployed():
                policy.save(self.path / DEPLOYED)
        self.ranks.on_rank0(lambda: update_manifest(self.path, steps_done=steps, finished=True))


def copied(state: Any) -> Any:
    """Returns a state with each tensor copied to the CPU: in its own layout (V in another one rounds otherwise),
    without the storage that it is a view of."""
    if isinstance(state, torch.Tensor):
        return state.detach().cpu().clone()
    return {name: copied(value) for name, value in state.items()} if isinstance(state, Mapping) else state
