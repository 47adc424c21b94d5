"""From a student's traces and what N teachers behind endpoints said at their states to preference pairs, and what the
student makes of them: the numbers that tell pairs from chance.

A pair's number is the log-probability of the chosen action minus that of the rejected one, each summed over its tokens,
after the very ids that the student read: what trace DPO moves. Beside each pair stands one drawn at random from the same
state's actions. A teacher's answer is text; it is tokenised here, once, by the student's tokenizer. No reward and no label
is read.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from projected_grpo.channels.preference_pairs import FromRandom, Proposals, kl_from_random, pairs_of, random_pairs
from projected_grpo.data.preferences import StoredPair
from projected_grpo.ledger.errors import BadInput
from projected_grpo.model.batches import logps_of, micro_batches
from projected_grpo.model.load import LoadedModel
from projected_grpo.model.logprobs import token_batch
from projected_grpo.teachers.answers import Folder
from projected_grpo.traces.record import Step, Trace
from projected_grpo.traces.states import state_id

TOKENS_AT_ONCE = 8192
WHOLE = ("stop", "eos", "end_turn")
"""Why an answer ended, where it is whole: one that was cut, or taken back by a filter, proposes nothing."""
Ids = tuple[int, ...]
Side = tuple[Ids, Ids]
"""Prompt and action."""


@dataclass(frozen=True)
class Act:
    """What the student did, or a teacher would do."""

    text: str
    ids: Ids

    @property
    def same(self) -> str:
        """Two actions with the same one are the same: white space at the end aside."""
        return self.text.rstrip()


@dataclass(frozen=True)
class Voted:
    """The votes at every state of some traces."""

    pairs: tuple[StoredPair, ...]
    drawn: tuple[tuple[Side, Side], ...]
    """Beside each pair, two different actions of its state in random order."""
    traces: int
    """Those without a pair too."""
    steps: int
    """At which every action was whole."""
    cut: int
    """Steps beyond those, in which an action was cut at its longest or has no room in the context."""
    of_problem: tuple[str, ...]
    """Of each pair: traces of one problem share its first state, so their pairs are not independent."""
    problems: int
    """That the traces are of."""
    elsewhere: float | None
    """Of the states at which a majority agrees, the share at which it says words that it says on another problem too."""


def voted(loaded: LoadedModel, traces: Iterable[Trace], answers: Folder) -> Voted:
    """BadInput on answers that are not whole, of fewer than three teachers, or to other states than these."""
    if answers.whole:
        raise BadInput(f"--answers: {answers.whole}")
    if (n := len(answers.teachers)) < 3:
        raise BadInput(f"--answers: of {n} teachers; a majority needs three or more")
    asked = {state.state_id: state for state in answers.states}
    pairs: list[StoredPair] = []
    drawn: list[tuple[Side, Side]] = []
    of_problem: list[str] = []
    agreed: list[tuple[str, str]] = []  # words of a majority, on which problem
    problems: set[str] = set()
    found = steps = cut = 0
    for trace in traces:
        found += 1
        problems.add(trace.problem_id)
        for turn, step in enumerate(trace.steps):
            state = asked.pop(state_id(trace.trace_id, turn), None)
            if state is None or state.messages != step.messages:
                raise BadInput(
                    f"--answers: the teachers were not asked about {state_id(trace.trace_id, turn)!r} as --student has it; "
                    "write its states with `just traces FILE --to states` and ask about those"
                )
            theirs = answers.answers_to(state)
            own = Act(step.action.text, step.action.ids)
            acts = [Act(a.text, loaded.answer_ids(a.text)) for a in theirs]
            room = loaded.context - len(step.ids)
            if (
                step.action.truncated
                or any(a.finish not in WHOLE or not a.text.strip() for a in theirs)
                or max(len(a.ids) for a in acts) > room
            ):
                cut += 1
                continue
            steps += 1
            words, votes = Counter(a.same for a in acts).most_common(1)[0]
            if votes > n / 2:
                agreed.append((words, trace.problem_id))
            here = _pairs(trace.trace_id, turn, step, own, acts)
            pairs += [pair for pair, _ in here]
            drawn += [beside for _, beside in here]
            of_problem += [trace.problem_id] * len(here)
    if asked:
        raise BadInput(
            f"--answers: state {min(asked)!r} is of no trace in --student; name the traces that were asked about"
        )
    on = Counter(words for words, _ in set(agreed))
    elsewhere = sum(on[words] > 1 for words, _ in agreed) / len(agreed) if agreed else None
    return Voted(tuple(pairs), tuple(drawn), found, steps, cut, tuple(of_problem), len(problems), elsewhere)


def _pairs(
    trace: str, turn: int, step: Step, own: Act, acts: Sequence[Act]
) -> list[tuple[StoredPair, tuple[Side, Side]]]:
    """A step's pairs, each with one that is drawn from the same actions by a seed of its place alone. Two texts can be the
    same tokens (a tokenizer that composes accents): nothing is preferred then."""
    proposals = Proposals(step.ids, own, list(acts))
    out = []
    for i, p in enumerate(pairs_of(proposals, key=lambda a: a.same)):
        if p.chosen.ids == p.rejected.ids:
            continue
        stored = StoredPair(trace, turn, len(acts), p.votes, p.reason, p.state, p.chosen.ids, p.rejected.ids)
        [(state, one, other)] = random_pairs([proposals], 1, seed=f"{trace} {turn} {i}", key=lambda a: a.same)
        out.append((stored, ((state, one.ids), (state, other.ids))))
    return out


def from_random(loaded: LoadedModel, found: Voted) -> FromRandom | None:
    """How far the pairs are from the random ones beside them, problems dealt whole; None with too few pairs."""
    sides = [((p.prompt, p.chosen), (p.prompt, p.rejected)) for p in found.pairs]
    ours, chance = margins(loaded, sides), margins(loaded, found.drawn)
    return kl_from_random(ours, chance, blocks=found.of_problem)


@torch.no_grad()
def margins(loaded: LoadedModel, pairs: Sequence[tuple[Side, Side]]) -> list[float]:
    """Log-probability of each pair's first action minus that of its second one, in nats."""
    every = list(dict.fromkeys(side for pair in pairs for side in pair))
    found: dict[Side, float] = {}
    for chosen in micro_batches([len(p) + len(a) for p, a in every], TOKENS_AT_ONCE):
        prompts, actions = zip(*(every[i] for i in chosen), strict=True)
        batch = token_batch(prompts, actions, loaded.pad_id, loaded.model.device)
        sums = logps_of(loaded.model, batch, 1.0).double().sum(1).tolist()
        found.update(zip((every[i] for i in chosen), sums, strict=True))
    return [found[one] - found[other] for one, other in pairs]
