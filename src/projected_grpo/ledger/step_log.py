"""What a step says in the log: one line, and one for each source where others than the student take part."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loguru import logger

from projected_grpo.ledger.rates import JUDGED, LOGP_GAP, by_source, logp_gap, mean, rates, rates_text
from projected_grpo.ledger.step_file import COLUMNS, Row

STEP_SHOWN = tuple(c for c in COLUMNS if c.level == "step" and c.show)
_RATES = {
    "reward": "mean reward of the step's completions",
    "hack": "pure hacks: hacked and not gt_pass; read it only next to gt and form",
    "gt": "pass every ground-truth test",
    "form": "the extracted program compiles",
}


def cell(value: Any, fmt: str) -> str:
    """Returns a value in a column's format, `-` for None."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format(value, fmt) if fmt and not isinstance(value, str) else str(value)


_WIDTH = {c.name: max(len(c.show), len(cell(0, c.fmt))) for c in STEP_SHOWN}


def step_header() -> str:
    """Header of the per-step log line; columns come from the schema, then the rates of the step's completions."""
    shown = [c.show.rjust(_WIDTH[c.name]) for c in STEP_SHOWN]
    return "  ".join([shown[0], *(n.rjust(6) for n in _RATES), *shown[1:], "     s"])


def step_legend() -> list[str]:
    """What each column of the step line means, from the schema."""
    first, *more = ((c.show, c.meaning) for c in STEP_SHOWN)
    return [f"{name:8} {meaning}" for name, meaning in (first, *_RATES.items(), *more)]


def step_line(rows: Sequence[Row]) -> str:
    """One aligned line for one step."""
    first = rows[0]
    means = {"reward": mean([r["reward"] for r in rows]), **rates(rows)}
    cells = [cell(first[c.name], c.fmt).rjust(_WIDTH[c.name]) for c in STEP_SHOWN]
    shown = [cell(means[name], "6.2f").rjust(6) for name in _RATES]
    return "  ".join([cells[0], *shown, *cells[1:], f"{first['timing'].get('total', 0.0):6.1f}"])


def source_lines(rows: Sequence[Row]) -> list[str]:
    """A line for each source of a step; none where the student wrote all rows."""
    found = by_source(rows)
    if set(found) <= {"student"}:
        return []
    return [
        f"      {source:8}{n['rows']:4.0f} rows  hack {cell(n['hack'], '4.2f')}  gt {cell(n['gt'], '4.2f')}  form "
        f"{cell(n['form'], '4.2f')}  ratio {cell(n['ratio'], '.3f')} (of a token at "
        f"least {cell(n['ratio_low'], '.1e')})  at a clip bound {cell(n['at_clip'], '4.2f')}"
        for source, n in found.items()
    ]


def log_step(step: int, rows: Sequence[Row], *, first: bool) -> None:
    """Logs a step. first: of a call, so that its header and legend come before it."""
    if first:
        logger.debug("\n".join(step_legend()))
        logger.info(step_header())
    for line in (step_line(rows), *source_lines(rows)):
        logger.info(line)
    if (gap := logp_gap(rows)) is not None and gap > LOGP_GAP:
        logger.warning(
            f"step {step}: rollout and training log-probabilities differ by {gap:.3f} nats a token (SHOULD be < "
            f"{LOGP_GAP}): the rollouts are not of the policy that is trained"
        )


DOSE_STEPS = 5
"""Steps at the start of a run that say which share of the update V removes."""
TOY_DOSES = ((0.22, "28 to 52"), (0.42, "3 to 33"), (1.0, "2 to 5"))
"""Up to this share of the update: held-out hacks in %, lowest to highest, that V left in the toy world at the end, where
vanilla ends at 53 to 81 (journal, 2026-11-29; docs/evidence/dose, toy-dose and toy)."""


def log_dose(rows: Sequence[Row]) -> None:
    """Logs which share of a step's update V has removed, and what V left at such a share in the toy world."""
    if (share := rows[0]["update_removed"]) is not None:
        left = next(left for most, left in TOY_DOSES if share <= most)
        logger.info(
            f"V removes {share:.0%} of the update; at such a share it left {left} % hacks in the toy world (docs/toy.md)"
        )


class Summary:
    """What a call's last line says of its steps."""

    def __init__(self, arm: str) -> None:
        self.arm, self.rows = arm, list[Row]()

    def add(self, rows: Sequence[Row]) -> None:
        """Adds the rows of a step."""
        self.rows += [{name: row[name] for name in (*JUDGED, "source", "channels")} for row in rows]

    def last_line(self, steps: int) -> tuple[str, str]:
        """Returns the last line's mark and text, after `steps` steps of the run. Warns of losses without any
        gradient."""
        for name in without_gradient(self.rows):
            why = (
                "no group's rewards differed"
                if name == "policy"
                else "nothing to learn from (of a peer: none was paid)"
            )
            logger.warning(f"{name}: no gradient at any of these steps: {why}")
        own = [row for row in self.rows if row["source"] == "student"]
        text = f"{self.arm}: {steps} steps, {len(own)} rollouts of its own in this call. {rates_text(own)}"
        return "🟢" if self.rows else "⚪", text


def without_gradient(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the losses of a run's rows that had no gradient at any of its steps."""
    channels = [row["channels"] or {} for row in rows]
    names = dict.fromkeys(name for of_row in channels for name in of_row)
    return [name for name in names if not any(of_row[name]["grad_norm"] for of_row in channels if name in of_row)]
