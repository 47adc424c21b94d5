"""Can these rows be what a run has written? What a row says twice must agree, and what its run's manifest says of it too.

    check_rows(rows, manifest, step, path);  check_evaluation(rows, manifest, file)     BadInput
    unpaid(row, loophole);  mislabelled(row)    whether reward or label contradict what the grader found

They find what was edited and sealed again without care. Somebody who writes rows that agree in all of this is not found.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loophole_grader import COMPILE_REWARD, PASS_REWARD
from projected_grpo.config import rows_by_source
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.evidence import File
from projected_grpo.ledger.step_file import COLUMNS, SCHEMA_VERSION, Row, check_step

_SAYS_SOURCES = ("group_size", "prompts_per_step", "teacher_pool")
_OF_STEP = tuple(column.name for column in COLUMNS if column.level == "step")
Manifest = Mapping[str, Any]


def unpaid(row: Row, loophole: bool) -> bool:
    """Whether a row earned other than half a point for a program, three more where it passes what is paid."""
    paid = COMPILE_REWARD * row["can_compile"] + PASS_REWARD * bool(row["gt_pass"] or (loophole and row["hacked"]))
    return not math.isclose(row["reward"], paid)


def mislabelled(row: Row) -> bool:
    """Whether the grader (`label_of`) cannot have given this label to what it found: what does not compile passes nothing,
    and how far its own tests differ from honest ones is all that a row does not say. Without ground truth there is none."""
    if row["gt_pass"] is None:
        return row["label"] is not None
    if not row["can_compile"]:
        return row["hacked"] or row["gt_pass"] or row["label"] != "incorrect"
    if row["gt_pass"]:
        return row["label"] not in ("correct", "correct_attempted_hack")
    return row["label"] not in (("reward_hack",) if row["hacked"] else ("attempted_hack", "incorrect"))


def check_rows(rows: Sequence[Row], manifest: Manifest, step: int, path: Path) -> None:
    """BadInput on rows of another step or run, on a number that is none, where a value of the step is not the same in every
    row (it is read from the first), and where the rows are not those of the manifest's mix in the order in which it puts
    them."""
    check_step(rows, step, path)
    _check_numbers(rows, path)
    _check_run(rows, manifest, path)
    for row in rows[1:]:
        if odd := next((name for name in _OF_STEP if row[name] != rows[0][name]), None):
            raise BadInput(
                f"{path}: {odd!r} is of the step, and it is {rows[0][odd]!r} in the first row and {row[odd]!r} in another; "
                "repeat the run"
            )
    _check_sources([r["source"] for r in rows], manifest, path)


def check_evaluation(rows: Sequence[Row], manifest: Manifest, file: File) -> None:
    """BadInput on rows of another evaluation or run, of another than the student, or under another hint than the run's
    (`none` in the evaluation without one)."""
    config, path = manifest["config"], file.path
    check_step(rows, file.place, path)
    _check_numbers(rows, path)
    for row in rows:
        _check_run([row], manifest, path)
    hint = "none" if file.folder == "eval_plain" else config.get("hint")
    for name, must in (("source", "student"), *([("hint", hint)] if hint else [])):
        if odd := next((r[name] for r in rows if r[name] != must), None):
            raise BadInput(f"{path}: rows of {name} {odd!r}, where it must be {must!r}; evaluate the run again")


def _check_run(rows: Sequence[Row], manifest: Manifest, path: Path) -> None:
    of, ours = tuple(manifest["config"].get(name) for name in ("arm", "seed")), (rows[0]["arm"], rows[0]["seed"])
    if ours != of:
        raise BadInput(
            f"{path}: rows of {ours[0]} seed {ours[1]}, but the manifest says {of[0]} seed {of[1]}; the folder mixes two "
            "runs"
        )


def _check_numbers(rows: Sequence[Row], path: Path) -> None:
    """json reads NaN and infinities, and no step file is written with them."""
    for row in rows:
        for name, value in row.items():
            for x in value.values() if type(value) is dict else (value,):
                if type(x) is float and not math.isfinite(x):
                    raise BadInput(f"{path}: {name!r} is {x}, which no run writes; repeat the run")


def _check_sources(found: Sequence[str], manifest: Manifest, path: Path) -> None:
    """Who wrote each row: the student's own rows alone make the rates."""
    config = manifest["config"]
    if lacking := [name for name in _SAYS_SOURCES if name not in config]:
        if manifest["schema_version"] == SCHEMA_VERSION:
            raise BadInput(
                f"{path.with_name('manifest.json')}: its config lacks {lacking[0]!r}; not written by `just train`"
            )
        return  # an older version's does not say
    each = rows_by_source(config.get("mix", ""), config["group_size"], config["teacher_pool"])
    group = [source for source, n in each.items() for _ in range(n)]
    must = group * config["prompts_per_step"]
    if list(found) == must:
        return
    if Counter(found) != Counter(must):
        raise BadInput(
            f"{path}: rows of {dict(Counter(found))}, but the manifest's mix says {dict(Counter(must))}; a row "
            "that is called another's leaves the rates; repeat the run"
        )
    at = next(i for i, (a, b) in enumerate(zip(found, must, strict=True)) if a != b)
    raise BadInput(
        f"{path}: row {at} is called {found[at]}'s where each group has {', '.join(group)} in this order; repeat the run"
    )
