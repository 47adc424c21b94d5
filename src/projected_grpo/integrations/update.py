"""The projection on any torch optimizer: two hooks around its step, in a loop or a trainer of somebody else.

    projected = ProjectedUpdate(optimizer, v, model)
    GRPOTrainer(..., callbacks=[ProjectedCallback("vhack.safetensors")])

Before the step the gradient is measured (target grad: V is removed from it); after it the change of the parameters is
measured (target update: V is removed from that). Where gradient and optimizer are the same, a step is this project's,
bit for bit.

A trainer clips before its optimizer steps (TRL 1.16.0; transformers 5.23.0, Trainer._run_epoch). With target update
that is this project's order; with target grad give `max_grad_norm` here and switch the trainer's off."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import torch
from accelerate.optimizer import AcceleratedOptimizer
from loguru import logger
from torch import nn
from transformers import TrainerCallback

from projected_grpo.arms import GATES, MOVED_AT_START, OF_POSITION, RECIPE, GateName
from projected_grpo.integrations.coordinates import Coordinates, coordinates_of
from projected_grpo.ledger.errors import BadInput, NonFinite
from projected_grpo.measures import projection_columns
from projected_grpo.projection import Projection, Vectors
from projected_grpo.vhack import VBasis, read_vhack

Columns = dict[str, Any]
LOGGED = ("cos_in", "cos_update_in", "cos_update", "update_removed", "removed_share", "frac_fired")
"""Columns that go into a trainer's log, as hack/NAME."""


class ProjectedUpdate:
    """Removes V from every step of an optimizer, until `remove`.

    optimizer: any torch.optim.Optimizer, in whatever wrapper, whose step() alone moves the weights. v: a VHack, or
    the file of one. model: what the optimizer trains, in whatever wrapper: its modules are found by V's names. target
    "none" measures and removes nothing: the arm to compare with. log: called with the columns of every step
    (docs/metrics.md), which `last` holds too. step: of a run that goes on, the steps that it has taken: its LoRA has
    moved since V was extracted.

    Raises BadInput when V was not made for this model, or when the optimizer does not train what V has rows for.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        v: VBasis | Path | str,
        model: nn.Module,
        *,
        gate: GateName = RECIPE.gate,
        target: Literal["none", "grad", "update"] = RECIPE.project,
        max_grad_norm: float = 0.0,
        log: Callable[[Columns], Any] | None = None,
        step: int = 0,
    ) -> None:
        if gate not in GATES or target not in ("none", "grad", "update"):
            raise BadInput(f"gate={gate!r}, target={target!r}: gates {', '.join(GATES)}; targets none, grad, update")
        inner = opened(optimizer)
        self.target, self.gate, self.max_grad_norm, self.log = target, gate, max_grad_norm, log
        self.steps = step
        """Steps that were taken, those before a resume too."""
        self.last: Columns = {}
        self._v, self._all = v if isinstance(v, VBasis) else read_vhack(Path(v)), coordinates_of(model)
        self._all.check_made_for(self._v, moved=step > 0)
        if gate in OF_POSITION and self._all.metadata["adapter"] in MOVED_AT_START:
            raise BadInput(f"gate={gate!r}: needs numbers that start at 0; freeze the LoRA's A (docs/integrations.md)")
        self._held: dict[nn.Parameter, bool] = {}
        self._read_groups(inner)
        self._hooks = [inner.register_step_pre_hook(self._before), inner.register_step_post_hook(self._after)]

    def _read_groups(self, optimizer: torch.optim.Optimizer) -> None:
        """Counts what V covers of the optimizer's groups; one may be added between steps."""
        held = parameters_of(optimizer)
        if held == self._held:
            return
        self._held, self.coordinates = held, trained(self._all, held)
        self.covered = sum(self.coordinates.sizes.values()) / sum(p.numel() for p in held if p.requires_grad)
        """Share of the trained numbers that V has rows for."""
        if self.covered < 1:
            logger.warning(f"V is of {self.covered:.1%} of the trained numbers; the others can learn the hack")
        basis = {name: self._v.basis[name].to(start) for name, start in self.coordinates.values().items()}
        self.projection = Projection(basis, self.target, self.gate)

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()

    @torch.no_grad()
    def _before(self, optimizer: Any, args: tuple, kwargs: dict) -> None:
        if any(given is not None for given in (*args[1:2], kwargs.get("closure"), kwargs.get("grad_scaler"))):
            raise BadInput("step() was given a closure or a scaler; call backward() first, and step() without it")
        self._read_groups(optimizer)
        # A GradScaler leaves it to a fused optimizer to unscale and to skip.
        self._skipped = bool(getattr(optimizer, "found_inf", None))
        if self._skipped:
            return
        if (scale := getattr(optimizer, "grad_scale", None)) is not None:
            for grad in (p.grad for p in self._held if p.grad is not None):
                grad.div_(scale.to(grad.device))
            optimizer.grad_scale = None
        self._start: Vectors = self.coordinates.values()
        self._gradient: Vectors = self.coordinates.gradient()
        for name, g in self._gradient.items():
            if not torch.isfinite(g).all():
                raise NonFinite(f"step {self.steps}: the gradient of {name} is not finite; nothing was stepped")
        self._used, self._fired = self._gradient, 0.0
        if self.projection.target == "grad":
            learn = [name for name, own in self.coordinates.parameters.items() if any(p.grad is not None for p in own)]
            kept, self._fired = self.projection.apply({name: self._gradient[name] for name in learn})
            self.coordinates.set_gradient(kept)
            self._used = self.coordinates.gradient()
        if self.max_grad_norm > 0:
            nn.utils.clip_grad_norm_(self._held, self.max_grad_norm)

    @torch.no_grad()
    def _after(self, *_: object) -> None:
        if self._skipped:
            return
        proposed = self._descent()
        kept, fired = self.projection.apply_to("update", proposed, self._start)
        if kept is not proposed:  # else the optimizer's values stay, bit for bit
            self.coordinates.set_values({name: start - kept[name] for name, start in self._start.items()})
        stages = {"gradient": self._gradient, "used": self._used, "proposed": proposed, "applied": self._descent()}
        columns, _modules = projection_columns(stages, self.projection, self._fired + fired, self._start)
        self.last = {"step": self.steps, "covered": self.covered, **columns}
        if self.log is not None:
            self.log(self.last)
        self.steps += 1

    def _descent(self) -> Vectors:
        """Returns minus the change of the parameters since the step began."""
        return {name: self._start[name] - value for name, value in self.coordinates.values().items()}


def opened(optimizer: Any) -> torch.optim.Optimizer:
    """Returns the optimizer inside wrappers (accelerate's, Lookahead, SAM) that steps all parameters. Raises BadInput
    where another method than step() moves the weights too: of schedule-free optimizers eval(), of LOMO
    fused_backward()."""
    if isinstance(optimizer, AcceleratedOptimizer):  # it has an eval() whatever it wraps
        return opened(optimizer.optimizer)
    for method in ("eval", "fused_backward"):
        if hasattr(optimizer, method):
            name = type(optimizer).__name__
            raise BadInput(f"{name}: its {method}() moves the weights too; use one whose step() alone does")
    inside = [x for x in vars(optimizer).values() if isinstance(x, torch.optim.Optimizer)]
    whole = [x for x in inside if parameters_of(optimizer).keys() <= parameters_of(x).keys()]
    return opened(whole[0]) if whole else optimizer


def parameters_of(optimizer: torch.optim.Optimizer) -> dict[nn.Parameter, bool]:
    """Returns the optimizer's parameters, and whether each trains."""
    return {p: p.requires_grad for group in optimizer.param_groups for p in group["params"]}


def trained(coordinates: Coordinates, held: dict[nn.Parameter, bool]) -> Coordinates:
    """Returns the modules that train. Raises BadInput when an optimizer of these parameters has none, or only a part,
    of them."""
    own = {name: ps for name, ps in coordinates.parameters.items() if any(p.requires_grad for p in ps)}
    lacking = [name for name, ps in own.items() if not all(held.get(p) for p in ps)]
    if not own or lacking:
        which = f"{lacking[0]} is" if lacking else "all of V's modules are frozen: nothing is"
        raise BadInput(f"{which} not trained whole by this optimizer; wrap the optimizer that moves it, or freeze it")
    return replace(coordinates, parameters=own)


class ProjectedCallback(TrainerCallback):
    """Removes V from what a Hugging Face trainer's optimizer does. `recipe`: ProjectedUpdate's gate, target,
    max_grad_norm.

    `steps` holds the columns of every step of this call of train, the trainer's log means of some, as hack/cos_in. A
    resumed run is projected if the callback is given again."""

    def __init__(self, v: VBasis | Path | str, **recipe: Any) -> None:
        self.v, self.recipe = v, recipe
        self.projected: ProjectedUpdate | None = None
        self.steps: list[Columns] = []
        self._logged = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.fsdp or args.deepspeed:
            raise BadInput("FSDP and DeepSpeed shard parameters or step by themselves; V needs each whole: use DDP")
        self.on_train_end(args, state, control)  # of a call of train that was cut
        step = state.global_step or len(self.steps)  # a LoRA that this callback has trained has moved
        self.steps, self._logged = [], 0
        self.projected = ProjectedUpdate(
            kwargs["optimizer"], self.v, kwargs["model"], **self.recipe, log=self.steps.append, step=step
        )

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Puts the means since the last line next to the trainer's numbers."""
        new, self._logged = self.steps[self._logged :], len(self.steps)
        for name in LOGGED:
            if known := [row[name] for row in new if row[name] is not None]:
                kwargs["logs"][f"hack/{name}"] = state.log_history[-1][f"hack/{name}"] = fmean(known)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        if self.projected is not None:
            self.projected.remove()
