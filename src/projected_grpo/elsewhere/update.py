"""The projection on any torch optimizer: two hooks around its step, in a loop or a trainer of somebody else.

    projected = ProjectedUpdate(optimizer, v, model)

Before the step the gradient is measured (target grad: V is taken out of it, in place); after it the change of the
parameters is measured (target update: V is taken out of that). The arithmetic is projection.py's and measures.py's: where
gradient and optimizer are the same, a step is the project's own, bit for bit.

What of a loop comes through it:

- gradient accumulation, DDP, a rate that changes, several parameter groups, any rule: what lies in p.grad when the optimizer
  steps is what counts;
- a closure is wrapped, and each gradient that it makes is treated;
- a step that GradScaler skips is none. Clipping here needs `scaler.unscale_` before, else it is refused;
- frozen modules have no part, unless a gradient was left on them, which a momentum would move; what is thawed, frozen or
  added to the optimizer later counts from its next step on;
- maximize=True is refused: V is of a loss that is minimised;
- coordinates in bfloat16 round most of a small step away, V's part and the rest alike, and what is put back is rounded too:
  where less of V is taken out than the gate should take, a line says so. Keep what is trained in float32;
- a trainer clips before its optimizer steps. With target update that is the project's own order; with target grad the
  project clips what is left: give `max_grad_norm` here and switch the trainer's off;
- FSDP and ZeRO-3 are refused, as V needs whole parameters;
- parameters that V has no rows for are not touched and can learn the hack: a line says how many, and `covered` is logged;
- the optimizer's own state_dict carries what a resume needs, and refuses another V or recipe.
"""

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from weakref import WeakSet

import torch
from loguru import logger
from torch import Tensor, nn

from projected_grpo.arms import RECIPE
from projected_grpo.config import check_taken_out
from projected_grpo.elsewhere.coordinates import OUR_ADAPTERS, Coordinates, Site, coordinates_of
from projected_grpo.gates import GATES, GateName
from projected_grpo.ledger.errors import BadInput, NonFinite
from projected_grpo.measures import Seen, Used, step_columns
from projected_grpo.projection import Projection
from projected_grpo.run.vhack_file import PROBE_TOLERANCE, content_of, cut, read_vhack
from projected_grpo.vhack import VBasis

Columns = dict[str, Any]
Target = Literal["none", "grad", "update"]
TAKEN = 0.9
"""Of what the gate should take, how much must be gone after a step where coordinates have few digits; else it is said."""
KEY = "projected_grpo"
"""Under which an optimizer's state_dict holds the state of the projection."""
_taken: "WeakSet[torch.optim.Optimizer]" = WeakSet()


def check_asked(
    gate: str = RECIPE.gate, target: str = RECIPE.project, overshoot: float = 1.0, max_grad_norm: float = 0.0,
    k_use: int = 0, noise_floor: float = 0.0, **_: Any,
) -> None:  # fmt: skip
    """BadInput on words that nothing is known by, and on numbers that would put V in or that no step could use."""
    if gate not in GATES or target not in ("none", "grad", "update"):
        raise BadInput(f"gate {gate!r}, target {target!r}: gates are {', '.join(GATES)}; targets none, grad, update")
    check_taken_out(k_use, noise_floor, overshoot, "{}={}".format)
    if not 0 <= max_grad_norm < math.inf:
        raise BadInput(f"max_grad_norm={max_grad_norm}: must be 0 (no clipping) or more, and finite")


class ProjectedUpdate:
    """Takes V out of every step of an optimizer, from now on until `remove`.

    optimizer: any torch.optim.Optimizer (accelerate's wrapper is opened). v: a VHack, or the file of one. model: what the
    optimizer trains, in whatever wrapper: its modules are found by V's names. target "none" measures and takes nothing out:
    the arm to compare with. log: called with the columns of every step (names and meanings: docs/metrics.md), which `last`
    holds too. state: of the run that goes on, an optimizer's state_dict or `state_dict()`: its LoRA or weights have moved.

    BadInput, in one line, when V was not made for this model, when the optimizer does not train what V has rows for, or when
    it has a projection already.
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
        state: Mapping[str, Any] | None = None,
    ) -> None:
        check_asked(gate, target, overshoot, max_grad_norm, k_use, noise_floor)
        self.optimizer = _inner(optimizer)
        if self.optimizer in _taken:
            raise BadInput("this optimizer has a projection already: V would be taken out twice; remove() the first")
        self.v = cut(v if isinstance(v, VBasis) else read_vhack(Path(v)), k_use, noise_floor)
        if not self.v.directions:
            raise BadInput(f"no direction of V is left with k_use={k_use}, noise_floor={noise_floor}")
        if any(group.get("maximize") for group in self.optimizer.param_groups):
            raise BadInput("maximize=True: V is of a loss that is minimised; give the optimizer the negative loss")
        ours = self.v.meta.get("adapter") in OUR_ADAPTERS
        self._coordinates = coordinates_of(model, () if ours else self.v.basis)
        check_fits(self.v, self._coordinates, moved=state is not None)
        check_apart(self._coordinates)
        self._asked = (target, gate, overshoot, preserve_magnitude)
        self.covered = 1.0
        """Share of the trained numbers that V has rows for."""
        self._find()
        self.max_grad_norm, self.log = max_grad_norm, log
        self.content = content_of(self.v.basis)
        self.steps = 0
        """Steps that were taken, those before a resume too."""
        self.last: Columns = {}
        if state is not None:
            state = state.get(KEY, state)
            self.load_state_dict(state)
            self._check_values(state)
        self._rounded = False
        self._start: dict[str, Tensor] | None = None
        self._seen: dict[str, Tensor] = {}
        self._fired, self._clipped = 0.0, 1.0
        self._hooks = [
            self.optimizer.register_step_pre_hook(self._before),
            self.optimizer.register_step_post_hook(self._after),
            self.optimizer.register_state_dict_post_hook(self._save),
            self.optimizer.register_load_state_dict_pre_hook(self._load),
        ]
        _taken.add(self.optimizer)

    def remove(self) -> None:
        """Leave the optimizer as it was before."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        _taken.discard(self.optimizer)

    def __enter__(self) -> "ProjectedUpdate":
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    # ------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Any]:
        """What a resume must find the same, and how many steps were taken. JSON holds it."""
        return {"steps": self.steps, **self._recipe(), "values": self._values()}

    def _recipe(self) -> dict[str, Any]:
        """What a resume must find the same."""
        p = self.projection
        return {
            "v_sha256": self.content, "target": p.target, "gate": p.gate, "overshoot": p.overshoot,
            "preserve_magnitude": p.preserve_magnitude, "max_grad_norm": self.max_grad_norm,
        }  # fmt: skip

    def _values(self) -> int:
        """A checksum of what is trained where V has rows: the state belongs to these numbers."""
        found = 0
        for name, site in sorted(self._coordinates.sites.items()):
            for p in site.params:
                found = zlib.crc32(p.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes(), found)
            found = zlib.crc32(name.encode(), found)
        return found

    def _check_values(self, state: Mapping[str, Any]) -> None:
        """BadInput where a state is of other numbers than stand here; its `values` None: they are not compared."""
        if state.get("values", "none") not in (None, self._values()):
            raise BadInput(
                "state: the model's parameters are not those that it was saved with; load the checkpoint's weights (and its "
                "LoRA) first"
            )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """BadInput, naming both sides, when the run was taken with another V or recipe."""
        if "v_sha256" not in state:
            raise BadInput(
                "state: it is of a run that was not projected; start without it, on a model that V was made for"
            )
        for key, here in self._recipe().items():
            if state.get(key) != here:
                raise BadInput(f"resume: the run was projected with {key}={state.get(key)}, here it is {here}")
        self.steps = int(state["steps"])

    def _save(self, _: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        state[KEY] = self.state_dict()

    def _load(self, _: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        if KEY in state:
            self.load_state_dict(state[KEY])
            self._check_values(state[KEY])
        elif state["state"]:
            logger.warning("the optimizer's state is of a run that was not projected: it is projected from here on")

    # ------------------------------------------------------------ the step

    def _before(self, _: torch.optim.Optimizer, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        self._seen, self._start, self._fired, self._clipped = {}, None, 0.0, 1.0
        if self._overflowed():
            return None
        if self._signature() != self._found:
            self._find()
        self._start = {name: site.values().clone() for name, site in self._able().items()}
        self._follow()
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            self._take_gradient()
            return None

        def projected() -> Any:
            with torch.enable_grad():
                loss = closure()
            self._take_gradient()
            return loss

        return (args[0], projected, *args[2:]), {k: v for k, v in kwargs.items() if k != "closure"}

    @torch.no_grad()
    def _take_gradient(self) -> None:
        """Measure the gradient; take V out of it where that is asked for, then clip."""
        with_grad = {n: s for n, s in self._able().items() if any(p.grad is not None for p in s.params)}
        gradient = {n: site.gradient() for n, site in with_grad.items()}
        for name, g in gradient.items():
            if not torch.isfinite(g).all():
                raise NonFinite(f"step {self.steps}: the gradient of {name} is not finite; nothing was stepped")
        self._seen = {n: g.clone() for n, g in gradient.items()}
        if self.projection.target == "grad" and gradient:
            kept, self._fired = self.projection.apply(gradient)
            for name, site in with_grad.items():
                for p, piece in zip(site.params, site.pieces(kept[name]), strict=True):
                    p.grad = piece.clone() if p.grad is None else p.grad.copy_(piece)
        self._clipped = self._clip()

    def _clip(self) -> float:
        """Shorten all gradients to `max_grad_norm`, in place. Returns by how much."""
        if self.max_grad_norm <= 0:
            return 1.0
        if getattr(self.optimizer, "grad_scale", None) is not None:
            raise BadInput("max_grad_norm: gradients are scaled still; call scaler.unscale_(optimizer) before its step")
        norm = nn.utils.clip_grad_norm_(self._parameters(), self.max_grad_norm)
        return min(1.0, self.max_grad_norm / (float(norm) + 1e-6))

    @torch.no_grad()
    def _after(self, *_: object) -> None:
        if self._start is None:
            return
        start, self._start = self._start, None
        sites, fired = {n: self.sites[n] for n in start}, self._fired
        proposed = {n: start[n] - s.values() for n, s in sites.items()}
        if self.projection.target == "update":
            kept, fired = self.projection.apply(proposed)
            for name, site in sites.items():
                for p, piece in zip(site.params, site.pieces(start[name] - kept[name]), strict=True):
                    p.copy_(piece)
        if sites:
            gradient = {n: self._seen.get(n, torch.zeros_like(g)) for n, g in proposed.items()}
            taken_in = {n: s.gradient() / self._clipped for n, s in sites.items()}
            used = Used(gradient, taken_in, proposed, {n: start[n] - s.values() for n, s in sites.items()})
            seen = Seen.of(used, self.projection)
            self.last = {
                "step": self.steps,
                "covered": self.covered,
                **step_columns(used, seen, self.projection, fired),
            }
            self._say_rounded()
            if self.log is not None:
                self.log(self.last)
        self.steps += 1

    def _say_rounded(self) -> None:
        """Once: what is put back into coordinates of few digits is not what was taken out."""
        share = self.last.get("removed_share")
        few = {p.dtype for s in self.sites.values() for p in s.params if p.dtype.itemsize < torch.float32.itemsize}
        if self._rounded or share is None or share >= TAKEN or not few:
            return
        self._rounded = True
        logger.warning(
            f"step {self.steps}: {share:.2f} of what should be taken out was: the coordinates are {few.pop()}, which rounds "
            "it away; train them in float32, or at a larger rate"
        )

    def _follow(self) -> None:
        """V on the device and in the type of what is trained: a model may be moved after its optimizer was wrapped."""
        basis = self.projection.basis or {}
        moved = {n: basis[n].to(s.params[0].device, s.dtype) for n, s in self.sites.items()}
        if any(moved[n] is not rows for n, rows in basis.items()):
            self.projection = replace(self.projection, basis=moved)

    def _overflowed(self) -> bool:
        """Whether GradScaler has found that this step is to be skipped (it tells optimizers that scale by themselves)."""
        found = getattr(self.optimizer, "found_inf", None)
        return found is not None and float(found) > 0

    def _able(self) -> dict[str, Site]:
        """Modules that this step may move. BadInput where a part of one is frozen: V would move what is to stand still."""
        able = {}
        for name, site in self.sites.items():
            free = [moves(p) for p in site.params]
            if all(free):
                able[name] = site
            elif any(free):
                raise BadInput(
                    f"{name}: one of its parameters is frozen and another is not; V is of both: free or freeze both"
                )
        return able

    # ------------------------------------------------------------ what is trained

    def _signature(self) -> tuple[tuple[int, bool], ...]:
        """What is trained now: of the optimizer's parameters and V's, which are free."""
        ours = (p for site in self._coordinates.sites.values() for p in site.params)
        return tuple((id(p), moves(p)) for p in (*self._parameters(), *ours))

    def _find(self) -> None:
        """V's modules that are trained now, and how much of all that is trained they are."""
        self.sites = self._trained(self._coordinates)
        self.covered = self._covered()
        self.projection = Projection({n: self.v.basis[n] for n in self.sites}, *self._asked)
        self._found = self._signature()

    def _parameters(self) -> list[nn.Parameter]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def _trained(self, coordinates: Coordinates) -> dict[str, Site]:
        """V's modules that the optimizer has. BadInput when it has none, or only a part of those that are free to move."""
        held = {id(p) for p in self._parameters()}
        sites = {
            n: s
            for n, s in coordinates.sites.items()
            if any(p.requires_grad or (moves(p) and id(p) in held) for p in s.params)
        }
        lacking = [n for n, s in sites.items() if not all(id(p) in held for p in s.params)]
        if not sites or lacking:
            which = f"{lacking[0]} is" if lacking else "all of V's modules are frozen: nothing is"
            raise BadInput(f"{which} not trained by this optimizer; wrap the optimizer that moves it, or freeze it")
        return sites

    def _covered(self) -> float:
        """Share of the trained numbers that V has coordinates for; said where it is not all of them."""
        ours = {id(p) for s in self.sites.values() for p in s.params}
        trained = [p for p in self._parameters() if moves(p)]
        whole, own = sum(p.numel() for p in trained), sum(p.numel() for p in trained if id(p) in ours)
        if own < whole and own / whole != self.covered:  # said once for each share
            logger.warning(f"V is of {own:,} of {whole:,} trained numbers; the others can learn the hack as before")
        return own / whole


def _inner(optimizer: Any) -> torch.optim.Optimizer:
    """The torch optimizer whose step is really taken."""
    while isinstance(getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = optimizer.optimizer
    if not isinstance(optimizer, torch.optim.Optimizer) or not hasattr(optimizer, "_optimizer_step_pre_hooks"):
        raise BadInput(f"{type(optimizer).__name__} is no torch.optim.Optimizer with step hooks")
    return optimizer


def moves(p: Tensor) -> bool:
    """Whether an optimizer moves it: a gradient that was left on a frozen parameter is enough."""
    return p.requires_grad or p.grad is not None


def check_apart(coordinates: Coordinates) -> None:
    """BadInput where two modules share a parameter: V would be taken out of it by the rows of the last alone."""
    owner: dict[int, str] = {}
    for name, site in coordinates.sites.items():
        for p in site.params:
            if (other := owner.setdefault(id(p), name)) != name:
                raise BadInput(
                    f"{other} and {name} are one tied parameter; extract V with modules that name one of them"
                )


def check_fits(v: VBasis, coordinates: Coordinates, *, moved: bool) -> None:
    """BadInput, naming both sides, when V is written in other coordinates, or (unless the parameters have `moved` since) was
    made for other weights."""
    for key, here in coordinates.metadata().items():
        if (there := v.meta.get(key)) != here:
            raise BadInput(f"V was made for {key}={there}, but this model has {key}={here}; extract it again")
    sizes = {n: rows.shape[1] for n, rows in v.basis.items()}
    if sizes != coordinates.sizes:
        odd = sorted(set(sizes.items()) ^ set(coordinates.sizes.items()))[0][0]
        raise BadInput(f"module {odd} has {sizes.get(odd)} coordinates in V, {coordinates.sizes.get(odd)} here")
    if not (moved and coordinates.kind == "peft-lora"):
        for name, probe in coordinates.probes().items():
            gap = float((probe - v.probes[name]).norm() / probe.norm().clamp(min=1e-12))
            if gap > PROBE_TOLERANCE:
                raise BadInput(
                    f"{name}: V is written in other coordinates (fingerprints differ by {gap:.3f}): another LoRA, or a "
                    "trained one; extract V on this very model, and give `state` where a run goes on"
                )
    if moved and coordinates.kind == "weights":
        return
    if (here := coordinates.weights_hash()) != (there := v.meta.get("weights_hash")):
        raise BadInput(f"V was made for weights_hash={there}, but this model has {here}; extract it again")
