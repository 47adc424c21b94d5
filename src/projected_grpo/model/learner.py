"""What is trained: a model, its adapter and an optimizer, in one of several processes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from projected_grpo.adapters.base import Adapter
from projected_grpo.model.logprobs import SharedBatch, TokenBatch, completion_logps, shared_batches, token_batches
from projected_grpo.parallel import ALONE, Ranks
from projected_grpo.records import Sample

Batch = TokenBatch | SharedBatch


@dataclass(frozen=True)
class Learner:
    """What a step trains, and the limits of one forward and backward pass."""

    model: Any
    adapter: Adapter
    optimizer: torch.optim.Optimizer
    pad_id: int
    token_budget: int
    """Most tokens in one forward and backward pass."""
    max_grad_norm: float = 0.0
    """The gradient is clipped to this norm after the projection; 0 = no clipping."""
    ranks: Ranks = ALONE
    """The processes that train together."""

    @property
    def device(self) -> torch.device:
        """Returns the device of the trained coordinates."""
        return next(iter(self.adapter.vectors.values())).device

    def batches(self, samples: Sequence[Sample], *, whole: bool) -> Iterator[tuple[list[int], Batch]]:
        """Yields micro-batches: (indices into `samples`, their tokens). `whole`: a row per sample, so that per-sample
        gradients can be taken; else each prompt once."""
        prompts, completions = [s.prompt_ids for s in samples], [s.completion_ids for s in samples]
        make = token_batches if whole else shared_batches
        return make(prompts, completions, self.token_budget, self.pad_id, self.device)

    @torch.no_grad()
    def base_logps(self, tokens: Batch, temperature: float) -> Float[Tensor, "b t"]:
        """Returns log-probabilities under the untrained model (the adapter off)."""
        with self.adapter.disabled():
            return completion_logps(self.model, tokens, temperature)
