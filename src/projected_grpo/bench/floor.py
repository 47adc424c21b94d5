"""The floor: model FLOPs of the parts, and how fast this machine multiplies matrices of the sizes used.

Counted are the products that the answer cannot do without: those with the model's own weights, attention scores and values,
and the product with the vocabulary at completion tokens; every prompt once. In the backward pass the gradient towards
activations alone, as weights are frozen. Not counted: the adapter's products, recomputation, padding, sampling.
"""

from collections.abc import Sequence

import torch
from torch.nn.functional import linear
from torch.utils.benchmark import Timer

from projected_grpo.bench.measure import Figure, figure
from projected_grpo.bench.settings import Sizes
from projected_grpo.bench.setup import Bench


def linear_weights(s: Sizes) -> int:
    """Weights of the adapted Linears."""
    attention = s.hidden * s.head_dim * (2 * s.heads + 2 * s.kv_heads)
    return s.layers * (attention + 3 * s.hidden * s.intermediate)


def _forward(s: Sizes, prompts: Sequence[int], completion: int, group: int) -> tuple[float, float, float]:
    """FLOPs of (weights, attention, vocabulary) of one pass: prompts of these lengths, `group` completions after each."""
    weights = attention = 0.0
    for length in prompts:
        # A completion's last token is never read.
        for begin, end, times in ((0, length, 1), (length, length + completion - 1, group)):
            looked_at = (end * (end + 1) - begin * (begin + 1)) / 2  # each token looks at itself and all before it
            weights += times * 2.0 * linear_weights(s) * (end - begin)
            attention += times * 4.0 * s.layers * s.heads * s.head_dim * looked_at
    return weights, attention, 2.0 * s.hidden * s.vocab * len(prompts) * group * completion


def generation_flops(s: Sizes, prompts: Sequence[int]) -> float:
    """Prefill and decode of a step's completions."""
    return sum(_forward(s, prompts, s.max_new, s.group))


def backward_flops(s: Sizes, prompts: Sequence[int], completion: int, group: int) -> float:
    """Forward and backward pass: attention's backward is two forwards, the others' one (no weight gradient)."""
    weights, attention, vocabulary = _forward(s, prompts, completion, group)
    return 2 * weights + 3 * attention + 2 * vocabulary


def measure_floor(bench: Bench) -> list[Figure]:
    """Rate of the product with every weight of a layer and the vocabulary, on as many rows as a step has tokens (at most its
    token budget). The fastest is the bench's peak."""
    s, figures = bench.sizes, []
    rows = min(s.token_budget, sum(bench.prompt_lengths) + s.rows * s.max_new)
    shapes = {
        "query": (rows, s.hidden, s.heads * s.head_dim),
        "gate": (rows, s.hidden, s.intermediate),
        "down": (rows, s.intermediate, s.hidden),
        "vocabulary": (min(rows, 1024), s.hidden, s.vocab),  # as logprobs.py cuts it
    }
    for name, (n, d_in, d_out) in shapes.items():
        x, w = (torch.randn(d, d_in, device=bench.device, dtype=getattr(torch, s.dtype)) for d in (n, d_out))
        product = Timer("f(x, w)", globals={"f": linear, "x": x, "w": w}, num_threads=torch.get_num_threads())
        seconds = [product.timeit(1).median for _ in range(max(bench.repeats, 5))]  # each after two that do not count
        rates = [2 * n * d_in * d_out / taken / 1e9 for taken in seconds]
        figures.append(figure(f"{name}: {n} x {d_in} by {d_in} x {d_out}", rates, "GFLOP/s"))
    bench.peak = 1e9 * max(f.high for f in figures)
    return figures
