"""Rows of a step file: what was sampled, what the grader said and what the gradient step measured, joined after the
step. Labels enter here and nowhere nearer to the loss."""

from collections.abc import Mapping, Sequence
from typing import Any

from projected_grpo.ledger.step_file import COLUMNS, Row
from projected_grpo.records import Group


def rows_of(
    groups: Sequence[Group],
    samples: Sequence[Mapping[str, Any]],
    step_values: Mapping[str, Any],
    *,
    step: int,
    keep_token_logps: bool = False,
) -> list[Row]:
    """One row per sample, groups one after the other. `samples` are the per-sample columns of the gradient step, or
    empty for a pool, which trains nothing. ValueError when their numbers differ."""
    flat = [(g, *of) for g in groups for of in zip(g.rollouts, g.rewards, g.outcomes, strict=True)]
    rows = []
    for (group, r, reward, outcome), measured in zip(flat, samples or [{}] * len(flat), strict=True):
        behaviour = r.behaviour_logps
        rows.append({
            **{c.name: None for c in COLUMNS if c.null},
            **step_values,
            **vars(r),
            **vars(outcome),
            "step": step,
            "problem_id": group.problem_id,
            "comp_len": len(r.completion_ids),
            "reward": reward,
            "behaviour_logp": sum(behaviour) / len(behaviour) if behaviour else None,
            "behaviour_logps": [round(p, 5) for p in behaviour] if behaviour and keep_token_logps else None,
            **measured,
        })  # fmt: skip
    return rows
