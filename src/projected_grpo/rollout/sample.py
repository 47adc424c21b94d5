"""Live groups: sample completions from the policy being trained, and record the log-probability of every token."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from projected_grpo.ledger.errors import NonFinite
from projected_grpo.model.attention import packed_queries
from projected_grpo.model.load import LoadedModel
from projected_grpo.records import Rollout, Source
from projected_grpo.rollout.decoding import decoder_for
from projected_grpo.rollout.draw import SamplingParams, draw, uniforms

T = TypeVar("T")
Sampled = tuple[list[int], list[float]]
"""Token ids and the log-probability of each."""


@dataclass(frozen=True)
class Prompt:
    """A rendered prompt."""

    problem_id: str
    text: str
    ids: tuple[int, ...]


def sample_tokens(
    loaded: LoadedModel,
    prompts: Sequence[Sequence[int]],
    group_size: int,
    params: SamplingParams,
    keys: Sequence[str],
    on_ended: Callable[[Mapping[int, Sampled]], None] = lambda _: None,
) -> list[Sampled]:
    """`group_size` completions per prompt, groups one after the other. One key per prompt decides its draws.

    A completion ends with its first end-of-sequence token, or after max_new tokens. Rows that have ended leave the
    batch, a good part of it at a time. `on_ended` gets each completion by its place in that list, some at a time,
    while others are still being sampled. Raises NonFinite where logits are not finite."""
    sampled: dict[int, Sampled] = {}
    with torch.no_grad(), packed_queries(loaded.model):
        decoder = decoder_for(loaded, prompts, group_size)
        logits = decoder.logits
        n, device = len(logits), logits.device
        u = uniforms(keys, group_size, params.max_new).to(device)
        eos = torch.tensor(sorted(loaded.eos_ids), device=device)
        tokens = torch.zeros((n, params.max_new), dtype=torch.long, device=device)
        logps = torch.zeros((n, params.max_new), device=device)
        lengths = torch.full((n,), params.max_new, device=device)
        rows = torch.arange(n, device=device)  # which completion each row of the batch is
        going = torch.ones(n, dtype=torch.bool, device=device)

        def finish(which: Int[Tensor, " k"]) -> None:
            if not logps[which].isfinite().all():
                raise NonFinite(
                    "sampling: the model's logits are not finite; its weights, or what was trained of them, hold NaN or "
                    "infinity"
                )
            parts = zip(which.tolist(), *(t[which].tolist() for t in (tokens, logps, lengths)), strict=True)
            ended = {i: (t[:length], p[:length]) for i, t, p, length in parts}
            sampled.update(ended)
            on_ended(ended)

        for i in range(params.max_new):
            token, logp = draw(logits, params, u[rows, i])
            tokens[rows, i], logps[rows, i] = token, logp
            ended = going & torch.isin(token, eos)
            lengths[rows[ended]] = i + 1
            going = going & ~ended
            left = int(going.sum())
            if i + 1 == params.max_new or not left:
                break
            if left <= decoder.drop_below * len(going):
                finish(rows[~going])
                keep = going.nonzero().flatten()
                decoder.keep(keep)
                rows, going, token = rows[keep], going[keep], token[keep]
            logits = decoder.step(token)
        finish(rows)
    return [sampled[i] for i in range(len(sampled))]


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
    on_ended: Callable[[Sequence[Rollout]], None] = lambda _: None,
) -> list[tuple[Rollout, ...]]:
    """One tuple of `group_size` rollouts per prompt. One key per prompt decides its draws. `on_ended` gets every
    rollout, some at a time, while others are still being sampled."""
    rollouts: dict[int, Rollout] = {}

    def finish(ended: Mapping[int, Sampled]) -> None:
        for index, (ids, logps) in ended.items():
            which, sample = divmod(index, group_size)
            prompt, text = prompts[which], loaded.tokenizer.decode(ids, skip_special_tokens=True)
            rollouts[index] = Rollout(
                prompt.problem_id, sample, source, prompt.text, text, prompt.ids, tuple(ids),
                truncated=not ids or ids[-1] not in loaded.eos_ids, behaviour_logps=tuple(logps),
            )  # fmt: skip
        on_ended([rollouts[index] for index in ended])

    sample_tokens(loaded, [p.ids for p in prompts], group_size, params, keys, finish)
    starts = range(0, len(rollouts), group_size)
    return [tuple(rollouts[i] for i in range(start, start + group_size)) for start in starts]
