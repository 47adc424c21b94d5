"""Before step 0 on a GPU: the largest micro-batch and the largest rollout batch that a run can meet, each tried once.

A run that would die of memory hours later is refused at its start, with a setting that fits.
"""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from loguru import logger

from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.model.batches import batches, logps_of
from projected_grpo.records import Sample
from projected_grpo.rollout.draw import SamplingParams
from projected_grpo.rollout.sample import Prompt, sample_tokens
from projected_grpo.run.session import Session

GIB = 2**30
MARGIN = 0.95
"""Share of the memory that a batch may take: the rest is for fragmentation."""


@dataclass(frozen=True)
class Device:
    """The memory of a CUDA device, in bytes."""

    place: torch.device

    def reset(self) -> None:
        """Forget the peak and give back cached memory."""
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.place)

    def peak(self) -> int:
        """Most that was allocated since `reset`."""
        return torch.cuda.max_memory_allocated(self.place)

    def total(self) -> int:
        """Memory that this process holds or could still get."""
        free, _ = torch.cuda.mem_get_info(self.place)
        return free + torch.cuda.memory_reserved(self.place)


def largest_rows(prompts: Sequence[Prompt], config: TrainConfig, token_budget: int, pad_id: int) -> list[Sample]:
    """Returns the largest micro-batch: rows of the longest prompt and max_new tokens, as many as the budget holds (at least
    one), or one row more of shorter ones where these have more tokens in all."""
    prompt = max((p.ids for p in prompts), key=len)
    length, most = len(prompt) + config.max_new, config.prompts_per_step * config.group_size
    rows = max(1, min(token_budget // length, most))
    shorter = token_budget // (rows + 1)
    if rows < most and (rows + 1) * shorter > rows * length:
        rows, length = rows + 1, shorter
    new = min(config.max_new, length - 1)
    return [Sample(prompt[: length - new], (pad_id,) * new, 0.0, None)] * rows


def train_pass(session: Session, rows: Sequence[Sample], temperature: float, place: torch.device) -> None:
    """Runs forward and backward of these rows, with per-sample gradients, as a training step does."""
    loaded, adapter = session.loaded, session.adapter
    try:
        with adapter.held(), adapter.per_sample(lambda name, grads: None):  # noqa: ARG005 - the sink's signature
            for _, batch in batches(loaded.model, rows, 2**62, loaded.pad_id, place, whole=True):
                logps_of(loaded.model, batch, temperature).sum().backward()
    finally:
        adapter.zero_grad()


def sample_pass(session: Session, config: TrainConfig, prompts: int, longest: int) -> None:
    """Samples the last two tokens of `prompts` groups of the greatest length: the cache is then at its largest."""
    params = SamplingParams(2, config.temperature, config.top_p, config.top_k)
    ids = [(session.loaded.pad_id,) * max(1, longest - 2)] * prompts
    with session.adapter.folded():
        sample_tokens(session.loaded, ids, config.group_size, params, [str(i) for i in range(prompts)])


def peak_of(work: Callable[[], None], device: Device) -> int | None:
    """Returns the most memory held during `work` in bytes, or None if it does not fit with the margin."""
    device.reset()
    try:
        work()
    except torch.OutOfMemoryError:
        return None
    peak = device.peak()
    return peak if peak <= MARGIN * device.total() else None


def preflight(session: Session, config: TrainConfig, prompts: Sequence[Prompt], device: Device) -> None:
    """Tries both batches and logs their peaks. Raises BadInput, with a setting that fits, if one does not fit."""
    longest = max(len(p.ids) for p in prompts) + config.max_new
    where = f"{device.total() / GIB:.1f} GiB"
    trained = _try_training(session, config, prompts, longest, device, where)
    sampled = _try_sampling(session, config, longest, device, where)
    device.reset()
    logger.info(f"memory: training {trained / GIB:.2f} GiB, sampling {sampled / GIB:.2f} GiB of {where} at most")


def _try_training(
    session: Session, config: TrainConfig, prompts: Sequence[Prompt], longest: int, device: Device, where: str
) -> int:
    budget = config.token_budget
    while True:
        rows = largest_rows(prompts, config, budget, session.loaded.pad_id)
        peak = peak_of(lambda rows=rows: train_pass(session, rows, config.temperature, device.place), device)
        if peak is not None:
            break
        if len(rows) == 1:
            raise BadInput(
                f"--max-new {config.max_new}: one row of {longest} tokens does not fit {where} in forward and backward; "
                "switch on --gradient-checkpointing, or lower --max-new"
            )
        budget = (len(rows) - 1) // 2 * longest or longest
    if budget != config.token_budget:
        raise BadInput(
            f"--token-budget {config.token_budget}: its largest batch, rows of up to {longest} tokens, does not fit "
            f"{where} in forward and backward; --token-budget {budget} does (peak {peak / GIB:.1f} GiB)"
        )
    return peak


def _try_sampling(session: Session, config: TrainConfig, longest: int, device: Device, where: str) -> int:
    most = groups = min(config.prompts_per_step, max(1, config.rollout_batch // config.group_size))
    while (peak := peak_of(lambda n=groups: sample_pass(session, config, n, longest), device)) is None:
        if groups == 1:
            raise BadInput(
                f"--group-size {config.group_size}: sampling a group of {longest} tokens each does not fit {where}; lower "
                "--group-size or --max-new"
            )
        groups //= 2
    if groups < most:
        raise BadInput(
            f"--rollout-batch {config.rollout_batch}: sampling {most * config.group_size} rows of {longest} tokens does not "
            f"fit {where}; --rollout-batch {groups * config.group_size} does (peak {peak / GIB:.1f} GiB)"
        )
    return peak
