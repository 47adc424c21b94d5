"""The auxiliary losses of a run: what each learns from at a step, and what of them a checkpoint keeps.

    auxiliary = auxiliary_losses(config, ...);  auxiliary.at(step, groups);  auxiliary.after(step, channels)

They read of a rollout what the policy loss reads (`Group.samples`): tokens, reward, log-probabilities. Draws are
functions of the seed and the step, so only TAID's target has a state."""

import dataclasses
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from loguru import logger
from torch import Tensor

from loophole_grader.hints import HINTS
from projected_grpo.channels import taid
from projected_grpo.channels.auxiliary import ActionPair, AuxiliaryLoss, HintDistill, Hinted, Taid, TraceDPO
from projected_grpo.channels.hint_distill import OPSD, SDPO
from projected_grpo.channels.trace_dpo import DPO, SIMPO
from projected_grpo.config import PEER, TrainConfig
from projected_grpo.data.live import render_all
from projected_grpo.data.preferences import Preferences, read_preferences
from projected_grpo.data.problems import load_problems, schedule
from projected_grpo.ledger.errors import BadInput
from projected_grpo.model.load import LoadedModel
from projected_grpo.parallel import ALONE, Ranks
from projected_grpo.prompts import Messages, chat_of, from_chat, render, with_attempt, without_specials
from projected_grpo.records import Group, Problem
from projected_grpo.worlds.models import load_model

SUCCESS = 1.0
"""A reward from which on an attempt is shown to its peers' teacher (TRL 1.16.0,
SDPOConfig.success_reward_threshold)."""
SCHEDULE = taid.Schedule()
Ids = tuple[int, ...]


@dataclass
class AuxiliaryLosses:
    """The auxiliary losses of a run; by default all weights are 0."""

    config: TrainConfig = field(default_factory=TrainConfig)
    ranks: Ranks = ALONE
    hinted: Callable[[Group, int], Ids | None] = lambda group, i: None  # noqa: ARG005
    """The prompt that the teacher of hint distillation reads for the i-th rollout of a group; None: there is none."""
    pairs: Sequence[ActionPair] = ()
    teacher: Any = None
    """TAID's: the merged model."""
    facts: dict[str, str] = field(default_factory=dict)
    """Hashes for the manifest: of the preference pairs and of TAID's teacher."""
    progress: taid.Progress = field(default_factory=lambda: taid.Progress(SCHEDULE.t_start))
    """Where TAID's target is."""

    def at(self, step: int, groups: Sequence[Group]) -> list[AuxiliaryLoss]:
        """Returns the losses that are on, with this process's share of what they learn from at this step."""
        c, out = self.config, list[AuxiliaryLoss]()
        fresh = [(group, i, s) for group in groups for i, s in enumerate(group.samples()) if s.source == "student"]
        if c.alpha:
            hinted = [
                Hinted(s.prompt_ids, ids, s.completion_ids, s.behaviour_logps)
                for group, i, s in fresh
                if (ids := self.hinted(group, i)) is not None
            ]
            # SDPO's importance ratio is to the sampling policy, so at its temperature.
            options = dataclasses.replace(SDPO, temperature=c.temperature) if c.distill_loss == "sdpo" else OPSD
            out.append(HintDistill(c.alpha, hinted, options, c.distill_teacher, len(fresh)))
        if c.trace_weight:
            chosen = schedule(len(self.pairs), min(c.trace_batch, len(self.pairs)), step, c.stream)
            pairs = self.ranks.share([self.pairs[i] for i in chosen])
            out.append(TraceDPO(c.trace_weight, pairs, SIMPO if c.trace_loss == "simpo" else DPO))
        if c.taid_weight:
            plain = [Hinted(s.prompt_ids, s.prompt_ids, s.completion_ids) for _, _, s in fresh]
            out.append(Taid(c.taid_weight, plain, self.teacher, self.progress.t))
        return out

    def after(self, step: int, channels: Mapping[str, dict[str, float | None]] | None) -> None:
        """Adds TAID's t to the step's column `channels`, and moves TAID's target."""
        if not channels or "taid" not in channels:
            return
        loss = channels["taid"]["loss"]
        channels["taid"]["t"] = self.progress.t
        if loss is not None and channels["taid"]["rows"]:
            self.progress = taid.advance(self.progress, SCHEDULE, loss, step, self.config.steps)

    def state(self) -> dict[str, Tensor]:
        """Returns what --resume needs: TAID's target."""
        return {"taid": torch.tensor(dataclasses.astuple(self.progress), dtype=torch.float64)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Loads what `state` returned."""
        if state:
            self.progress = taid.Progress(*state["taid"].tolist())


def auxiliary_losses(c: TrainConfig, loaded: LoadedModel, prompt_setup: str, ranks: Ranks) -> AuxiliaryLosses:
    """Loads what the auxiliary losses need; without a weight above 0 nothing is read. `prompt_setup`: the one that
    the student trains on.

    Raises BadInput on a hint that does not fit a problem, and as `action_pairs`, `check_held_out` and `load_model`.
    """
    out = AuxiliaryLosses(c, ranks)
    problems = load_problems(c.problems) if c.alpha else ()
    if c.alpha and c.distill_hint == PEER:
        messages = {p.problem_id: from_chat(chat_of(p, c.hint, prompt_setup)) for p in problems}
        out.hinted = partial(after_peer, loaded, messages)
    elif c.alpha:
        setting = dataclasses.replace(c, prompt_setup=prompt_setup, hint=c.distill_hint)
        prompts = {p.problem_id: p.ids for p in render_all(setting, loaded, problems)}
        out.hinted = lambda group, _: prompts[group.problem_id]
    if c.trace_weight:
        found = ranks.on_rank0(lambda: read_preferences(c.trace_pairs))
        out.pairs = action_pairs(found, loaded, f"--trace-pairs {c.trace_pairs}")
        out.facts["pairs_sha256"] = found.sha256
        check_held_out(out.pairs, loaded, load_problems(c.eval_problems) if c.eval_every else ())
        logger.info(f"trace DPO: {len(out.pairs)} pairs of {found.traces} traces from {c.trace_pairs}")
    if c.taid_weight:
        device = str(loaded.model.device)
        made = ranks.in_rank_order(lambda: load_model(c.model, c.dtype, device, c.base_seed, c.cache, c.teacher))
        out.teacher, out.facts["taid_teacher_hash"] = made.model, made.weights_hash
    return out


def after_peer(loaded: LoadedModel, messages: Mapping[str, Messages], group: Group, i: int) -> Ids | None:
    """Returns the prompt with the first other attempt that was paid; None without one, or in too short a context.
    `messages`: the prompt's, by problem."""
    paid = [j for j, reward in enumerate(group.rewards) if reward >= SUCCESS and j != i]
    if not paid:
        return None
    # Without special tokens: they could end the user's turn. Behind the hint, which would rewrite the attempt's
    # words.
    attempt = without_specials(loaded.tokenizer, group.rollouts[paid[0]].completion)
    shown = with_attempt(messages[group.problem_id], attempt)
    where = f"problem {group.problem_id}"
    _, ids = render(shown, "none", "no_intervention", loaded.tokenizer, sys.maxsize, 0, where)
    return ids if len(ids) + len(group.rollouts[i].completion_ids) <= loaded.context else None


def check_held_out(pairs: Sequence[ActionPair], loaded: LoadedModel, held_out: Iterable[Problem]) -> None:
    """Raises BadInput where a pair is of a held-out problem: the evaluation would be of what trace DPO was taught.
    Problems are recognised by what no hint rewrites in their last user message, so that no hint, prompt set-up, later
    turn or spacing hides one."""
    decode = partial(loaded.tokenizer.decode, clean_up_tokenization_spaces=False)
    texts = [one_spaced(decode((*pair.prompt_ids, *pair.chosen_ids, *pair.rejected_ids))) for pair in pairs]
    hints = "|".join(re.escape(hint.old) for hint in HINTS.values() if hint.old)
    for problem in held_out:
        *_, asked = (content for role, content in problem.messages if role == "user")
        parts = [one_spaced(part) for part in re.split(hints, asked)]
        for i, text in enumerate(texts):
            if all(part in text for part in parts):
                raise BadInput(
                    f"--trace-pairs: pair {i} is of problem {problem.problem_id} of --eval-problems, which nothing may "
                    "learn from; make the pairs of training problems"
                )


def one_spaced(text: str) -> str:
    return " ".join(text.split())


def action_pairs(found: Preferences, loaded: LoadedModel, source: str) -> list[ActionPair]:
    """Returns stored pairs as token ids: texts are tokenised here, once; ids stay as they are. Raises BadInput on
    those of another tokenizer, or longer than the context."""
    if found.tokenizer_hash not in (None, loaded.tokenizer_hash):
        raise BadInput(
            f"{source}: token ids of tokenizer {found.tokenizer_hash}, this model's is {loaded.tokenizer_hash}; make the "
            "pairs with this model's, or of texts"
        )
    out = []
    for i, pair in enumerate(found.pairs):
        prompt, sides, where = pair.prompt, (pair.chosen, pair.rejected), f"{source}, pair {i}"
        if not pair.of_ids:
            sides = tuple(map(loaded.answer_ids, sides))
            _, prompt = render(prompt, "none", "no_intervention", loaded.tokenizer, sys.maxsize, 0, where)
        if (n := len(prompt) + max(map(len, sides))) > loaded.context:
            raise BadInput(f"{where}: {n} tokens, the model's context is {loaded.context}; leave it out")
        out.append(ActionPair(prompt, *sides))
    return out
