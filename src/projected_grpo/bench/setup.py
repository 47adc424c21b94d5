"""What the bench runs on: a Qwen3 of given sizes with random weights, real prompts, an adapter off its start; and the floor,
which is model FLOPs at the rate of this machine's fastest matrix product.

The adapter's bases are noise (adapters/noise.py); startup.py times the decomposition of one weight.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils.benchmark import Timer
from transformers import Qwen3Config

from loophole_grader import Task
from projected_grpo.adapters.base import Adapter
from projected_grpo.adapters.noise import noise_adapter
from projected_grpo.bench.measure import Figure
from projected_grpo.bench.settings import SEED, BenchConfig, Sizes, sizes_for
from projected_grpo.groups.problems import load_problems
from projected_grpo.model.load import LoadedModel, enable_checkpointing, of_shape, pick_device
from projected_grpo.prompts import render
from projected_grpo.rollout.sample import Prompt
from projected_grpo.run.tiny_model import CONTEXT, train_tokenizer

TOKENIZER_VOCAB = 700
"""Cuts the package's own problems into prompts of about 320 tokens; the model's vocabulary may be larger."""
HINT = "simple_overwrite_tests"
TEMPERATURE, TOP_P = 0.7, 0.95


@dataclass
class Bench:
    """One run of the bench: model, adapter and prompts, and what the parts have told so far. `peak`: FLOP/s of the fastest
    matrix product, once the floor was measured."""

    config: BenchConfig
    sizes: Sizes
    loaded: LoadedModel
    adapter: Adapter
    peak: float | None = None
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Prompts of the package's problems, numbered so that no two are equal, however many are asked for."""
        self.device = self.loaded.model.device
        self.repeats = self.config.repeats or self.sizes.repeats
        self.prompts: list[Prompt] = []
        self.tasks: dict[str, Task] = {}
        for i, problem in enumerate(itertools.islice(itertools.cycle(load_problems("builtin")), self.sizes.prompts)):
            (*before, (role, text)) = problem.messages
            name, messages = f"{problem.problem_id}-{i}", (*before, (role, f"{text}\nProblem {i}."))
            tokenizer, max_new = self.loaded.tokenizer, self.sizes.max_new
            rendered, ids = render(messages, HINT, "no_intervention", tokenizer, CONTEXT, max_new, name)
            self.prompts.append(Prompt(name, rendered, ids))
            self.tasks[name] = problem.task
        self.prompt_lengths = [len(p.ids) for p in self.prompts]

    def keys(self, turn: int = 0) -> list[str]:
        """What decides the draws of every prompt."""
        return [f"bench {SEED} {turn} {place}" for place in range(len(self.prompts))]

    def floor(self, flops: float) -> float | None:
        """Seconds that they would take at the peak rate; None where that was not measured."""
        return self.peak and flops / self.peak


def random_qwen3(s: Sizes, device: torch.device) -> Any:
    """Made on the device itself, in its own type; no end-of-sequence token of its own."""
    config = Qwen3Config(
        num_hidden_layers=s.layers, hidden_size=s.hidden, intermediate_size=s.intermediate, vocab_size=s.vocab,
        num_attention_heads=s.heads, num_key_value_heads=s.kv_heads, head_dim=s.head_dim, tie_word_embeddings=True,
        max_position_embeddings=CONTEXT, pad_token_id=0, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(SEED)
    with device:
        return of_shape(config, s.dtype, card=device.type == "cuda")


def build_bench(config: BenchConfig, sizes: Sizes | None = None) -> Bench:
    """Everything from the seed; `sizes` None = the reference point's. BadInput as in pick_device."""
    device = pick_device(config.device)
    sizes = sizes or sizes_for(device.type, quick=config.quick, shapes=config.shapes)
    tokenizer, model = train_tokenizer(TOKENIZER_VOCAB), random_qwen3(sizes, device)
    adapter = noise_adapter(model)
    if sizes.checkpointing:
        enable_checkpointing(model)
    # No token is -1: nothing ends before max_new.
    loaded = LoadedModel(model, tokenizer, "bench", "bench", "bench", frozenset({-1}), tokenizer.pad_token_id, CONTEXT)
    return Bench(config, sizes, loaded, adapter)


def linear_weights(s: Sizes) -> int:
    """Weights of the adapted Linears."""
    attention = s.hidden * s.head_dim * (2 * s.heads + 2 * s.kv_heads)
    return s.layers * (attention + 3 * s.hidden * s.intermediate)


def model_flops(s: Sizes, prompts: Sequence[int], *, backward: bool) -> float:
    """FLOPs of one pass over prompts of these lengths with a group of completions after each: prefill and decode, or forward
    and backward.

    Counted are the products that the answer cannot do without: those with the model's own weights, attention scores and
    values, and the product with the vocabulary at completion tokens; every prompt once. Backwards the gradient towards
    activations alone, as weights are frozen: two forwards for attention, else one. Not counted: the adapter's products,
    recomputation, padding, sampling.
    """
    weights = attention = 0.0
    vocabulary = 2.0 * s.hidden * s.vocab * len(prompts) * s.group * s.max_new
    for length in prompts:
        # A completion's last token is never read.
        for begin, end, times in ((0, length, 1), (length, length + s.max_new - 1, s.group)):
            looked_at = (end * (end + 1) - begin * (begin + 1)) / 2  # each token looks at itself and all before it
            weights += times * 2.0 * linear_weights(s) * (end - begin)
            attention += times * 4.0 * s.layers * s.heads * s.head_dim * looked_at
    return 2 * weights + 3 * attention + 2 * vocabulary if backward else weights + attention + vocabulary


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
        product = Timer("f(x, w)", globals={"f": F.linear, "x": x, "w": w}, num_threads=torch.get_num_threads())
        seconds = [product.timeit(1).median for _ in range(max(bench.repeats, 5))]  # each after two that do not count
        rates = [2 * n * d_in * d_out / taken / 1e9 for taken in seconds]
        figures.append(Figure(f"{name}: {n} x {d_in} by {d_in} x {d_out}", rates, "GFLOP/s"))
    bench.peak = 1e9 * max(max(f.values) for f in figures)
    return figures
