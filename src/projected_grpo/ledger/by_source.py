"""A step's rows by source: the rewards of each source's rows, and how far their ratios are from 1."""

from collections.abc import Mapping, Sequence
from typing import Any

from projected_grpo.ledger.rates import known_mean, mean, rates
from projected_grpo.records import SOURCES

Row = Mapping[str, Any]
LOGP_GAP = 0.05
"""Nats a token between sampling and training, of one policy: folding in bfloat16 rounds to well below it."""
LEAST_GAP, GAP_TIMES = 1e-3, 3.0
"""What may be rounding between two passes of one model, in nats a token: LEAST_GAP, which is far above float32's, or
GAP_TIMES the step's `logp_gap`."""
LOST_RATIO = 0.1
"""A token whose ratio is below it counts for less than a tenth of an on-policy one."""


def by_source(rows: Sequence[Row]) -> dict[str, dict[str, float | None]]:
    """Returns numbers of each source that has rows; None where unknown.

    rows, known: how many, and with known ground truth. hack, gt, form, hacked: rates. ratio, ratio_low: mean and smallest.
    at_clip: share of tokens at or beyond a clip bound. lost: share of rows with a token whose ratio is below a tenth.
    unknown: share of rows without behaviour log-probabilities; ours: whose are, to rounding, the student's or the untrained
    model's; untrained: the untrained model's. lead: behaviour over the student's log-probability, nats a token.
    """
    of = {source: [r for r in rows if r["source"] == source] for source in SOURCES}
    rounding = rounding_of(logp_gap(rows))
    return {source: _numbers(found, rounding) for source, found in of.items() if found}


def logp_gap(rows: Sequence[Row]) -> float | None:
    """Returns mean |logp - behaviour logp| over the student's tokens, in nats: rounding of the folded weights. None without
    student's rows."""
    return token_mean([r for r in rows if r["source"] == "student"], "behaviour_gap")


def token_mean(rows: Sequence[Row], column: str) -> float | None:
    """Returns a column's mean over tokens, of the rows that know it."""
    known = [r for r in rows if r[column] is not None]
    tokens = sum(r["comp_len"] for r in known)
    return sum(r[column] * r["comp_len"] for r in known) / tokens if tokens else None


def rounding_of(gap: float | None) -> float:
    """How far two passes of one model may lie apart in a step of this `logp_gap`: nats a token."""
    return LOGP_GAP if gap is None else min(LOGP_GAP, max(LEAST_GAP, GAP_TIMES * gap))


def _numbers(rows: Sequence[Row], rounding: float) -> dict[str, float | None]:
    shares = rates(rows)
    return {
        "rows": float(len(rows)),
        "known": float(sum(r["gt_pass"] is not None for r in rows)),
        **{name: shares[name] for name in ("hack", "gt", "form", "hacked")},
        "ratio": known_mean(r["ratio"] for r in rows),
        "ratio_low": min((r["ratio_low"] for r in rows if r["ratio_low"] is not None), default=None),
        "at_clip": token_mean(rows, "at_clip"),
        "lost": mean([float(r["ratio_low"] < LOST_RATIO) for r in rows if r["ratio_low"] is not None]),
        "unknown": mean([float(r["behaviour_logp"] is None) for r in rows]),
        "ours": _within(rows, ("behaviour_gap", "reference_gap"), rounding),
        "untrained": _within(rows, ("reference_gap",), rounding),
        "lead": mean([r["behaviour_logp"] - r["logp"] for r in rows if None not in (r["behaviour_logp"], r["logp"])]),
    }


def _within(rows: Sequence[Row], gaps: Sequence[str], rounding: float) -> float | None:
    """Share of rows one of whose gaps is no more than rounding, of those that know each."""
    known = [r for r in rows if all(r[gap] is not None for gap in gaps)]
    return mean([float(min(r[gap] for gap in gaps) <= rounding) for r in known])
