"""From token ids to log-probabilities: which rows go through the model together, and how. All that any channel learns from
is collated here: padded on the right, masked from lengths, ids as they are (nothing is ever tokenised here).

whole      prompt + completion, a row per sample (logprobs.py): per-sample gradients can be taken
shared     the prompt once per group (shared_prompt.py): the same numbers and the same summed gradient, faster
two_sided  two sequences per row: one completion after two prompts, or two completions after one
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from projected_grpo.model.logprobs import TokenBatch, completion_logps, token_batch
from projected_grpo.model.shared_prompt import SharedBatch, shared_batch, shared_logps, shared_micro_batches
from projected_grpo.records import Sample

Batch = TokenBatch | SharedBatch
Side = tuple[Sequence[int], Sequence[int]]
"""Prompt and completion, token ids."""


def batches(
    rows: Sequence[Sample], token_budget: int, pad_id: int, device: torch.device, *, whole: bool
) -> Iterator[tuple[list[int], Batch]]:
    """Micro-batches within the token budget: (indices into `rows`, their tokens). Rows are whole where that is asked for."""
    prompts, completions = [s.prompt_ids for s in rows], [s.completion_ids for s in rows]
    if whole:
        chosen = micro_batches([len(p) + len(c) for p, c in zip(prompts, completions, strict=True)], token_budget)
        make = token_batch
    else:
        chosen, make = shared_micro_batches(prompts, completions, token_budget), shared_batch
    for part in chosen:
        yield part, make([prompts[i] for i in part], [completions[i] for i in part], pad_id, device)


def two_sided(
    first: Sequence[Side], second: Sequence[Side], token_budget: int, pad_id: int, device: torch.device
) -> Iterator[tuple[list[int], TokenBatch, TokenBatch]]:
    """Micro-batches of rows that have two sides: (which rows, the first sides' tokens, the second sides'). Both count in
    the budget, each as long as the longer of the two. ValueError on an empty prompt, or sides of different numbers."""
    longest = [max(len(p) + len(c) for p, c in sides) for sides in zip(first, second, strict=True)]
    for chosen in micro_batches([2 * n for n in longest], token_budget):
        one, other = (token_batch(*zip(*(sides[i] for i in chosen), strict=True), pad_id, device)
                      for sides in (first, second))  # fmt: skip
        yield chosen, one, other


def logps_of(model: Any, batch: Batch, temperature: float) -> Float[Tensor, "b t"]:
    """Log-probability of every completion token, where the batch's loss mask is True; 0 elsewhere."""
    if isinstance(batch, SharedBatch):
        return shared_logps(model, batch, temperature)
    return completion_logps(model, batch, temperature)


def behaviour_of(rows: Sequence[Sample], logps: Float[Tensor, "b t"], batch: Batch) -> Float[Tensor, "b t"]:
    """Behaviour log-probabilities at the positions of `logps`; a sample without them is taken as on-policy."""
    out = logps.detach().clone()
    for i, sample in enumerate(rows):
        if sample.behaviour_logps is not None:
            out[i, batch.loss_mask[i]] = torch.tensor(sample.behaviour_logps, dtype=out.dtype, device=out.device)
    return out


def micro_batches(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Rows grouped, longest first, so that rows x longest row stays within the budget (one row may exceed it alone).

    Sorting by length keeps padding small; the order is a pure function of the lengths.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    batches: list[list[int]] = []
    for i in order:
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= token_budget:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches
