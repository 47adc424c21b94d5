"""What a run trains, and what a step reads beside rollouts: the model with its adapter and optimizer, V and the way
it is removed, the arm's intervention, auxiliary losses, a judge. It holds no file and no step number."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from projected_grpo.adapters.base import Adapter
from projected_grpo.config import Gradient
from projected_grpo.interventions.base import Intervention
from projected_grpo.interventions.judges import Judge
from projected_grpo.model.learner import Learner
from projected_grpo.model.load import LoadedModel
from projected_grpo.parallel import ALONE, Ranks
from projected_grpo.projection import Projection
from projected_grpo.prompts import SystemPrompt
from projected_grpo.run.auxiliary_losses import AuxiliaryLosses
from projected_grpo.step import Objective
from projected_grpo.vhack import VBasis


@dataclass
class Policy:
    """The policy of a run; `run/prepare.py` makes it."""

    config: Gradient
    loaded: LoadedModel
    adapter: Adapter
    optimizer: torch.optim.Optimizer
    objective: Objective
    projection: Projection
    v: VBasis | None = None
    ranks: Ranks = ALONE
    intervention: Intervention = field(default_factory=Intervention)
    """The arm's; by default it does nothing."""
    auxiliary: AuxiliaryLosses = field(default_factory=AuxiliaryLosses)
    """Losses that are added to the policy loss."""
    judge: Judge | None = None
    """Scores every rollout, where the run has one."""
    re_extracted: bool = False
    """Whether `v` is another than that of --vhack; only then is it part of the state, as it may be large."""

    @property
    def learner(self) -> Learner:
        """Returns what `run_step` trains."""
        c, loaded = self.config, self.loaded
        return Learner(
            loaded.model, self.adapter, self.optimizer, loaded.pad_id, c.token_budget, c.max_grad_norm, self.ranks
        )

    @property
    def facts(self) -> dict[str, Any]:
        """Returns what a manifest says of it."""
        return {
            "model_hash": self.loaded.weights_hash,
            "tokenizer_hash": self.loaded.tokenizer_hash,
            "adapter": self.adapter.metadata(),
            "vhack": self.v.meta if self.v else {},
            "processes": self.ranks.size,
            **self.auxiliary.facts,
            **({"judge": self.judge.description} if self.judge else {}),
            **({"system_prompt": self.prompt_setup} if self.intervention.system_prompt else {}),
        }

    @property
    def prompt_setup(self) -> str:
        """The prompt set-up of training: the arm's own system prompt, or the run's."""
        own = self.intervention.system_prompt
        return SystemPrompt(own) if own else self.config.prompt_setup

    def set_learning_rate(self, step: int) -> None:
        """The learning rate rises linearly over the first `--warmup` steps, and stays."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.lr * min(1.0, (step + 1) / (self.config.warmup + 1))

    def use(self, basis: Mapping[str, torch.Tensor]) -> None:
        """Measures and removes this V from the next step on."""
        assert self.v is not None
        self.v = dataclasses.replace(self.v, basis=dict(basis))
        self.projection = dataclasses.replace(self.projection, basis=self.v.basis)
        self.re_extracted = True

    def state(self) -> dict[str, Any]:
        """Returns what `restore` needs, not copied. No random number generator is in it: every draw is a function of
        the seed, the step and the row."""
        return {
            "theta": self.adapter.vectors,
            "optimizer": self.optimizer.state_dict(),
            "basis": self.v.basis if self.v and self.re_extracted else {},
            "intervention": self.intervention.state(),
            "auxiliary": self.auxiliary.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Loads what `state` returned."""
        self.adapter.set_values(state["theta"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.intervention.restore(state["intervention"])
        self.auxiliary.restore(state["auxiliary"])
        if state["basis"]:
            self.use({name: rows.to(self.adapter.vectors[name]) for name, rows in state["basis"].items()})

    def save(self, path: Path) -> None:
        """Writes the trained coordinates."""
        self.ranks.on_rank0(lambda: self.adapter.save(path, {"weights_hash": self.loaded.weights_hash}))
