"""What the adapters to other projects' formats share: chats as they write them, and what only our traces know."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from projected_grpo.prompts import ROLES, Messages, said_in
from projected_grpo.traces.file import Header, header_of
from projected_grpo.traces.record import Action, Step, Trace, assembled

OURS = "projected_grpo"
"""The key under which a foreign record carries what its format has no place for."""
UNKNOWN = "unknown"


def as_messages(chat: Sequence[Mapping[str, Any]]) -> Messages:
    """Chat-completion messages as a chat of ours. ValueError on one that is more than a role and a text: a tool call, an
    image, hidden reasoning."""
    for message in chat:
        more = sorted(k for k, v in message.items() if k not in ("role", "content") and v)
        if more or message.get("role") not in ROLES or not isinstance(message.get("content"), str):
            raise ValueError(
                f"a message of role {message.get('role')!r} with {more or 'no text'}: only texts are replayed"
            )
    return said_in(chat)


def own_facts(trace: Trace) -> dict[str, Any]:
    """What a trace knows and no other format has a place for."""
    return {
        "trace": trace.trace_id,
        "group": trace.group,
        "source": trace.source,
        "policy_step": trace.policy_step,
        "stop": trace.stop,
    }


def built(problem_id: str, facts: Mapping[str, Any], steps: Sequence[Step]) -> Trace:
    """A trace from what `own_facts` and the format's own places held. ValueError where it breaks the rules of `record`."""
    return assembled(
        facts["trace"], facts["group"], problem_id, facts["source"], facts["policy_step"], facts["stop"], steps
    )


def action_of(text: str | None, ids: Sequence[int], logps: Sequence[float], finish_reason: str | None) -> Action:
    """An action from a format's parts; no log-probabilities: None."""
    return Action(text or "", tuple(ids), tuple(float(p) for p in logps) or None, finish_reason == "length")


def finish_of(action: Action) -> str:
    """How inference engines say why a completion ended."""
    return "length" if action.truncated else "stop"


def known_header(found: Mapping[str, Any] | None, model: str | None = None) -> Header:
    """The header that our own export carried; for what others wrote, one that says `unknown`, which a reader who asks for a
    hash refuses."""
    if found and found.keys() == {f.name for f in fields(Header)}:
        own = found["temperature"]
        return header_of({**found, "temperature": float(own) if type(own) is int else own})  # others write 1 for 1.0
    return Header("foreign", model or UNKNOWN, *(4 * [UNKNOWN]), "none", True, 1.0)


def header_facts(header: Header) -> dict[str, Any]:
    """A header as JSON."""
    return asdict(header)
