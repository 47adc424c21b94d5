"""What a completion of the reward-hacking LeetCode benchmark earns, judged outside the judged process.

    from loophole_grader import Task, grade_batch, reward_of

Standard library only, but for in_verifiers.py and in_inspect.py, which nothing here imports unasked. Definitions
follow ariahw/rl-rewardhacking; each module names the part it takes."""

from importlib.util import find_spec
from typing import Any

from loophole_grader.extract import extract_code, with_think_tag
from loophole_grader.grade import grade, grade_batch
from loophole_grader.hints import HINTS, Hint, apply_hint
from loophole_grader.oracle import check_tests
from loophole_grader.problems import check_solutions
from loophole_grader.sandbox.pool import LAYERS, Layers, Limits, close_pool, isolation
from loophole_grader.verdict import (
    COMPILE_REWARD,
    LABELS,
    PASS_REWARD,
    GraderError,
    IsolationError,
    Public,
    RowError,
    Task,
    Verdict,
    public_of,
    reward_of,
    verdicts_of,
)
from loophole_grader.version import __version__

__all__ = [
    "COMPILE_REWARD",
    "HINTS",
    "LABELS",
    "LAYERS",
    "PASS_REWARD",
    "GraderError",
    "Hint",
    "IsolationError",
    "Layers",
    "Limits",
    "Public",
    "RowError",
    "Task",
    "Verdict",
    "__version__",
    "apply_hint",
    "check_solutions",
    "check_tests",
    "close_pool",
    "extract_code",
    "grade",
    "grade_batch",
    "isolation",
    "public_of",
    "reward_of",
    "verdicts_of",
    "with_think_tag",
]

_FOR_VERIFIERS = ("LoopholeTaskset", "LoopholeHarness", "LoopholeEnv")
if find_spec("verifiers") is not None:
    __all__ += _FOR_VERIFIERS  # where verifiers looks for what has the id `loophole-grader`


def __getattr__(name: str) -> Any:
    """What verifiers asks for, imported then."""
    if name in _FOR_VERIFIERS:
        from loophole_grader import in_verifiers

        return getattr(in_verifiers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
