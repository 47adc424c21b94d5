"""Traces as records of other projects. An episode's reward is that of its last action.

`verifiers` 0.4.0 (PyPI, 2026-10-12; prime-rl's orchestrator and `vf` tools read it): trace schema 1 (`v1/trace.py`,
`v1/graph.py`), one `Episode` a line in traces.jsonl (`v1/utils/trace_store.py`). A turn is a call that committed one
sampled node to the message graph. Without message spans upstream attributes all of a call's new prompt tokens to its
assistant node, in front of the sampled ones (`_commit_turn`); so does this. Upstream rounds log-probabilities to 4
decimals; this does not.

`openenv` 0.10.0 (PyPI; TRL reads it): one `EpisodeRecord` a line in results.jsonl with metadata.json next to it
(`openenv/core/harness/collect.py`). Its `messages` is what TRL's SFTTrainer reads; its `artifacts` hold a
`TrainingTrace`, schema 1 (`core/harness/training.py`), and the `ResetResponse`, `StepRequest`s and `StepResponse`s of
its environment (`core/env_server/types.py`): Observation, Action and StepResult on the wire.

tests/references/trace_formats.json has records that were made by executing both.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.prompts import Messages, as_chat
from projected_grpo.traces.record import Action, Header, Stop, Trace

Format = Literal["verifiers", "openenv"]
FILES: Mapping[Format, str] = {"verifiers": "traces.jsonl", "openenv": "results.jsonl"}
CONDITIONS: Mapping[Stop, str] = {"passed": "agent_completed", "turns": "max_turns", "context": "max_total_tokens"}
_Record = dict[str, Any]


def export(kind: Format, folder: Path, header: Header, traces: Iterable[Trace]) -> None:
    """Writes traces as a file of the format in a folder. BadInput, with nothing written, when the file is there
    already or a trace lacks what the format needs."""
    path = folder / FILES[kind]
    if path.exists():
        raise BadInput(f"--out {path}: exists and is never overwritten; choose another folder")
    records = (to_episode(t, header) if kind == "verifiers" else to_record(t) for t in traces)
    data = b"".join(json.dumps(record, allow_nan=False).encode() + b"\n" for record in records)
    if kind == "openenv":
        metadata = {"openenv": "0.10.0", "projected_grpo": asdict(header)}
        write_atomic(folder / "metadata.json", json.dumps(metadata, indent=2).encode())
    write_atomic(path, data)


def _facts(trace: Trace) -> _Record:
    """What is known of a trace, for which another format has no place."""
    return {name: value for name, value in vars(trace).items() if name != "steps"}


def _said(action: Action) -> dict[str, str]:
    return {"role": "assistant", "content": action.text}


def _finish(action: Action) -> str:
    return "length" if action.truncated else "stop"


def to_episode(trace: Trace, header: Header) -> _Record:
    """Returns a trace as one `Episode` of verifiers: its nodes are one path, its calls the sampled nodes."""
    nodes: list[_Record] = []
    calls: list[_Record] = []
    seen = 0  # tokens that nodes hold already
    for step in trace.steps:
        action, new = step.action, step.ids[seen:]
        nodes += [{"message": message} for message in as_chat(step.messages[len(nodes) :])]
        calls.append({
            "node": len(nodes), "model": header.model, "sampling": {"temperature": header.temperature},
            "finish_reason": _finish(action),
            "usage": {"prompt_tokens": len(step.ids), "completion_tokens": len(action.ids)},
        })  # fmt: skip
        nodes.append({
            "message": _said(action), "sampled": True, "token_ids": [*new, *action.ids],
            "mask": [False] * len(new) + [True] * len(action.ids), "logprobs": list(action.logps or ()),
        })  # fmt: skip
        seen = len(step.ids) + len(action.ids)
    task = {
        "type": "Problem",
        "data": {"id": trace.problem_id, "prompt": as_chat(trace.steps[0].messages)},
        "key": trace.problem_id,
    }
    last = len(trace.steps) - 1
    trace_of = {
        "version": 1,
        "id": trace.trace_id,
        "verifiers": {"version": "0.4.0"},
        "task": task,
        "agent": {"config": {"model": header.model}, "name": "agent", "trainable": trace.source == "student"},
        "nodes": [{"parent": i - 1 if i else None, "timestamp": 0.0, **node} for i, node in enumerate(nodes)],
        "calls": calls,
        "rewards": {f"turn_{i}": {"score": s.reward, "weight": float(i == last)} for i, s in enumerate(trace.steps)},
        "info": {"projected_grpo": {**_facts(trace), "header": asdict(header)}},
        "is_completed": True,
        "ok": True,
        "stop_condition": CONDITIONS[trace.stop],
        "timing": {"start": 0.0, "end": 0.0},
    }
    record: _Record = {
        "id": trace.trace_id, "env": {"id": "loophole"}, "task": task, "group": {"id": trace.group}, "ok": True,
        "traces": [trace_of],
    }  # fmt: skip
    if (step := trace.policy_step) is not None:
        work = {"type": "train", "step": step, "policy": {"start": step, "end": step}}
        record["run"] = {"type": "train", "id": header.config_hash, "work": work}
    return record


def to_record(trace: Trace) -> _Record:
    """Returns a trace as one `EpisodeRecord` of OpenEnv. BadInput when its log-probabilities were not recorded."""
    last, turns, exchanges = trace.steps[-1], [], []
    for i, step in enumerate(trace.steps):
        action = step.action
        if action.logps is None:
            raise BadInput(
                f"trace {trace.trace_id}: has no log-probabilities, and a TrainingTrace of openenv needs them; train with "
                "--keep-token-logps"
            )
        message = {**_said(action), "tool_calls": None}
        turns.append({
            "node_id": f"{trace.trace_id}/{i}",
            "prompt_token_ids": list(step.ids),
            "completion_token_ids": list(action.ids),
            "per_token_logps": list(action.logps),
            "loss_mask": [0] * len(step.ids) + [1] * len(action.ids),
            "request": {"messages": as_chat(step.messages), "tools": None},
            "response": {"choices": [{"message": message, "finish_reason": _finish(action)}]},
            "metadata": {"turn": i},
        })  # fmt: skip
        # What the environment answers is what it adds to the chat.
        after = () if step.done else trace.steps[i + 1].messages[len(step.messages) + 1 :]
        request = {"action": {"text": action.text, "metadata": {}}}
        exchanges.append({"request": request, "response": _response(after, step.reward, step.done)})
    return {
        "episode_id": trace.trace_id,
        "messages": [*as_chat(last.messages), _said(last.action)],
        "reward": last.reward,
        "done": last.done,
        "tool_trace": [],
        "metrics": {"turns": len(trace.steps)},
        "verify_metrics": {},
        "artifacts": {
            "training_trace": {"schema_version": 1, "turns": turns},
            "reset": _response(trace.steps[0].messages, None, False),
            "steps": exchanges,
        },
        "task": trace.problem_id,
        "extra": {"projected_grpo": _facts(trace)},
    }


def _response(messages: Messages, reward: float | None, done: bool) -> _Record:
    return {"observation": {"messages": as_chat(messages)}, "reward": reward, "done": done, "metadata": None}
