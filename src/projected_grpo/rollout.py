"""Live groups: sample completions from the policy being trained, and record the log-probability of every token.

The adapter is folded into the weights meanwhile, so sampling runs at the plain model's speed.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from projected_grpo.decoding import decoder_for
from projected_grpo.model import LoadedModel
from projected_grpo.records import Rollout, Source
from projected_grpo.sampling import SamplingParams, draw, uniforms

T = TypeVar("T")


@dataclass(frozen=True)
class Prompt:
    """A rendered prompt."""

    problem_id: str
    text: str
    ids: tuple[int, ...]


@contextmanager
def evaluating(model: Any) -> Generator[None]:
    """Eval mode inside, the mode before afterwards: in train mode with gradient checkpointing, transformers drops the
    key-value cache, and a decoding loop then sees one token of context in silence."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def sample_tokens(
    loaded: LoadedModel,
    prompts: Sequence[Sequence[int]],
    group_size: int,
    params: SamplingParams,
    keys: Sequence[str],
) -> list[tuple[list[int], list[float]]]:
    """`group_size` completions per prompt, groups one after the other: (token ids, log-probabilities) each. One key per
    prompt decides its draws.

    A completion ends with its first end-of-sequence token, or after max_new tokens.
    """
    with torch.no_grad(), evaluating(loaded.model):
        return _decode(loaded, prompts, group_size, params, uniforms(keys, group_size, params.max_new))


def _decode(
    loaded: LoadedModel,
    prompts: Sequence[Sequence[int]],
    group_size: int,
    params: SamplingParams,
    u: Float[Tensor, "b t"],
) -> list[tuple[list[int], list[float]]]:
    """Token by token until every row has ended. Rows that have ended leave the batch, a good part of it at a time."""
    decoder = decoder_for(loaded, prompts, group_size)
    logits = decoder.logits
    n, device = len(logits), logits.device
    eos = torch.tensor(sorted(loaded.eos_ids), device=device)
    tokens = torch.zeros((n, params.max_new), dtype=torch.long, device=device)
    logps = torch.zeros((n, params.max_new), device=device)
    lengths = torch.full((n,), params.max_new, device=device)
    rows = torch.arange(n, device=device)  # which completion each row of the batch is
    going = torch.ones(n, dtype=torch.bool, device=device)
    u = u.to(device)
    for i in range(params.max_new):
        token, logp = draw(logits, params, u[rows, i])
        tokens[rows, i], logps[rows, i] = token, logp
        ended = going & torch.isin(token, eos)
        lengths[rows[ended]] = i + 1
        going = going & ~ended
        left = int(going.sum())
        if i + 1 == params.max_new or not left:
            break
        if left <= decoder.stay * len(going):
            keep = going.nonzero().flatten()
            decoder.keep(keep)
            rows, going, token = rows[keep], going[keep], token[keep]
        logits = decoder.step(token)
    kept = zip(tokens.tolist(), logps.tolist(), lengths.tolist(), strict=True)
    return [(t[:length], p[:length]) for t, p, length in kept]


def prompt_batches(prompts: Sequence[T], group_size: int, rollout_batch: int) -> list[Sequence[T]]:
    """Prompts in order, cut so that a batch has at most `rollout_batch` completions (one whole group at least)."""
    size = max(1, rollout_batch // group_size)
    return [prompts[i : i + size] for i in range(0, len(prompts), size)]


def sample_rollouts(
    loaded: LoadedModel,
    prompts: Sequence[Prompt],
    group_size: int,
    params: SamplingParams,
    keys: Sequence[str],
    source: Source,
) -> list[tuple[Rollout, ...]]:
    """One tuple of `group_size` rollouts per prompt. One key per prompt decides its draws."""
    sampled = sample_tokens(loaded, [p.ids for p in prompts], group_size, params, keys)
    groups = []
    for i, prompt in enumerate(prompts):
        own = sampled[i * group_size : (i + 1) * group_size]
        groups.append(
            tuple(
                Rollout(
                    prompt.problem_id,
                    j,
                    source,
                    prompt.text,
                    loaded.tokenizer.decode(ids, skip_special_tokens=True),
                    prompt.ids,
                    tuple(ids),
                    truncated=not ids or ids[-1] not in loaded.eos_ids,
                    behaviour_logps=tuple(logps),
                )
                for j, (ids, logps) in enumerate(own)
            )
        )
    return groups
