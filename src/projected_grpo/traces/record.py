"""Traces: rollouts as (state, action, reward), and their files. Torch-free, and without a label.

    state 0 -> action 0 -> reward 0 -> state 1 = state 0 + action 0 + what the environment said -> action 1 -> ...

A state's ids are what the model read, whole. Those of a later state begin with the ids of the state and the action
before it: a trace is one sequence, and no completion is tokenised again.

A file is gzipped JSON lines, a header and then a trace a line. No field is optional and none can be added:

    {"made_by": ..., "model": ..., "model_hash": ..., ..., "format": "projected_grpo traces", "version": 2}
    {"trace_id", "group", "problem_id", "source", "policy_step", "stop", "steps": [{"messages": [[role, content], ...],
     "ids", "action": {"text", "ids", "logps", "truncated"}, "reward", "done"}, ...]}
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import lines_of, row_of, write_new
from projected_grpo.prompts import Messages
from projected_grpo.records import Source

Stop = Literal["passed", "turns", "context"]
"""Why a trace ended: what the model was shown said that it passed; it had all of its turns; no room for another."""
MAKE_ONE = "write one with `just traces RUN` or `just multi-turn PRESET`"


@dataclass(frozen=True)
class Action:
    """What the policy did: one completion."""

    text: str
    """Special tokens left out."""
    ids: tuple[int, ...]
    """As they were sampled; unless `truncated`, the last one is the end-of-sequence token."""
    logps: tuple[float, ...] | None
    """Log-probability of each token, in nats at the sampling temperature; None: not recorded."""
    truncated: bool
    """Cut at the longest completion."""


@dataclass(frozen=True)
class Step:
    """One (state, action, reward)."""

    messages: Messages
    """The state as a chat, whole: every message before the action."""
    ids: tuple[int, ...]
    """The state as the model read it, generation prompt included."""
    action: Action
    reward: float
    """Of this action, in points."""
    done: bool


@dataclass(frozen=True)
class Trace:
    """One rollout from its prompt to its end."""

    trace_id: str
    """Unique in its file."""
    group: str
    """Traces of one group began in the same state."""
    problem_id: str
    source: Source
    policy_step: int | None
    """Optimizer steps that the policy had taken when it acted; None where it is not the trained one."""
    stop: Stop
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class State:
    """The chat before one action: all that a teacher is sent."""

    state_id: str
    trace_id: str
    messages: Messages


def states_of(traces: Iterable[Trace]) -> list[State]:
    """Returns every state, trace by trace. Neither what the student did there nor what it earned is in one."""
    return [
        State(f"{trace.trace_id}, turn {turn}", trace.trace_id, step.messages)
        for trace in traces
        for turn, step in enumerate(trace.steps)
    ]


@dataclass(frozen=True)
class Header:
    """What the traces of a file were sampled from."""

    made_by: str
    """Kind of run: train, teacher_pool or multi_turn."""
    model: str
    model_hash: str
    """Of the frozen weights."""
    tokenizer_hash: str
    problems_hash: str
    config_hash: str
    """Of the run's whole config."""
    hint: str
    loophole: bool
    """Whether the reward pays a completion's evaluation function."""
    temperature: float
    format: Literal["projected_grpo traces"] = "projected_grpo traces"
    version: Literal[2] = 2

    def check_model(self, where: Path, weights_hash: str, tokenizer_hash: str) -> None:
        """Raises BadInput when the traces of the file `where` are not of the model with these hashes."""
        for name, mine in (("model_hash", weights_hash), ("tokenizer_hash", tokenizer_hash)):
            if (theirs := getattr(self, name)) != mine:
                raise BadInput(
                    f"{where}: its {name} is {theirs}, --model's is {mine}; use the model that it was sampled with "
                    f"({self.model}), or {MAKE_ONE}"
                )


_HEADER, _TRACE = TypeAdapter(Header), TypeAdapter(Trace)


def write_traces(path: Path, header: Header, traces: Iterable[Trace]) -> None:
    """Writes a trace file whole, the same bytes for the same traces. BadInput as in `write_new`."""
    lines = (json.dumps(asdict(record), allow_nan=False) + "\n" for record in (header, *traces))
    write_new(path, "".join(lines).encode())


def open_traces(path: Path) -> tuple[Header, Iterator[Trace]]:
    """Returns a trace file's header, and its traces in order, one in memory at a time.

    BadInput when the file is missing or of another version, and at a line that is no trace.
    """
    if not path.is_file():
        raise BadInput(f"{path}: no such file; {MAKE_ONE}")
    lines = lines_of(path)
    _, first = next(lines, (1, b"null"))
    traces = (row_of(_TRACE, line, f"{path}:{number}") for number, line in lines)
    return row_of(_HEADER, first, f"{path}:1", MAKE_ONE), traces
