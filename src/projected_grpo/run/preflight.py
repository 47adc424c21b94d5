"""Before step 0: the largest batch that a run can meet, tried for real on the GPU.

The longest prompt with a completion of max_new tokens, as many rows as the token budget allows, forward and backward as
in training; and the key-value cache of the largest rollout batch, by its formula. A run that would die of memory hours
later, when its longest sample comes, is refused now, with the numbers and a setting that fits.
"""

import gc
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from loguru import logger

from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.model.batches import batches, logps_of
from projected_grpo.model.load import LoadedModel
from projected_grpo.records import Sample
from projected_grpo.rollout.decoding import FIXED_ROOM
from projected_grpo.rollout.sample import Prompt
from projected_grpo.run.session import Session

GIB = 2**30
MARGIN = 0.95
"""Share of the device's memory that may be filled: fragmentation takes the rest."""


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
    """The largest micro-batch of whole rows: longest prompt, max_new tokens, as many as fit the budget (one at least)."""
    prompt = max((p.ids for p in prompts), key=len)
    rows = max(1, min(token_budget // (len(prompt) + config.max_new), config.prompts_per_step * config.group_size))
    return [Sample(prompt, (pad_id,) * config.max_new, 0.0, None)] * rows


def cache_bytes(loaded: LoadedModel, rows: int, length: int) -> int:
    """Keys and values of `rows` sequences of `length` tokens, all layers."""
    c = loaded.model.config
    head = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    return 2 * c.num_hidden_layers * c.num_key_value_heads * head * rows * length * loaded.model.dtype.itemsize


def _peak_of(session: Session, config: TrainConfig, rows: Sequence[Sample], device: Device) -> int | None:
    """Most memory held during one forward and backward pass in bytes, or None when it does not fit."""
    loaded, adapter = session.loaded, session.adapter
    device.reset()
    try:
        # One sample's own gradient a module is what the sink is given; what it keeps of them is a number each.
        with adapter.per_sample(lambda name, grads: None):  # noqa: ARG005 - the sink's signature
            for _, batch in batches(loaded.model, rows, 2**62, loaded.pad_id, device.place, whole=True):
                logps_of(loaded.model, batch, config.temperature).sum().backward()
    except torch.OutOfMemoryError:
        return None
    finally:
        adapter.zero_grad()
    return device.peak()


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
            f"--token-budget {config.token_budget}: its largest batch, rows of {longest} tokens, does not fit "
            f"{total / GIB:.1f} GiB in forward and backward; --token-budget {budget} does (peak {peak / GIB:.1f} GiB)"
        )
    sampled = min(config.rollout_batch, config.prompts_per_step * config.group_size)
    room = longest + FIXED_ROOM  # a decoder's cache is filled up to its room
    cache = cache_bytes(session.loaded, sampled, room)
    if (need := device.held() + cache) > MARGIN * total:
        fits = int((MARGIN * total - device.held()) / cache_bytes(session.loaded, 1, room))
        raise BadInput(
            f"--rollout-batch {config.rollout_batch}: the key-value cache of {sampled} rows of {room} tokens needs "
            f"{cache / GIB:.1f} GiB, {need / GIB:.1f} of {total / GIB:.1f} GiB with the weights; --rollout-batch {fits} fits"
        )
    logger.info(
        f"largest batch tried, {len(rows)} rows of {longest} tokens: peak {peak / GIB:.1f} of {total / GIB:.1f} GiB; "
        f"sampling {sampled} rows: {need / GIB:.1f} GiB"
    )
