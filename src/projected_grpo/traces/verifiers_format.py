"""Traces to and from `verifiers`, whose records prime-rl's orchestrator and `vf` tools write and read.

Followed: verifiers 0.4.0 (PyPI, 2026-10-12), which is `verifiers.v1` alone: trace schema 1 (`v1/trace.py`, `v1/graph.py`),
one `Episode` a line in traces.jsonl (`v1/utils/trace_store.py`). The rows of 0.3 and before (`verifiers.legacy`: prompt,
completion, answer, reward, trajectory) went with that release. tests/references/trace_formats.json has a record made by
executing it.

A turn is a call that committed one sampled node to the message graph. Without message spans upstream attributes all of a
call's new prompt tokens to its assistant node, in front of the sampled ones (`_commit_turn`); so does this. The episode's
reward is that of its last action: `turn_N` of the last turn has weight 1, those before it 0. Upstream's own dump rounds
log-probabilities to four decimals; here every digit is kept.
"""

from collections.abc import Mapping
from typing import Any

from projected_grpo.prompts import as_chat
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
from projected_grpo.traces.record import Step, Stop, Trace

FILE = "traces.jsonl"
RELEASE = "0.4.0"
CONDITIONS: Mapping[Stop, str] = {"passed": "agent_completed", "turns": "max_turns", "context": "max_total_tokens"}
NO_TIME = {"start": 0.0, "end": 0.0}
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
    own = {
        "version": 1,
        "id": trace.trace_id,
        "verifiers": {"version": RELEASE},
        "task": task,
        "agent": {"config": {"model": header.model}, "name": "agent", "trainable": trace.source == "student"},
        "nodes": nodes,
        "calls": calls,
        "rewards": {
            f"turn_{turn}": {"score": reward, "weight": float(turn == last)}
            for turn, reward in enumerate(trace.rewards)
        },
        "info": {OURS: {**own_facts(trace), "header": header_facts(header)}},
        "is_completed": True,
        "ok": True,
        # A rollout that never had a second turn was not cut for want of one.
        "stop_condition": CONDITIONS["passed" if not last and trace.stop == "turns" else trace.stop],
        "timing": NO_TIME,
    }
    record: _Record = {
        "id": trace.trace_id, "env": {"id": "loophole"}, "task": task, "group": {"id": trace.group}, "ok": True,
        "traces": [own],
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
                "finish_reason": finish_of(action),
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


def from_episode(record: Mapping[str, Any]) -> Trace:
    """The trace of an `Episode` record, of ours or of another writer.

    ValueError (or KeyError, TypeError) on a record of several agents, of a branching history, without token ids, or with
    messages that are more than texts.
    """
    if len(record["traces"]) != 1:
        raise ValueError(f"an episode of {len(record['traces'])} agents' traces: one is replayed")
    own = record["traces"][0]
    if own.get("version") != 1:
        raise ValueError(f"trace schema {own.get('version')}, this adapter reads 1 (verifiers {RELEASE})")
    if failed := next((name for name in ("ok", "is_completed") if own.get(name) is False), None):
        raise ValueError(f"its rollout failed ({failed} is false): no action of it was judged")
    nodes = own["nodes"]
    if any(node.get("parent") != (i - 1 if i else None) for i, node in enumerate(nodes)):
        raise ValueError("its messages branch: a trace is one sequence")
    steps = _steps(nodes, {call.get("node"): call for call in own.get("calls", ())}, own.get("rewards", {}))
    facts = own.get("info", {}).get(OURS) or _foreign_facts(record, own)
    name = record["task"]["data"].get("id")
    return built(str(record["task"]["type"] if name is None else name), facts, steps)


def header_of_episode(record: Mapping[str, Any]) -> Header:
    """What our own export carried, else one that says `unknown`."""
    own = record["traces"][0]
    facts = own.get("info", {}).get(OURS) or {}
    return known_header(facts.get("header"), own.get("agent", {}).get("config", {}).get("model"))


def _foreign_facts(record: Mapping[str, Any], own: Mapping[str, Any]) -> _Record:
    policy = ((record.get("run") or {}).get("work") or {}).get("policy") or {}
    stops = {condition: stop for stop, condition in CONDITIONS.items()}
    group = (record.get("group") or {}).get("id", own["id"])
    stop = stops.get(own.get("stop_condition") or "", "turns")
    return {"trace": own["id"], "group": group, "source": "teacher", "policy_step": policy.get("end"), "stop": stop}


def _steps(nodes: list[_Record], calls: Mapping[int, _Record], rewards: Mapping[str, Any]) -> list[Step]:
    acted = [i for i, node in enumerate(nodes) if node.get("sampled")]
    if not acted or acted[-1] != len(nodes) - 1:
        raise ValueError("its last message was not sampled: there is no action to learn from")
    earned = _rewards(rewards, len(acted))
    ids: list[int] = []
    steps = []
    for turn, place in enumerate(acted):
        node = nodes[place]
        for before in nodes[acted[turn - 1] + 1 if turn else 0 : place]:
            ids += before.get("token_ids", [])
        own, mask = node.get("token_ids", []), node.get("mask", [])
        sampled = sum(mask)
        if len(mask) != len(own) or not sampled or not all(mask[-sampled:]):
            raise ValueError(f"turn {turn}: no token ids, or a mask that does not fit them: nothing can be replayed")
        ids += own[:-sampled]
        as_messages([node["message"]])
        finish = (calls.get(place) or {}).get("finish_reason")
        action = action_of(node["message"]["content"], own[-sampled:], node.get("logprobs") or (), finish)
        messages = as_messages([n["message"] for n in nodes[:place]])
        steps.append(Step(messages, tuple(ids), action, earned[turn], turn == len(acted) - 1))
        ids += own[-sampled:]
    return steps


def _rewards(rewards: Mapping[str, Any], turns: int) -> list[float]:
    """Reward of each turn: named so, or the whole of it for the last action."""
    if rewards.keys() == {f"turn_{turn}" for turn in range(turns)}:
        return [float(rewards[f"turn_{turn}"]["score"]) for turn in range(turns)]
    if not rewards or None in rewards.values():
        raise ValueError("it was not scored")
    whole = sum(float(r["score"]) * float(r.get("weight", 1.0)) for r in rewards.values())
    return [*([0.0] * (turns - 1)), whole]
