"""Evil expert (mixture): several delta_S on one singular basis, mixed by a router that reads the prompt. One of them
starts as the hacky teacher, and is out when deployed: is later hacking absorbed there?

    y    = W x + sum_e w_e(p) U diag(delta_S_e) Vh x        p: the prompt that x belongs to
    w(p) = softmax(R f(p) + b)                              f(p) [d]: its hidden state in the untrained model, L1 norm 1
    delta_S_e = start_e + D_e                               start: 0, of the last one diag(U^T (W_teacher - W) V)

All experts share U and Vh, so for one prompt the mixture is the ordinary adapter at theta(p) = sum_e w_e(p)
delta_S_e. The loop does one prompt at a time (`routed`), and what holds of the adapter holds of it: merging,
per-sample gradients, the KL to the untrained model. The router is trained by the policy gradient through w. With g_p
= dL/dtheta(p), over all rows of p:

    dL/dD_e = sum_p w_e(p) g_p        dL/dlogit_e(p) = w_e (c_e - sum_f w_f c_f),  c_e = sum over modules of g_p . delta_S_e

D, R and b are AdamW's, clipped together, with the run's settings. The decay pulls D to 0, so each expert to its
start, as in every arm: towards 0 the seed would be forgotten. It leaves the router alone. One expert is the ordinary
adapter, to the bit. Deployed, the seeded expert is out and the router renormalised over the others. `experts_random`
starts the last expert at a random change of the seed's norm in every module, since shrinkage alone can look like
absorption.

A router of the prompt can be merged; one of the token could not, and unmerged sampling costs two more products per
Linear, each the size of W. The router sees no completion, but where hacks pay it can turn to the expert that hacks
already.

Between prompts theta is the mixture at the mean weights of the step's prompts: what norms, cosines of the update and
adapter.safetensors are of. The experts themselves are in the checkpoint. cos_in is that of sum_p g_p; what the run's
optimizer makes of it (cos_update_in) is not applied.

Deviations: a delta_S is diagonal in W's singular basis, W_teacher - W is not: only the share that the log names is
kept. Of the source no text was at hand but its name as the original author's next idea, so the form is this
project's.

Source: wassname/evil_MoE, by name; the softmax mixture: Jacobs et al. 1991, "Adaptive Mixtures of Local Experts".
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from jaxtyping import Float
from loguru import logger
from torch import Tensor
from torch.nn import Parameter

from projected_grpo.interventions.base import EachPrompt, Intervention, PromptIds, Setup, StepContext, Vectors
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import seed_of

SPREAD = 0.1
"""Standard deviation of the router's first logits, about: it tells experts apart that begin alike."""


class Experts(Intervention):
    """Experts, the last of them seeded."""

    separate_deployment = by_prompt = part = True
    EXPERTS = 3

    def __init__(self, setup: Setup) -> None:
        if setup.adapter != "antipasto":
            raise BadInput(
                f"--adapter {setup.adapter}: --arm {setup.arm} mixes experts on the singular directions that antipasto "
                "alone has; leave --adapter out"
            )
        self.theta: Mapping[str, Parameter] = setup.coordinates
        self.prompt_state: Any = setup.prompt_state
        like = next(iter(self.theta.values()))
        self.starts = {name: p.new_zeros((self.EXPERTS, p.numel())) for name, p in self.theta.items()}
        self.seed(setup)
        self.learned = {name: Parameter(torch.zeros_like(s)) for name, s in self.starts.items()}
        width = setup.model.config.hidden_size
        self.router = Parameter(SPREAD * width**0.5 * drawn((self.EXPERTS, width), f"router {setup.seed}", like))
        self.bias = Parameter(like.new_zeros(self.EXPERTS))
        self.met = Parameter(like.new_zeros(self.EXPERTS + 1))
        """Not trained: its `grad` counts the step's weights and prompts, summed over processes like a gradient."""
        self.mean = torch.full((self.EXPERTS,), 1 / self.EXPERTS).to(like)
        learned, routing = list(self.learned.values()), [self.router, self.bias]
        self.optimizer = torch.optim.AdamW([{"params": learned}, {"params": routing}], lr=0.0, weight_decay=0.0)
        self.is_last = torch.arange(self.EXPERTS, device=like.device) == self.EXPERTS - 1
        self.among = torch.ones_like(self.is_last)
        self.rest()

    def seed(self, setup: Setup) -> None:
        """Fills in the last expert's start."""
        kept = whole = 0.0
        for name, change in setup.teacher.items():
            layer = setup.model.get_submodule(name)
            start = on_singular_directions(change, layer.U, layer.Vh)
            kept, whole = kept + float(start.square().sum()), whole + float(change.double().square().sum())
            if setup.arm == "experts_random":
                somewhere = drawn(tuple(start.shape), f"expert {setup.seed} {name}", start)
                start = somewhere * (start.norm() / somewhere.norm())
            self.starts[name][-1] = start
        self.kept = kept / max(whole, 1e-30)
        """Share of the energy of the teacher's weight change that a delta_S can hold."""
        logger.info(
            f"on W's singular directions the teacher keeps {self.kept:.2%} of its weight change's energy; whether the last "
            "expert hacks, eval_part/ says"
        )

    # ------------------------------------------------------------ the mixture

    def experts(self, name: str) -> Float[Tensor, "e n"]:
        """Returns delta_S of every expert of a module."""
        return self.starts[name] + self.learned[name].detach()

    def weights(self, logits: Float[Tensor, " e"]) -> Float[Tensor, " e"]:
        """Softmax over those experts that are in."""
        return logits.masked_fill(~self.among, -torch.inf).softmax(0)

    @torch.no_grad()
    def mix(self, w: Float[Tensor, " e"]) -> None:
        """Write theta = sum_e w_e delta_S_e."""
        for name, p in self.theta.items():
            p.copy_((w[:, None] * self.experts(name)).sum(0))

    def rest(self) -> None:
        """Write theta at the mean weights, of those experts that are in."""
        self.mix(self.weights(self.mean.clamp(min=1e-30).log()))

    @contextmanager
    def routed(self, prompt_ids: PromptIds) -> Generator[None]:
        """A context in which theta is that of one prompt: for merging and sampling, forward and backward of its rows.
        It is entered inside deployed() and only_part() too; only in training is there a gradient at its end."""
        f = self.prompt_state(prompt_ids).to(self.bias)
        f = f / f.abs().sum().clamp(min=1e-12)
        with torch.no_grad():
            w = self.weights(self.router @ f + self.bias)
        earlier = {name: p.grad for name, p in self.theta.items() if p.grad is not None}
        for p in self.theta.values():
            p.grad = None
        self.mix(w)
        try:
            yield
            gradients = {name: p.grad for name, p in self.theta.items() if p.grad is not None}
            if gradients:
                self.collect(gradients, w, f)
        finally:
            self.rest()
            for name, grad in earlier.items():
                add(self.theta[name], grad)

    def by_prompts(self, prompts: Sequence[PromptIds]) -> list[tuple[list[int], AbstractContextManager[None]]]:
        rows: dict[tuple[int, ...], list[int]] = {}
        for i, prompt in enumerate(prompts):
            rows.setdefault(tuple(prompt), []).append(i)
        return [(places, self.routed(prompt)) for prompt, places in rows.items()]

    @contextmanager
    def sampling(self, weights: Callable[[], AbstractContextManager[None]]) -> Generator[EachPrompt]:
        @contextmanager
        def each(prompt_ids: PromptIds) -> Generator[None]:
            with self.routed(prompt_ids), weights():
                yield

        yield each

    @torch.no_grad()
    def collect(self, gradients: Vectors, w: Float[Tensor, " e"], f: Float[Tensor, " d"]) -> None:
        """Add what one prompt's gradient says to the experts' and the router's."""
        c = torch.zeros_like(w)
        for name, grad in gradients.items():
            add(self.learned[name], w[:, None] * grad)
            c += self.experts(name) @ grad
        logits = w * (c - w @ c)
        add(self.router, logits[:, None] * f)
        add(self.bias, logits)
        add(self.met, torch.cat([w, w.new_ones(1)]))

    # ------------------------------------------------------------ training

    @property
    def trained(self) -> Mapping[str, Parameter]:
        return {**self.learned, "router": self.router, "bias": self.bias, "met": self.met}

    def update(self, update: Vectors, context: StepContext) -> Vectors:
        settings = context.optimizer
        learned, routing = self.optimizer.param_groups
        for group, decay in ((learned, settings["weight_decay"]), (routing, 0.0)):
            group.update({key: settings[key] for key in ("lr", "betas", "eps")}, weight_decay=decay)
        if settings["max_grad_norm"] > 0:
            torch.nn.utils.clip_grad_norm_([*learned["params"], *routing["params"]], settings["max_grad_norm"])
        self.optimizer.step()
        if self.met.grad is not None and float(self.met.grad[-1]) > 0:
            self.mean = self.met.grad[:-1] / self.met.grad[-1]
        for p in self.trained.values():
            p.grad = None
        self.rest()  # theta itself is written here
        return update

    # ------------------------------------------------------------ who is in

    @contextmanager
    def only(self, among: Tensor) -> Generator[None]:
        """Those experts alone, the router renormalised over them."""
        self.among = among
        self.rest()
        try:
            yield
        finally:
            self.among = torch.ones_like(among)
            self.rest()

    def deployed(self) -> AbstractContextManager[None]:
        return self.only(~self.is_last)

    def only_part(self) -> AbstractContextManager[None]:
        return self.only(self.is_last)

    # ------------------------------------------------------------ checkpoints

    def state(self) -> dict[str, Any]:
        trained = {name: p.detach() for name, p in self.trained.items()}
        return {"trained": trained, "optimizer": self.optimizer.state_dict(), "mean": self.mean}

    @torch.no_grad()
    def restore(self, state: Mapping[str, Any]) -> None:
        for name, p in self.trained.items():
            p.copy_(state["trained"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        self.mean = state["mean"].to(self.mean)
        self.rest()


def add(p: Parameter, grad: Tensor) -> None:
    """Accumulate a gradient."""
    p.grad = grad.clone() if p.grad is None else p.grad + grad


def drawn(shape: tuple[int, ...], key: str, like: Tensor) -> Tensor:
    """Returns standard normal numbers, a function of shape and key."""
    draw = torch.Generator().manual_seed(seed_of(key))
    return torch.randn(shape, generator=draw, dtype=torch.float64).to(like)


def on_singular_directions(
    change: Float[Tensor, "d_out d_in"], u: Float[Tensor, "d_out r"], vh: Float[Tensor, "r d_in"]
) -> Float[Tensor, " r"]:
    """Returns diag(U^T change V): of all delta_S the one whose U diag(delta_S) Vh is nearest to `change`."""
    return ((u.T.double() @ change.double()) * vh.double()).sum(1)
