"""The projection as a callback of Hugging Face's Trainer, and so of TRL's GRPOTrainer.

    GRPOTrainer(..., callbacks=[ProjectedCallback("vhack.safetensors")])

Written against TRL 1.16.0 and transformers 5.23.0 (trainer.py, Trainer._run_epoch): the trainer clips, then steps the
optimizer that is wrapped here, and a checkpoint keeps what a callback says of itself (ExportableState).
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from weakref import ref

from loguru import logger
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from projected_grpo.integrations.update import Columns, ProjectedUpdate, check_asked
from projected_grpo.ledger.errors import BadInput
from projected_grpo.vhack import VBasis

SAID = (
    "cos_in",
    "cos_update_in",
    "cos_update",
    "energy_in",
    "energy_update",
    "update_removed",
    "removed_share",
    "frac_fired",
)
"""Columns that go into the trainer's log, as hack/NAME."""


class ProjectedCallback(TrainerCallback, ExportableState):
    """Takes V out of what the trainer's optimizer does. `recipe`: as ProjectedUpdate's gate, target, overshoot, ...

    `steps` holds the columns of every step of this call of train; `log` is called with them (reporters of the trainer are
    asked before its callbacks are). The means of some stand in the trainer's log_history, as hack/cos_in and the like.

    Raises BadInput before the first step, as ProjectedUpdate does. A run that goes on from a checkpoint that was made
    without this callback is projected from there on, with a warning.
    """

    def __init__(
        self, v: VBasis | Path | str | None = None, *, log: Callable[[Columns], Any] | None = None, **recipe: Any
    ) -> None:
        if "state" in recipe:
            raise BadInput("state: the callback finds it in the trainer's checkpoint")
        check_asked(**recipe)
        if isinstance(v, (str, Path)) and not Path(v).is_file():
            raise BadInput(f"V {v}: no such file; make one with VHack.extract(...).save(...) or `just extract-vhack`")
        self.v, self.log, self.recipe = v, log, recipe
        """v None: as a trainer makes it that restores callbacks by itself, which keeps no V that is no file."""
        self.projected: ProjectedUpdate | None = None
        self.steps: list[Columns] = []
        self.state_of_run: Mapping[str, Any] | None = None
        self._since = 0
        self._model: ref[Any] | None = None

    def state(self) -> dict[str, Any]:
        """For trainer_state.json: how to make this callback again, and what a resume must find the same."""
        made = {"v": str(self.v), **self.recipe} if isinstance(self.v, (str, Path)) else {}
        now = self.projected.state_dict() if self.projected else self.state_of_run
        return {"args": made, "attributes": {"state_of_run": dict(now) if now else None}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Wrap the optimizer."""
        if self.v is None:
            raise BadInput(
                "the callback has no V: a checkpoint keeps the name of V's file alone; give callbacks=[...] again"
            )
        if getattr(args, "fsdp", None) or getattr(args, "deepspeed", None):
            raise BadInput("FSDP and DeepSpeed shard parameters or step by themselves; V needs each whole: use DDP")
        before = _saved(state) if state.global_step else None
        if state.global_step and not before:
            logger.warning(
                f"the checkpoint of step {state.global_step} was made without this callback: projected from here on"
            )
            state.stateful_callbacks.setdefault(type(self).__name__, self.state())  # else the trainer could not save it
        self.on_train_end(args, state, control)  # of a call of train that was cut
        if not state.global_step and self._model is not None and self._model() is kwargs["model"]:
            before = self.state_of_run  # a second call of train, on a LoRA that has moved
        self._model = ref(kwargs["model"])
        if self.recipe.get("target") == "grad" and getattr(args, "max_grad_norm", 0):
            logger.warning(
                "target grad: the trainer clips before V is taken out; the project's own loop clips what is left"
            )
        self.steps, self._since = [], 0
        self.projected = ProjectedUpdate(
            kwargs["optimizer"], self.v, kwargs["model"], **self.recipe, log=self._keep, state=before
        )

    def _keep(self, columns: Columns) -> None:
        self.steps.append(columns)
        if self.log is not None:
            self.log(columns)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:  # noqa: ARG002
        """Put the means since the last line beside the trainer's numbers."""
        new, self._since = self.steps[self._since :], len(self.steps)
        known = {name: [row[name] for row in new if row[name] is not None] for name in SAID}
        means = {f"hack/{name}": sum(values) / len(values) for name, values in known.items() if values}
        for line in (logs, state.log_history[-1] if state.log_history else None):
            if line is not None:
                line |= means

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Give the optimizer back as it was."""
        if self.projected is not None:
            self.state_of_run = self.projected.state_dict()
            self.projected.remove()
            self.projected = None


def _saved(state: Any) -> Mapping[str, Any] | None:
    """What this callback said of itself in the checkpoint that the run goes on from."""
    told = (state.stateful_callbacks or {}).get(ProjectedCallback.__name__)
    if isinstance(told, list):
        raise BadInput("the checkpoint was made with several projections; resume with one is not possible")
    return told["attributes"]["state_of_run"] if told else None
