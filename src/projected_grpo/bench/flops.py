"""Model FLOPs of the parts: the matrix products that the answer cannot do without.

Counted: the products with the model's own weights, attention scores and values, and the product with the vocabulary at
completion tokens; every prompt once. In the backward pass the gradient towards activations alone, as weights are frozen.
Not counted: the adapter's products, recomputation, padding, sampling. What a part needs beyond this is overhead.
"""

from collections.abc import Sequence

from projected_grpo.bench.settings import Sizes


def linear_weights(s: Sizes) -> int:
    """Weights of the adapted Linears."""
    attention = s.hidden * s.head_dim * (2 * s.heads + 2 * s.kv_heads)
    return s.layers * (attention + 3 * s.hidden * s.intermediate)


def _sequence(s: Sizes, begin: int, end: int) -> tuple[float, float]:
    """(products with weights, attention) of the tokens at positions begin to end - 1, each looking back at all before it."""
    looked_at = (end * (end + 1) - begin * (begin + 1)) / 2
    return 2.0 * linear_weights(s) * (end - begin), 4.0 * s.layers * s.heads * s.head_dim * looked_at


def _parts(s: Sizes, prompts: Sequence[int], completion: int, group: int) -> tuple[float, float, float]:
    """(weights, attention, vocabulary) of one forward pass: each prompt once, `group` completions after it."""
    weights = attention = 0.0
    for length in prompts:
        for tokens, times in ((_sequence(s, 0, length), 1), (_sequence(s, length, length + completion - 1), group)):
            weights += times * tokens[0]
            attention += times * tokens[1]
    return weights, attention, 2.0 * s.hidden * s.vocab * len(prompts) * group * completion


def generation_flops(s: Sizes, prompts: Sequence[int]) -> float:
    """Prefill and decode of a step's completions."""
    return sum(_parts(s, prompts, s.max_new, s.group))


def backward_flops(s: Sizes, prompts: Sequence[int], completion: int, group: int) -> float:
    """Forward and backward pass: attention's backward is two forwards, the others' one (no weight gradient)."""
    weights, attention, vocabulary = _parts(s, prompts, completion, group)
    return 2 * weights + 3 * attention + 2 * vocabulary
