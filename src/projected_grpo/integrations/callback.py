"""The projection as a callback of Hugging Face's Trainer, and so of TRL's GRPOTrainer.

    GRPOTrainer(..., callbacks=[ProjectedCallback("vhack.safetensors")])

Written against TRL 1.16.0 and transformers 5.23.0 (trainer.py, Trainer._run_epoch): the trainer clips, then steps the
optimizer that is wrapped here.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from loguru import logger
from transformers import TrainerCallback

from projected_grpo.integrations.update import Columns, ProjectedUpdate
from projected_grpo.ledger.errors import BadInput
from projected_grpo.vhack import VBasis, read_vhack

LOGGED = ("cos_in", "cos_update_in", "cos_update", "update_removed", "removed_share", "frac_fired")
"""Columns that go into the trainer's log, as hack/NAME."""


class ProjectedCallback(TrainerCallback):
    """Removes V from what the trainer's optimizer does. `recipe`: as ProjectedUpdate's gate, target, overshoot, ...

    `steps` holds the columns of every step of this call of train; `log` is called with them (reporters of the trainer are
    asked before its callbacks are). The means of some are in the trainer's log_history, as hack/cos_in and the like. A
    resumed run is projected if the callback is given again.
    """

    def __init__(self, v: VBasis | Path | str, *, log: Callable[[Columns], Any] | None = None, **recipe: Any) -> None:
        self.v, self.log, self.recipe = v if isinstance(v, VBasis) else read_vhack(Path(v)), log, recipe
        self.projected: ProjectedUpdate | None = None
        self.steps: list[Columns] = []
        self._logged = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Wraps the optimizer."""
        if args.fsdp or args.deepspeed:
            raise BadInput("FSDP and DeepSpeed shard parameters or step by themselves; V needs each whole: use DDP")
        if self.recipe.get("target") == "grad" and args.max_grad_norm:
            logger.warning("target grad: the trainer clips before V is removed; this project's loop clips what is left")
        self.on_train_end(args, state, control)  # of a call of train that was cut
        step = state.global_step or len(self.steps)  # a LoRA that this callback has trained has moved
        self.steps, self._logged = [], 0
        self.projected = ProjectedUpdate(
            kwargs["optimizer"], self.v, kwargs["model"], **self.recipe, log=self._keep, step=step
        )

    def _keep(self, columns: Columns) -> None:
        self.steps.append(columns)
        if self.log is not None:
            self.log(columns)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Puts the means since the last line next to the trainer's numbers."""
        new, self._logged = self.steps[self._logged :], len(self.steps)
        known = {name: [row[name] for row in new if row[name] is not None] for name in LOGGED}
        means = {f"hack/{name}": sum(values) / len(values) for name, values in known.items() if values}
        kwargs["logs"] |= means
        state.log_history[-1] |= means

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Leaves the optimizer as it was."""
        if self.projected is not None:
            self.projected.remove()
            self.projected = None
