"""What every judge is, and the check of what it says."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from projected_grpo.ledger.errors import BadInput, JudgeFailed

Asked = tuple[str, str]
"""Prompt and completion of a rollout, as texts."""
Judge = Callable[[Sequence[Asked]], Sequence[Any]]
"""A score for each; checked by `scores_of`."""
KINDS = ("model", "python", "command")


def named(spec: str) -> tuple[str, str]:
    """`KIND:WHAT` in two. BadInput on another kind, or nothing behind it."""
    kind, _, what = spec.partition(":")
    if kind not in KINDS or not what.strip():
        raise BadInput(
            f"--judge {spec}: names no judge; write model:NAME, python:MODULE:FUNCTION or command:PROGRAM ARGUMENTS"
        )
    return kind, what.strip()


def scores_of(judge: Judge, asked: Sequence[Asked], name: str) -> list[float]:
    """The judge's scores, each in [0, 1]; equal texts are judged once. JudgeFailed when it fails, or says anything else."""
    once = list(dict.fromkeys(asked))
    if not once:
        return []
    try:
        found = list(judge(once))
    except JudgeFailed as e:
        raise JudgeFailed(f"--judge {name}: {e}") from e
    except (Exception, SystemExit) as e:  # one that ends the process would end it with its own exit code, 0 included
        raise JudgeFailed(f"--judge {name}: {type(e).__name__}: {' '.join(str(e).split()):.200}") from e
    if len(found) != len(once):
        raise JudgeFailed(f"--judge {name}: {len(found)} scores of {len(once)} rollouts")
    known = {text: _score(said, i, name) for i, (text, said) in enumerate(zip(once, found, strict=True), 1)}
    return [known[text] for text in asked]


def _score(said: Any, place: int, name: str) -> float:
    try:
        value = float(said)
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value <= 1:
        raise JudgeFailed(f"--judge {name}: said {said!r:.80} of rollout {place}; a score is a number from 0 to 1")
    return value
