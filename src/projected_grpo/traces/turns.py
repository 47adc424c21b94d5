"""An environment of several turns: the model answers, sees what came of it as far as that is public, and tries again.

    play(...) -> traces, and per turn the groups as they were graded

A trace ends when its evaluation function passes, after the last turn, or where the model's context has no room for
another answer. The reward of each turn is the ordinary one. Whether ground truth passed ends nothing: being asked again
would tell.

Ids go on from ids: what stands between an answer and the next (its end, the user's message, the generation prompt) is cut
from the chat template behind a placeholder and tokenised alone, so no sampled token is ever tokenised again, and special
tokens that an answer or an error message spells out in letters stay letters.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from loophole_grader import Public, Task, public_of
from loophole_grader.hints import HINTS
from projected_grpo.config import Sampling
from projected_grpo.data.live import live_verdicts
from projected_grpo.ledger.errors import BadInput
from projected_grpo.model.load import LoadedModel
from projected_grpo.prompts import Messages, apply_template, as_chat, from_chat, messages_for, without_specials
from projected_grpo.records import Group, Problem, Rollout, Source
from projected_grpo.rollout.sample import Prompt
from projected_grpo.traces.feedback import feedback, passed
from projected_grpo.traces.record import Action, Step, Stop, Trace

LONGEST = Public("compiles", "unreached")
"""An answer to which the reply is long: there must be room for it."""


@dataclass(frozen=True)
class Policy:
    """Who acts."""

    source: Source
    step: int | None = None
    """Optimizer steps that it has taken, where it was trained."""


@dataclass
class Episode:
    """A trace that goes on."""

    place: int
    sample: int
    prompt: Prompt
    messages: Messages
    steps: list[Step] = field(default_factory=list)
    stop: Stop | None = None

    def trace(self, policy: Policy) -> Trace:
        """What it has become."""
        assert self.stop is not None
        return Trace(
            f"problem {self.place}, sample {self.sample}", f"problem {self.place}", self.prompt.problem_id,
            policy.source, policy.step, self.stop, tuple(self.steps),
        )  # fmt: skip


def check_several_turns(
    config: Sampling, loaded: LoadedModel, problems: Sequence[Problem], prompts: Sequence[Prompt]
) -> None:
    """BadInput when the chat template has no place for an earlier answer, or when not even a first
    answer of one token leaves room for a second one."""
    for problem, prompt in zip(problems, prompts, strict=True):
        messages = first_messages(config, problem)
        reply = feedback(LONGEST, problem.task.evaluator_name, named(config))
        need = len(prompt.ids) + 1 + len(between(loaded, messages, reply, None)[1]) + config.max_new
        if need > loaded.context:
            raise BadInput(
                f"problem {problem.problem_id}: a second turn needs {need} tokens (prompt {len(prompt.ids)}, --max-new "
                f"{config.max_new}), the context of {loaded.model_id} is {loaded.context}; lower --max-new or leave the "
                "problem out"
            )


def named(config: Sampling) -> bool:
    """Whether the prompt speaks of the evaluation function."""
    return bool(HINTS[config.hint].old)


def first_messages(config: Sampling, problem: Problem) -> Messages:
    """The chat of a problem, hint put in."""
    return from_chat(messages_for(problem.messages, config.hint, config.prompt_setup))


def between(loaded: LoadedModel, messages: Messages, reply: str, last: int | None) -> tuple[str, tuple[int, ...]]:
    """What follows an answer up to where the next one begins: text and token ids. `last`: the answer's last token where it
    ended by itself; its end is then not said twice.

    BadInput when the chat template leaves earlier answers out.
    """
    said = without_specials(loaded.tokenizer, reply)
    texts = [text for _, text in messages] + [said]
    mark = next(m for m in (f"<<answer {i}>>" for i in count()) if not any(m in text for text in texts))
    chat = as_chat((*messages, ("assistant", mark), ("user", said)))
    text = apply_template(loaded.tokenizer, chat, f"--model {loaded.model_id}")
    _, found, tail = text.partition(mark)
    if not found or said.strip() not in tail:
        raise BadInput(
            f"--model {loaded.model_id}: its chat template does not show an earlier answer; use another model"
        )
    if last is not None:
        tail = tail.removeprefix(loaded.tokenizer.decode([last]))
    return tail, loaded.text_ids(tail)


def play(
    config: Sampling,
    loaded: LoadedModel,
    policy: Policy,
    problems: Sequence[tuple[int, Problem, Prompt]],
    turns: int,
    *,
    loophole: bool,
) -> tuple[list[Trace], list[list[Group]], dict[str, float]]:
    """`group_size` traces of each (place, problem, prompt); the graded groups of each turn, one of a single rollout per
    trace that was still going on; seconds of sampling and grading.

    Fold the adapter first. Draws hang on seed, place, sample and turn alone. Raises GraderError as in `live_verdicts`.
    """
    episodes = [
        Episode(place, sample, prompt, first_messages(config, problem))
        for place, problem, prompt in problems
        for sample in range(config.group_size)
    ]
    tasks = {problem.problem_id: problem.task for _, problem, _ in problems}
    graded: list[list[Group]] = []
    seconds = {"generate": 0.0, "grade": 0.0}
    for turn in range(turns):
        going = [episode for episode in episodes if episode.stop is None]
        if not going:
            break
        groups, timing = _one_turn(config, loaded, policy, going, tasks, turn == turns - 1, turn, loophole)
        graded.append(groups)
        seconds = {part: seconds[part] + timing[part] for part in seconds}
    return [episode.trace(policy) for episode in episodes], graded, seconds


def _one_turn(
    config: Sampling,
    loaded: LoadedModel,
    policy: Policy,
    going: Sequence[Episode],
    tasks: Mapping[str, Task],
    is_last: bool,
    turn: int,
    loophole: bool,
) -> tuple[list[Group], dict[str, float]]:
    keys = [f"turns {config.seed} {e.place} {e.sample} {turn}" for e in going]
    prompts = [e.prompt for e in going]
    sampled, verdicts, timing = live_verdicts(config, loaded, prompts, tasks, 1, keys, policy.source)
    groups = []
    for episode, (rollout,), judged in zip(going, sampled, verdicts, strict=True):
        placed = dataclasses.replace(rollout, sample_id=episode.sample)
        group = Group.graded(episode.prompt.problem_id, (placed,), judged, loophole)
        groups.append(group)
        task = tasks[episode.prompt.problem_id]
        _acted(config, loaded, episode, placed, group.rewards[0], public_of(judged[0]), task, is_last)
    return groups, timing


def _acted(
    config: Sampling,
    loaded: LoadedModel,
    episode: Episode,
    rollout: Rollout,
    reward: float,
    public: Public,
    task: Task,
    is_last: bool,
) -> None:
    """Put an action into its episode, and go on from it or end."""
    action = Action(rollout.completion, rollout.completion_ids, rollout.behaviour_logps, rollout.truncated)
    state, ids = episode.messages, episode.prompt.ids
    reply = without_specials(loaded.tokenizer, feedback(public, task.evaluator_name, named(config)))
    last = None if action.truncated else action.ids[-1]
    tail, added = between(loaded, state, reply, last)
    after = ids + action.ids + added
    if passed(public):
        episode.stop = "passed"
    elif is_last:
        episode.stop = "turns"
    elif len(after) + config.max_new > loaded.context:
        episode.stop = "context"
    episode.steps.append(Step(state, ids, action, reward, episode.stop is not None))
    if episode.stop is None:
        text = episode.prompt.text + loaded.tokenizer.decode(action.ids) + tail
        episode.prompt = Prompt(episode.prompt.problem_id, text, after)
        episode.messages = (*state, ("assistant", action.text), ("user", reply))
