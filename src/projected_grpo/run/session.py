"""What train and probe share: open a run, take steps, write them, resume.

session = prepare(config);  session.start();  session.take(step, groups, timing);  session.finish(steps)
"""

import dataclasses
import io
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from loguru import logger

from projected_grpo.adapters.base import Adapter
from projected_grpo.config import Gradient, TrainConfig, due
from projected_grpo.interventions.base import Intervention
from projected_grpo.interventions.judges import Judge
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.ledger.folder import DEPLOYED, open_run, read_manifest, update_manifest
from projected_grpo.ledger.rows import rows_of
from projected_grpo.ledger.step_file import Row, append_modules, cut_run, write_step
from projected_grpo.ledger.step_log import log_step
from projected_grpo.model.learner import Learner
from projected_grpo.model.load import LoadedModel
from projected_grpo.parallel import ALONE, World
from projected_grpo.projection import Projection
from projected_grpo.records import Group
from projected_grpo.run.auxiliary_losses import AuxiliaryLosses
from projected_grpo.run.intervening import context_of
from projected_grpo.step import Objective, run_step
from projected_grpo.vhack import VBasis

CHECKPOINT = "checkpoint.pt"


def copied(state: Any) -> Any:
    """Returns a state with each tensor copied to the CPU: in its own layout (V in another one rounds otherwise), without the
    storage that it is a view of."""
    if isinstance(state, torch.Tensor):
        return state.detach().cpu().clone()
    return {name: copied(value) for name, value in state.items()} if isinstance(state, Mapping) else state


@dataclass
class Session:
    """A run."""

    config: Gradient
    loaded: LoadedModel
    adapter: Adapter
    optimizer: torch.optim.Optimizer
    objective: Objective
    projection: Projection
    v: VBasis | None = None
    checkpoint_every: int = 1
    """0: only when `checkpoint` is called."""
    world: World = ALONE
    intervention: Intervention = field(default_factory=Intervention)
    """The arm's; by default it does nothing."""
    auxiliary: AuxiliaryLosses = field(default_factory=AuxiliaryLosses)
    """Losses that are added to the policy's."""
    judge: Judge | None = None
    """Scores every rollout, where the run has one."""
    next_step: int = 0
    finished: bool = False
    """Whether the run that was to be resumed had finished: it is left as it is."""
    extracted_again: bool = False
    """Whether `v` is another than that of --vhack; only then is it in the checkpoint, as it may be large."""
    outer: Mapping[str, Any] = field(default_factory=dict)
    """What a replica keeps from one outer round to the next; in the checkpoint."""

    def __post_init__(self) -> None:
        self.run = self.config.run_folder

    def start(self, **facts: Any) -> None:
        """Opens (or resumes) the run directory. `facts` go into the manifest. BadInput as in open_run, or when steps are on
        disk and no checkpoint to go on from. Whenever the run is cut after this, --resume goes on with it."""
        facts = {
            "model_hash": self.loaded.weights_hash,
            "tokenizer_hash": self.loaded.tokenizer_hash,
            "adapter": self.adapter.metadata(),
            "vhack": self.v.meta if self.v else {},
            "processes": self.world.size,
            **self.auxiliary.facts,
            **({"judge": self.judge.description} if self.judge else {}),
            **facts,
        }
        kind = "train" if isinstance(self.config, TrainConfig) else "probe_distill"
        self.world.from_first(lambda: open_run(self.run, kind, self.config, resume=self.config.resume, **facts))
        if not self.world.from_first(lambda: (self.run / CHECKPOINT).exists() or any(self.run.glob("step_*"))):
            self.checkpoint(-1)
        if self.config.resume:
            self._resume()

    def _resume(self) -> None:
        """Puts the checkpoint's state back; of a finished run with the same --steps, only its number of steps."""
        manifest = self.world.from_first(lambda: read_manifest(self.run))
        before, asked = (c.get("steps") for c in (manifest["config"], vars(self.config)))
        self.finished = bool(manifest["finished"]) and asked == before
        if self.finished:
            self.next_step = manifest["steps_done"]
            return
        state = self.world.from_first(self._last_checkpoint)
        self.next_step = state["step"] + 1
        self.adapter.set_values(state["theta"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.intervention.restore(state["intervention"])
        self.auxiliary.restore(state["auxiliary"])
        self.outer = state["outer"]
        if state["basis"] and self.v:
            self.use({name: rows.to(self.adapter.vectors[name]) for name, rows in state["basis"].items()})
        logger.info(f"resumed after {self.next_step} steps")
        if asked != before:
            config = {**manifest["config"], "steps": asked}
            self.world.from_first(lambda: update_manifest(self.run, config=config, finished=False))
            logger.info(f"--steps {asked}: the run was started with --steps {before}")

    def _last_checkpoint(self) -> dict[str, Any]:
        """Returns what `checkpoint` saved last, on the CPU, and removes the files of later steps. BadInput when there is
        none."""
        path = self.run / CHECKPOINT
        if not path.exists():
            raise BadInput(f"--resume: {path}: no such file; start the run again with another --out")
        state = torch.load(path, map_location="cpu", weights_only=True)
        cut_run(self.run, state["step"])
        return state

    def use(self, basis: Mapping[str, torch.Tensor]) -> None:
        """Measures and projects with this V from the next step on."""
        assert self.v is not None
        self.v = dataclasses.replace(self.v, basis=dict(basis))
        self.projection = dataclasses.replace(self.projection, basis=self.v.basis)
        self.extracted_again = True

    @property
    def learner(self) -> Learner:
        """Returns what a step trains."""
        c, loaded = self.config, self.loaded
        return Learner(
            loaded.model, self.adapter, self.optimizer, loaded.pad_id, c.token_budget, c.max_grad_norm, self.world
        )

    def take(
        self, step: int, groups: Sequence[Group], timing: dict[str, float], *, per_sample: bool = True
    ) -> list[Row]:
        """Takes one gradient step on this process's graded groups. Returns the rows of all processes; their file and the
        checkpoint are then on disk."""
        clock = time.perf_counter()
        with self.world.together():
            scores = self.judge.scores(groups) if self.judge else []
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.lr * min(1.0, (step + 1) / (self.config.warmup + 1))
        context = context_of(self.config, groups, self.loaded, scores)
        with self.intervention.training():
            result = run_step(
                self.learner, [g.samples() for g in groups], self.objective, self.projection, step=step,
                per_sample=per_sample, auxiliary=self.auxiliary.at(step, groups), intervention=self.intervention,
                context=context,
            )  # fmt: skip
        self.auxiliary.after(step, result.step["channels"])
        taken = {**timing, **result.step["timing"]}
        taken["total"] = sum(timing.values()) + time.perf_counter() - clock
        self.world.check_equal(step, self.adapter.checksum)
        for place, score in enumerate(scores):
            result.samples[place]["judge"] = score
        values, keep_logps = {**result.step, "timing": taken}, self.config.keep_token_logps
        rows = self.world.gather(rows_of(groups, result.samples, values, step=step, keep_token_logps=keep_logps))

        def keep() -> None:
            write_step(self.run, step, rows)
            if result.modules:
                append_modules(self.run, step, self.adapter.sizes, result.modules)
            log_step(step, rows, first=step == self.next_step)

        self.world.from_first(keep)
        if due(step + 1, self.checkpoint_every):
            self.checkpoint(step)
        return rows

    def checkpoint(self, step: int) -> None:
        """Saves all that the run needs to go on to the same numbers after `step`; -1 is before the first step. No random
        number generator is in it: every draw is a function of the seed, the step and the place."""

        def save() -> None:
            state = {
                "step": step, "theta": self.adapter.vectors, "optimizer": self.optimizer.state_dict(),
                "basis": self.v.basis if self.v and self.extracted_again else {}, "outer": self.outer,
                "intervention": self.intervention.state(), "auxiliary": self.auxiliary.state(),
            }  # fmt: skip
            out = io.BytesIO()
            torch.save(copied(state), out)
            write_atomic(self.run / CHECKPOINT, out.getvalue())

        self.world.from_first(save)

    def save_adapter(self, path: Path) -> None:
        """Saves a copy of the trained coordinates."""
        self.world.from_first(lambda: self.adapter.save(path, {"weights_hash": self.loaded.weights_hash}))

    def finish(self, steps: int) -> None:
        """Saves the adapter and marks the run finished after `steps` steps; a run that had finished stays as it is."""
        if self.finished:
            return
        if steps > self.next_step:  # a run that stops early may end between two checkpoints
            self.checkpoint(steps - 1)
        self.save_adapter(self.run / "adapter.safetensors")
        if self.intervention.separate_deployment:
            with self.intervention.deployed():
                self.save_adapter(self.run / DEPLOYED)
        self.world.from_first(lambda: update_manifest(self.run, steps_done=steps, finished=True))
