"""The residual stream: read after a decoder layer, and with a direction removed from it.

Layers are counted from 1: layer i is what the i-th decoder layer gives to the next.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from projected_grpo.model.load import LoadedModel
from projected_grpo.model.logprobs import token_batches


def middle_layer(model: Any) -> int:
    """The layer at half of the depth."""
    return max(1, round(len(model.base_model.layers) / 2))


@torch.no_grad()
def mean_hidden(
    loaded: LoadedModel, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], token_budget: int
) -> Float[Tensor, "b d"]:
    """Mean over each completion's tokens of the residual stream after the middle layer, float32; zeros for an empty
    completion."""
    model, seen = loaded.model, list[Tensor]()
    out = torch.zeros(len(prompts), model.config.hidden_size, device=model.device)
    layer = model.base_model.layers[middle_layer(model) - 1]
    with layer.register_forward_hook(lambda _module, _args, h: seen.append(h)):
        for chosen, batch in token_batches(prompts, completions, token_budget, loaded.pad_id, model.device):
            model.base_model(input_ids=batch.input_ids, use_cache=False)
            mask = batch.completion_mask[..., None]
            whole = torch.where(mask, seen.pop().float(), torch.zeros((), device=model.device)).sum(1)
            out[chosen] = whole / mask.sum(1).clamp(min=1)
    return out


@contextmanager
def ablated(model: Any, layer: int, direction: Float[Tensor, " d"]) -> Generator[None]:
    """h - (h . d) d in place of what `layer` gives on, for a unit direction d, in every forward and backward pass inside."""

    def without(_module: Any, _args: Any, h: Tensor) -> Tensor:
        d = direction.to(h)
        return h - (h @ d)[..., None] * d

    with model.base_model.layers[layer - 1].register_forward_hook(without):
        yield
