"""The states of traces as teachers are asked about them: the chat that the student saw before each action. Torch-free."""

from collections.abc import Iterable

from projected_grpo.teachers.states import State
from projected_grpo.traces.record import Trace


def state_id(trace_id: str, turn: int) -> str:
    """Of the state before the action of a turn, from 0."""
    return f"{trace_id}, turn {turn}"


def states_of(traces: Iterable[Trace]) -> list[State]:
    """Every state, trace by trace. Neither what the student did there nor what it earned is in one."""
    return [
        State(state_id(trace.trace_id, turn), trace.trace_id, step.messages)
        for trace in traces
        for turn, step in enumerate(trace.steps)
    ]
