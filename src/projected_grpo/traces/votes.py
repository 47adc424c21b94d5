"""Preference pairs at the states of a student's traces, from the disagreement of N frozen teachers: from their
rollouts of the same problems (`pairs_of_pools`), or from their answers at each of these states (`pairs_of_answers`).

At a state the student did one thing and each teacher proposes one. Where more than half of the teachers propose the
same, that is the majority's action, and

    majority > student     where the student did something else
    student > minority     for each other action that a teacher proposed and that is not the student's

Without a majority there is no pair. Two actions are the same where their texts are, white space at the end aside. No
reward and no label is read.

Do the pairs say more than chance? A pair's number is the log-probability of the chosen action minus that of the
rejected one in nats, each summed over its tokens: what trace DPO moves. Each pair has one that is drawn at random
from the same state's actions. KL(pairs || random) between the two histograms is above 0 for any two finite samples,
so it is read with its null: the same KL after the labels "pair" and "random" are dealt out again, many times, of
whole blocks of pairs."""

import bisect
import math
import random
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch

from projected_grpo.data.pool import by_problem, read_groups
from projected_grpo.data.preferences import MAJORITY, MINORITY, StoredPair
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


BINS, DEALS = 10, 999
"""Of the histograms, and of the labels for their null."""


@dataclass(frozen=True)
class Replayed:
    """One state of a trace. No teachers: not all of them were asked."""

    prompt: Ids
    student: Action
    teachers: Sequence[Action]
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
    """Steps beyond those: an action was cut at its longest, has no room in the context, or a teacher was not
    asked."""
    drawn: list[tuple[Side, Side]] = field(default_factory=list)
    """For each pair, two different actions of its state in random order."""
    elsewhere: float | None = None
    """Of the states at which a majority agrees, the share at which it says words that it says on another problem
    too."""


def same(action: Action) -> str:
    """Returns what two equal actions share."""
    return action.text.rstrip()


def pairs_at(s: Replayed) -> list[StoredPair]:
    """Returns the pairs of one state, the majority's first, minorities by falling votes, then as they were first
    proposed.

    The first of equal actions represents all. Nothing is preferred where two texts are the same tokens (a tokenizer
    that composes accents)."""
    first = {same(action): action for action in reversed(s.teachers)}
    (top, most), *others = Counter(map(same, s.teachers)).most_common()
    student, n = same(s.student), len(s.teachers)
    if 2 * most <= n:
        return []
    over = [(most, MAJORITY, first[top], s.student)] if top != student else []
    under = [(votes, MINORITY, s.student, first[action]) for action, votes in others if action != student]
    return [
        StoredPair(s.trace, s.turn, n, votes, reason, s.prompt, chosen.ids, rejected.ids)
        for votes, reason, chosen, rejected in (*over, *under)
        if chosen.ids != rejected.ids
    ]


def random_pair(s: Replayed, seed: str) -> tuple[Side, Side]:
    """Returns two different actions of a state in random order; of equal ones the student's, or the first, represents
    all."""
    actions = list({same(a): a for a in reversed((s.student, *s.teachers))}.values())
    draw = random.Random(seed)
    draw.choice([s])  # which state, of one: with it a seed keeps the pairs that it has always drawn
    one, other = draw.sample(actions, 2)
    return (s.prompt, one.ids), (s.prompt, other.ids)


def voted(tokenizer_hash: str, states: Iterable[Replayed]) -> Voted:
    """Returns the pairs at these states."""
    out = Voted(tokenizer_hash)
    agreed: list[tuple[str, str]] = []  # words of a majority, on which problem
    for s in states:
        out.problem_of[s.trace] = s.problem
        if not s.teachers or any(a.truncated for a in (s.student, *s.teachers)):
            out.left_out += 1
            continue
        out.steps += 1
        words, votes = Counter(map(same, s.teachers)).most_common(1)[0]
        if votes > len(s.teachers) / 2:
            agreed.append((words, s.problem))
        found = pairs_at(s)
        out.pairs += found
        out.drawn += [random_pair(s, f"{s.trace} {s.turn} {i}") for i in range(len(found))]
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
        for index, group in enumerate(read_groups(student)):
            there = [theirs[group.problem_id] for theirs in proposed if group.problem_id in theirs]
            if len({r.prompt_ids for g in (group, *there) for r in g.rollouts}) > 1:
                raise BadInput(
                    f"problem {group.problem_id}: student and teachers were asked in different words (hint, prompt set-up); "
                    "sample all of them with the same --hint and --prompt-setup"
                )
            for j, rollout in enumerate(group.rollouts):
                sampled = (rollout, *(g.rollouts[j % len(g.rollouts)] for g in there))
                first, *others = (Action(r.completion, r.completion_ids, None, r.truncated) for r in sampled)
                trace = f"{index}/{group.problem_id}/{rollout.sample_id}"
                asked = others if len(there) == len(teachers) else ()
                yield Replayed(rollout.prompt_ids, first, asked, trace, 0, group.problem_id)

    return voted(hashes[student], states())


def pairs_of_answers(loaded: LoadedModel, traces: Iterable[Trace], answers: Folder) -> Voted:
    """Returns the pairs at every state of the traces; answers are tokenised by the student's tokenizer.

    BadInput on answers that are not complete, of fewer than three teachers, or to other states than these; and on a
    trace that the untrained model did not write, as pairs are numbered by its log-probabilities."""
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
                of_each = [answers.answers[state.state_id, teacher.name] for teacher in answers.teachers]
                said = [(a, loaded.answer_ids(a.text)) for a in of_each]
                acts = [Action(a.text, ids, None, a.finish not in WHOLE or len(ids) > room) for a, ids in said]
                yield Replayed(step.ids, step.action, acts, trace.trace_id, turn, trace.problem_id)

    return voted(loaded.tokenizer_hash, states())


class FromRandom(NamedTuple):
    """How far the pairs' numbers are from those of random pairs."""

    kl: float
    """KL(pairs || random) of the histograms, in nats."""
    null: float
    """Its mean where the two samples are dealt out at random."""
    p: float
    """Fraction of deals, the real one among them, with at least this KL."""


def kl_from_random(
    pairs: Sequence[float], random_ones: Sequence[float], blocks: Sequence[Hashable]
) -> FromRandom | None:
    """Returns the KL of the pairs' numbers from the random pairs', with its null; None with fewer than 2 pairs per
    bin.

    blocks: of each pair and of the random one at the same index; a deal changes the sides of whole blocks, since
    numbers of one block are not independent. Bins are of equal counts over both samples together; equal numbers share
    a bin. Each bin of each histogram has half a count more, so that none is empty."""
    if len(pairs) < 2 * BINS:
        return None
    ranked = sorted([*pairs, *random_ones])
    edges = [ranked[len(ranked) * i // BINS] for i in range(1, BINS)]
    ours, theirs = ([bisect.bisect_right(edges, x) for x in side] for side in (pairs, random_ones))
    kl, deal, dealt = _kl(ours, theirs), random.Random(0), []
    for _ in range(DEALS):
        swap = {block: deal.random() < 0.5 for block in dict.fromkeys(blocks)}
        both = zip(ours, theirs, blocks, strict=True)
        dealt.append(_kl(*zip(*((b, a) if swap[block] else (a, b) for a, b, block in both), strict=True)))
    return FromRandom(kl, sum(dealt) / DEALS, (1 + sum(d >= kl for d in dealt)) / (1 + DEALS))


def _kl(p: Sequence[int], q: Sequence[int]) -> float:
    """Of two histograms with half a count more in each bin."""
    counts = [(Counter(side), len(side) + BINS / 2) for side in (p, q)]
    shares = [[(found[i] + 0.5) / total for i in range(BINS)] for found, total in counts]
    return sum(a * math.log(a / b) for a, b in zip(*shares, strict=True))


def from_random(loaded: LoadedModel, found: Voted) -> FromRandom | None:
    """Returns how far the pairs are from the random ones; None with too few pairs. Problems are dealt whole: traces
    of one share its first state, so their pairs are not independent."""
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
