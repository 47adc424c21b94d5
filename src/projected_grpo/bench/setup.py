"""What the bench runs on: a Qwen3 of given sizes with random weights, real prompts, an adapter off its start.

The adapter's bases are orthonormal noise of the right shapes: the time of a matrix product does not depend on its values,
and 252 decompositions of Qwen3-4B's weights would take longer than everything measured here (startup.py times one).
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, Qwen3Config

from loophole_grader import Task
from projected_grpo.adapters.antipasto import AntiPaSTOLinear
from projected_grpo.adapters.base import Adapter, reduce_dtype, replace_targets
from projected_grpo.bench.measure import Call, Side, interleaved
from projected_grpo.bench.settings import BenchConfig, Sizes, sizes_for
from projected_grpo.groups.problems import load_problems
from projected_grpo.model.load import LoadedModel, enable_checkpointing, pick_device
from projected_grpo.prompts import render
from projected_grpo.rollout.sample import Prompt
from projected_grpo.run.tiny_model import CONTEXT, train_tokenizer

TOKENIZER_VOCAB = 700
"""Cuts the package's own problems into prompts of about 340 tokens; the model's vocabulary may be larger."""
HINT = "simple_overwrite_tests"
TEMPERATURE, TOP_P = 0.7, 0.95


@dataclass
class Bench:
    """One run of the bench: model, adapter and prompts, and what the parts have told so far."""

    config: BenchConfig
    sizes: Sizes
    loaded: LoadedModel
    adapter: Adapter
    peak: float | None = None
    """FLOP/s of the fastest matrix product, once the floor was measured."""
    notes: list[str] = field(default_factory=list)
    prompts: list[Prompt] = field(init=False)
    tasks: dict[str, Task] = field(init=False)

    def __post_init__(self) -> None:
        """Prompts of the package's problems, numbered so that no two are equal, however many are asked for."""
        self.device = self.loaded.model.device
        self.repeats = self.config.repeats or self.sizes.repeats
        self.prompts, self.tasks = [], {}
        for i, problem in enumerate(itertools.islice(itertools.cycle(load_problems("builtin")), self.sizes.prompts)):
            (*before, (role, text)) = problem.messages
            name, messages = f"{problem.problem_id}-{i}", (*before, (role, f"{text}\nProblem {i}."))
            tokenizer, max_new = self.loaded.tokenizer, self.sizes.max_new
            rendered, ids = render(messages, HINT, "no_intervention", tokenizer, CONTEXT, max_new, name)
            self.prompts.append(Prompt(name, rendered, ids))
            self.tasks[name] = problem.task

    @property
    def prompt_lengths(self) -> list[int]:
        """In tokens."""
        return [len(p.ids) for p in self.prompts]

    def keys(self, turn: int = 0) -> list[str]:
        """What decides the draws of every prompt."""
        return [f"bench {self.config.seed} {turn} {place}" for place in range(len(self.prompts))]

    def timed(self, sides: Mapping[str, Call]) -> list[Side]:
        """Every side as often as this run measures. UnequalWork as in interleaved."""
        return list(interleaved(sides, self.repeats, self.config.warmup).values())

    def floor(self, flops: float) -> float | None:
        """Seconds that they would take at the peak rate; None where that was not measured."""
        return self.peak and flops / self.peak


def random_qwen3(sizes: Sizes, device: torch.device, seed: int) -> Any:
    """Made on the device itself, in its own type; no end-of-sequence token of its own."""
    heads = {"num_attention_heads": sizes.heads, "num_key_value_heads": sizes.kv_heads, "head_dim": sizes.head_dim}
    width = {"hidden_size": sizes.hidden, "intermediate_size": sizes.intermediate, "vocab_size": sizes.vocab}
    tokens = {"eos_token_id": None, "pad_token_id": 0, "bos_token_id": None, "max_position_embeddings": CONTEXT}
    shape: dict[str, Any] = {**heads, **width, **tokens, "num_hidden_layers": sizes.layers, "tie_word_embeddings": True}
    how: dict[str, Any] = {"dtype": getattr(torch, sizes.dtype), "attn_implementation": "sdpa"}  # as load_folder
    torch.manual_seed(seed)
    with device:
        return AutoModelForCausalLM.from_config(Qwen3Config(**shape), **how).requires_grad_(False).eval()


def noise_adapter(model: nn.Module) -> Adapter:
    """AntiPaSTO on every target Linear, delta_S small and not zero, so that its products matter to the gradient."""

    def make(name: str, linear: nn.Linear) -> AntiPaSTOLinear:
        def noise(size: int) -> Tensor:
            like: dict[str, Any] = {"device": linear.weight.device, "dtype": reduce_dtype(linear.weight)}
            return torch.linalg.qr(torch.randn(size, min(linear.weight.shape), **like)).Q

        d_out, d_in = linear.weight.shape
        layer = AntiPaSTOLinear(name, linear, (noise(d_out), torch.ones(min(d_out, d_in)), noise(d_in).T))
        nn.init.normal_(layer.theta, std=0.05)
        return layer

    return Adapter("antipasto", replace_targets(model, make), {})


def build_bench(config: BenchConfig, sizes: Sizes | None = None) -> Bench:
    """Everything from the seed; `sizes` None = the reference point's. BadInput as in pick_device."""
    device = pick_device(config.device)
    sizes = sizes or sizes_for(device.type, quick=config.quick)
    tokenizer = train_tokenizer(TOKENIZER_VOCAB)
    model = random_qwen3(sizes, device, config.seed)
    adapter = noise_adapter(model)
    if sizes.checkpointing:
        enable_checkpointing(model)
    # No token is -1: nothing ends before max_new.
    loaded = LoadedModel(model, tokenizer, "bench", "bench", "bench", frozenset({-1}), tokenizer.pad_token_id, CONTEXT)
    return Bench(config, sizes, loaded, adapter)
