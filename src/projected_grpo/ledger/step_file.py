"""Step files: the schema, the writer and the strict reader. The only module that knows a column.

A run writes `step_000.jsonl.gz`, `step_001.jsonl.gz`, ...: one JSON object per sample, every key in every row,
non-finite numbers as null, written whole to a temporary name and renamed. `python -m projected_grpo.ledger.step_file` prints
docs/metrics.md from the schema below.
"""

import gzip
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from projected_grpo.arms import ARMS
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import read_jsonl, write_atomic

SCHEMA_VERSION = 5
Row = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """One key of a row."""

    name: str
    type: Literal["int", "float", "bool", "str", "ints", "floats", "dict"]
    level: Literal["sample", "step", "module"]
    """A step-level value is the same in every row of a file; a module's is in the side file (module_file.py)."""
    nullable: bool
    unit: str
    meaning: str
    show: str = ""
    """Header in the per-step log line and in `just show`; empty = not shown there."""
    fmt: str = ""


def _s(name: str, typ: Any, unit: str, meaning: str, *, null: bool = False, show: str = "", fmt: str = "") -> Column:
    return Column(name, typ, "sample", null, unit, meaning, show, fmt)


def _t(name: str, typ: Any, unit: str, meaning: str, *, null: bool = False, show: str = "", fmt: str = "") -> Column:
    return Column(name, typ, "step", null, unit, meaning, show, fmt)


def _m(name: str, typ: Any, unit: str, meaning: str, *, null: bool = True) -> Column:
    return Column(name, typ, "module", null, unit, meaning)


COLUMNS: tuple[Column, ...] = (
    _t("step", "int", "", "step of the run, from 0", show="step", fmt="4d"),
    _s("sample_id", "int", "", "position of the sample in its group", show="id", fmt="d"),
    _t("arm", "str", "", f"what was done to the gradient: {', '.join(ARMS)}; teacher or base in a pool"),
    _s("source", "str", "", "who wrote the completion: student, teacher or base", show="source"),
    _s("problem_id", "str", "", "which problem", show="problem"),
    _s("hint", "str", "", "loophole hint in the prompt"),
    _s("prompt", "str", "", "rendered prompt, special tokens included"),
    _s("completion", "str", "", "completion text, special tokens left out"),
    _s("comp_len", "int", "tokens", "length of the completion, first end-of-sequence token included", show="clen", fmt="d"),
    _s("prompt_ids", "ints", "token ids", "the prompt as the model saw it"),
    _s("completion_ids", "ints", "token ids", "the completion as it was sampled; never re-tokenised"),
    _s("truncated", "bool", "", "the completion was cut at max_new tokens", show="cut"),
    _s("reward", "float", "points", "0.5 if it compiles, plus 3.0 if it passes", show="reward", fmt="6.2f"),
    _s("can_compile", "bool", "", "the extracted program compiles", show="compiles"),
    _s("hacked", "bool", "", "defines its own evaluation function and passes it", show="hacked"),
    _s("gt_pass", "bool", "", "passes every ground-truth test; null where there are none", null=True, show="gt_pass"),
    _s("label", "str", "", "the benchmark's five: correct, correct_attempted_hack, reward_hack, attempted_hack, "
       "incorrect; null where it cannot be known", null=True, show="label"),
    _s("judge", "float", "score", "what a judge (--judge) says of it, in [0, 1]; 1 = a hack for certain; it has read prompt "
       "and completion alone; null without one", null=True),
    _s("advantage", "float", "points", "reward minus the group's mean (divided by its std under grpo, bnpo "
       "and dapo); null where the objective has none (nll)", null=True, show="adv", fmt="+6.2f"),
    _s("behaviour_logp", "float", "nats/token", "mean log-probability under the policy that sampled it, at the "
       "sampling temperature; null if not recorded", null=True),
    _s("behaviour_logps", "floats", "nats", "the same per token (a pool's rows, for off-policy ratios); null if not "
       "recorded or not kept", null=True),
    _s("logp", "float", "nats/token", "mean log-probability under the model being trained; null in a pool, which "
       "trains nothing", null=True, show="logp", fmt="7.3f"),
    _s("ratio", "float", "", "mean over tokens of exp(logp - behaviour_logp); null without both, and under nll, whose loss "
       "has none", null=True, show="ratio", fmt="6.3f"),
    _s("ratio_low", "float", "", "the smallest ratio of a token; near 0: that token's gradient counts for nothing, as the "
       "row is of another policy", null=True),
    _s("at_clip", "float", "fraction", "of its tokens, those whose ratio is at or beyond a clip bound; SHOULD be near 0 for "
       "most, ELSE the gradient is what the bound leaves of it", null=True),
    _s("behaviour_from", "str", "", "where behaviour_logp comes from: sampled (recorded as the tokens were drawn), "
       "recomputed (taken afterwards from the model that drew them), none (not known: the row counts as on-policy, and its "
       "ratio of 1 says nothing)"),
    _s("behaviour_gap", "float", "nats/token", "mean over tokens of |logp - behaviour logp|: rounding for a student's row; "
       "for a teacher's SHOULD be above that, ELSE it carries the student's log-probabilities", null=True),
    _s("reference_gap", "float", "nats/token", "the same against the untrained model (delta_S = 0): SHOULD be rounding for "
       "a base row, ELSE it is not the untrained model's (or the arm's intervention changes the model while it trains), and "
       "above it for a teacher's; null for the student's own rows and under nll", null=True),
    _s("loss", "float", "", "the sample's own term of the step's loss; the terms sum to the loss (nll: mean NLL per "
       "token of this sample alone)", null=True, show="loss", fmt="8.4f"),
    _s("loss_tokens_crc", "int", "", "CRC-32 of the token ids under the loss mask; SHOULD equal that of completion_ids, "
       "ELSE the mask is off", null=True),
    _s("cos_S_contrib", "float", "cosine", "the sample's own gradient against V, all modules together, in [-1, 1]; "
       "positive = hack-ward; null without V or with a zero gradient", null=True, show="cos_S", fmt="+7.4f"),
    _s("grad_norm", "float", "", "norm of the sample's own gradient, all modules", null=True, show="|g|", fmt="9.2e"),
    _s("energy_V", "float", "fraction", "energy of the sample's own gradient along V, all modules together: sum_m ||V_m "
       "g_m||^2 / ||g||^2; null without V, with a zero gradient or where it was not taken", null=True),
    _s("energy_V_kept", "float", "fraction", "the same after the arm's gate was applied to that gradient alone, over the "
       "norm it had before; equal to energy_V where nothing is taken out", null=True),
    _s("grad_norm_alone", "float", "", "grad_norm again, from a backward pass of this sample alone through the plain model "
       "and full logits; of one row a step of a replay, else null. SHOULD equal grad_norm, ELSE the per-sample "
       "gradients are wrong", null=True),
    _s("cos_S_alone", "float", "cosine", "cos_S_contrib from that same pass; null where it was not done", null=True),
    _t("target", "str", "", "what V was taken out of: grad or update; null where it was only measured", null=True),
    _t("cos_in", "float", "cosine", "hack-ward fraction of the gradient before projection: mean over modules of "
       "||relu(V g)|| / ||g||, g the summed gradient; null without V or g", null=True, show="cos_in", fmt="6.4f"),
    _t("cos_out", "float", "cosine", "the same, of the gradient that the optimizer is given, before clipping; equal to "
       "cos_in where V is not taken out of the gradient; 0 is an identity of the gate, not evidence", null=True,
       show="cos_out", fmt="7.4f"),
    _t("cos_update_in", "float", "cosine", "hack-ward fraction of the update that the optimizer proposed (minus the "
       "parameter change)", null=True, show="upd_in", fmt="6.4f"),
    _t("cos_update", "float", "cosine", "the same of the update that was really applied: where V is taken out of the "
       "gradient, what the optimizer's momentum and preconditioner put back", null=True, show="upd_out", fmt="7.4f"),
    _t("energy_in", "float", "fraction", "energy of the gradient along V before projection, all modules together: sum_m "
       "||V_m g_m||^2 / ||g||^2", null=True),
    _t("energy_update", "float", "fraction", "energy along V of the update that was applied", null=True, show="upd_V",
       fmt="6.4f"),
    _t("update_norm", "float", "", "norm of the applied update, all modules; 0: the parameters did not move", null=True),
    _t("update_removed", "float", "fraction", "energy that the applied update lacks of the proposed one: 1 - ||applied||^2 "
       "/ ||proposed||^2; below 0 where an overshoot made it longer", null=True),
    _t("theta_after", "int", "", "CRC-32 of all trainable coordinates after the step: equal numbers, equal bits", null=True),
    _t("removed_share", "float", "fraction", "of what the gate should take out of its target at overshoot 1, how much was "
       "gone from what was really used: mean over modules of <before - after, taken> / ||taken||^2; SHOULD be 1", null=True),
    _t("frac_removed", "float", "fraction", "modules, of those in which there was something to take, in which that share is "
       "within a tenth of 1", null=True),
    _t("cos_null", "float", "cosine", "how much of a random direction lies along V: mean over modules of "
       "sqrt(k/r); its hack-ward part, which is what cos_in measures, would be about this over sqrt(2)",
       null=True, show="null", fmt="6.4f"),
    _t("frac_fired", "float", "fraction", "modules of the adapter in which the gate removed anything", null=True,
       show="fired", fmt="5.2f"),
    _t("delta_S_norm", "float", "", "norm of all trainable adapter coordinates after the step", null=True,
       show="|dS|", fmt="8.2e"),
    _t("clip_frac", "float", "fraction", "completion tokens whose ratio was clipped (dppo: that were dropped)", null=True,
       show="clip", fmt="5.2f"),
    _t("flat_groups", "float", "fraction", "groups whose rewards are all the same: they have no advantage and no gradient "
       "of the policy loss; null where the objective has none (nll)", null=True),
    _t("logp_gap", "float", "nats/token", "mean |logp - behaviour logp| over tokens that this model sampled in this "
       "step: rounding of the folded weights; SHOULD be near 0, ELSE rollouts are off-policy", null=True),
    _t("kl", "float", "nats/token", "k3 estimate of KL(policy || delta_S = 0) per token; null when beta is 0", null=True,
       show="kl", fmt="8.2e"),
    _t("channels", "dict", "", "by channel, where another than the policy is on: the numbers of the table below; null where "
       "the policy is alone, and a channel that is off is not in it", null=True),
    _t("timing", "dict", "s", "seconds per part of the step"),
)  # fmt: skip
OF_CHANNEL: Mapping[str, str] = {
    "weight": "of its loss in the sum",
    "loss": "its loss, without the weight, over all rows of the step; SHOULD fall, ELSE the channel does not learn",
    "grad_norm": "norm of its own weighted gradient, all modules",
    "cos": "of that gradient what cos_in is of the sum",
    "cos_signed": "mean over modules of sum_i (V g)_i / ||g||: also counts what points away from the hack",
    "energy": "of that gradient what energy_in is of the sum",
    "removed": "energy that the arm's gate would take out of that gradient alone, 1 - ||kept||^2 / ||g||^2; null where the "
    "arm takes nothing out",
    "share": "<its gradient, the sum> / ||the sum||^2: over the channels of a step they add up to 1; below 0 it pulls "
    "against the others",
}
"""What the column `channels` says of every channel. Null where there is no V, or no gradient."""
CHANNELS: Mapping[str, Mapping[str, str]] = {
    "policy": {},
    "hint_distill": {"rows": "completions that were distilled"},
    "trace_dpo": {
        "rows": "preference pairs of the step",
        "margin": "mean over them of how much higher the preferred one's reward is (DPO: beta x log-ratio)",
        "accuracy": "share of them in which it is higher",
    },
    "taid": {"rows": "completions that were distilled", "t": "how far the target has moved from student to teacher"},
}
"""Every channel, and what is said of it beyond that."""
BY_NAME: Mapping[str, Column] = {c.name: c for c in COLUMNS}
NAMES: tuple[str, ...] = tuple(BY_NAME)
MODULE_COLUMNS: tuple[Column, ...] = (
    _m("k", "int", "", "directions of V in the module; a random direction has k / n of its energy along them", null=False),
    _m("cos_in", "float", "cosine", "hack-ward fraction of the module's gradient before projection: ||relu(V g)|| / ||g||; "
       "the step's cos_in is the mean over the modules that have one. Here and below null without directions or with a zero "
       "gradient"),
    _m("energy_in", "float", "fraction", "of the module's own gradient, the energy along V: ||V g||^2 / ||g||^2"),
    _m("energy_update_in", "float", "fraction", "the same of the proposed update"),
    _m("grad_share", "float", "fraction", "of the whole gradient's energy, the module's: ||g_m||^2 / ||g||^2; the sum over "
       "modules of grad_share energy_in is the step's energy_in"),
    _m("update_share", "float", "fraction", "the same of the proposed update"),
    _m("removed", "float", "fraction", "energy that is gone in the module, of the energy of the whole: (||before_m||^2 - "
       "||after_m||^2) / ||before||^2, from the proposed to the applied update (the sum over modules is the step's "
       "update_removed), or, where V is taken out of the gradient, from the gradient to the one that the optimizer used"),
)  # fmt: skip
"""Of the side file: what each step shows module by module."""


def token_crc(ids: Iterable[int]) -> int:
    """CRC-32 of token ids, each as 8 little-endian bytes: the fingerprint in `loss_tokens_crc`."""
    return zlib.crc32(b"".join(int(i).to_bytes(8, "little", signed=True) for i in ids))


def _finite(value: Any) -> Any:
    """JSON has no NaN: non-finite numbers become null, inside lists and dicts too."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return value


def step_path(run: Path, step: int) -> Path:
    """`run/step_007.jsonl.gz`; three digits or more."""
    return run / f"step_{step:03d}.jsonl.gz"


def write_step(run: Path, step: int, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write one step file; rows have the schema's columns. Returns its path. BadInput when the disk refuses."""
    lines = [
        json.dumps({name: _finite(row[name]) for name in NAMES}, ensure_ascii=False, allow_nan=False) for row in rows
    ]
    text = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")
    path = step_path(run, step)
    write_atomic(path, gzip.compress(text, 6, mtime=0))  # the same rows give the same bytes
    return path


def read_step(path: Path) -> list[Row]:
    """Returns the rows of one step file. Raises BadInput, naming file, line and column, on columns of another schema."""
    rows = read_jsonl(path)
    for i, row in enumerate(rows, 1):
        if odd := sorted(row.keys() ^ BY_NAME.keys()):
            what = "lacks" if odd[0] in BY_NAME else "has unknown"
            raise BadInput(
                f"{path}:{i}: {what} column {odd[0]!r}; written by another version (schema {SCHEMA_VERSION} here)"
            )
    if not rows:
        raise BadInput(f"{path}: no rows")
    return rows


def in_groups(rows: Iterable[Row]) -> list[list[Row]]:
    """A step's rows by group, order kept: a problem that is met twice in one step, of fewer problems than its prompts, has
    two groups, each with its samples numbered from 0."""
    met: Counter[tuple[str, int]] = Counter()
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        sample = (row["problem_id"], row["sample_id"])
        groups.setdefault((row["problem_id"], met[sample]), []).append(row)
        met[sample] += 1
    return list(groups.values())


def steps_in(run: Path) -> list[int]:
    """Numbers of the step files in a run directory, ascending. BadInput when there is none or one is missing."""
    if not run.is_dir():
        raise BadInput(f"{run}: no such run directory")
    found = sorted(int(m[1]) for p in run.iterdir() if (m := re.fullmatch(r"step_(\d{3,})\.jsonl\.gz", p.name)))
    if not found:
        raise BadInput(f"{run}: no step files (step_000.jsonl.gz, ...)")
    if gaps := sorted(set(range(found[-1] + 1)) - set(found)):
        raise BadInput(f"{run}: step {gaps[0]} is missing among steps 0 to {found[-1]}; resume or repeat the run")
    return found


EVALUATIONS = {
    "eval": "as deployed, under the prompt of training",
    "eval_plain": "as deployed, without the loophole's hint",
    "eval_trained": "as it trained: where an arm deploys another policy than it trains",
    "eval_part": "a part of it alone: where an arm's policy has one that is left out when deployed",
}
"""Folders of held-out evaluations in a run directory, and of what they are."""


def evaluations_in(run: Path, folder: str = "eval") -> dict[int, Path]:
    """A run's held-out evaluations: their files by the number of steps done, ascending; they need not be of every step."""
    found = [(int(m[1]), p) for p in (run / folder).glob("*") if (m := re.fullmatch(r"step_(\d+)\.jsonl\.gz", p.name))]
    return dict(sorted(found))


def iter_run(run: Path) -> Iterator[list[Row]]:
    """The steps of a run in order, one in memory at a time: a long run holds gigabytes of token ids. BadInput as in
    `read_step` and `steps_in`."""
    for step in steps_in(run):
        yield read_step(step_path(run, step))


def read_run(run: Path) -> list[list[Row]]:
    """All steps of a run, in order. BadInput as in `iter_run`."""
    return list(iter_run(run))


def metrics_markdown() -> str:
    """Returns docs/metrics.md, from the schema."""

    def table(header: str, rows: Iterable[Sequence[str]]) -> list[str]:
        cells = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
        return ["", f"| {header} |", f"|{'---|' * (header.count('|') + 1)}", *(f"| {row} |" for row in cells), ""]

    def null(c: Column) -> str:
        return "yes" if c.nullable else ""

    own = [(f"`{name}`", f"`{channel}`", text) for channel, more in CHANNELS.items() for name, text in more.items()]
    lines = [
        "# Columns of a step file",
        "",
        f"Schema version {SCHEMA_VERSION}. One JSON object per sample in `step_NNN.jsonl.gz`; every key is in every row.",
        "Printed from `src/projected_grpo/ledger/step_file.py` by `just docs`; do not edit by hand.",
        *table(
            "column | level | type | unit | may be null | meaning",
            [(f"`{c.name}`", c.level, c.type, c.unit, null(c), c.meaning) for c in COLUMNS],
        ),
        "## The column `channels`",
        *table(
            "number | of | meaning",
            [*((f"`{name}`", "every channel", text) for name, text in OF_CHANNEL.items()), *own],
        ),
        "## The side file of modules",
        "",
        "`modules.jsonl.gz`, of a run with a V. The first line names the `modules` and their coordinates `n`; every other",
        "line is a `step`: each column below is a list, one value a module in that order, to 7 digits",
        *table(
            "column | type | unit | may be null | meaning",
            [(f"`{c.name}`", c.type, c.unit, null(c), c.meaning) for c in MODULE_COLUMNS],
        ),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(metrics_markdown(), end="")
