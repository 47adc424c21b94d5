"""The floor: how fast this machine multiplies matrices of the sizes used."""

import torch

from projected_grpo.bench.measure import Figure, absolute, interleaved
from projected_grpo.bench.world import World, prompt_lengths


def peak_flops(world: World, repeats: int, warmup: int) -> tuple[float, list[Figure]]:
    """(FLOP/s of the fastest product, a figure per product): every weight of a layer and the vocabulary, on as many rows as
    a step has tokens (at most its token budget)."""
    s = world.sizes
    rows = min(s.token_budget, sum(prompt_lengths(world.prompts)) + s.rows * s.max_new)
    shapes = {
        "query": (s.hidden, s.heads * s.head_dim),
        "gate": (s.hidden, s.intermediate),
        "down": (s.intermediate, s.hidden),
        "vocabulary": (s.hidden, s.vocab),
    }
    figures, best = [], 0.0
    for name, (d_in, d_out) in shapes.items():
        x = torch.randn(rows, d_in, device=world.device, dtype=getattr(torch, s.dtype))
        w = torch.randn(d_out, d_in, device=world.device, dtype=x.dtype)
        n = min(rows, 1024) if name == "vocabulary" else rows  # as logprobs.py cuts it

        def product(x: torch.Tensor = x[:n], w: torch.Tensor = w) -> dict[str, int]:
            torch.nn.functional.linear(x, w)
            return {"FLOP": 2 * x.shape[0] * w.numel()}

        timed = interleaved({name: product}, max(repeats, 5), max(warmup, 2), world.synchronize)[name]
        rates = [timed.work["FLOP"] / seconds / 1e9 for seconds in timed.seconds]
        best = max(best, *rates)
        figures.append(absolute("floor", f"{name}: {n} x {d_in} by {d_in} x {d_out}", rates, "GFLOP/s"))
    return best * 1e9, figures
