"""One trace: the states that a policy met, what it did in each, and what that earned. Torch-free, and without a label: the
reward is all that whoever trains on a trace learns of its worth.

    state 0 -> action 0 -> reward 0 -> state 1 = state 0 + action 0 + what the environment said -> action 1 -> ...

Token ids are the truth. A state's ids are what the model read, whole; those of a later state begin with the ids of the state
and the action before it, so a trace is one sequence, and no completion is ever tokenised again.
"""

from dataclasses import dataclass
from typing import Any, Literal

from projected_grpo.prompts import Messages
from projected_grpo.records import Source

Stop = Literal["passed", "turns", "context"]
"""Why a trace ended: what the model was shown said that it passed; it had all of its turns; no room for another."""


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
