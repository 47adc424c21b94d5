"""Completion log-probabilities with every prompt run once for its whole group, with gradient.

A prompt's keys and values are computed once, repeated to the completions that follow it, and the gradients of all of them
come back through that one pass. The same numbers as logprobs.completion_logps on prompt + completion rows, and the same
*summed* gradient, at a fraction of the tokens: p t_prompt + b t_completion instead of b (t_prompt + t_completion).

What it cannot give is the gradient of one sample alone: at prompt positions the group's gradients are one sum already.
Where per-sample gradients are asked for, the rows must be whole (step.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import DynamicCache

from projected_grpo.model.logprobs import CHUNK, head_of, left_padded, token_logps


@dataclass(frozen=True)
class SharedBatch:
    """Prompts, padded on the left so that all end at the same position, and completions, padded on the right."""

    prompt_ids: Int[Tensor, "p tp"]
    prompt_mask: Bool[Tensor, "p tp"]
    owner: Int[Tensor, " b"]
    """The prompt that each completion follows."""
    targets: Int[Tensor, "b tc"]
    """The completions: position i is predicted from the prompt and the i tokens before it."""
    loss_mask: Bool[Tensor, "b tc"]
    """True at completion tokens, from lengths."""

    def loss_token_ids(self) -> list[list[int]]:
        """The ids under the loss mask, per sample; SHOULD be the completions."""
        return [t[m].tolist() for t, m in zip(self.targets, self.loss_mask, strict=True)]


def shared_batch(
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    pad_id: int,
    device: torch.device | str,
    groups: Sequence[int] | None = None,
) -> SharedBatch:
    """Rows with equal prompts share one (of those, rows of one of the `groups`); pad may equal eos. ValueError on an empty
    prompt."""
    if empty := [i for i, p in enumerate(prompts) if not p]:
        raise ValueError(f"sample {empty[0]} has an empty prompt")
    keys = list(zip(groups or [0] * len(prompts), map(tuple, prompts), strict=True))
    place = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    longest = max(1, *map(len, completions))
    targets = torch.tensor([[*c, *[pad_id] * (longest - len(c))] for c in completions])
    counts = torch.tensor([[len(c)] for c in completions])
    return SharedBatch(
        *left_padded([prompt for _, prompt in place], pad_id, device),
        torch.tensor([place[key] for key in keys]).to(device),
        targets.to(device),
        (torch.arange(longest)[None] < counts).to(device),
    )


def shared_states(model: Any, batch: SharedBatch) -> Float[Tensor, "b tc d"]:
    """Returns the hidden states that predict the completions; what stands at padding means nothing."""
    real = batch.prompt_mask.long()
    cache = DynamicCache(config=model.config)
    prompt = model.base_model(
        input_ids=batch.prompt_ids,
        attention_mask=real,
        position_ids=(real.cumsum(1) - 1).clamp(min=0),
        past_key_values=cache,
        use_cache=True,
    ).last_hidden_state[batch.owner, -1:]
    hidden = prompt
    if batch.targets.shape[1] > 1:
        cache.batch_select_indices(batch.owner)
        read = batch.targets[:, :-1]
        mask = torch.cat([real[batch.owner], torch.ones_like(read)], 1)  # nothing looks at padding on the right
        positions = real.sum(1)[batch.owner, None] + torch.arange(read.shape[1], device=read.device)
        after = model.base_model(
            input_ids=read, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
        ).last_hidden_state
        hidden = torch.cat([prompt, after], 1)
    return hidden


def shared_logps(model: Any, batch: SharedBatch, temperature: float = 1.0, chunk: int = CHUNK) -> Float[Tensor, "b tc"]:
    """Log-probability of every completion token; 0 elsewhere. ValueError as in logprobs.head_of."""
    head, hidden = head_of(model), shared_states(model, batch)
    where = batch.loss_mask
    logps = token_logps(hidden[where], head.weight, batch.targets[where], temperature, chunk)
    return torch.zeros(where.shape, dtype=logps.dtype, device=logps.device).masked_scatter(where, logps)


def shared_micro_batches(
    prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], token_budget: int
) -> list[list[int]]:
    """Rows grouped by prompt, longest first, so that prompts x longest prompt + rows x longest completion stays within the
    budget (one row may exceed it alone). A group that does not fit is cut, and its prompt run once per part."""
    order = sorted(range(len(prompts)), key=lambda i: (-len(prompts[i]), tuple(prompts[i]), -len(completions[i]), i))
    batches: list[list[int]] = []
    distinct = longest = 0
    for i in order:
        if batches:
            last = batches[-1]
            # In this order the first prompt is the longest, and equal ones stand together.
            more = distinct + (tuple(prompts[i]) != tuple(prompts[last[-1]]))
            room = max(longest, len(completions[i]))
            if more * len(prompts[last[0]]) + (len(last) + 1) * room <= token_budget:
                last.append(i)
                distinct, longest = more, room
                continue
        batches.append([i])
        distinct, longest = 1, len(completions[i])
    return batches
