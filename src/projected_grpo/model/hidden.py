"""The residual stream: its mean over a completion after the layer at half of the depth, or at the completion's last
token over the layers at 60 to 75 % of the depth."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
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

    def mean(states: Sequence[Tensor], mask: Tensor) -> Tensor:
        whole = torch.where(mask, states[0].float(), torch.zeros((), device=mask.device)).sum(1)
        return whole / mask.sum(1).clamp(min=1)

    return _read(loaded, prompts, completions, token_budget, [middle_layer(loaded.model)], mean)


@torch.no_grad()
def last_hidden(
    loaded: LoadedModel, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], token_budget: int
) -> Float[Tensor, "b d"]:
    """The residual stream at each completion's last token, its mean over the layers at 60 to 75 % of the depth (the
    nearest layer where none is), float32; zeros for an empty completion."""
    layers = loaded.model.base_model.layers
    n = len(layers)
    chosen = [layer for i, layer in enumerate(layers, 1) if 0.6 * n <= i <= 0.75 * n] or [layers[round(0.675 * n) - 1]]

    def last(states: Sequence[Tensor], mask: Tensor) -> Tensor:
        ends = mask & (mask.cumsum(1) == mask.sum(1, keepdim=True))  # the last True of each row
        return torch.stack([torch.where(ends, h.float(), 0.0).sum(1) for h in states]).mean(0)

    return _read(loaded, prompts, completions, token_budget, chosen, last)


def _read(
    loaded: LoadedModel, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], token_budget: int,
    layers: Sequence[Any], reduced: Callable[[Sequence[Tensor], Tensor], Tensor],
) -> Float[Tensor, "b d"]:  # fmt: skip
    """Returns what `reduced` makes of the layers' outputs [b, t, d] and the mask [b, t, 1] of completions' tokens."""
    model, seen = loaded.model, list[Tensor]()
    out = torch.zeros(len(prompts), model.config.hidden_size, device=model.device)
    with ExitStack() as hooks:
        for layer in layers:
            hooks.enter_context(layer.register_forward_hook(lambda _module, _args, h: seen.append(h)))
        for chosen, batch in token_batches(prompts, completions, token_budget, loaded.pad_id, model.device):
            seen.clear()
            model.base_model(input_ids=batch.input_ids, use_cache=False)
            out[chosen] = reduced(seen, batch.completion_mask[..., None])
    return out
