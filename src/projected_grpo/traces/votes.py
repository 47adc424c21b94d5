"""Preference pairs from the disagreement of N frozen teachers about a student's traces: from their rollouts of the same
problems (`pairs_of_pools`), or from their answers at each state of the student's traces (`pairs_of_answers`).

Two actions are the same where their texts are, white space at the end aside. No reward and no label is read.

A pair's number is the log-probability of the chosen action minus that of the rejected one in nats, each summed over its
tokens: what trace DPO moves. Each pair has one that is drawn at random from the same state's actions, for comparison.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from projected_grpo.channels.preference_pairs import FromRandom, Proposals, kl_from_random, pairs_of, random_pairs
from projected_grpo.data.pool import by_problem, read_groups
from projected_grpo.data.preferences import StoredPair
from projected_grpo.ledger.errors import BadInput
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


@dataclass
class Voted:
    """Pairs, and what was counted on the way to them."""

    tokenizer_hash: str
    pairs: list[StoredPair] = field(default_factory=list)
    traces: int = 0
    """Replayed, those without a pair too."""
    steps: int = 0
    """At which every action was whole."""
    left_out: int = 0
    """Steps beyond those: an action was cut at its longest, has no room in the context, or a teacher was not asked."""
    drawn: list[tuple[Side, Side]] = field(default_factory=list)
    """This and what follows is of several states a trace (`pairs_of_answers`). For each pair, two different actions of its
    state in random order."""
    of_problem: list[str] = field(default_factory=list)
    """Of each pair: traces of one problem share its first state, so their pairs are not independent."""
    problems: set[str] = field(default_factory=set)
    """Names of the problems that the traces are of."""
    elsewhere: float | None = None
    """Of the states at which a majority agrees, the share at which it says words that it says on another problem too."""


def same(action: Action) -> str:
    """Returns what two equal actions share."""
    return action.text.rstrip()


def state_pairs(trace: str, turn: int, proposals: Proposals) -> list[StoredPair]:
    """Returns the pairs of one state. Two texts can be the same tokens (a tokenizer that composes accents): then nothing is
    preferred."""
    n = len(proposals.teachers)
    return [
        StoredPair(trace, turn, n, p.votes, p.reason, proposals.state, p.chosen.ids, p.rejected.ids)
        for p in pairs_of(proposals, key=same)
        if p.chosen.ids != p.rejected.ids
    ]


# ---------------------------------------------------------------- teachers that have sampled the same problems


def pairs_of_pools(student: Path, teachers: Sequence[Path]) -> Voted:
    """Returns the pairs at the student's prompts, where the j-th rollout of each teacher is what it proposes.

    BadInput on folders that hold no finished rollouts, of different tokenizers, on one folder twice, or on a
    problem that they were asked in different words.
    """
    folders = [student, *teachers]
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise BadInput(f"--teachers: a folder is given twice of {', '.join(map(str, folders))}; it would vote twice")
    hashes = {folder: finished_manifest(folder, KINDS).get("tokenizer_hash") for folder in folders}
    for folder, theirs in hashes.items():
        if theirs is None or theirs != hashes[student]:
            raise BadInput(
                f"{folder}: of tokenizer {theirs}, {student} of {hashes[student]}; token ids of the two are not the same"
            )
    out = Voted(str(hashes[student]))
    proposed = [by_problem(read_groups(folder), folder) for folder in teachers]
    for place, group in enumerate(read_groups(student)):
        there = [theirs[group.problem_id] for theirs in proposed if group.problem_id in theirs]
        if len({r.prompt_ids for g in (group, *there) for r in g.rollouts}) > 1:
            raise BadInput(
                f"problem {group.problem_id}: student and teachers were asked in different words (hint, prompt set-up); "
                "sample all of them with the same --hint and --prompt-setup"
            )
        for j, rollout in enumerate(group.rollouts):
            sampled = [rollout, *(g.rollouts[j % len(g.rollouts)] for g in there)]
            if len(there) < len(teachers) or any(r.truncated for r in sampled):
                out.left_out += 1
                continue
            out.traces += 1
            out.steps += 1
            first, *others = (Action(r.completion, r.completion_ids, None, r.truncated) for r in sampled)
            trace = f"{place}/{group.problem_id}/{rollout.sample_id}"
            out.pairs += state_pairs(trace, 0, Proposals(rollout.prompt_ids, first, others))
    return out


# ---------------------------------------------------------------- teachers that were asked at each state


def pairs_of_answers(loaded: LoadedModel, traces: Iterable[Trace], answers: Folder) -> Voted:
    """Returns the pairs at every state of the traces; answers are tokenised by the student's tokenizer.

    BadInput on answers that are not complete, of fewer than three teachers, or to other states than these.
    """
    if answers.whole:
        raise BadInput(f"--answers: {answers.whole}")
    if (n := len(answers.teachers)) < 3:
        raise BadInput(f"--answers: of {n} teachers; a majority needs three or more")
    asked = set(answers.states)
    out = Voted(loaded.tokenizer_hash)
    agreed: list[tuple[str, str]] = []  # words of a majority, on which problem
    for trace in traces:
        out.traces += 1
        out.problems.add(trace.problem_id)
        for turn, (state, step) in enumerate(zip(states_of([trace]), trace.steps, strict=True)):
            if state not in asked:
                raise BadInput(
                    f"--answers: the teachers were not asked about {state.state_id!r} as --student has it; ask them about "
                    "this file with `just ask-teachers`"
                )
            said = answers.answers_to(state)
            acts = [Action(a.text, loaded.answer_ids(a.text), None, a.finish not in WHOLE) for a in said]
            room = loaded.context - len(step.ids)
            if any(a.truncated for a in (step.action, *acts)) or any(len(a.ids) > room for a in acts):
                out.left_out += 1
                continue
            out.steps += 1
            words, votes = Counter(map(same, acts)).most_common(1)[0]
            if votes > n / 2:
                agreed.append((words, trace.problem_id))
            proposals = Proposals(step.ids, step.action, acts)
            for i, pair in enumerate(state_pairs(trace.trace_id, turn, proposals)):
                [(prompt, one, other)] = random_pairs([proposals], 1, seed=f"{trace.trace_id} {turn} {i}", key=same)
                out.pairs.append(pair)
                out.drawn.append(((prompt, one.ids), (prompt, other.ids)))
                out.of_problem.append(trace.problem_id)
    on = Counter(words for words, _ in set(agreed))
    out.elsewhere = sum(on[words] > 1 for words, _ in agreed) / len(agreed) if agreed else None
    return out


def from_random(loaded: LoadedModel, found: Voted) -> FromRandom | None:
    """Returns how far the pairs are from the random ones, problems dealt whole; None with too few pairs."""
    sides = [((p.prompt, p.chosen), (p.prompt, p.rejected)) for p in found.pairs]
    ours, chance = margins(loaded, sides), margins(loaded, found.drawn)
    return kl_from_random(ours, chance, found.of_problem)


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
