"""Before step 0: the largest batch that a run can meet, tried for real on the GPU.

The longest prompt with a completion of max_new tokens, as many rows as the token budget allows (or one more, of rows a
little shorter, where those fill it better), forward and backward as in training, with what `just fits` predicts of it beside
what was measured; and the largest rollout batch, by that prediction alone. A run that would die of memory hours later, when
its fullest batch comes, is refused now, with the numbers and a setting that fits.
"""

import gc
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from loguru import logger

from projected_grpo.adapters.base import Adapter
from projected_grpo.config import TrainConfig
from projected_grpo.fits.counter import LiveStorage
from projected_grpo.fits.estimate import MARGIN, peak_of
from projected_grpo.fits.stages import Done, Subject, fuller, sampling
from projected_grpo.ledger.errors import BadInput
from projected_grpo.model.batches import batches, logps_of
from projected_grpo.model.load import LoadedModel
from projected_grpo.records import Sample
from projected_grpo.rollout.draw import SamplingParams
from projected_grpo.rollout.sample import Prompt
from projected_grpo.run.session import Session

GIB = 2**30


@dataclass(frozen=True)
class Device:
    """The memory of a CUDA device, in bytes."""

    place: torch.device

    def reset(self) -> None:
        """Forget the peak, and give back what nobody holds."""
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.place)

    def peak(self) -> int:
        """Most that was held since `reset`."""
        return torch.cuda.max_memory_allocated(self.place)

    def held(self) -> int:
        """What is held now: weights and adapter."""
        return torch.cuda.memory_allocated(self.place)

    def total(self) -> int:
        """What there is for this process: held by it, or free."""
        free, _ = torch.cuda.mem_get_info(self.place)
        return free + torch.cuda.memory_reserved(self.place)


def largest_rows(prompts: Sequence[Prompt], config: TrainConfig, token_budget: int, pad_id: int) -> list[Sample]:
    """The largest micro-batch of whole rows: longest prompt, max_new tokens, as many as fit the budget (one at least); or
    one row more of somewhat shorter ones, where these have more tokens in all."""
    prompt = max((p.ids for p in prompts), key=len)
    rows = max(1, min(token_budget // (len(prompt) + config.max_new), config.prompts_per_step * config.group_size))
    shorter = fuller(replace(config, token_budget=token_budget), len(prompt), rows, shared=False)
    length, new = shorter or (len(prompt), config.max_new)
    return [Sample(prompt[:length], (pad_id,) * new, 0.0, None)] * (rows + (shorter is not None))


def largest_pass(
    loaded: LoadedModel, adapter: Adapter, config: TrainConfig, rows: Sequence[Sample], place: torch.device
) -> None:
    """One forward and backward pass of these rows, as in a training step that takes every sample's own gradient."""
    # One sample's own gradient a module is what the sink is given; what it keeps of them is a number each.
    with adapter.held(), adapter.per_sample(lambda name, grads: None):  # noqa: ARG005 - the sink's signature
        for _, batch in batches(loaded.model, rows, 2**62, loaded.pad_id, place, whole=True):
            logps_of(loaded.model, batch, config.temperature).sum().backward()


def _peak_of(session: Session, config: TrainConfig, rows: Sequence[Sample], device: Device) -> int | None:
    """Most memory held during one forward and backward pass in bytes, or None when it does not fit."""
    device.reset()
    try:
        largest_pass(session.loaded, session.adapter, config, rows, device.place)
    except torch.OutOfMemoryError:
        return None
    finally:
        session.adapter.zero_grad()
    return device.peak()


def predicted_pass(session: Session, config: TrainConfig, rows: Sequence[Sample]) -> tuple[int, int]:
    """(bytes before, peak) of the same pass, by fake tensors."""

    def work(counter: LiveStorage, subject: Subject) -> Done:
        with counter:
            largest_pass(subject.loaded, subject.adapter, config, rows, torch.device("cpu"))
        return Done(0, {})

    return peak_of(session.loaded, session.adapter, work)


def predicted_sampling(session: Session, config: TrainConfig, prompt: int) -> tuple[int, int, int]:
    """(rows of the largest rollout batch, bytes before, peak) with every prompt and completion at its longest."""
    prompts = min(config.prompts_per_step, max(1, config.rollout_batch // config.group_size))
    params = SamplingParams(config.max_new, config.temperature, config.top_p, config.top_k)
    ids = [(0,) * prompt] * prompts

    def work(counter: LiveStorage, subject: Subject) -> Done:
        return sampling(counter, subject, ids, config.group_size, params)

    return prompts * config.group_size, *peak_of(session.loaded, session.adapter, work)


def preflight(session: Session, config: TrainConfig, prompts: Sequence[Prompt], device: Device) -> None:
    """Try the largest batch and log the peak. BadInput, with what would fit, when it does not."""
    total, longest = device.total(), max(len(p.ids) for p in prompts) + config.max_new
    budget, peak = config.token_budget, None
    while peak is None:
        rows = largest_rows(prompts, config, budget, session.loaded.pad_id)
        peak = _peak_of(session, config, rows, device)
        if peak is not None and peak > MARGIN * total:
            peak = None
        if peak is None and len(rows) == 1:
            raise BadInput(
                f"--max-new {config.max_new}: one row of {longest} tokens does not fit {total / GIB:.1f} GiB in forward and "
                "backward; switch on --gradient-checkpointing, or lower --max-new"
            )
        if peak is None:
            budget = (len(rows) - 1) // 2 * longest or longest
    device.reset()
    if budget != config.token_budget:
        raise BadInput(
            f"--token-budget {config.token_budget}: its largest batch, rows of up to {longest} tokens, does not fit "
            f"{total / GIB:.1f} GiB in forward and backward; --token-budget {budget} does (peak {peak / GIB:.1f} GiB)"
        )
    prompt = longest - config.max_new
    sampled, before, most = predicted_sampling(session, config, prompt)
    cache = most - before
    if (need := device.held() + cache) > MARGIN * total:
        fits = int((MARGIN * total - device.held()) / cache * sampled)
        mend = f"--rollout-batch {fits} fits" if fits >= config.group_size else "lower --max-new or --group-size"
        raise BadInput(
            f"--rollout-batch {config.rollout_batch}: sampling {sampled} rows of {longest} tokens needs {cache / GIB:.1f} "
            f"GiB, {need / GIB:.1f} of {total / GIB:.1f} GiB with the weights; {mend}"
        )
    start, predicted = predicted_pass(session, config, rows)
    size = len(rows[0].prompt_ids) + len(rows[0].completion_ids)
    told = device.held() + predicted - start
    logger.info(
        f"largest batch tried, {len(rows)} rows of {size} tokens: peak {peak / GIB:.2f} GiB measured, {told / GIB:.2f} "
        f"predicted, of {total / GIB:.1f}; sampling {sampled} rows: {need / GIB:.1f} GiB predicted"
    )
