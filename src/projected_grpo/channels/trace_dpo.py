"""The channel that learns from preferences between two actions at the same state of a trace (traces/votes.py makes
them).

    dpo     -log sigmoid(beta [(log p(c) - log ref(c)) - (log p(r) - log ref(r))])        summed log-probabilities
            (Rafailov et al. 2023, arXiv:2305.18290, equation 7; TRL 1.16.0 trl/trainer/dpo_trainer.py:1285, sigmoid)
    simpo   -log sigmoid(beta [log p(c) / |c| - log p(r) / |r|] - gamma), gamma = gamma_beta_ratio x beta, no reference
            (Meng et al. 2024, arXiv:2405.14734, equation 6; princeton-nlp/SimPO 1b3e8f3 scripts/simpo_trainer.py:560, 648)

The reference is free: it is the model without its adapter (delta_S = 0). dpo without reference log-probabilities
compares the policy with the uniform distribution, which adds nothing (reference-free DPO).

Deviations: masked positions are exact zeros before any arithmetic; an empty completion has log-probability 0 (SimPO:
0 / 0); no pairs is an exact zero, attached to the graph."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from projected_grpo.channels.outputs import LossOutputs


@dataclass(frozen=True)
class Preference:
    """Which loss. The defaults are DPO's; SIMPO has SimPO's."""

    kind: Literal["dpo", "simpo"] = "dpo"
    beta: float = 0.1
    gamma_beta_ratio: float = 0.0
    """simpo: the margin that a pair must have, in units of beta."""


DPO = Preference()
SIMPO = Preference("simpo", beta=2.0, gamma_beta_ratio=0.25)
"""The defaults of SimPO's repository."""


@dataclass(frozen=True)
class Scored:
    """One side of n pairs, token by token."""

    logps: Float[Tensor, "n t"]
    mask: Bool[Tensor, "n t"]
    ref_logps: Float[Tensor, "n t"] | None = None
    """Of the reference, for dpo; None: reference-free."""

    def total(self) -> Float[Tensor, " n"]:
        """Summed log-probability of each completion, in nats."""
        return torch.where(self.mask, self.logps, torch.zeros_like(self.logps)).sum(1)

    def mean(self) -> Float[Tensor, " n"]:
        """Per token."""
        return self.total() / self.mask.sum(1).clamp(min=1)

    def log_ratio(self) -> Float[Tensor, " n"]:
        """Summed, against the reference where there is one; nothing flows into the reference."""
        if self.ref_logps is None:
            return self.total()
        return self.total() - Scored(self.ref_logps.detach().to(self.logps), self.mask).total()


def trace_dpo(chosen: Scored, rejected: Scored, options: Preference = DPO, *, whole: int | None = None) -> LossOutputs:
    """Mean loss of n pairs: row i of `chosen` is preferred to row i of `rejected`. whole: pairs of the whole step, of
    which these may be a part; None: these.

    Metrics, means over these pairs (0 without any): `margin`, how much higher the chosen one's reward beta x
    log-ratio (simpo: beta x mean log-probability) is; `accuracy`, how often it is."""
    better, worse = (side.mean() if options.kind == "simpo" else side.log_ratio() for side in (chosen, rejected))
    rewards = options.beta * (better - worse)
    x = rewards - options.beta * options.gamma_beta_ratio
    losses = -logsigmoid(x)
    n, margin = max(len(rewards), 1), rewards.detach()
    metrics = {"margin": margin.sum() / n, "accuracy": (margin > 0).to(margin).sum() / n}
    return LossOutputs(losses.sum() / max(len(rewards) if whole is None else whole, 1), metrics)
