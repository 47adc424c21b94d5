"""Traces as records of OpenEnv, which TRL reads.

Followed: openenv 0.10.0 (PyPI; the package was called openenv-core until 0.3.0). One `EpisodeRecord` a line in results.jsonl
with metadata.json next to it (`openenv/core/harness/collect.py`): `messages` is what TRL's SFTTrainer reads. A record's
`artifacts` hold what the format leaves to the writer, each in a type of OpenEnv:

    training_trace   `TrainingTrace`, schema 1 (`core/harness/training.py`): token ids, log-probabilities and loss mask of
                     every turn
    reset, steps     `ResetResponse`, and a `StepRequest` with its `StepResponse` for each action
                     (`core/env_server/types.py`): Observation, Action and StepResult on the wire

tests/references/trace_formats.json has a record made by executing it. The episode's reward is that of its last action. A
`TrainingTrace` needs log-probabilities, so a trace without them is refused.
"""

from typing import Any

from projected_grpo.prompts import Messages, as_chat
from projected_grpo.traces.record import Trace

FILE, METADATA = "results.jsonl", "metadata.json"
_Record = dict[str, Any]


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
            "steps": _exchanges(trace),
        },
        "task": trace.problem_id,
        "extra": {"projected_grpo": trace.facts},
    }


def _exchanges(trace: Trace) -> list[_Record]:
    """Returns every action as the environment's client sends it, and what the environment answers: `StepRequest`,
    `StepResponse`. The observation is what the answer adds to the chat."""
    out = []
    for turn, step in enumerate(trace.steps):
        after = trace.steps[turn + 1].messages[len(step.messages) + 1 :] if not step.done else ()
        request = {"action": {"text": step.action.text, "metadata": {}}}
        out.append({"request": request, "response": _response(after, step.reward, step.done)})
    return out


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
        "response": {"choices": [{"message": message, "finish_reason": action.finish}]},
        "metadata": {"turn": turn},
    }
