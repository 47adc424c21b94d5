"""Log-probabilities of completion tokens without the [B, T, vocab] logits tensor.

The backbone's hidden states are cut to the positions that predict completion tokens, and the product with the
vocabulary is done in chunks of rows. A token's log-probability is one number, so its gradient towards the hidden state is
one row, whatever the loss: it is taken while the chunk's logits are there and kept instead of them. Peak memory of this part
is chunk x vocab numbers instead of B x T x vocab, and nothing is computed twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

CHUNK = 1024
"""Rows of hidden states per product with the vocabulary."""


@dataclass(frozen=True)
class TokenBatch:
    """Prompts followed by completions, padded on the right.

    Causal attention never looks at right padding, so no attention mask is needed and a sample's numbers do not depend
    on what it is batched with. Masks come from lengths; pad may equal eos.
    """

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

    def loss_token_ids(self) -> list[list[int]]:
        """The ids under the loss mask, per sample; SHOULD be the completions."""
        return [t[m].tolist() for t, m in zip(self.targets, self.loss_mask, strict=True)]


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


def left_padded(
    prompts: Sequence[Sequence[int]], pad_id: int, device: torch.device | str, multiple: int = 1
) -> tuple[Int[Tensor, "p t"], Bool[Tensor, "p t"]]:
    """Ids and the mask of real tokens, from lengths; as wide as the longest, or as the next multiple."""
    width = -(-max(map(len, prompts)) // multiple) * multiple
    ids = torch.tensor([[pad_id] * (width - len(p)) + list(p) for p in prompts], device=device)
    lengths = torch.tensor([[len(p)] for p in prompts], device=device)
    return ids, torch.arange(width, device=device)[None] >= width - lengths


def _chunk_logits(hidden: Float[Tensor, "n d"], head: Float[Tensor, "v d"], temperature: float) -> Float[Tensor, "n v"]:
    logits = (hidden @ head.T).to(torch.promote_types(hidden.dtype, torch.float32))
    return logits.div_(temperature) if not logits.requires_grad else logits / temperature


def _chunk_logps(
    hidden: Float[Tensor, "n d"], head: Float[Tensor, "v d"], targets: Int[Tensor, " n"], temperature: float
) -> Float[Tensor, " n"]:
    logits = _chunk_logits(hidden, head, temperature)
    return logits.gather(1, targets[:, None]).squeeze(1) - logits.logsumexp(1)


class _TokenLogps(torch.autograd.Function):
    """d logp / d hidden = (onehot(target) - softmax) head / temperature, a row per token, while the logits are there."""

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


def completion_states(model: Any, batch: TokenBatch) -> Float[Tensor, "n d"]:
    """Hidden states at the positions that predict completion tokens, row after row."""
    return model.base_model(input_ids=batch.input_ids, use_cache=False).last_hidden_state[:, :-1][batch.loss_mask]


def completion_logps(
    model: Any, batch: TokenBatch, temperature: float = 1.0, chunk: int = CHUNK
) -> Float[Tensor, "b t1"]:
    """Log-probability of every completion token at the position that predicts it; 0 elsewhere.

    `model` is a Hugging Face causal LM: its backbone is `base_model`, its vocabulary `get_output_embeddings()`. ValueError
    as in head_of.
    """
    head, mask = head_of(model), batch.loss_mask
    logps = token_logps(completion_states(model, batch), head.weight, batch.targets[mask], temperature, chunk)
    # masked_scatter keeps masked positions at an exact 0 with no gradient, whatever the model gives for padding.
    return torch.zeros(mask.shape, dtype=logps.dtype, device=logps.device).masked_scatter(mask, logps)
