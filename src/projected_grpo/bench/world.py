"""What the bench runs on: a Qwen3 of given sizes with random weights, real prompts, an adapter off its start.

The adapter's bases are orthonormal noise of the right shapes: the time of a matrix product does not depend on its values,
and 252 decompositions of Qwen3-4B's weights would take longer than everything measured here (startup.py times one).
"""

import dataclasses
import itertools
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Qwen3Config, Qwen3ForCausalLM

from loophole_grader import Task
from projected_grpo.adapters.antipasto import AntiPaSTOLinear
from projected_grpo.adapters.base import Adapter, reduce_dtype, replace_targets
from projected_grpo.bench.settings import Sizes
from projected_grpo.groups.problems import load_problems
from projected_grpo.model.load import LoadedModel, enable_checkpointing, pick_device
from projected_grpo.prompts import render
from projected_grpo.records import Sample
from projected_grpo.rollout.draw import SamplingParams
from projected_grpo.rollout.sample import Prompt
from projected_grpo.run.tiny_model import CONTEXT, train_tokenizer

TOKENIZER_VOCAB = 700
"""Cuts the package's own problems into prompts of about 340 tokens; the model's vocabulary may be larger."""
HINT = "simple_overwrite_tests"
TEMPERATURE, TOP_P = 0.7, 0.95


@dataclass
class World:
    """Model, adapter and prompts of one bench run."""

    sizes: Sizes
    seed: int
    loaded: LoadedModel
    adapter: Adapter
    prompts: list[Prompt]
    tasks: dict[str, Task]

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.loaded.model.device

    @property
    def params(self) -> SamplingParams:
        """How both sides draw tokens."""
        return SamplingParams(self.sizes.max_new, TEMPERATURE, TOP_P, 0)

    def keys(self, turn: int = 0) -> list[str]:
        """What decides the draws of every prompt."""
        return [f"bench {self.seed} {turn} {place}" for place in range(len(self.prompts))]

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def resized(self, prompts: int, group: int) -> "World":
        """The same model and adapter with another number of completions."""
        sizes = dataclasses.replace(self.sizes, prompts=prompts, group=group)
        rendered, tasks = _prompts(sizes, self.loaded.tokenizer)
        return dataclasses.replace(self, sizes=sizes, prompts=rendered, tasks=tasks)


def random_qwen3(sizes: Sizes, device: torch.device, seed: int) -> Qwen3ForCausalLM:
    """Made on the device itself, in its own type; no end-of-sequence token of its own."""
    shape: dict[str, Any] = {**sizes.shape, "attn_implementation": "sdpa"}  # as load_model asks for
    config = Qwen3Config(
        **shape, max_position_embeddings=CONTEXT, tie_word_embeddings=True, eos_token_id=None, pad_token_id=0,
        bos_token_id=None,
    )  # fmt: skip
    before = torch.get_default_dtype()
    torch.manual_seed(seed)
    torch.set_default_dtype(getattr(torch, sizes.dtype))
    try:
        with device:
            model = Qwen3ForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    return model.requires_grad_(False).eval()


def _noise_bases(linear: nn.Linear) -> tuple[Tensor, Tensor, Tensor]:
    """U, S and Vh of an SVD's shapes."""
    d_out, d_in = linear.weight.shape
    rank = min(d_out, d_in)
    like: dict[str, Any] = {"device": linear.weight.device, "dtype": reduce_dtype(linear.weight)}
    u = torch.linalg.qr(torch.randn(d_out, rank, **like)).Q
    vh = torch.linalg.qr(torch.randn(d_in, rank, **like)).Q.T
    return u, torch.ones(rank, **like), vh


def noise_adapter(model: nn.Module) -> Adapter:
    """AntiPaSTO on every target Linear, delta_S small and not zero, so that its products matter to the gradient."""
    layers = replace_targets(model, lambda name, linear: AntiPaSTOLinear(name, linear, _noise_bases(linear)))
    with torch.no_grad():
        for layer in layers.values():
            layer.theta.normal_(std=0.05)
    return Adapter("antipasto", layers, {})


def _prompts(sizes: Sizes, tokenizer: Any) -> tuple[list[Prompt], dict[str, Task]]:
    """The package's problems, numbered so that no two prompts are equal, however many are asked for."""
    prompts, tasks = [], {}
    for i, problem in zip(range(sizes.prompts), itertools.cycle(load_problems("builtin")), strict=False):
        (*before, (role, text)) = problem.messages
        name, messages = f"{problem.problem_id}-{i}", (*before, (role, f"{text}\nProblem {i}."))
        rendered, ids = render(messages, HINT, "no_intervention", tokenizer, CONTEXT, sizes.max_new, name)
        prompts.append(Prompt(name, rendered, ids))
        tasks[name] = problem.task
    return prompts, tasks


def build_world(sizes: Sizes, device: str, seed: int) -> World:
    """Everything from the seed. BadInput as in pick_device."""
    place = pick_device(device)
    tokenizer = train_tokenizer(TOKENIZER_VOCAB)
    model = random_qwen3(sizes, place, seed)
    adapter = noise_adapter(model)
    if sizes.checkpointing:
        enable_checkpointing(model)
    prompts, tasks = _prompts(sizes, tokenizer)
    # No token is -1: nothing ends before max_new.
    loaded = LoadedModel(model, tokenizer, "bench", "bench", "bench", frozenset({-1}), tokenizer.pad_token_id, CONTEXT)
    return World(sizes, seed, loaded, adapter, prompts, tasks)


def random_samples(world: World) -> list[tuple[Sample, ...]]:
    """A group of `group` completions of max_new random tokens per prompt, with rewards that differ within it."""
    draw = torch.Generator().manual_seed(world.seed)
    groups = []
    for prompt in world.prompts:
        ids = torch.randint(world.sizes.vocab, (world.sizes.group, world.sizes.max_new), generator=draw).tolist()
        groups.append(tuple(Sample(prompt.ids, tuple(row), float(i % 2)) for i, row in enumerate(ids)))
    return groups


class ForcedLengths:
    """Ends every completion after a given number of tokens, by its end-of-sequence logit, on whichever side samples.

    A forward hook of the vocabulary product: call number n gives token number n of every row. So that random weights
    give completions of realistic, varying lengths, the same on both sides.
    """

    def __init__(self, eos: int) -> None:
        self.eos = eos
        self.lengths, self.token = torch.zeros(0), 0

    def begin(self, lengths: Tensor) -> None:
        """The lengths [rows] (2 or more) of the completions that are sampled next."""
        self.lengths, self.token = lengths, 0

    def __call__(self, module: nn.Module, args: tuple, logits: Tensor) -> Tensor:  # noqa: ARG002 - torch's signature
        self.token += 1
        column = torch.full_like(logits[..., self.eos], -torch.inf)
        going = self.lengths[self.lengths >= self.token]
        if len(logits) == len(going) < len(self.lengths):  # the rows that have ended left the batch
            self.lengths = going
        if len(logits) == len(self.lengths):  # else the prefill of prompts that are repeated to their groups later
            column[self.lengths == self.token] = 1e4
        logits[..., self.eos] = column
        return logits


@contextmanager
def forced_lengths(world: World) -> Generator[tuple[World, ForcedLengths]]:
    """A world in which completions end, and what says when."""
    eos = world.loaded.tokenizer.eos_token_id
    hook = ForcedLengths(eos)
    handle = world.loaded.model.get_output_embeddings().register_forward_hook(hook)
    try:
        yield dataclasses.replace(world, loaded=dataclasses.replace(world.loaded, eos_ids=frozenset({eos}))), hook
    finally:
        handle.remove()


def varying_lengths(sizes: Sizes, seed: int) -> list[int]:
    """Tokens per completion, uniform from a quarter of max_new to all of it."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(max(2, sizes.max_new // 4), sizes.max_new + 1, (sizes.rows,), generator=draw).tolist()


def prompt_lengths(prompts: Sequence[Prompt]) -> list[int]:
    """In tokens."""
    return [len(p.ids) for p in prompts]
