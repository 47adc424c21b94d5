"""An adapter of noise, for time and memory: what a product takes hangs on its shapes, not on its values, and decomposing 252
weights of Qwen3-4B takes longer than most of what is measured with it."""

import torch
from torch import nn

from projected_grpo.adapters.antipasto import AntiPaSTOLinear
from projected_grpo.adapters.base import Adapter, reduce_dtype, replace_targets


def noise_adapter(model: nn.Module) -> Adapter:
    """AntiPaSTO on every target Linear, its bases orthonormal noise, delta_S small and not zero, so that its products matter
    to the gradient."""

    def make(name: str, linear: nn.Linear) -> AntiPaSTOLinear:
        weight, rank = linear.weight, min(linear.weight.shape)
        noise = (torch.randn(d, rank, device=weight.device, dtype=reduce_dtype(weight)) for d in weight.shape)
        u, v = (torch.linalg.qr(one).Q for one in noise)
        layer = AntiPaSTOLinear(name, linear, (u, torch.ones(rank), v.T))
        nn.init.normal_(layer.theta, std=0.05)
        return layer

    return Adapter("antipasto", replace_targets(model, make), {})
