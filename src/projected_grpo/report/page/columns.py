"""The block of data that page.js unpacks: the sample of rollouts as columns, as JSON, gzipped, in base64."""

import base64
import gzip
import json
from collections.abc import Iterator
from typing import Any

from projected_grpo.report.page.rollouts import KINDS, UNKNOWN, Shown
from projected_grpo.report.page.spans import evaluator_name, spans

SPAN_KINDS = ("own", "binds", "calls")
PER_STEP = ("cos_in", "cos_out", "cos_update_in", "cos_update", "cos_null")
PLAIN = ("source", "problem_id", "hint", "sample_id", "comp_len", "truncated", "reward", "can_compile", "hacked",
         "gt_pass", "advantage", "cos_S_contrib")  # fmt: skip
"""Columns of a row that a reader sees as they are (floats to 4 decimals)."""


class _Seen:
    """Values numbered in the order in which they first come."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        return self.numbers.setdefault(value, len(self.numbers))


def utf16(text: str, place: int) -> int:
    """A place in a text as JavaScript counts it."""
    return place if text.isascii() else len(text[:place].encode("utf-16-le", "surrogatepass")) // 2


def _spans(completion: str, name: str) -> list[int]:
    """start, end, kind of each span, flat, as JavaScript counts characters."""
    found = spans(completion, name)
    return [n for s in found for n in (utf16(completion, s.start), utf16(completion, s.end), SPAN_KINDS.index(s.kind))]


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def _row_columns(shown: Shown) -> Iterator[tuple[str, list[Any]]]:
    yield "run", [i for i, _, _ in shown.rows]
    yield "row", [place for _, place, _ in shown.rows]
    yield "label", [KINDS.index(row["label"] or UNKNOWN) for _, _, row in shown.rows]
    yield "seed", [row["seed"] for _, _, row in shown.rows]
    for name in PLAIN:
        yield name, [_short(row[name]) for _, _, row in shown.rows]


def columns(shown: Shown) -> dict[str, Any]:
    """The sample as JSON can hold it: texts and step-level numbers once each, a row's own by column."""
    prompts, texts, steps = _Seen(), _Seen(), _Seen()
    own = dict(_row_columns(shown))
    own["prompt"] = [prompts.number(row["prompt"]) for _, _, row in shown.rows]
    own["text"] = [texts.number((row["completion"], evaluator_name(row["prompt"]))) for _, _, row in shown.rows]
    own["at"] = [steps.number((i, row["step"], *(_short(row[name]) for name in PER_STEP))) for i, _, row in shown.rows]
    return {
        "kinds": KINDS,
        "span_kinds": SPAN_KINDS,
        "per_step": PER_STEP,
        "runs": [{"name": s.name, "arm": s.arm, "place": s.place} for s in shown.sources],
        "prompts": list(prompts.numbers),
        "texts": [[text, _spans(text, name)] for text, name in texts.numbers],
        "steps": list(steps.numbers),
        "rows": own,
    }


def packed(data: Any) -> str:
    """JSON, gzipped, in base64: letters that can end no element. The same data give the same text."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode("ascii"), 9, mtime=0)).decode("ascii")
