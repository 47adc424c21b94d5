"""Supervised training on written completions: how base models and teachers are made here. GRPO has nothing of it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from loguru import logger

from projected_grpo.ledger.console import progress
from projected_grpo.model.logprobs import completion_logps, token_batch


@dataclass(frozen=True)
class FitSettings:
    """How long and how fast a model is trained: AdamW, linear warm-up, cosine to zero."""

    steps: int
    batch: int
    lr: float
    warmup: int
    weight_decay: float = 0.01


def fit(
    model: Any,
    parameters: Sequence[torch.nn.Parameter],
    batches: Iterator[Any],
    recipe: FitSettings,
    pad_id: Any,
    what: str,
) -> None:
    """Minimise the mean NLL of the completions, token by token, on the device that the parameters are on."""
    optimizer = torch.optim.AdamW(parameters, lr=recipe.lr, betas=(0.9, 0.98), weight_decay=recipe.weight_decay)
    model.train()
    for step in progress(range(recipe.steps), what):
        cosine = 0.5 * (1 + math.cos(math.pi * step / recipe.steps))
        optimizer.param_groups[0]["lr"] = recipe.lr * min(1.0, (step + 1) / recipe.warmup) * cosine
        rows = next(batches)
        batch = token_batch([p for p, _ in rows], [c for _, c in rows], pad_id, parameters[0].device)
        logps = completion_logps(model, batch)
        loss = -logps.sum() / batch.loss_mask.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if (step + 1) % (recipe.steps // 5) == 0:
            logger.info(f"{what}: step {step + 1} of {recipe.steps}, NLL {loss.item():.3f} nats a token")
    model.eval()
