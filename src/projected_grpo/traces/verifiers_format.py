"""Traces as records of `verifiers`, whose records prime-rl's orchestrator and `vf` tools write and read.

Followed: verifiers 0.4.0 (PyPI, 2026-10-12), which is `verifiers.v1` alone: trace schema 1 (`v1/trace.py`, `v1/graph.py`),
one `Episode` a line in traces.jsonl (`v1/utils/trace_store.py`). The rows of 0.3 and before (`verifiers.legacy`: prompt,
completion, answer, reward, trajectory) went with that release. tests/references/trace_formats.json has a record made by
executing it.

A turn is a call that committed one sampled node to the message graph. Without message spans upstream attributes all of a
call's new prompt tokens to its assistant node, in front of the sampled ones (`_commit_turn`); so does this. The episode's
reward is that of its last action: `turn_N` of the last turn has weight 1, those before it 0. Upstream's dump rounds
log-probabilities to four decimals; here every digit is kept.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from projected_grpo.prompts import as_chat
from projected_grpo.traces.file import Header
from projected_grpo.traces.record import Stop, Trace

FILE = "traces.jsonl"
CONDITIONS: Mapping[Stop, str] = {"passed": "agent_completed", "turns": "max_turns", "context": "max_total_tokens"}
_Record = dict[str, Any]


def to_episode(trace: Trace, header: Header) -> _Record:
    """A trace as one `Episode` record."""
    task = {
        "type": "Problem",
        "data": {"id": trace.problem_id, "prompt": as_chat(trace.steps[0].messages)},
        "key": trace.problem_id,
    }
    nodes, calls = _graph(trace, header)
    last = len(trace.steps) - 1
    trace_of = {
        "version": 1,
        "id": trace.trace_id,
        "verifiers": {"version": "0.4.0"},
        "task": task,
        "agent": {"config": {"model": header.model}, "name": "agent", "trainable": trace.source == "student"},
        "nodes": nodes,
        "calls": calls,
        "rewards": {
            f"turn_{turn}": {"score": reward, "weight": float(turn == last)}
            for turn, reward in enumerate(trace.rewards)
        },
        "info": {"projected_grpo": {**trace.facts, "header": asdict(header)}},
        "is_completed": True,
        "ok": True,
        # A rollout that never had a second turn was not cut for want of one.
        "stop_condition": CONDITIONS["passed" if not last and trace.stop == "turns" else trace.stop],
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


def _graph(trace: Trace, header: Header) -> tuple[list[_Record], list[_Record]]:
    """Message nodes, one path, and the model calls that committed them."""
    nodes: list[_Record] = []
    calls: list[_Record] = []
    seen = 0  # tokens that nodes hold already
    for step in trace.steps:
        for message in as_chat(step.messages[len(nodes) :]):
            nodes.append({"parent": len(nodes) - 1 if nodes else None, "message": message, "timestamp": 0.0})
        action, new = step.action, step.ids[seen:]
        calls.append(
            {
                "node": len(nodes),
                "model": header.model,
                "sampling": {"temperature": header.temperature},
                "finish_reason": action.finish,
                "usage": {"prompt_tokens": len(step.ids), "completion_tokens": len(action.ids)},
            }
        )
        nodes.append(
            {
                "parent": len(nodes) - 1,
                "message": {"role": "assistant", "content": action.text},
                "sampled": True,
                "timestamp": 0.0,
                "token_ids": [*new, *action.ids],
                "mask": [False] * len(new) + [True] * len(action.ids),
                "logprobs": list(action.logps or ()),
            }
        )
        seen = len(step.ids) + len(action.ids)
    return nodes, calls
