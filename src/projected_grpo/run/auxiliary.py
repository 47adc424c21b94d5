"""The auxiliary losses of a run: what each learns from at a step, and what of them a checkpoint keeps.

    auxiliary = auxiliary_losses(config, ...);  auxiliary.at(step, groups);  auxiliary.after(step, channels)

They read of a rollout what the policy loss reads (`Group.samples`): tokens, reward, log-probabilities. Draws are functions
of the seed and the step, so only TAID's target has a state.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from loguru import logger
from torch import Tensor

from loophole_grader.hints import HINTS
from projected_grpo.arms import ARMS
from projected_grpo.channels import taid
from projected_grpo.channels.auxiliary import ActionPair, AuxiliaryLoss, HintDistill, Hinted, Taid, TraceDPO
from projected_grpo.channels.hint_distill import OPSD, SDPO, Distillation
from projected_grpo.channels.trace_dpo import DPO, SIMPO, Preference
from projected_grpo.config import PEER, TrainConfig
from projected_grpo.data.live import render_all
from projected_grpo.data.preferences import Preferences, StoredPair, read_preferences
from projected_grpo.data.problems import schedule
from projected_grpo.interventions.base import Intervention
from projected_grpo.ledger.errors import BadInput
from projected_grpo.model.load import LoadedModel
from projected_grpo.parallel import ALONE, World
from projected_grpo.prompts import Messages, messages_for, render, said_in, with_attempt, without_specials
from projected_grpo.records import Group, Problem
from projected_grpo.worlds.models import load_model

SEAM = "\0"
SUCCESS = 1.0
"""A reward from which on an attempt is shown to its peers' teacher (TRL 1.16.0, SDPOConfig.success_reward_threshold)."""
Ids = tuple[int, ...]


@dataclass
class AuxiliaryLosses:
    """The auxiliary losses of a run; by default none."""

    config: TrainConfig | None = None
    loaded: LoadedModel | None = None
    world: World = ALONE
    hinted: Mapping[str, Ids] = field(default_factory=dict)
    """By problem, the prompt that the teacher reads; empty for --distill-hint peer, which depends on the group."""
    messages: Mapping[str, Problem] = field(default_factory=dict)
    """By problem; for --distill-hint peer only."""
    prompt_setup: str = "no_intervention"
    pairs: Sequence[ActionPair] = ()
    pairs_hash: str | None = None
    teacher: Any = None
    """TAID's: the merged model."""
    teacher_hash: str | None = None
    progress: taid.Progress = field(default_factory=lambda: taid.start(taid.Schedule()))
    """Where TAID's target is."""

    def facts(self) -> dict[str, Any]:
        """Returns hashes for the manifest: of the preference pairs and of TAID's teacher, where there are any."""
        found = {"pairs_sha256": self.pairs_hash, "taid_teacher_hash": self.teacher_hash}
        return {name: value for name, value in found.items() if value is not None}

    def at(self, step: int, groups: Sequence[Group]) -> list[AuxiliaryLoss]:
        """Returns the losses that are on, with this process's share of what they learn from at this step."""
        c, out = self.config, list[AuxiliaryLoss]()
        if c is None:
            return out
        if c.alpha:
            asked = sum(s.fresh for g in groups for s in g.samples())
            out.append(HintDistill(c.alpha, self._hinted(c, groups), distillation_of(c), c.distill_teacher, asked))
        if c.trace_weight:
            chosen = schedule(len(self.pairs), min(c.trace_batch, len(self.pairs)), step, c.stream)
            pairs = self.world.share([self.pairs[i] for i in chosen])
            out.append(TraceDPO(c.trace_weight, pairs, preference_of(c)))
        if c.taid_weight:
            samples = [s for g in groups for s in g.samples() if s.fresh]
            rows = [Hinted(s.prompt_ids, s.prompt_ids, s.completion_ids) for s in samples]
            out.append(Taid(c.taid_weight, rows, self.teacher, self.progress.t))
        return out

    def after(self, step: int, channels: Mapping[str, dict[str, float | None]] | None) -> None:
        """Adds TAID's t to the step's column `channels`, and moves TAID's target."""
        c = self.config
        if c is None or channels is None or "taid" not in channels:
            return
        loss = channels["taid"]["loss"]
        channels["taid"]["t"] = self.progress.t
        if loss is not None and channels["taid"]["rows"]:
            self.progress = taid.advance(self.progress, schedule_of(c), loss, step, c.steps)

    def _hinted(self, c: TrainConfig, groups: Sequence[Group]) -> list[Hinted]:
        """Returns the student's completions, each with the prompt that its teacher reads; without those that have none."""
        rows = []
        for group in groups:
            for i, sample in enumerate(group.samples()):
                if not sample.fresh:
                    continue
                hinted = self._after_peer(group, i) if c.distill_hint == PEER else self.hinted[group.problem_id]
                if hinted is not None:
                    rows.append(Hinted(sample.prompt_ids, hinted, sample.completion_ids, sample.behaviour_logps))
        return rows

    def _after_peer(self, group: Group, i: int) -> Ids | None:
        """Returns the prompt with the first other attempt that was paid; None without one, or in too short a context."""
        assert self.config is not None
        assert self.loaded is not None
        paid = [j for j, reward in enumerate(group.rewards) if reward >= SUCCESS and j != i]
        if not paid:
            return None
        attempt = without_specials(
            self.loaded.tokenizer, group.rollouts[paid[0]].completion
        )  # it could end the user's turn
        asked = messages_for(self.messages[group.problem_id].messages, self.config.hint, self.prompt_setup)
        shown = with_attempt(said_in(asked), attempt)  # behind the hint, which would rewrite the attempt's own words
        place = f"problem {group.problem_id}"
        _, ids = render(shown, "none", "no_intervention", self.loaded.tokenizer, 2**62, 0, place)
        return ids if len(ids) + len(group.rollouts[i].completion_ids) <= self.loaded.context else None

    def state(self) -> dict[str, Tensor]:
        """Returns what --resume needs: TAID's target."""
        if self.config is None or not self.config.taid_weight:
            return {}
        p = self.progress
        seen = float("nan") if p.previous_loss is None else p.previous_loss
        return {"taid": torch.tensor([p.t, seen, p.momentum], dtype=torch.float64)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Loads what `state` returned."""
        if "taid" in state:
            t, seen, momentum = state["taid"].tolist()
            self.progress = taid.Progress(t, None if seen != seen else seen, momentum)


def distillation_of(c: TrainConfig) -> Distillation:
    """Returns upstream's options with those of the config. SDPO's importance ratio is to the sampling policy, so at its
    temperature."""
    if c.distill_loss == "sdpo":
        return dataclasses.replace(SDPO, temperature=c.temperature)
    return dataclasses.replace(
        OPSD, beta=c.distill_beta, temperature=c.distill_temperature, token_clip=c.distill_token_clip or None,
        top_k=c.distill_top_k or None,
    )  # fmt: skip


def preference_of(c: TrainConfig) -> Preference:
    """Returns upstream's options with those of the config."""
    usual = SIMPO if c.trace_loss == "simpo" else DPO
    ratio = c.trace_gamma_ratio if c.trace_loss == "simpo" else 0.0
    return Preference(c.trace_loss, c.trace_beta or usual.beta, ratio, c.trace_smoothing)


def schedule_of(c: TrainConfig) -> taid.Schedule:
    """Returns upstream's schedule with the config's bounds."""
    return taid.Schedule(c.taid_start, c.taid_end, adaptive=not c.taid_linear)


def auxiliary_losses(
    c: TrainConfig, loaded: LoadedModel, intervention: Intervention, world: World, problems: Sequence[Problem]
) -> AuxiliaryLosses:
    """Loads what the auxiliary losses need; without a weight above 0 nothing is read. `problems`: those of the run.

    Raises BadInput on a hint that does not fit a problem or changes nothing, on pairs as `action_pairs`, and on a teacher as
    load_model or of another vocabulary.
    """
    if not c.channels_on:
        return AuxiliaryLosses()
    out = AuxiliaryLosses(c, loaded, world, prompt_setup=intervention.prompt_setup or c.prompt_setup)
    if c.distill_top_k > (vocabulary := loaded.model.config.vocab_size):
        raise BadInput(f"--distill-top-k {c.distill_top_k}: the vocabulary has {vocabulary}")
    if c.alpha and c.distill_hint == PEER:
        if "rewards" in ARMS[c.arm].sees:
            raise BadInput(
                f"--distill-hint {PEER}: shows attempts that the reward pays, and --arm {c.arm} pays otherwise; give a hint "
                "by its name, or leave one of the two out"
            )
        out.messages = {p.problem_id: p for p in problems}
    elif c.alpha:
        setting = dataclasses.replace(c, hint=c.distill_hint, prompt_setup=out.prompt_setup)
        try:
            prompts = render_all(setting, loaded, problems)
        except BadInput as e:
            raise BadInput(f"--distill-hint {c.distill_hint}, as the teacher reads it: {e}") from e
        out.hinted = {p.problem_id: p.ids for p in prompts}
        plain = render_all(dataclasses.replace(setting, hint=c.hint), loaded, problems)
        if same := [p.problem_id for p, q in zip(plain, prompts, strict=True) if p.ids == q.ids]:
            raise BadInput(
                f"--distill-hint {c.distill_hint}: the prompt of problem {same[0]} is the same with it as with --hint "
                f"{c.hint}; it would teach nothing"
            )
    if c.trace_weight:
        found = world.from_first(lambda: read_preferences(c.trace_pairs))
        out.pairs, out.pairs_hash = action_pairs(found, loaded, f"--trace-pairs {c.trace_pairs}"), found.sha256
        logger.info(
            f"trace DPO: {len(out.pairs)} pairs of {found.traces} traces ({found.per_trace:.1f} each) from {c.trace_pairs}"
        )
    if c.taid_weight:
        out.progress = taid.start(schedule_of(c))
        made = world.by_turns(lambda: teacher_of(c, loaded))
        out.teacher, out.teacher_hash = made.model, made.weights_hash
    return out


def never_on(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the losses of a run's rows that had no gradient at any of its steps."""
    moved: dict[str, bool] = {}
    for row in rows:
        for name, numbers in (row.get("channels") or {}).items():
            moved[name] = moved.get(name, False) or bool(numbers.get("grad_norm"))
    return [name for name, ever in moved.items() if not ever]


def check_held_out(auxiliary: AuxiliaryLosses, held_out: Iterable[Problem]) -> None:
    """Raises BadInput where a pair is of a held-out problem: the evaluation would be of what trace DPO was taught. Problems
    are recognised by their words, so that no hint, prompt set-up, later turn or spacing hides one."""
    if auxiliary.loaded is None or not auxiliary.pairs:
        return
    statements = [(p.problem_id, [_words(part) for part in statement_of(p.messages)]) for p in held_out]
    for i, pair in enumerate(auxiliary.pairs):
        sides = [(*pair.prompt_ids, *action) for action in (pair.chosen_ids, pair.rejected_ids)]
        texts = [auxiliary.loaded.tokenizer.decode(ids, clean_up_tokenization_spaces=False) for ids in sides]
        text = _words("\n".join(texts))
        if problem := next((name for name, parts in statements if all(part in text for part in parts)), None):
            raise BadInput(
                f"--trace-pairs: pair {i} is of problem {problem} of --eval-problems, which nothing may learn from; "
                "make the pairs of training problems"
            )


def _words(text: str) -> str:
    """Returns the text with single spaces."""
    return " ".join(text.split())


def statement_of(messages: Messages) -> tuple[str, ...]:
    """Returns the parts of the last user message that no hint rewrites."""
    said = [content for role, content in messages if role == "user"][-1]
    for old in {hint.old for hint in HINTS.values() if hint.old}:
        said = said.replace(old, SEAM)
    return tuple(part.strip() for part in said.split(SEAM) if part.strip())


def teacher_of(c: TrainConfig, loaded: LoadedModel) -> LoadedModel:
    """Returns --model with --teacher merged into it, frozen. Raises BadInput as load_model, or on another vocabulary."""
    place = str(loaded.model.device)
    made = load_model(c.model, c.dtype, place, c.base_seed, c.cache, c.teacher)
    if made.tokenizer_hash != loaded.tokenizer_hash or made.model.config.vocab_size != loaded.model.config.vocab_size:
        raise BadInput(
            f"--teacher {c.teacher}: its vocabulary is not that of --model {c.model}; TAID compares them token by token"
        )
    logger.info(f"TAID: the teacher is {c.model} with {c.teacher} merged (weights {made.weights_hash[:8]})")
    return made


def action_pairs(found: Preferences, loaded: LoadedModel, place: str) -> list[ActionPair]:
    """Returns stored pairs as token ids: texts are tokenised here, once; ids stay as they are. Raises BadInput on those of
    another tokenizer, or longer than the context."""
    if found.tokenizer_hash not in (None, loaded.tokenizer_hash):
        raise BadInput(
            f"{place}: token ids of tokenizer {found.tokenizer_hash}, this model's is {loaded.tokenizer_hash}; make the "
            "pairs with this model's, or of texts"
        )
    out = [_ids_of(pair, loaded, f"{place}, pair {i}") for i, pair in enumerate(found.pairs)]
    for i, pair in enumerate(out):
        n = len(pair.prompt_ids) + max(len(pair.chosen_ids), len(pair.rejected_ids))
        if n > loaded.context:
            raise BadInput(f"{place}, pair {i}: {n} tokens, the model's context is {loaded.context}; leave it out")
        if max((*pair.prompt_ids, *pair.chosen_ids, *pair.rejected_ids)) >= len(loaded.tokenizer):
            raise BadInput(f"{place}, pair {i}: has a token id beyond the vocabulary of {len(loaded.tokenizer)}")
    return out


def _ids_of(pair: StoredPair, loaded: LoadedModel, place: str) -> ActionPair:
    if pair.of_ids:
        return ActionPair(pair.prompt, pair.chosen, pair.rejected)
    chosen, rejected = (loaded.answer_ids(str(text)) for text in (pair.chosen, pair.rejected))
    room = max(len(chosen), len(rejected))
    _, prompt = render(pair.prompt, "none", "no_intervention", loaded.tokenizer, loaded.context, room, place)
    return ActionPair(prompt, chosen, rejected)
