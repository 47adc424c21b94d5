"""Preference pairs from the disagreement of N frozen teachers about a student's traces: from their rollouts of the same
problems (`pairs_of_pools`), or from their answers at each state of the student's traces (`pairs_of_answers`).

Two actions are the same where their texts are, white space at the end aside. No reward and no label is read.

A pair's number is the log-probability of the chosen action minus that of the rejected one in nats, each summed over its
tokens: what trace DPO moves. Each pair has one that is drawn at random from the same state's actions, for comparison.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from projected_grpo.channels.preference_pairs import FromRandom, Proposals, kl_from_random, pairs_of, random_pairs
from projected_grpo.data.pool import by_problem, read_groups
from projected_grpo.data.preferences import StoredPair
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import check_once
from projected_grpo.ledger.folder import finished_manifest
from projected_grpo.model.load import LoadedModel
from projected_grpo.model.logprobs import completion_logps, token_batches
from projected_grpo.traces.from_run import KINDS
from projected_grpo.traces.record import Action, Trace, states_of
from projected_grpo.traces.teachers import Folder

TOKENS_AT_ONCE = 8192
WHOLE = ("stop", "eos", "end_turn")
"""Why an answer ended, where it is whole: one that was cut, or taken back by a filter, proposes nothing."""
Ids = tuple[int, ...]
Side = tuple[Ids, Ids]
"""Prompt and action."""


@dataclass(frozen=True)
class Replayed(Proposals):
    """One state of a trace: token ids and `Action`s. No teachers: not all of them were asked."""

    trace: str
    turn: int
    problem: str


@dataclass
class Voted:
    """Pairs, and what was counted on the way to them."""

    tokenizer_hash: str
    pairs: list[StoredPair] = field(default_factory=list)
    problem_of: dict[str, str] = field(default_factory=dict)
    """Of each trace that was replayed, those without a pair too."""
    steps: int = 0
    """At which every action was whole."""
    left_out: int = 0
    """Steps beyond those: an action was cut at its longest, has no room in the context, or a teacher was not asked."""
    drawn: list[tuple[Side, Side]] = field(default_factory=list)
    """For each pair, two different actions of its state in random order."""
    elsewhere: float | None = None
    """Of the states at which a majority agrees, the share at which it says words that it says on another problem too."""


def same(action: Action) -> str:
    """Returns what two equal actions share."""
    return action.text.rstrip()


def voted(tokenizer_hash: str, states: Iterable[Replayed]) -> Voted:
    """Returns the pairs at these states. Nothing is preferred where two texts are the same tokens (a tokenizer that composes
    accents)."""
    out = Voted(tokenizer_hash)
    agreed: list[tuple[str, str]] = []  # words of a majority, on which problem
    for s in states:
        out.problem_of[s.trace] = s.problem
        if not s.teachers or any(a.truncated for a in (s.student, *s.teachers)):
            out.left_out += 1
            continue
        out.steps += 1
        n = len(s.teachers)
        words, votes = Counter(map(same, s.teachers)).most_common(1)[0]
        if votes > n / 2:
            agreed.append((words, s.problem))
        found = [p for p in pairs_of(s, key=same) if p.chosen.ids != p.rejected.ids]
        for i, p in enumerate(found):
            [(_, one, other)] = random_pairs([s], 1, seed=f"{s.trace} {s.turn} {i}", key=same)
            out.drawn.append(((s.state, one.ids), (s.state, other.ids)))
            out.pairs.append(StoredPair(s.trace, s.turn, n, p.votes, p.reason, s.state, p.chosen.ids, p.rejected.ids))
    on = Counter(words for words, _ in set(agreed))
    out.elsewhere = sum(on[words] > 1 for words, _ in agreed) / len(agreed) if agreed else None
    return out


def pairs_of_pools(student: Path, teachers: Sequence[Path]) -> Voted:
    """Returns the pairs at the student's prompts, where the j-th rollout of each teacher is what it proposes.

    BadInput on folders that hold no finished rollouts, of different tokenizers, on one folder twice, or on a
    problem that they were asked in different words.
    """
    folders = [student, *teachers]
    check_once(((str(folder), folder.resolve()) for folder in folders), "--student and --teachers")
    hashes = {folder: str(finished_manifest(folder, KINDS)["tokenizer_hash"]) for folder in folders}
    for folder, theirs in hashes.items():
        if theirs != hashes[student]:
            raise BadInput(f"{folder}: of tokenizer {theirs}, {student} of {hashes[student]}; their token ids differ")
    proposed = [by_problem(read_groups(folder), folder) for folder in teachers]

    def states() -> Iterator[Replayed]:
        for place, group in enumerate(read_groups(student)):
            there = [theirs[group.problem_id] for theirs in proposed if group.problem_id in theirs]
            if len({r.prompt_ids for g in (group, *there) for r in g.rollouts}) > 1:
                raise BadInput(
                    f"problem {group.problem_id}: student and teachers were asked in different words (hint, prompt set-up); "
                    "sample all of them with the same --hint and --prompt-setup"
                )
            for j, rollout in enumerate(group.rollouts):
                sampled = (rollout, *(g.rollouts[j % len(g.rollouts)] for g in there))
                first, *others = (Action(r.completion, r.completion_ids, None, r.truncated) for r in sampled)
                trace = f"{place}/{group.problem_id}/{rollout.sample_id}"
                asked = others if len(there) == len(teachers) else ()
                yield Replayed(rollout.prompt_ids, first, asked, trace, 0, group.problem_id)

    return voted(hashes[student], states())


def pairs_of_answers(loaded: LoadedModel, traces: Iterable[Trace], answers: Folder) -> Voted:
    """Returns the pairs at every state of the traces; answers are tokenised by the student's tokenizer.

    BadInput on answers that are not complete, of fewer than three teachers, or to other states than these; and on a trace
    that the untrained model did not write, as pairs are numbered by its log-probabilities.
    """
    if answers.missing:
        raise BadInput(f"--answers: {len(answers.missing)} answers are missing; --resume `just ask-teachers`")
    if (n := len(answers.teachers)) < 3:
        raise BadInput(f"--answers: of {n} teachers; a majority needs three or more")
    asked = set(answers.states)

    def states() -> Iterator[Replayed]:
        for trace in traces:
            if trace.source == "teacher" or trace.policy_step:
                raise BadInput(
                    f"--student: trace {trace.trace_id} is of a teacher or of a trained policy, not of --model as it is; "
                    "sample the traces with `just multi-turn`"
                )
            for turn, (state, step) in enumerate(zip(states_of([trace]), trace.steps, strict=True)):
                if state not in asked:
                    raise BadInput(
                        f"--answers: the teachers were not asked about {state.state_id!r} as --student has it; ask them "
                        "about this file with `just ask-teachers`"
                    )
                room = loaded.context - len(step.ids)
                said = [(a, loaded.answer_ids(a.text)) for a in answers.answers_to(state)]
                acts = [Action(a.text, ids, None, a.finish not in WHOLE or len(ids) > room) for a, ids in said]
                yield Replayed(step.ids, step.action, acts, trace.trace_id, turn, trace.problem_id)

    return voted(loaded.tokenizer_hash, states())


def from_random(loaded: LoadedModel, found: Voted) -> FromRandom | None:
    """Returns how far the pairs are from the random ones; None with too few pairs. Problems are dealt whole: traces of one
    share its first state, so their pairs are not independent."""
    sides = [((p.prompt, p.chosen), (p.prompt, p.rejected)) for p in found.pairs]
    ours, chance = margins(loaded, sides), margins(loaded, found.drawn)
    return kl_from_random(ours, chance, [found.problem_of[p.trace] for p in found.pairs])


@torch.no_grad()
def margins(loaded: LoadedModel, pairs: Sequence[tuple[Side, Side]]) -> list[float]:
    """Returns the log-probability of each pair's first action minus that of its second one, in nats."""
    every = list(dict.fromkeys(side for pair in pairs for side in pair))
    found: dict[Side, float] = {}
    prompts, actions = [prompt for prompt, _ in every], [action for _, action in every]
    for chosen, batch in token_batches(prompts, actions, TOKENS_AT_ONCE, loaded.pad_id, loaded.model.device):
        sums = completion_logps(loaded.model, batch).double().sum(1).tolist()
        found.update(zip((every[i] for i in chosen), sums, strict=True))
    return [found[one] - found[other] for one, other in pairs]
