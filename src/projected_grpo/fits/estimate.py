"""Every stage of a run on a fake model: its peak, its work, and what a card makes of both."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from projected_grpo.adapters.base import Adapter
from projected_grpo.fits.cards import GIB, Card
from projected_grpo.fits.counter import LiveStorage, Product, Uncounted, seconds_at_least
from projected_grpo.fits.fake import Answers, fake_adapter, fake_basis, fake_loaded, mode_of, no_memory
from projected_grpo.fits.lengths import Lengths
from projected_grpo.fits.settings import FitsConfig
from projected_grpo.fits.stages import Done, Subject, extraction, moments, sampling, training
from projected_grpo.ledger.console import progress
from projected_grpo.model.load import LoadedModel
from projected_grpo.projection import Projection
from projected_grpo.rollout.draw import SamplingParams
from projected_grpo.rollout.sample import sample_tokens

RESERVE = 1.0
"""GiB that torch's allocator never has: the CUDA context and its kernels, workspaces of cuBLAS and cuBLASLt (32 MiB each on
a Hopper card), memory that a recorded graph keeps. An allowance, not measured."""
MARGIN = 0.95
"""Share of the rest that may be filled: the allocator's fragmentation takes what is left. Before step 0 the same is left of
what the device really has (run/preflight.py)."""


@dataclass(frozen=True)
class Stage:
    """One stage at its largest batch."""

    name: str
    batch: str
    peak: int
    """Bytes."""
    base: int
    """Bytes of it that are there before the stage: weights, bases, V, moments."""
    products: Mapping[Product, float | int]
    """Of a whole step, extraction or evaluation, all lengths at their longest."""
    setting: str = ""
    """The option that its batch goes by, how much of it there is, and less than which makes the batch no smaller."""
    amount: int = 0
    least: int = 1

    def seconds(self, card: Card) -> float:
        """No kernel is faster."""
        rates = {torch.bfloat16: card.bfloat16, torch.float32: card.float32, torch.float64: card.float32 / 2}
        return seconds_at_least(self.products, card.bandwidth, rates)

    @property
    def flops(self) -> float:
        """Of all products."""
        return sum(flops * times for (flops, _, _), times in self.products.items())

    def smaller(self, room: float | int) -> int:
        """How much of the setting would fit into `room` bytes, as the peak above `base` grows with it; 0: none."""
        fits = int(self.amount * (room - self.base) / (self.peak - self.base))
        return fits if fits >= self.least else 0


def room_on(card: Card) -> float:
    """Bytes of a card that a run may fill."""
    return MARGIN * (card.memory - RESERVE) * GIB


Basis = Mapping[str, torch.Tensor]
"""V, module by module."""


@dataclass(frozen=True)
class Job:
    """A stage as a run has it, whatever its tensors are: the largest batch, the code, and the option that it goes by."""

    name: str
    batch: str
    run: Callable[[LiveStorage, Subject, Basis], Done]
    setting: str
    amount: int
    least: int
    """Of that option: a group, a row. Less makes the batch no smaller."""
    found: Literal["all", "none"] = "none"
    """How many rows of a mask that a fake model computes are True."""
    has_v: bool = True
    """V and the optimizer's moments are there before it."""
    whole: Callable[[Subject], None] | None = None
    """All of it, where `run` takes parts and lets them stand for the whole."""

    def real(self, subject: Subject, basis: Basis) -> None:
        """On real tensors, from its beginning to its end."""
        if self.whole is None:
            self.run(Uncounted(), subject, basis)
        else:
            self.whole(subject)


def jobs_of(config: FitsConfig, lengths: Lengths) -> list[Job]:
    """All stages of a run of this config, in the order of a chain."""
    step = config.prompts_per_step * config.group_size * (lengths.prompt + config.max_new)
    tokens = min(config.token_budget, step)

    def extract(counter: LiveStorage, subject: Subject, _: Basis) -> Done:
        return extraction(counter, subject, lengths.pairs, "nll", config.max_new, config.token_budget)

    def train(name: str, *, per_sample: bool) -> Job:
        def run(counter: LiveStorage, subject: Subject, basis: Basis) -> Done:
            projection = Projection(basis, "update", config.gate)
            return training(counter, subject, config, lengths.prompt, projection, per_sample=per_sample)

        return Job(name, f"{tokens} tokens", run, "--token-budget", tokens, lengths.prompt + config.max_new)

    longest = max(prompt + hack + clean for prompt, hack, clean in lengths.pairs)
    group = max(config.mixed_rows["student"], config.mixed_rows["base"], 1)
    own, shared = config.per_sample_every > 0, config.per_sample_every != 1 and not config.gradient_checkpointing
    return [
        Job("extraction", f"{len(lengths.pairs)} pairs", extract, "--token-budget", config.token_budget, longest,
            has_v=False),
        sampling_job(config, "sampling", config.prompts_per_step, group, lengths.prompt),
        *([train("training step, per-sample gradients", per_sample=True)] if own else []),
        *([train("training step", per_sample=False)] if shared or not own else []),
        *([sampling_job(config, "evaluation", lengths.held_out_problems, config.eval_samples, lengths.held_out)]
          if config.eval_every else []),
    ]  # fmt: skip


def sampling_job(config: FitsConfig, name: str, problems: int, group: int, prompt: int) -> Job:
    """One batch of rollouts, standing for those of all `problems`."""
    many = min(problems, max(1, config.rollout_batch // group))
    params = SamplingParams(config.max_new, config.temperature, config.top_p, config.top_k)
    prompts = [(1,) * prompt] * many

    def run(counter: LiveStorage, subject: Subject, _: Basis) -> Done:
        done = sampling(counter, subject, prompts, group, params)
        return Done(done.host, {product: n * problems / many for product, n in done.products.items()})

    def whole(subject: Subject) -> None:
        with subject.adapter.folded():
            sample_tokens(subject.loaded, prompts, group, params, [f"fits {i}" for i in range(many)])

    rows = many * group
    return Job(
        name, f"{rows} rows of {prompt + config.max_new}", run, "--rollout-batch", rows, group, "all", whole=whole
    )


def stages_of(config: FitsConfig, shape: Any, jobs: Sequence[Job], *, card: bool = True) -> list[Stage]:
    """What every job comes to on a model of this shape (a transformers config). `card`: as on a CUDA device."""
    loaded = fake_loaded(shape, config.dtype, checkpointing=config.gradient_checkpointing, card=card)
    adapter = fake_adapter(loaded.model, config.adapter, config.lora_rank)
    subject, mode = Subject(loaded, adapter, card), mode_of(loaded.model)
    basis = fake_basis(loaded.model, adapter, config.k)
    with_v = [*subject.held(), *basis.values(), *moments(adapter)]

    def stage(job: Job) -> Stage:
        counter = Answers(mode, with_v if job.has_v else subject.held(), job.found)
        base = counter.live
        with no_memory():
            done = job.run(counter, subject, basis)
        return Stage(
            job.name, job.batch, counter.peak - done.host, base, done.products, job.setting, job.amount, job.least
        )

    return [stage(job) for job in progress(jobs, "stages")]


def peak_of(like: LoadedModel, of: Adapter, work: Callable[[LiveStorage, Subject], Done]) -> tuple[int, int]:
    """(bytes before `work`, the most that it holds) on a card, given a real model and its adapter: `work` is given fake ones
    of their shapes and types, and counts with the counter."""
    dtype = str(like.model.dtype).removeprefix("torch.")
    checkpointing = any(getattr(m, "gradient_checkpointing", False) for m in like.model.modules())
    loaded = fake_loaded(like.model.config, dtype, checkpointing=checkpointing, card=True)
    kind: Literal["antipasto", "lora"] = "lora" if of.kind == "lora" else "antipasto"
    adapter = fake_adapter(loaded.model, kind, int(of.settings.get("lora_rank", 0)))
    subject = Subject(loaded, adapter, card=True)
    counter = Answers(mode_of(loaded.model), subject.held(), "all")
    before = counter.live
    with no_memory():
        done = work(counter, subject)
    return before, counter.peak - done.host
