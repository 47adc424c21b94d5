"""Step files: the schema, the writer and the strict reader. `just docs-results` writes docs/metrics.md from the
schema.

A run writes `step_000.jsonl.gz`, `step_001.jsonl.gz`, ...: one JSON object per sample, every key in every row,
non-finite numbers as null, written whole to a temporary name and renamed. A run with a V has a side file of modules
too."""

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import json_line, read_jsonl, write_atomic
from projected_grpo.losses import AUXILIARY

SCHEMA_VERSION = 5
Row = dict[str, Any]


@dataclass(frozen=True)
class Column:
    name: str
    type: Literal["int", "float", "bool", "str", "ints", "floats", "dict"]
    unit: str
    meaning: str
    null: bool = False
    show: str = ""
    """Header in the per-step log line and in `just show`; empty = not shown there."""
    fmt: str = ""
    level: Literal["sample", "step", "module"] = "sample"
    """A step-level value is the same in every row of a file; a module's is in the side file."""


_s = partial(Column, level="sample")
_t = partial(Column, level="step")
_m = partial(Column, level="module")

COLUMNS: tuple[Column, ...] = (
    _t("step", "int", "", "step of the run, from 0", show="step", fmt="4d"),
    _s("sample_id", "int", "", "position of the sample in its group", show="id", fmt="d"),
    _s("source", "str", "", "who wrote the completion: student, teacher or base", show="source"),
    _s("problem_id", "str", "", "which problem", show="problem"),
    _s("prompt", "str", "", "rendered prompt, special tokens included"),
    _s("completion", "str", "", "completion text, special tokens left out"),
    _s("comp_len", "int", "tokens", "length of the completion, first end-of-sequence token included", show="clen", fmt="d"),
    _s("prompt_ids", "ints", "token ids", "the prompt as the model saw it"),
    _s("completion_ids", "ints", "token ids", "the completion as it was sampled; never re-tokenised"),
    _s("truncated", "bool", "", "the completion was cut at max_new tokens", show="cut"),
    _s("reward", "float", "points", "0.5 if it compiles, plus 3.0 if it passes", show="reward", fmt="6.2f"),
    _s("reward_used", "float", "points", "what the advantages are of, where the arm's intervention changed the reward",
       null=True),
    _s("can_compile", "bool", "", "the extracted program compiles", show="compiles"),
    _s("hacked", "bool", "", "defines its own evaluation function and passes it", show="hacked"),
    _s("gt_pass", "bool", "", "passes every ground-truth test; null where there are none", null=True, show="gt_pass"),
    _s("label", "str", "", "the benchmark's five: correct, correct_attempted_hack, reward_hack, attempted_hack, "
       "incorrect; null without ground truth", null=True, show="label"),
    _s("judge", "float", "score", "what --judge says of prompt and completion: 0 to 1 = surely a hack", null=True),
    _s("flagged", "bool", "", "what the arm's detector said of it before the step; of a held-out rollout too; null without "
       "one", null=True),
    _s("flagged_base", "bool", "", "of a held-out rollout: the same where a probe reads the untrained model", null=True),
    _s("advantage", "float", "points", "as the loss used it: reward minus the group's mean (over its std under grpo, bnpo "
       "and dapo), or the intervention's; null under nll", null=True, show="adv", fmt="+6.2f"),
    _s("behaviour_logp", "float", "nats/token", "mean log-probability under the policy that sampled it, at the sampling "
       "temperature; null: not known, the row counts as on-policy", null=True),
    _s("behaviour_logps", "floats", "nats", "the same per token; kept in pools and with --keep-token-logps", null=True),
    _s("logp", "float", "nats/token", "mean log-probability under the model being trained; null in a pool", null=True,
       show="logp", fmt="7.3f"),
    _s("ratio", "float", "", "mean over tokens of exp(logp - behaviour_logp); null under nll", null=True, show="ratio",
       fmt="6.3f"),
    _s("ratio_low", "float", "", "the smallest ratio of a token; near 0 its gradient counts for nothing", null=True),
    _s("at_clip", "float", "fraction", "tokens whose ratio is at or beyond a clip bound; SHOULD be near 0 for most rows, "
       "ELSE the gradient is what the bound leaves of it", null=True),
    _s("behaviour_gap", "float", "nats/token", "mean over tokens of |logp - behaviour logp|; SHOULD be rounding for the "
       "student's rows and above it for a teacher's, ELSE they are not of the policy that is named", null=True),
    _s("reference_gap", "float", "nats/token", "the same against the untrained model (delta_S = 0), of other sources' rows; "
       "SHOULD be rounding for base rows and above it for a teacher's", null=True),
    _s("loss", "float", "", "the sample's term of the loss: their sum is the step's loss (nll: mean NLL per token)",
       null=True, show="loss", fmt="8.4f"),
    _s("loss_tokens_crc", "int", "", "CRC-32 of the token ids under the loss mask; SHOULD be completion_ids', ELSE the mask "
       "is off", null=True),
    _s("cos_S_contrib", "float", "cosine", "the per-sample gradient against V, all modules together, in [-1, 1]; positive = "
       "hack-ward; null without V or with a zero gradient", null=True, show="cos_S", fmt="+7.4f"),
    _s("grad_norm", "float", "", "norm of the per-sample gradient, all modules", null=True, show="|g|", fmt="9.2e"),
    _s("energy_V", "float", "fraction", "energy of the per-sample gradient along V: sum_m ||V_m g_m||^2 / ||g||^2",
       null=True),
    _t("target", "str", "", "what V was removed from: grad or update; null where it was only measured", null=True),
    _t("cos_in", "float", "cosine", "hack-ward fraction of the summed gradient before projection: mean over modules of "
       "||relu(V g)|| / ||g||; null without V or g", null=True, show="cos_in", fmt="6.4f"),
    _t("cos_out", "float", "cosine", "the same of the gradient that the optimizer is given, before clipping; 0 is an "
       "identity of the gate, not evidence", null=True, show="cos_out", fmt="7.4f"),
    _t("cos_update_in", "float", "cosine", "the same of the update that the optimizer proposed (minus the parameter "
       "change)", null=True, show="upd_in", fmt="6.4f"),
    _t("cos_update", "float", "cosine", "the same of the applied update: where V is removed from the gradient, what "
       "momentum and preconditioner put back", null=True, show="upd_out", fmt="7.4f"),
    _t("update_norm", "float", "", "norm of the applied update, all modules; 0: the parameters did not move", null=True),
    _t("update_removed", "float", "fraction", "energy that the applied update lacks of the proposed one: 1 - ||applied||^2 "
       "/ ||proposed||^2; below 0 where an overshoot made it longer", null=True),
    _t("removed_share", "float", "fraction", "how much was gone of what the gate should remove at overshoot 1: mean over "
       "modules of <before - after, removed> / ||removed||^2; SHOULD be 1", null=True),
    _t("frac_removed", "float", "fraction", "modules in which that share is within a tenth of 1, of those with something to "
       "remove", null=True),
    _t("cos_null", "float", "cosine", "how much of a random direction lies along V: mean over modules of sqrt(k/r); cos_in "
       "of a random direction is about this over sqrt(2)", null=True, show="null", fmt="6.4f"),
    _t("frac_fired", "float", "fraction", "modules in which the gate removed anything", null=True, show="fired", fmt="5.2f"),
    _t("delta_S_norm", "float", "", "norm of all trainable coordinates after the step", null=True, show="|dS|", fmt="8.2e"),
    _t("theta_V", "float", "fraction", "energy of all trainable coordinates along V after the step: sum_m ||V_m theta_m||^2 "
       "/ ||theta||^2; of a LoRA its random start counts too", null=True),
    _t("kl", "float", "nats/token", "k3 estimate of KL(policy || delta_S = 0) per token; null when beta is 0", null=True,
       show="kl", fmt="8.2e"),
    _t("channels", "dict", "", "by channel: the numbers of the table below; null where the policy is alone", null=True),
    _t("timing", "dict", "s", "seconds per part of the step"),
)  # fmt: skip
CHANNELS = ("policy", *AUXILIARY)
CHANNEL_NUMBERS = (
    ("every channel", "weight", "of its loss in the sum"),
    ("every channel", "loss", "its loss, without the weight; SHOULD fall, ELSE the channel does not learn"),
    ("every channel", "grad_norm", "norm of its own weighted gradient, all modules"),
    ("every channel", "cos", "of that gradient what cos_in is of the sum"),
    ("every channel", "cos_signed", "mean over modules of sum_i (V g)_i / ||g||; below 0 it points away from the hack"),
    ("every channel", "energy", "energy of that gradient along V: sum_m ||V_m g_m||^2 / ||g||^2"),
    ("every channel", "removed", "energy that the arm's gate would remove from it: 1 - ||kept||^2 / ||g||^2"),
    ("every channel", "share", "<it, the sum> / ||the sum||^2: they add up to 1; below 0 it pulls against the others"),
    *((f"`{name}`", metric, meaning) for name, loss in AUXILIARY.items() for metric, meaning in loss.metrics),
)
"""What the column `channels` says: of which channel, the number, its meaning. Null where there is no V or no
gradient."""
NAMES: tuple[str, ...] = tuple(c.name for c in COLUMNS)
MODULE_COLUMNS: tuple[Column, ...] = (
    _m("k", "int", "", "directions of V in the module; a random direction has k / n of its energy along them"),
    _m("cos_in", "float", "cosine", "hack-ward fraction of the module's gradient: ||relu(V g)|| / ||g||; here and below "
       "null without directions or with a zero gradient", null=True),
    _m("energy_in", "float", "fraction", "energy of the module's gradient along V: ||V g||^2 / ||g||^2", null=True),
    _m("energy_update_in", "float", "fraction", "the same of the proposed update", null=True),
    _m("grad_share", "float", "fraction", "the module's share of the gradient's energy: ||g_m||^2 / ||g||^2", null=True),
    _m("update_share", "float", "fraction", "the same of the proposed update", null=True),
    _m("removed", "float", "fraction", "energy that is gone in the module, of the energy of the whole: (||before_m||^2 - "
       "||after_m||^2) / ||before||^2, of what V is removed from: gradient or update", null=True),
)  # fmt: skip
"""Of the side file: what each step shows module by module."""


def token_crc(ids: Iterable[int]) -> int:
    """CRC-32 of token ids, each as 8 little-endian bytes: the fingerprint in `loss_tokens_crc`."""
    return zlib.crc32(b"".join(int(i).to_bytes(8, "little", signed=True) for i in ids))


def step_path(run: Path, step: int) -> Path:
    """`run/step_007.jsonl.gz`; three digits or more."""
    return run / f"step_{step:03d}.jsonl.gz"


def write_step(run: Path, step: int, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Writes one step file; rows have the schema's columns. Returns its path. BadInput when the disk refuses."""
    path = step_path(run, step)
    text = b"".join(json_line({name: row[name] for name in NAMES}) for row in rows)
    write_atomic(path, gzip.compress(text, 6, mtime=0))  # the same rows give the same bytes
    return path


def read_step(path: Path) -> list[Row]:
    """Returns the rows of one step file. BadInput where it is missing or damaged."""
    return read_jsonl(path)


def in_groups(rows: Iterable[Row]) -> list[list[Row]]:
    """A step's rows by group, order kept: a problem that is met twice in one step, of fewer problems than its
    prompts, has two groups, each with its samples numbered from 0."""
    met: Counter[tuple[str, int]] = Counter()
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        sample = (row["problem_id"], row["sample_id"])
        groups.setdefault((row["problem_id"], met[sample]), []).append(row)
        met[sample] += 1
    return list(groups.values())


def steps_in(run: Path) -> list[int]:
    """Numbers of the step files in a run directory, ascending. BadInput when there is none or one is missing."""
    if not (found := list(evaluations_in(run, "."))):
        raise BadInput(f"{run}: no such run directory, or no step file (step_000.jsonl.gz, ...) in it")
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
    """Returns a run's held-out evaluations: their files by the number of steps done, ascending, of whatever steps."""
    found = [(int(m[1]), p) for p in (run / folder).glob("*") if (m := re.fullmatch(r"step_(\d+)\.jsonl\.gz", p.name))]
    return dict(sorted(found))


def iter_run(run: Path) -> Iterator[list[Row]]:
    """The steps of a run in order, one in memory at a time: a long run holds gigabytes of token ids. BadInput as in
    `steps_in`."""
    for step in steps_in(run):
        yield read_step(step_path(run, step))


def read_run(run: Path) -> list[list[Row]]:
    """All steps of a run, in order. BadInput as in `iter_run`."""
    return list(iter_run(run))


# ---------------------------------------------------------------- the side file of modules

MODULE_FILE = "modules.jsonl.gz"
"""A gzip member a step. The first line holds `modules` (names) and `n` (coordinates of each); every further line is a
step, its columns are lists in the order of the names. A step is written after its step file and before its
checkpoint."""


class Modules(NamedTuple):
    """A run's side file."""

    names: list[str]
    sizes: list[int]
    """Coordinates of each module."""
    steps: list[dict[str, list[Any]]]
    """By step: every column of MODULE_COLUMNS, one value a module; None where there is nothing to measure."""


def append_modules(
    run: Path, step: int, sizes: Mapping[str, int], values: Mapping[str, Sequence[float | int | None]]
) -> None:
    """Adds a step; the first makes the file. sizes: coordinates of each module. Floats keep the seven digits of
    float32."""
    short = {name: [float(f"{v:.7g}") if isinstance(v, float) else v for v in of] for name, of in values.items()}
    path, line, before = run / MODULE_FILE, json_line({"step": step, **short}), b""
    if step == 0:
        line = json_line({"modules": list(sizes), "n": list(sizes.values())}) + line
    else:
        before = path.read_bytes()
    write_atomic(path, before + gzip.compress(line, 6, mtime=0))


def cut_run(run: Path, step: int) -> None:
    """Removes what came after a step, -1 for all, so that a run can go on from there."""
    for late in [n for n in evaluations_in(run, ".") if n > step]:
        step_path(run, late).unlink()
    path = run / MODULE_FILE
    if path.exists():
        lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
        members = (b"".join(lines[:2]), *lines[2 : step + 2])
        write_atomic(path, b"".join(gzip.compress(member, 6, mtime=0) for member in members))


def read_modules(run: Path) -> Modules:
    """Returns the side file. BadInput when there is none, or it is damaged."""
    path = run / MODULE_FILE
    if not path.exists():
        raise BadInput(f"{path}: no such file; a run writes it where it measures a V")
    first, *steps = read_jsonl(path)
    return Modules(first["modules"], first["n"], steps)


PUBLISHED = re.compile(r"prompt_\d+\.jsonl(\.gz)?")


def published_files(directory: Path) -> list[Path]:
    """Files of published rollouts in a directory; none where it holds step files of ours."""
    return sorted(p for p in directory.glob("prompt_*") if PUBLISHED.fullmatch(p.name))
