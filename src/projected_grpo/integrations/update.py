"""The projection on any torch optimizer: two hooks around its step, in a loop or a trainer of somebody else.

    projected = ProjectedUpdate(optimizer, v, model)

Before the step the gradient is measured (target grad: V is removed from it, in place); after it the change of the parameters
is measured (target update: V is removed from that). Where gradient and optimizer are the same, a step is this project's,
bit for bit.

- p.grad counts as it is when the optimizer steps: gradient accumulation, DDP, several parameter groups and any rule work. A
  closure does not.
- A trainer clips before its optimizer steps. With target update that is this project's order; with target grad the
  project clips what is left: give `max_grad_norm` here and switch the trainer's off.
- FSDP and ZeRO-3 are not supported: V needs whole parameters.
- Coordinates in bfloat16 round most of a small step away, V's part too. Keep what is trained in float32.
- Parameters that V has no rows for are not touched and can learn the hack: a warning says how many, and `covered` is logged.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from loguru import logger
from torch import Tensor, nn

from projected_grpo.arms import GATES, RECIPE, GateName
from projected_grpo.config import check_bounds
from projected_grpo.integrations.coordinates import Coordinates, Site, coordinates_of
from projected_grpo.ledger.errors import BadInput, NonFinite
from projected_grpo.measures import projection_columns
from projected_grpo.projection import Projection
from projected_grpo.vhack import VBasis, cut, read_vhack, same_coordinates

Columns = dict[str, Any]
Target = Literal["none", "grad", "update"]


class ProjectedUpdate:
    """Removes V from every step of an optimizer, until `remove`.

    optimizer: any torch.optim.Optimizer (accelerate's wrapper is opened). v: a VHack, or the file of one. model: what the
    optimizer trains, in whatever wrapper: its modules are found by V's names. target "none" measures and removes nothing:
    the arm to compare with. log: called with the columns of every step (docs/metrics.md), which `last` holds too. step: of a
    run that goes on, the steps that it has taken: its LoRA has moved since V was extracted.

    Raises BadInput when V was not made for this model, or when the optimizer does not train what V has rows for.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        v: VBasis | Path | str,
        model: nn.Module,
        *,
        gate: GateName = RECIPE.gate,
        target: Target = RECIPE.project,
        overshoot: float = 1.0,
        preserve_magnitude: bool = False,
        max_grad_norm: float = 0.0,
        k_use: int = 0,
        noise_floor: float = 0.0,
        log: Callable[[Columns], Any] | None = None,
        step: int = 0,
    ) -> None:
        if gate not in GATES or target not in ("none", "grad", "update"):
            raise BadInput(
                f"gate {gate!r}, target {target!r}: gates are {', '.join(GATES)}; targets none, grad, update"
            )
        numbers = {"k_use": k_use, "noise_floor": noise_floor, "overshoot": overshoot, "max_grad_norm": max_grad_norm}
        check_bounds(numbers, "{}={}".format)
        self.optimizer: torch.optim.Optimizer = getattr(optimizer, "optimizer", optimizer)
        self.v = cut(v if isinstance(v, VBasis) else read_vhack(Path(v)), k_use, noise_floor)
        coordinates = coordinates_of(model)
        check_fits(self.v, coordinates, moved=step > 0)
        self.sites = self._trained(coordinates)
        self.covered = self._covered()
        """Share of the trained numbers that V has rows for."""
        basis = {n: self.v.basis[n].to(s.params[0].device, s.dtype) for n, s in self.sites.items()}
        self.projection = Projection(basis, target, gate, overshoot, preserve_magnitude)
        self.max_grad_norm, self.log = max_grad_norm, log
        self.steps = step
        """Steps that were taken, those before a resume too."""
        self.last: Columns = {}
        self._start: dict[str, Tensor] = {}
        self._gradient: dict[str, Tensor] = {}
        self._used: dict[str, Tensor] = {}
        self._fired = 0.0
        self._hooks = [
            self.optimizer.register_step_pre_hook(self._before),
            self.optimizer.register_step_post_hook(self._after),
        ]

    def remove(self) -> None:
        """Leave the optimizer as it was before."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    @torch.no_grad()
    def _before(self, _: torch.optim.Optimizer, args: tuple, kwargs: dict) -> None:
        """Measure the gradient; remove V from it where that is asked for, then clip."""
        if (args[1] if len(args) > 1 else kwargs.get("closure")) is not None:
            raise BadInput("closure: the gradient must be there before optimizer.step(); call backward() first")
        self._start = {name: site.values() for name, site in self.sites.items()}
        self._gradient = {name: site.gradient() for name, site in self.sites.items()}
        self._fired = 0.0
        for name, g in self._gradient.items():
            if not torch.isfinite(g).all():
                raise NonFinite(f"step {self.steps}: the gradient of {name} is not finite; nothing was stepped")
        self._used = self._gradient
        with_grad = {n: s for n, s in self.sites.items() if any(p.grad is not None for p in s.params)}
        if self.projection.target == "grad" and with_grad:
            kept, self._fired = self.projection.apply({name: self._gradient[name] for name in with_grad})
            for name, site in with_grad.items():
                for p, piece in zip(site.params, site.pieces(kept[name]), strict=True):
                    p.grad = piece.clone() if p.grad is None else p.grad.copy_(piece)
            self._used = {name: site.gradient() for name, site in self.sites.items()}
        if self.max_grad_norm > 0:
            nn.utils.clip_grad_norm_(self._parameters(), self.max_grad_norm)

    @torch.no_grad()
    def _after(self, *_: object) -> None:
        """Measure the update; remove V from it where that is asked for."""
        start, fired = self._start, self._fired
        proposed = {n: start[n] - s.values() for n, s in self.sites.items()}
        if self.projection.target == "update":
            kept, fired = self.projection.apply(proposed)
            for name, site in self.sites.items():
                for p, piece in zip(site.params, site.pieces(start[name] - kept[name]), strict=True):
                    p.copy_(piece)
        applied = {n: start[n] - s.values() for n, s in self.sites.items()}
        stages = {"gradient": self._gradient, "used": self._used, "proposed": proposed, "applied": applied}
        columns, _modules = projection_columns(stages, self.projection, fired)
        self.last = {"step": self.steps, "covered": self.covered, **columns}
        if self.log is not None:
            self.log(self.last)
        self.steps += 1

    def _parameters(self) -> list[nn.Parameter]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def _trained(self, coordinates: Coordinates) -> dict[str, Site]:
        """Returns V's modules that train. Raises BadInput when the optimizer has none, or only a part, of them."""
        held = {id(p) for p in self._parameters()}
        sites = {n: s for n, s in coordinates.sites.items() if any(p.requires_grad for p in s.params)}
        lacking = [n for n, s in sites.items() if not all(p.requires_grad and id(p) in held for p in s.params)]
        if not sites or lacking:
            which = f"{lacking[0]} is" if lacking else "all of V's modules are frozen: nothing is"
            raise BadInput(f"{which} not trained by this optimizer; wrap the optimizer that moves it, or freeze it")
        return sites

    def _covered(self) -> float:
        """Returns the share of the trained numbers that V has coordinates for; warns where it is not all of them."""
        ours = {id(p) for s in self.sites.values() for p in s.params}
        trained = [p for p in self._parameters() if p.requires_grad]
        whole, covered = sum(p.numel() for p in trained), sum(p.numel() for p in trained if id(p) in ours)
        if covered < whole:
            logger.warning(f"V is of {covered:,} of {whole:,} trained numbers; the others can learn the hack as before")
        return covered / whole


def check_fits(v: VBasis, coordinates: Coordinates, *, moved: bool) -> None:
    """Raises BadInput when V is written in other coordinates, or was made for other weights. `moved`: the parameters have
    been trained since."""
    here = {**coordinates.metadata, "weights_hash": coordinates.weights_hash()}
    for key, value in here.items():
        if (there := v.meta.get(key)) != value:
            raise BadInput(f"V was made for {key}={there}, but this model has {key}={value}; extract it again")
    probes = v.probes if moved and coordinates.adapter is None else coordinates.probes
    if why := same_coordinates(v, probes, coordinates.sizes):
        raise BadInput(
            f"{why}: another LoRA, or a trained one; extract V on this very model, and give `step` where a run goes on"
        )
