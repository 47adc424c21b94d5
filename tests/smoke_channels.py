"""Five steps on the tiny model with every auxiliary loss on, on rows that stay the same: each loss must fall. Of one
that does not the gradient does not reach the optimizer.

The policy's rows carry the log-probabilities that they begin with, so that its loss is that of rewards and ratios alone; the
hint's teacher is the model without its adapter, TAID's is another one, at t = 1; the preferred actions are those that are
paid.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from projected_grpo.adapters import Adapter
from projected_grpo.channels.auxiliary import ActionPair, AuxiliaryLoss, HintDistill, Hinted, Taid, TraceDPO
from projected_grpo.model.batches import logps_of
from projected_grpo.model.learner import Learner
from projected_grpo.model.load import LoadedModel
from projected_grpo.model.logprobs import token_batch
from projected_grpo.projection import Projection
from projected_grpo.prompts import render
from projected_grpo.records import Sample
from projected_grpo.step import Objective, run_step
from projected_grpo.worlds.builtin import pool_pairs

STEPS = 5
TOKENS = 200
"""Of each completion."""
PROBLEMS = 2
LEARNING_RATE = 3e-4
"""Small: so near to the start each channel's loss follows its own gradient. At 2e-3 the others' updates undo, after the
first step, what the hint has taught."""
WEIGHTS = {"hint_distill": 1000.0, "trace_dpo": 0.1, "taid": 6.0}
"""At these each channel's gradient is of the order of the policy's: in a model of random weights a hint changes little."""
Columns = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Rows:
    """What every step learns from."""

    groups: Sequence[Sequence[Sample]]
    losses: Sequence[AuxiliaryLoss]


def rows_of(loaded: LoadedModel, teacher: LoadedModel) -> Rows:
    """Two written problems, each with a clean completion that is paid and a hack that is not."""
    groups, hinted, pairs = [], [], []
    for pair in pool_pairs()[:PROBLEMS]:
        prompt, plain = (
            render(pair.messages, hint, "no_intervention", loaded.tokenizer, loaded.context, TOKENS, pair.name)[1]
            for hint in ("simple_overwrite_tests", "none")
        )
        clean, hack = (loaded.completion_ids(text)[:TOKENS] for text in (pair.clean, pair.hack))
        groups.append([_sample(loaded, prompt, clean, 3.5), _sample(loaded, prompt, hack, 0.5)])
        hinted += [Hinted(prompt, plain, ids) for ids in (clean, hack)]
        pairs.append(ActionPair(prompt, clean, hack))
    own = [Hinted(h.prompt_ids, h.prompt_ids, h.completion_ids) for h in hinted]
    losses: list[AuxiliaryLoss] = [
        HintDistill(WEIGHTS["hint_distill"], hinted, teacher="base"),
        TraceDPO(WEIGHTS["trace_dpo"], pairs),
        Taid(WEIGHTS["taid"], own, teacher.model, t=1.0),
    ]
    return Rows(groups, losses)


@torch.no_grad()
def _sample(loaded: LoadedModel, prompt: tuple[int, ...], ids: tuple[int, ...], reward: float) -> Sample:
    batch = token_batch([prompt], [ids], loaded.pad_id, loaded.model.device)
    logps = logps_of(loaded.model, batch, 1.0)[batch.loss_mask]
    return Sample(prompt, ids, reward, tuple(logps.tolist()), "teacher")


def composed(loaded: LoadedModel, adapter: Adapter, rows: Rows, steps: int = STEPS) -> list[Columns]:
    """The column `channels` before each step and after the last. NonFinite as in run_step."""
    theta = list(adapter.vectors.values())
    optimizer = torch.optim.AdamW(theta, lr=LEARNING_RATE, weight_decay=0.0)
    learner = Learner(loaded.model, adapter, optimizer, loaded.pad_id, token_budget=8192)
    objective = Objective("dr_grpo", max_new=TOKENS)
    out = []
    for step in range(steps + 1):  # the last one is taken to see where the one before it has led
        result = run_step(
            learner, rows.groups, objective, Projection(), step=step, per_sample=False, auxiliary=rows.losses
        )
        out.append(result.step["channels"])
    return out


def not_falling(told: Sequence[Columns]) -> list[str]:
    """Channels whose loss after the last step is not below that before the first, or without a gradient."""
    fell = {name: told[-1][name]["loss"] < first["loss"] for name, first in told[0].items()}
    return [name for name, first in told[0].items() if not (fell[name] and first["grad_norm"] > 0)]
