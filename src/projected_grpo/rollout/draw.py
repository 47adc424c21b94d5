"""Which token comes next: probabilities, and the randomness that chooses among them.

The randomness of a completion depends on its prompt's key and its place in the group, and on nothing that has a
state.

Top-p by rejection: a token is drawn from all of them, and only a row whose token fell outside the nucleus is sorted
and drawn again, from the nucleus alone. That is the truncated distribution exactly, and the sort of the vocabulary, a
quarter of a step of decoding before, is left to about 1 - top_p of the rows. The second draw has another random
number (`second`). Where inside its token's interval `u` fell would be one too, but a token of mass 1e-4 makes ten
thousand times more of every rounding, and of two runs that are the same to rounding (one process and three) one would
soon read on from another token."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

BLOCK = 256
"""Tokens of the vocabulary that are added up together."""


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are drawn."""

    max_new: int
    temperature: float
    top_p: float = 1.0
    top_k: int = 0


def uniforms(keys: Sequence[str], group_size: int, max_new: int) -> Float[Tensor, "b t"]:
    """The random numbers of every completion, in [0, 1): one row each, groups one after the other, one column per
    token. On the CPU, so that they are the same on every device."""
    groups = []
    for key in keys:
        seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little", signed=True)
        generator = torch.Generator().manual_seed(seed)
        groups.append(torch.rand(group_size, max_new, generator=generator, dtype=torch.float64))
    return torch.cat(groups)


def draw(
    logits: Float[Tensor, "b v"], params: SamplingParams, u: Float[Tensor, " b"]
) -> tuple[Int[Tensor, " b"], Float[Tensor, " b"]]:
    """One token per row, decided by `u` (float64), and its log-probability at the sampling temperature, before top-k
    and top-p. Top-k first, then top-p of what it leaves."""
    scaled = logits.float() / params.temperature
    logp = scaled.log_softmax(1)
    probs = top_k_probs(scaled, params.top_k) if params.top_k else logp.exp()
    token = invert(probs, u)
    if params.top_p < 1:
        chosen = probs.gather(1, token[:, None])
        ahead = torch.where(probs > chosen, probs, 0).sum(1)
        again = (ahead >= params.top_p).nonzero().flatten()
        if len(again):
            token[again] = invert(nucleus(probs[again], params.top_p), second(u[again]))
    return token, logp.gather(1, token[:, None]).squeeze(1)


def second(u: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
    """The lower half of the 53 random bits of `u`, as a number in [0, 1). The upper half alone decides the first
    token, but for the 2**-26 around a boundary, so this one is independent of it; no arithmetic here rounds."""
    return (u * 2**26).frac()


def top_k_probs(logits: Float[Tensor, "b v"], top_k: int) -> Float[Tensor, "b v"]:
    """Probabilities of the top k alone (all that are as likely as number k), 0 elsewhere."""
    kth = logits.topk(min(top_k, logits.shape[1]), dim=1).values[:, -1:]
    return logits.masked_fill(logits < kth, -torch.inf).softmax(1)


def nucleus(probs: Float[Tensor, "b v"], top_p: float) -> Float[Tensor, "b v"]:
    """The probabilities of the likeliest tokens that together have `top_p` of the mass, 0 elsewhere; not normalised.

    A token is inside when what is likelier than itself has less than top_p, so equal tokens are in or out together
    (which matters in bfloat16, where many are equal), and the likeliest always is."""
    ordered = probs.sort(dim=1, descending=True).values
    inside: Bool[Tensor, "b v"] = ordered.cumsum(1) - ordered < top_p
    least = ordered.gather(1, inside.sum(1, keepdim=True) - 1)
    return torch.where(probs >= least, probs, 0)


def invert(probs: Float[Tensor, "b v"], u: Float[Tensor, " b"]) -> Int[Tensor, " b"]:
    """The token where the cumulative distribution passes `u`. `probs` need not be normalised.

    In two levels: which block of the vocabulary, then where inside it, so that one block alone is added up in
    float64. A block's sum is rounded as `probs` themselves are, for all its tokens alike."""
    blocks = pad(probs, (0, -probs.shape[1] % BLOCK)).unflatten(1, (-1, BLOCK))
    sums = blocks.sum(2).double()
    block, inside = _passed(sums, u)
    chosen = blocks[torch.arange(len(u), device=u.device), block].double()
    index, _ = _passed(chosen, inside)
    return block * BLOCK + index


def _passed(masses: Float[Tensor, "b n"], u: Float[Tensor, " b"]) -> tuple[Int[Tensor, " b"], Float[Tensor, " b"]]:
    """Where the sum of float64 `masses` passes the share `u` of their total, and how far into it, in [0, 1)."""
    ends = masses.cumsum(1)
    total = ends[:, -1:]
    at = torch.minimum(u[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    # NaN is nowhere: the sampler sees it
    index = torch.searchsorted(ends, at, right=True).clamp(max=masses.shape[1] - 1)
    rest = (at - pad(ends, (1, 0)).gather(1, index)) / masses.gather(1, index)
    return index.squeeze(1), rest.squeeze(1).clamp(0, 1 - 2**-53)
