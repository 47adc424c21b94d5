"""The residual stream after the decoder layer at half of the depth."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from projected_grpo.model.load import LoadedModel
from projected_grpo.model.logprobs import token_batches


def middle_layer(model: Any) -> Any:
    layers = model.base_model.layers
    return layers[max(1, round(len(layers) / 2)) - 1]


@torch.no_grad()
def mean_hidden(
    loaded: LoadedModel, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], token_budget: int
) -> Float[Tensor, "b d"]:
    """Mean over each completion's tokens of the residual stream after the middle layer, float32; zeros for an empty
    completion."""
    model, seen = loaded.model, list[Tensor]()
    out = torch.zeros(len(prompts), model.config.hidden_size, device=model.device)
    with middle_layer(model).register_forward_hook(lambda _module, _args, h: seen.append(h)):
        for chosen, batch in token_batches(prompts, completions, token_budget, loaded.pad_id, model.device):
            model.base_model(input_ids=batch.input_ids, use_cache=False)
            mask = batch.completion_mask[..., None]
            whole = torch.where(mask, seen.pop().float(), torch.zeros((), device=model.device)).sum(1)
            out[chosen] = whole / mask.sum(1).clamp(min=1)
    return out
