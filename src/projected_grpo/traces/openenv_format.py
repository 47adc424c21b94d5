"""Traces to and from OpenEnv, whose records TRL reads.

Followed: openenv 0.10.0 (PyPI; the package was called openenv-core until 0.3.0). One `EpisodeRecord` a line in results.jsonl
with metadata.json beside it (`openenv/core/harness/collect.py`): `messages` is what TRL's SFTTrainer reads. A record's
`artifacts` hold what the format leaves to the writer, each in a type of OpenEnv's own:

    training_trace   `TrainingTrace`, schema 1 (`core/harness/training.py`): token ids, log-probabilities and loss mask of
                     every turn; `trace_entries` gives them as the `TraceEntry` list of `core/harness/rollout.py`
    reset, steps     `ResetResponse`, and a `StepRequest` with its `StepResponse` for each action
                     (`core/env_server/types.py`): Observation, Action and StepResult on the wire

tests/references/trace_formats.json has a record made by executing it. The episode's reward is that of its last action. A
`TrainingTrace` needs log-probabilities, so a trace without them is refused.
"""

from collections.abc import Mapping
from typing import Any

from projected_grpo.prompts import Messages, as_chat
from projected_grpo.traces.file import Header
from projected_grpo.traces.foreign import (
    OURS,
    action_of,
    as_messages,
    built,
    finish_of,
    header_facts,
    known_header,
    own_facts,
)
from projected_grpo.traces.record import Step, Trace

FILE, METADATA = "results.jsonl", "metadata.json"
_Record = dict[str, Any]


def metadata_of(header: Header) -> _Record:
    """What stands in metadata.json."""
    return {"openenv": "0.10.0", OURS: header_facts(header)}


def header_of_metadata(metadata: Mapping[str, Any]) -> Header:
    """What our own export carried, else one that says `unknown`."""
    return known_header(metadata.get(OURS))


def to_record(trace: Trace) -> _Record:
    """A trace as one `EpisodeRecord`. ValueError when its log-probabilities were not recorded."""
    last = trace.steps[-1]
    return {
        "episode_id": trace.trace_id,
        "messages": as_chat((*last.messages, ("assistant", last.action.text))),
        "reward": last.reward,
        "done": last.done,
        "tool_trace": [],
        "metrics": {"turns": len(trace.steps)},
        "verify_metrics": {},
        "artifacts": {
            "training_trace": {"schema_version": 1, "turns": [_turn(trace, i) for i in range(len(trace.steps))]},
            "reset": _response(trace.steps[0].messages, None, False),
            "steps": [{"request": request, "response": response} for request, response in exchanges(trace)],
        },
        "task": trace.problem_id,
        "extra": {OURS: own_facts(trace)},
    }


def exchanges(trace: Trace) -> list[tuple[_Record, _Record]]:
    """Every action as the environment's client sends it, and what the environment answers: `StepRequest`, `StepResponse`.
    The observation is what the answer adds to the chat."""
    out = []
    for turn, step in enumerate(trace.steps):
        after = trace.steps[turn + 1].messages[len(step.messages) + 1 :] if not step.done else ()
        out.append(({"action": {"text": step.action.text, "metadata": {}}}, _response(after, step.reward, step.done)))
    return out


def trace_entries(trace: Trace) -> list[_Record]:
    """The turns as OpenEnv's `TraceEntry` list (`TrainingTrace.to_trace_entries`), each with the reward of its action."""
    turns = [_turn(trace, i) for i in range(len(trace.steps))]
    return [
        {**{k: v for k, v in turn.items() if k != "node_id"}, "reward": step.reward,
         "metadata": {**turn["metadata"], "node_id": turn["node_id"]}}
        for turn, step in zip(turns, trace.steps, strict=True)
    ]  # fmt: skip


def _response(messages: Messages, reward: float | None, done: bool) -> _Record:
    return {"observation": {"messages": as_chat(messages)}, "reward": reward, "done": done, "metadata": None}


def _turn(trace: Trace, turn: int) -> _Record:
    step = trace.steps[turn]
    action = step.action
    if action.logps is None:
        raise ValueError("it has no log-probabilities, and a TrainingTrace needs them (train --keep-token-logps)")
    message = {"role": "assistant", "content": action.text, "tool_calls": None}
    return {
        "node_id": f"{trace.trace_id}/{turn}",
        "prompt_token_ids": list(step.ids),
        "completion_token_ids": list(action.ids),
        "per_token_logps": list(action.logps),
        "loss_mask": [0] * len(step.ids) + [1] * len(action.ids),
        "request": {"messages": as_chat(step.messages), "tools": None},
        "response": {"choices": [{"message": message, "finish_reason": finish_of(action)}]},
        "metadata": {"turn": turn},
    }


def from_record(record: Mapping[str, Any]) -> Trace:
    """The trace of an `EpisodeRecord` with a `training_trace`, of ours or of another writer (who may leave the steps out:
    then the episode's reward is that of its last action).

    ValueError (or KeyError, TypeError) without token ids, and where the parts of a record contradict each other.
    """
    artifacts = record["artifacts"]
    if "training_trace" not in artifacts:
        raise ValueError("it has no training_trace among its artifacts: without token ids nothing can be replayed")
    if (schema := artifacts["training_trace"].get("schema_version")) != 1:
        raise ValueError(f"training_trace of schema {schema}, this adapter reads 1")
    turns = artifacts["training_trace"]["turns"]
    earned = _rewards(record, len(turns))
    steps = [
        _step(turn, reward, i == len(turns) - 1) for i, (turn, reward) in enumerate(zip(turns, earned, strict=True))
    ]
    name = str(record["episode_id"])
    foreign = {"trace": name, "group": name, "source": "teacher", "policy_step": None, "stop": "turns"}
    trace = built(str(record["task"]), (record.get("extra") or {}).get(OURS) or foreign, steps)
    _check_parts(record, trace)
    return trace


def _rewards(record: Mapping[str, Any], turns: int) -> list[float]:
    steps = record["artifacts"].get("steps")
    if steps is None:
        return [*([0.0] * (turns - 1)), float(record["reward"])]
    return [float(step["response"]["reward"]) for step in steps]


def _step(turn: Mapping[str, Any], reward: float, last: bool) -> Step:
    ids, done = turn["prompt_token_ids"], turn["completion_token_ids"]
    if turn["loss_mask"] != [0] * len(ids) + [1] * len(done):
        raise ValueError(f"turn {turn['node_id']}: its loss mask is not its completion")
    choice = turn["response"]["choices"][0]
    as_messages([choice["message"]])
    action = action_of(choice["message"]["content"], done, turn["per_token_logps"], choice.get("finish_reason"))
    return Step(as_messages(turn["request"]["messages"]), tuple(ids), action, reward, last)


def _check_parts(record: Mapping[str, Any], trace: Trace) -> None:
    """ValueError where the chat, the steps or the reward of a record are not those of its token trace."""
    last = trace.steps[-1]
    if as_messages(record["messages"]) != (*last.messages, ("assistant", last.action.text)):
        raise ValueError("its messages are not those of its training_trace")
    if float(record["reward"]) != last.reward:
        raise ValueError(f"its reward is {record['reward']}, that of its last step {last.reward}")
    steps = record["artifacts"].get("steps")
    if steps is not None and [(s["request"], s["response"]) for s in steps] != exchanges(trace):
        raise ValueError("its steps are not those of its training_trace")
