"""One trace: the states that a policy met, what it did in each, and what that earned. Torch-free, and without a label: the
reward is all that whoever trains on a trace learns of its worth.

    state 0 -> action 0 -> reward 0 -> state 1 = state 0 + action 0 + what the environment said -> action 1 -> ...

Token ids are the truth. A state's ids are what the model read, whole; those of a later state begin with the ids of the state
and the action before it, so a trace is one sequence, and no completion is ever tokenised again.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

from projected_grpo.prompts import Messages
from projected_grpo.records import Source

Stop = Literal["passed", "turns", "context"]
"""Why a trace ended: what the model was shown said that it passed; it had all of its turns; no room for another."""
STOPS: tuple[Stop, ...] = get_args(Stop)


@dataclass(frozen=True)
class Action:
    """What the policy did: one completion."""

    text: str
    """Special tokens left out."""
    ids: tuple[int, ...]
    """As they were sampled; the first end-of-sequence token is the last one, unless `truncated`."""
    logps: tuple[float, ...] | None
    """Log-probability of each token under the policy that sampled it, in nats at the sampling temperature; None: not
    recorded."""
    truncated: bool
    """Cut at the longest completion."""

    @property
    def finish(self) -> str:
        """How inference engines say why a completion ended."""
        return "length" if self.truncated else "stop"


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
    """Nothing comes after it."""


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

    @property
    def rewards(self) -> tuple[float, ...]:
        """Of each turn."""
        return tuple(step.reward for step in self.steps)

    @property
    def facts(self) -> dict[str, Any]:
        """What it knows and no other project's format has a place for."""
        return {
            "trace": self.trace_id, "group": self.group, "source": self.source, "policy_step": self.policy_step,
            "stop": self.stop,
        }  # fmt: skip

    @property
    def sequence(self) -> tuple[int, ...]:
        """All token ids, first prompt to last completion."""
        return self.steps[-1].ids + self.steps[-1].action.ids

    @property
    def acted(self) -> tuple[bool, ...]:
        """Which tokens of `sequence` the policy sampled: what a loss may cover."""
        mask = [False] * len(self.sequence)
        for step in self.steps:
            mask[len(step.ids) : len(step.ids) + len(step.action.ids)] = [True] * len(step.action.ids)
        return tuple(mask)


def fault_of(trace: Trace) -> str:
    """What is wrong with a trace, or an empty string."""
    if not trace.steps:
        return "has no steps"
    for turn, step in enumerate(trace.steps):
        if wrong := _fault_of_step(step):
            return f"turn {turn}: {wrong}"
        if step.done != (turn == len(trace.steps) - 1):
            return f"turn {turn} of {len(trace.steps)}: done is {step.done}"
    for turn, (before, after) in enumerate(pairwise(trace.steps), 1):
        seen = before.ids + before.action.ids
        if after.ids[: len(seen)] != seen or len(after.ids) == len(seen):
            return f"turn {turn}: its state does not go on from the state and the action before it"
        said = (*before.messages, ("assistant", before.action.text))
        if after.messages[: len(said)] != said or len(after.messages) == len(said):
            return f"turn {turn}: its messages do not go on from those before it"
    return ""


def _fault_of_step(step: Step) -> str:
    action = step.action
    if not step.messages or not step.ids or not action.ids:
        return "an empty state or action"
    if action.logps is not None and len(action.logps) != len(action.ids):
        return f"{len(action.logps)} log-probabilities for {len(action.ids)} tokens"
    if any(not math.isfinite(p) or p > 0 for p in action.logps or ()):
        return "a log-probability that is not finite or above 0"
    return "" if math.isfinite(step.reward) else f"reward {step.reward}"
