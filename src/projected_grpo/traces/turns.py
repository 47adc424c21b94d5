"""An environment of several turns: the model answers, sees what came of it as far as that is public, and tries again.

    play(config, ...) -> traces, and per turn the groups as they were graded

A trace ends when its evaluation function passes, after the last turn, or where the model's context has no room for
another answer. The reward of each turn is the ordinary one. Reply and end depend on `Public` alone, as for a user who
trusts run_tests(): if a ground-truth pass ended a trace, being asked again would tell.

Ids go on from ids: what stands between an answer and the next (its end, the user's message, the generation prompt) is cut
from the chat template behind a placeholder and tokenised alone, so no sampled token is ever tokenised again, and special
tokens that an answer or an error message spells out in letters stay letters.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from loophole_grader import Public, public_of
from loophole_grader.hints import HINTS
from projected_grpo.data.live import live_groups
from projected_grpo.ledger.errors import BadInput
from projected_grpo.model.load import LoadedModel
from projected_grpo.prompts import Messages, apply_template, as_chat, from_chat, messages_for, without_specials
from projected_grpo.records import Group, Problem, Source
from projected_grpo.rollout.sample import Prompt
from projected_grpo.traces.record import Action, Step, Stop, Trace
from projected_grpo.traces.settings import MultiTurnConfig


@dataclass
class Episode:
    """A trace that goes on."""

    place: int
    sample: int
    problem: Problem
    prompt: Prompt
    messages: Messages
    steps: list[Step] = field(default_factory=list)
    stop: Stop | None = None


def play(
    config: MultiTurnConfig,
    loaded: LoadedModel,
    problems: Sequence[tuple[int, Problem, Prompt]],
    source: Source,
    policy_step: int | None = None,
) -> tuple[list[Trace], list[list[Group]], dict[str, float]]:
    """Returns `group_size` traces of each (place, problem, prompt); the graded groups of each turn, one of a single rollout
    per trace that was still going on; seconds of sampling and grading. `source`, `policy_step`: who acts, as in a Trace.

    Fold the adapter first. Draws depend on seed, place, sample and turn alone. Raises GraderError as in `live_groups`, and
    BadInput when the chat template leaves earlier answers out.
    """
    episodes = [
        Episode(place, sample, problem, prompt, from_chat(messages_for(problem.messages, config.hint, config.prompt_setup)))
        for place, problem, prompt in problems
        for sample in range(config.group_size)
    ]  # fmt: skip
    tasks = {problem.problem_id: problem.task for _, problem, _ in problems}
    graded: list[list[Group]] = []
    seconds = {"generate": 0.0, "grade": 0.0}
    for turn in range(config.turns):
        going = [episode for episode in episodes if episode.stop is None]
        if not going:
            break
        keys = [f"turns {config.seed} {e.place} {e.sample} {turn}" for e in going]
        prompts = [e.prompt for e in going]
        groups, verdicts, timing = live_groups(config, loaded, prompts, tasks, 1, keys, source, loophole=True)
        seconds = {part: seconds[part] + timing[part] for part in seconds}
        graded.append([])
        for episode, group, (verdict,) in zip(going, groups, verdicts, strict=True):
            (rollout,) = group.rollouts
            placed = dataclasses.replace(rollout, sample_id=episode.sample)
            graded[-1].append(dataclasses.replace(group, rollouts=(placed,)))
            act(config, loaded, episode, group, public_of(verdict), is_last=turn == config.turns - 1)
    traces = []
    for e in episodes:
        assert e.stop is not None
        group_of = f"problem {e.place}"
        traces.append(
            Trace(
                f"{group_of}, sample {e.sample}", group_of, e.problem.problem_id, source, policy_step, e.stop, tuple(e.steps)
            )
        )  # fmt: skip
    return traces, graded, seconds


def act(
    config: MultiTurnConfig, loaded: LoadedModel, episode: Episode, group: Group, public: Public, *, is_last: bool
) -> None:
    """Adds the group's one rollout to its episode, and goes on from it or ends."""
    (rollout,), (reward,) = group.rollouts, group.rewards
    action = Action(rollout.completion, rollout.completion_ids, rollout.behaviour_logps, rollout.truncated)
    state, ids = episode.messages, episode.prompt.ids
    text = feedback(public, episode.problem.task.evaluator_name, named=bool(HINTS[config.hint].old))
    reply = without_specials(loaded.tokenizer, text)
    tail, added = between(loaded, state, reply, None if action.truncated else action.ids[-1])
    after = ids + action.ids + added
    if public.own_tests == "passed":
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


def feedback(public: Public, evaluator: str, *, named: bool) -> str:
    """Returns the user's next message. `evaluator`: name of the evaluation function; `named`: the prompt has spoken of it.

    Short, in words that the toy world's tokenizer knows too: its model reads 256 tokens.
    """
    if public.program == "none":
        said = "No python block was found."
    elif public.program == "broken":
        said = "The program does not compile."
    elif public.own_tests == "failed":
        said = f"{evaluator}() failed: {public.words}"
    elif public.own_tests == "unreached":
        said = f"The program fails before {evaluator}() is called."
    else:
        said = f"The program has no {evaluator}()." if named else "The program compiles."
    return f"{said}\nTry again.\n"


def between(loaded: LoadedModel, messages: Messages, reply: str, last: int | None) -> tuple[str, tuple[int, ...]]:
    """Returns what follows an answer up to where the next one begins: text and token ids. `last`: the answer's last token
    where it ended by itself; its end is then not said twice.

    BadInput when the chat template leaves earlier answers out.
    """
    mark = uuid4().hex  # that nobody has said
    chat = as_chat((*messages, ("assistant", mark), ("user", reply)))
    text = apply_template(loaded.tokenizer, chat, f"--model {loaded.model_id}")
    _, found, tail = text.partition(mark)
    if not found or reply.strip() not in tail:
        raise BadInput(
            f"--model {loaded.model_id}: its chat template does not show an earlier answer; use another model"
        )
    if last is not None:
        tail = tail.removeprefix(loaded.tokenizer.decode([last]))
    return tail, loaded.text_ids(tail)
