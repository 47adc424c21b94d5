"""From token ids to log-probabilities of completion tokens: micro-batches, and the product with the vocabulary
without the [B, T, vocab] logits tensor. Masks come from lengths, never from a padding token.

TokenBatch    prompt + completion, a row per sample: per-sample gradients can be taken
SharedBatch   the prompt once for its whole group: the same numbers and the same summed gradient, faster

The backbone's hidden states are cut to the positions that predict completion tokens, and the product with the
vocabulary is done in chunks of rows. A token's log-probability is one number, so its gradient towards the hidden
state is one row, whatever the loss: it is taken while the chunk's logits are there and kept instead of them. Peak
memory of this part is chunk x vocab numbers instead of B x T x vocab, and nothing is computed twice."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache

CHUNK = 1024
"""Rows of hidden states per product with the vocabulary."""
Side = tuple[Sequence[int], Sequence[int]]
"""Prompt and completion, token ids."""

# ---------------------------------------------------------------- a row per sample


@dataclass(frozen=True)
class TokenBatch:
    """Prompts followed by completions, padded on the right: causal attention never looks there, so no mask is needed
    and a sample's numbers do not depend on what it is batched with."""

    input_ids: Int[Tensor, "b t"]
    completion_mask: Bool[Tensor, "b t"]
    """True at positions whose token is a completion token."""

    @property
    def targets(self) -> Int[Tensor, "b t1"]:
        """The token that each position predicts."""
        return self.input_ids[:, 1:]

    @property
    def loss_mask(self) -> Bool[Tensor, "b t1"]:
        """Positions whose prediction is a completion token: the completion mask shifted by one."""
        return self.completion_mask[:, 1:]

    def states(self, model: Any) -> Float[Tensor, "n d"]:
        """Hidden states at the positions that predict completion tokens, row after row."""
        return model.base_model(input_ids=self.input_ids, use_cache=False).last_hidden_state[:, :-1][self.loss_mask]


def token_batch(
    prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], pad_id: int, device: torch.device | str
) -> TokenBatch:
    """Pad on the right. ValueError on an empty prompt: its first completion token would have no predictor."""
    if empty := [i for i, p in enumerate(prompts) if not p]:
        raise ValueError(f"sample {empty[0]} has an empty prompt")
    lengths = [len(p) + len(c) for p, c in zip(prompts, completions, strict=True)]
    ids = torch.full((len(lengths), max(lengths)), pad_id, dtype=torch.long)
    mask = torch.zeros(ids.shape, dtype=torch.bool)
    for row, (p, c) in enumerate(zip(prompts, completions, strict=True)):
        ids[row, : lengths[row]] = torch.tensor([*p, *c], dtype=torch.long)
        mask[row, len(p) : lengths[row]] = True
    return TokenBatch(ids.to(device), mask.to(device))


def micro_batches(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Rows grouped, longest first, so that rows x longest row stays within the budget (one row may exceed it
    alone)."""
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    return _filled(order, lambda rows: len(rows) * lengths[rows[0]], token_budget)


def _filled(order: Iterable[int], tokens: Callable[[list[int]], int], token_budget: int) -> list[list[int]]:
    """Cuts an order of rows where the next one would bring the tokens of its micro-batch above the budget."""
    batches: list[list[int]] = []
    for i in order:
        if batches and tokens([*batches[-1], i]) <= token_budget:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


def token_batches(
    prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], token_budget: int, pad_id: int,
    device: torch.device,
) -> Iterator[tuple[list[int], TokenBatch]]:  # fmt: skip
    """Yields micro-batches of whole rows within the token budget: (indices of the rows, their tokens)."""
    lengths = [len(p) + len(c) for p, c in zip(prompts, completions, strict=True)]
    for chosen in micro_batches(lengths, token_budget):
        yield chosen, token_batch([prompts[i] for i in chosen], [completions[i] for i in chosen], pad_id, device)


def two_sided(
    first: Sequence[Side], second: Sequence[Side], token_budget: int, pad_id: int, device: torch.device
) -> Iterator[tuple[list[int], TokenBatch, TokenBatch]]:
    """Micro-batches of rows that have two sides: (which rows, the first sides' tokens, the second sides'). Both count
    in the budget, each as long as the longer of the two. ValueError on an empty prompt, or sides of different
    numbers."""
    longest = [max(len(p) + len(c) for p, c in sides) for sides in zip(first, second, strict=True)]
    for chosen in micro_batches([2 * n for n in longest], token_budget):
        one, other = (token_batch(*zip(*(sides[i] for i in chosen), strict=True), pad_id, device)
                      for sides in (first, second))  # fmt: skip
        yield chosen, one, other


# ---------------------------------------------------------------- a prompt once for its group


def left_padded(
    prompts: Sequence[Sequence[int]], pad_id: int, device: torch.device | str, multiple: int = 1
) -> tuple[Int[Tensor, "p t"], Bool[Tensor, "p t"]]:
    """Ids and the mask of real tokens, from lengths; as wide as the longest, or as the next multiple."""
    width = -(-max(map(len, prompts)) // multiple) * multiple
    ids = torch.tensor([[pad_id] * (width - len(p)) + list(p) for p in prompts], device=device)
    lengths = torch.tensor([[len(p)] for p in prompts], device=device)
    return ids, torch.arange(width, device=device)[None] >= width - lengths


@dataclass(frozen=True)
class SharedBatch:
    """Prompts, padded on the left so that all end at the same position, and completions, padded on the right.

    A prompt's keys and values are computed once and repeated to the completions that follow it, and the gradients of
    all of them come back through that one pass: p t_prompt + b t_completion tokens instead of b (t_prompt +
    t_completion). At prompt positions the group's gradients are one sum, so there is no gradient of one sample alone.
    """

    prompt_ids: Int[Tensor, "p tp"]
    prompt_mask: Bool[Tensor, "p tp"]
    owner: Int[Tensor, " b"]
    """The prompt that each completion follows."""
    targets: Int[Tensor, "b tc"]
    """The completions: position i is predicted from the prompt and the i tokens before it."""
    loss_mask: Bool[Tensor, "b tc"]
    """True at completion tokens, from lengths."""

    def states(self, model: Any) -> Float[Tensor, "n d"]:
        """Hidden states that predict completion tokens, row after row."""
        return self.padded_states(model)[self.loss_mask]

    def padded_states(self, model: Any) -> Float[Tensor, "b tc d"]:
        """The same before padding is left out, at which they mean nothing."""
        real = self.prompt_mask.long()
        cache = DynamicCache(config=model.config)
        prompt = model.base_model(
            input_ids=self.prompt_ids,
            attention_mask=real,
            position_ids=(real.cumsum(1) - 1).clamp(min=0),
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state[self.owner, -1:]
        hidden = prompt
        if self.targets.shape[1] > 1:
            cache.batch_select_indices(self.owner)
            read = self.targets[:, :-1]
            mask = torch.cat([real[self.owner], torch.ones_like(read)], 1)  # nothing looks at padding on the right
            positions = real.sum(1)[self.owner, None] + torch.arange(read.shape[1], device=read.device)
            after = model.base_model(
                input_ids=read, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
            ).last_hidden_state
            hidden = torch.cat([prompt, after], 1)
        return hidden


def shared_batch(
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    pad_id: int,
    device: torch.device | str,
    groups: Sequence[int] | None = None,
) -> SharedBatch:
    """Rows with equal prompts share one (of those, rows of one of the `groups`); pad may equal eos. ValueError on an
    empty prompt."""
    if empty := [i for i, p in enumerate(prompts) if not p]:
        raise ValueError(f"sample {empty[0]} has an empty prompt")
    keys = list(zip(groups or [0] * len(prompts), map(tuple, prompts), strict=True))
    index = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    longest = max(1, *map(len, completions))
    targets = torch.tensor([[*c, *[pad_id] * (longest - len(c))] for c in completions])
    counts = torch.tensor([[len(c)] for c in completions])
    return SharedBatch(
        *left_padded([prompt for _, prompt in index], pad_id, device),
        torch.tensor([index[key] for key in keys]).to(device),
        targets.to(device),
        (torch.arange(longest)[None] < counts).to(device),
    )


def shared_batches(
    prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], token_budget: int, pad_id: int,
    device: torch.device,
) -> Iterator[tuple[list[int], SharedBatch]]:  # fmt: skip
    """Yields micro-batches as `token_batches`, each prompt once: prompts x longest prompt + rows x longest completion
    stays within the budget (one row may exceed it alone). Groups with long completions come first, so that
    completions of similar length are padded together. A group that does not fit is cut, and its prompt run once per
    part."""
    longest: dict[tuple[int, ...], int] = {}
    for prompt, completion in zip(map(tuple, prompts), completions, strict=True):
        longest[prompt] = max(longest.get(prompt, 0), len(completion))

    def key(i: int) -> tuple[Any, ...]:
        prompt = tuple(prompts[i])
        return -longest[prompt], -len(prompt), prompt, -len(completions[i]), i

    index = {prompt: n for n, prompt in enumerate(longest)}
    owner = [index[tuple(prompt)] for prompt in prompts]

    def tokens(rows: list[int]) -> int:
        widest_prompt, widest = (max(len(texts[i]) for i in rows) for texts in (prompts, completions))
        return len({owner[i] for i in rows}) * widest_prompt + len(rows) * widest

    for chosen in _filled(sorted(range(len(prompts)), key=key), tokens, token_budget):
        yield chosen, shared_batch([prompts[i] for i in chosen], [completions[i] for i in chosen], pad_id, device)


# ---------------------------------------------------------------- the product with the vocabulary


def _chunk_logits(hidden: Float[Tensor, "n d"], head: Float[Tensor, "v d"], temperature: float) -> Float[Tensor, "n v"]:
    logits = (hidden @ head.T).to(torch.promote_types(hidden.dtype, torch.float32))
    return logits.div_(temperature) if not logits.requires_grad else logits / temperature


def _chunk_logps(
    hidden: Float[Tensor, "n d"], head: Float[Tensor, "v d"], targets: Int[Tensor, " n"], temperature: float
) -> Float[Tensor, " n"]:
    logits = _chunk_logits(hidden, head, temperature)
    return logits.gather(1, targets[:, None]).squeeze(1) - logits.logsumexp(1)


class _TokenLogps(torch.autograd.Function):
    """d logp / d hidden = (onehot(target) - softmax) head / temperature, a row per token, while the logits are
    there."""

    @staticmethod
    def forward(ctx, hidden: Tensor, head: Tensor, targets: Tensor, temperature: float, chunk: int) -> Tensor:
        rows, parts = torch.empty_like(hidden), []
        for h, t, row in zip(hidden.split(chunk), targets.split(chunk), rows.split(chunk), strict=True):
            logits, where = _chunk_logits(h, head, temperature), t[:, None]
            total = logits.logsumexp(1, keepdim=True)
            parts.append((logits.gather(1, where) - total).squeeze(1))
            # softmax - onehot in float32: near 1 a bfloat16 has no room for what is left of it.
            gap = logits.sub_(total).exp_().scatter_add_(1, where, torch.full_like(total, -1.0))
            torch.mm(gap.to(h.dtype), head, out=row)
        ctx.save_for_backward(rows.div_(-temperature))
        return torch.cat(parts)

    @staticmethod
    @once_differentiable
    def backward(ctx, g: Tensor):
        (rows,) = ctx.saved_tensors
        return (rows * g[:, None]).to(rows.dtype), None, None, None, None


def token_logps(
    hidden: Float[Tensor, "n d"],
    head: Float[Tensor, "v d"],
    targets: Int[Tensor, " n"],
    temperature: float = 1.0,
    chunk: int = CHUNK,
) -> Float[Tensor, " n"]:
    """log softmax(hidden head^T / temperature)[target], float32 (float64 for float64), `chunk` rows at a time."""
    if not len(hidden):
        return hidden.new_zeros(0, dtype=torch.promote_types(hidden.dtype, torch.float32))
    chunks = list(zip(hidden.split(chunk), targets.split(chunk), strict=True))
    if not torch.is_grad_enabled() or not (hidden.requires_grad or head.requires_grad):
        return torch.cat([_chunk_logps(h, head, t, temperature) for h, t in chunks])
    if not head.requires_grad:
        return _TokenLogps.apply(hidden, head, targets, temperature, chunk)
    # A vocabulary that trains has a gradient too, from logits that are made again.
    again = [
        checkpoint(_chunk_logps, h, head, t, temperature, use_reentrant=False, preserve_rng_state=False)
        for h, t in chunks
    ]
    return torch.cat(again)


SCALED = ("final_logit_softcapping", "logits_scaling", "logit_scale")
"""What transformers' configs call what comes after the product: of Gemma 2, Granite, Cohere."""


def head_of(model: Any) -> Any:
    """The product with the vocabulary. ValueError when there is more to a logit (a bias, a soft cap, a scale), which
    the chunked product leaves out."""
    head, config = model.get_output_embeddings(), getattr(model, "config", None)
    if getattr(head, "bias", None) is not None:
        raise ValueError(f"{type(model).__name__}: an output embedding with a bias is not supported")
    for name in SCALED:
        if getattr(config, name, None) not in (None, 1, 1.0):
            raise ValueError(
                f"{type(model).__name__}: logits with a {name} ({getattr(config, name)}) are not supported"
            )
    return head


def completion_logps(
    model: Any, batch: TokenBatch | SharedBatch, temperature: float = 1.0, chunk: int = CHUNK
) -> Float[Tensor, "b t"]:
    """Log-probability of every completion token under a Hugging Face causal LM, where the batch's loss mask is True;
    0 elsewhere. ValueError as in head_of."""
    head, mask = head_of(model), batch.loss_mask
    logps = token_logps(batch.states(model), head.weight, batch.targets[mask], temperature, chunk)
    # masked_scatter keeps masked positions at an exact 0 with no gradient, whatever the model gives for padding.
    return torch.zeros(mask.shape, dtype=logps.dtype, device=logps.device).masked_scatter(mask, logps)
