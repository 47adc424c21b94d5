"""Before step 0 on a GPU: the largest micro-batch and the largest rollout batch that a run can meet, each tried once.

A run that would die of memory hours later is refused at its start, with a setting to lower.
"""

import gc
from collections.abc import Callable, Sequence

import torch
from loguru import logger

from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.model.attention import packed_queries
from projected_grpo.model.logprobs import completion_logps
from projected_grpo.records import Sample
from projected_grpo.rollout.decoding import decoder_for
from projected_grpo.rollout.draw import SamplingParams, draw
from projected_grpo.rollout.sample import Prompt
from projected_grpo.run.policy import Policy


def preflight(policy: Policy, config: TrainConfig, prompts: Sequence[Prompt]) -> None:
    """Tries both batches and logs their peaks; does nothing on a CPU. Raises BadInput if one does not fit."""
    device = policy.loaded.model.device
    if device.type != "cuda":
        return
    rows = largest_rows(prompts, config, policy.loaded.pad_id)
    groups = min(config.prompts_per_step, max(1, config.rollout_batch // config.group_size))
    long = f"rows of {len(rows[0].prompt_ids) + config.max_new} tokens"
    check_fits(
        lambda: train_pass(policy, rows), device,
        f"--token-budget {config.token_budget}: forward and backward of {len(rows)} {long}",
        "--token-budget or --max-new, or use --gradient-checkpointing full",
    )  # fmt: skip
    check_fits(
        lambda: sample_pass(policy, config, groups, rows[0].prompt_ids), device,
        f"--rollout-batch {config.rollout_batch}: sampling {groups * config.group_size} {long}",
        "--rollout-batch, --group-size or --max-new",
    )  # fmt: skip


def check_fits(work: Callable[[], None], device: torch.device, what: str, lower: str) -> None:
    """Logs the most memory held during `work`. Raises BadInput if it does not fit."""
    torch.cuda.reset_peak_memory_stats(device)
    try:
        work()
    except torch.OutOfMemoryError as e:
        raise BadInput(f"{what} does not fit the GPU's memory; lower {lower}") from e
    logger.info(f"memory: {torch.cuda.max_memory_allocated(device) / 2**30:.2f} GiB at most for {what}")
    gc.collect()
    torch.cuda.empty_cache()


def largest_rows(prompts: Sequence[Prompt], config: TrainConfig, pad_id: int) -> list[Sample]:
    """Returns the largest micro-batch: rows of the longest prompt and max_new tokens, as many as the budget holds (at
    least one)."""
    prompt = max((p.ids for p in prompts), key=len)
    most = config.prompts_per_step * config.group_size
    rows = max(1, min(config.token_budget // (len(prompt) + config.max_new), most))
    return [Sample(prompt, (pad_id,) * config.max_new, 0.0, None)] * rows


def train_pass(policy: Policy, rows: Sequence[Sample]) -> None:
    """Runs forward and backward of these rows, with per-sample gradients, as a training step does."""
    learner, adapter = policy.learner, policy.adapter
    with adapter.merged(), adapter.per_sample(lambda name, grads: None):  # noqa: ARG005 - the sink's signature
        for _, batch in learner.batches(rows, whole=True):
            completion_logps(learner.model, batch, policy.objective.temperature).sum().backward()
    adapter.zero_grad()


def sample_pass(policy: Policy, config: TrainConfig, prompts: int, longest: Sequence[int]) -> None:
    """Samples the last token of `prompts` groups of the longest prompt: the cache is then at its largest."""
    loaded, params = policy.loaded, SamplingParams(1, config.temperature, config.top_p, config.top_k)
    with policy.adapter.merged(), torch.no_grad(), packed_queries(loaded.model):
        decoder = decoder_for(loaded, [longest] * prompts, config.group_size)
        decoder.make_room(config.max_new)
        u = torch.zeros(len(decoder.logits), dtype=torch.float64, device=decoder.logits.device)
        token, _ = draw(decoder.logits, params, u)
        draw(decoder.step(token), params, u)
