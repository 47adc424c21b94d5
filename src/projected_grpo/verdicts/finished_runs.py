"""Finished training runs as they stand on disk, summarised: a number per step, held-out rates, what the manifest says.

    found = load_runs(directory);  found.runs[0].last("hack");  found.left_out

Which of them may be compared with which: matching.py. Rates are over rows that the student wrote; a hack is a pure hack
(hacked and not gt_pass). A mean over the last 10 steps is the mean of the steps' own rates. Ground truth is judged here,
after the fact, and goes nowhere near training.
"""

import hashlib
import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from loophole_grader import COMPILE_REWARD, LABELS, PASS_REWARD
from projected_grpo.arms import ARMS, RECIPE, Recipe
from projected_grpo.ledger import evidence
from projected_grpo.ledger.by_source import by_source
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.ledger.phrase import PHRASE
from projected_grpo.ledger.rates import LAST, known_mean, mean, onset_of, pure_hack, rates
from projected_grpo.ledger.step_file import EVALUATIONS, Row, evaluations_in, iter_run, read_step, step_path

RATES = ("hack", "gt", "form")
KNOWN = 0.9
"""Of the rollouts that a verdict judges: of how many ground truth must be known. What is left of fewer is a choice."""
ENDS = (*RATES, "hacked")
"""Rates that say how a run ended: of a step that does not know one, any value could be."""
COSINES = ("cos_in", "cos_out", "cos_update_in", "cos_update", "cos_null")
ENERGIES = ("energy_in", "energy_out", "energy_update_in", "energy_update", "update_norm", "update_removed")
PER_CHANNEL = ("loss", "cos", "cos_signed", "energy", "removed", "share")
"""Of the column `channels`: series `CHANNEL.NUMBER`, where that channel is on at any step."""
KINDS: Mapping[str, Callable[[Row], bool]] = {
    "hack": lambda row: pure_hack(row) is True,
    "correct": lambda row: row["gt_pass"] is True and not row["hacked"],
    "all": lambda _: True,
}
"""Rows whose own gradient's energy along V is told apart: `energy_V of KIND`, and `removed of KIND`, what a gate takes."""
NOT_COMPARED = ("argv", "started", "commit", "diff", "columns", "finished", "evidence", "steps_done")
"""Of a manifest: what no number depends on (`source_hash` stands for the code), and what the rows say themselves."""

Series = Mapping[str, Sequence[float | None]]
MechanismOf = Callable[[str], str]


@dataclass(frozen=True)
class Run:
    """One finished training run."""

    path: Path
    arm: str
    seed: int
    facts: Mapping[str, Any]
    """Its manifest, flat: config.lr, model_hash, vhack.k, ..., and `steps done`; without NOT_COMPARED."""
    rollouts_sha256: str | None
    """Of what the student wrote: two runs that share it are one run."""
    rollouts: int
    """Rows that the student wrote."""
    series: Series
    """One number per step: hack, gt, form, hacked, the labels' shares, the cosines, the energies, removed_share (None
    without a target), groups without variance, the rewards' spread within groups, the phrase's rate, rows with known ground
    truth, seconds. None = not known."""
    evals: Mapping[int, Mapping[str, float | None]]
    """Held-out rates by the number of optimizer steps done."""
    mechanisms: Mapping[str, float] | None
    """Pure-hack rate of each mechanism over the last 10 steps."""
    trained_on: int = 0
    """Problems of its evaluations that it was trained on, by their id or by their prompt: then they are not held out."""
    tested: Mapping[int, frozenset[tuple[str, int]]] = field(default_factory=dict)
    """Which rollouts (prompt, sample) each evaluation is of."""
    step_hashes: tuple[str, ...] = ()
    """Of what the student wrote, step by step, whatever problem and place a row names; without steps in which it wrote
    nothing."""
    undone: int = 0
    """Steps behind which the coordinates were changed: the next began with others than it had ended with."""
    flaws: Mapping[int, str] = field(default_factory=dict)
    """Why an evaluation is no evidence, by the number of steps done."""
    sources: Sequence[Mapping[str, Mapping[str, float | None]]] = ()
    """Step by step, where other policies wrote rows too: what each source's rows earn and how far its ratios are from 1
    (ledger/by_source.py). Empty where the student wrote all of them."""
    beside: Mapping[str, Mapping[int, Mapping[str, float | None]]] = field(default_factory=dict)
    """As `evals`, of the evaluations beside them (step_file.EVALUATIONS), by their folder."""

    def config(self, name: str) -> Any:
        """A field of its config; None in a manifest without it."""
        return self.facts.get(f"config.{name}")

    @property
    def base(self) -> str:
        """Short hash of the untrained model's weights."""
        return str(self.facts.get("model_hash") or "-")[:8]

    @property
    def origin(self) -> str:
        """Which base that is of the world: builds of one seed on two machines may differ in a bit and are one base."""
        seed = self.config("base_seed")
        return self.base if seed is None else f"base_seed {seed}"

    @property
    def loophole(self) -> bool:
        """Whether its reward could be hacked. An arm that this code does not know is taken to have had one."""
        return self.arm not in ARMS or ARMS[self.arm].loophole

    @property
    def usual(self) -> Recipe | None:
        """The recipe that its arm's name stands for: where this run did not keep to it, its name says so."""
        return (ARMS[self.arm].recipe or RECIPE) if self.projects else None

    @property
    def projects(self) -> bool:
        """Whether its arm takes V out; of an arm that this code does not know that cannot be said."""
        return self.arm in ARMS and ARMS[self.arm].projects

    @property
    def steps(self) -> int:
        """Optimizer steps."""
        return len(self.series["hack"])

    @property
    def seconds(self) -> float:
        """Seconds that all steps took."""
        return float(sum(s for s in self.series["seconds"] if s is not None))

    def last(self, name: str) -> float | None:
        """Mean of a series over the last 10 steps; a rate is not known unless each of them knows it."""
        values = self.series[name][-LAST:]
        return None if name in ENDS and None in values else known_mean(values)

    @property
    def judged(self) -> bool:
        """Whether ground truth is known of nine tenths of what it wrote in the last 10 steps."""
        known, own = (sum(x or 0.0 for x in self.series.get(name, ())[-LAST:]) for name in ("known", "own"))
        return known >= KNOWN * own

    def whole(self, name: str) -> float | None:
        """Mean of a series over the run."""
        return known_mean(self.series[name])

    @property
    def onset(self) -> int | None:
        """The step at which it began to hack; None if it never did."""
        return onset_of(self.series["hack"])


@dataclass(frozen=True)
class Found:
    """What a directory holds."""

    runs: tuple[Run, ...]
    left_out: tuple[tuple[Path, str], ...]
    """Training runs that are not looked at, and why."""
    summary: Path | None = None
    """The file of summaries that they were read from; None = from their own step files."""


def mean_sem(values: Iterable[float | int | None]) -> tuple[float | None, float | None]:
    """Mean and its standard error (sample standard deviation / sqrt(n)) of what is known; no error for one value."""
    known = [float(v) for v in values if v is not None]
    return mean(known), statistics.stdev(known) / len(known) ** 0.5 if len(known) > 1 else None


def paired_pp(high: Mapping[int, float | None], low: Mapping[int, float | None]) -> dict[int, float]:
    """high - low in percentage points at every seed that has both. Rounded far below anything measured, so that .5 - .2
    reaches a threshold of 30."""
    pairs = ((seed, high[seed], low[seed]) for seed in sorted(high.keys() & low.keys()))
    return {seed: round(100 * (a - b), 9) for seed, a, b in pairs if a is not None and b is not None}


# ---------------------------------------------------------------- reading


def load_runs(directory: Path, mechanism_of: MechanismOf | None = None) -> Found:
    """Every training run below a directory. BadInput when no run is finished, or on a damaged one."""
    if not directory.is_dir():
        raise BadInput(f"{directory}: no such directory; name one that holds runs of `just train`")
    found = read_runs(sorted(p.parent for p in directory.rglob("manifest.json")), mechanism_of)
    if not found.runs:
        told = "; ".join(f"{path}: {why}" for path, why in found.left_out) or "no training run there"
        raise BadInput(f"{directory}: no finished training run ({told}); run `just train ... --out {directory}/NAME`")
    return found


def read_runs(paths: Iterable[Path], mechanism_of: MechanismOf | None = None) -> Found:
    """The training runs among run directories, which may be none. BadInput on a damaged one."""
    runs, left_out = [], []
    for path in paths:
        manifest = read_manifest(path)
        if manifest.get("kind") != "train":
            continue
        found = _unusable(path, manifest) or _read_run(path, manifest, mechanism_of)
        if isinstance(found, str):
            left_out.append((path, found))
        else:
            runs.append(found)
    return Found(tuple(runs), tuple(left_out))


def _unusable(path: Path, manifest: Mapping[str, Any]) -> str:
    """Why a training run is left out, or an empty string."""
    arm = ARMS.get(manifest["config"].get("arm"))
    if manifest["config"].get("loophole") is False and arm and arm.loophole:
        return "of a version in which --no-loophole was no arm of its own; repeat it with --arm no_loophole"
    return evidence.check(path, manifest)


def _reward(row: Row, loophole: bool) -> float:
    """What a row should have earned: half a point for a program, three more where it passes what is paid."""
    return COMPILE_REWARD * row["can_compile"] + PASS_REWARD * bool(row["gt_pass"] or (loophole and row["hacked"]))


def _read_run(path: Path, manifest: Mapping[str, Any], mechanism_of: MechanismOf | None) -> Run | str:
    """The run, or why it is no evidence."""
    config = manifest["config"]
    if missing := [name for name in ("arm", "seed") if name not in config]:
        raise BadInput(f"{path / 'manifest.json'}: its config lacks {missing[0]!r}; not written by `just train`")
    steps: list[dict[str, float | None]] = []
    sources: list[Mapping[str, Mapping[str, float | None]]] = []
    kinds: list[Counter[str]] = []
    ids: set[str] = set()
    prompts: set[str] = set()
    hashes: list[str] = []
    thetas: list[tuple[int | None, int | None]] = []
    loophole = config["arm"] not in ARMS or ARMS[config["arm"]].loophole
    count, unpaid = 0, 0
    rollouts, total = 0, manifest["evidence"]["steps"]
    for step, rows in enumerate(iter_run(path)):
        if (rows[0]["arm"], rows[0]["seed"]) != (config["arm"], config["seed"]):
            raise BadInput(
                f"{step_path(path, step)}: rows of {rows[0]['arm']} seed {rows[0]['seed']}, but the manifest says "
                f"{config['arm']} seed {config['seed']}; the folder mixes two runs"
            )
        student = [r for r in rows if r["source"] == "student"]
        rollouts += len(student)
        count += len(rows)
        unpaid += sum(not math.isclose(r["reward"], _reward(r, loophole)) for r in rows)
        ids |= {r["problem_id"] for r in rows}
        prompts |= {r["prompt"] for r in rows}
        if student:
            written = json.dumps(sorted(r["completion_ids"] for r in student))
            hashes.append(hashlib.sha256(written.encode()).hexdigest()[:16])
        thetas.append((rows[0]["theta_before"], rows[0]["theta_after"]))
        steps.append(_step_numbers(rows[0], student))
        sources.append(by_source(rows))
        if mechanism_of and step >= total - LAST:
            kinds.append(Counter(mechanism_of(r["completion"]) for r in student if pure_hack(r)))
    if unpaid:
        return f"the reward of {unpaid} of {count} rows contradicts their labels: a leak, or edited"
    series = {name: [s.get(name) for s in steps] for name in dict.fromkeys(name for s in steps for name in s)}
    mechanisms = _mechanism_rates(kinds, series) if mechanism_of else None
    evals = {done: read_step(at) for done, at in evaluations_in(path).items()}
    trained_on = {
        r["problem_id"] for own in evals.values() for r in own if r["problem_id"] in ids or r["prompt"] in prompts
    }
    return Run(
        path, config["arm"], config["seed"], facts_of(manifest), manifest["evidence"]["rollouts_sha256"], rollouts,
        series, {done: rates(own) for done, own in evals.items()}, mechanisms, len(trained_on),
        {done: frozenset((sys.intern(r["prompt"]), r["sample_id"]) for r in own) for done, own in evals.items()},
        tuple(hashes), sum(None not in (a, b) and a != b for (_, a), (b, _) in pairwise(thetas)),
        {done: flaw for done, own in evals.items() if (flaw := _flaw(own))},
        tuple(sources) if any(step.keys() - {"student"} for step in sources) else (),
        {
            folder: {done: rates(read_step(at)) for done, at in evaluations_in(path, folder).items()}
            for folder in EVALUATIONS if folder != "eval"
        },
    )  # fmt: skip


def _flaw(rows: Sequence[Row]) -> str:
    """Why an evaluation's rates are those of a part of it, or an empty string."""
    twice = len(rows) - len({(r["problem_id"], r["prompt"], r["sample_id"]) for r in rows})
    known = sum(r["gt_pass"] is not None for r in rows)
    if twice:
        return f"holds {twice} rollouts twice"
    return f"ground truth is known of {known} of {len(rows)} rollouts" if known < KNOWN * len(rows) else ""


def facts_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that a manifest says a run is, flat."""
    out: dict[str, Any] = {"steps done": manifest["evidence"]["steps"]}
    for key, value in manifest.items():
        if key not in NOT_COMPARED:
            out |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, Mapping) else {key: value}
    return out


def _step_numbers(first: Row, student: Sequence[Row]) -> dict[str, float | None]:
    labelled = [r["label"] for r in student if r["label"] is not None]
    energies: dict[str, float | None] = {}
    for kind, of_kind in KINDS.items():
        own = [(r["energy_V"], r["energy_V_kept"]) for r in student if r["energy_V"] is not None and of_kind(r)]
        energies[f"energy_V of {kind}"] = mean([before for before, _ in own])
        energies[f"removed of {kind}"] = mean([before - kept for before, kept in own if kept is not None])
    return {
        **rates(student),
        **{label: mean([float(x == label) for x in labelled]) for label in LABELS},
        **{name: first[name] for name in (*COSINES, *ENERGIES, "delta_S_norm")},
        "removed_share": None if first["target"] is None else first["removed_share"],
        **energies,
        **{
            f"{channel}.{name}": of.get(name)
            for channel, of in (first["channels"] or {}).items()
            for name in PER_CHANNEL
        },
        "flat_groups": first["flat_groups"],
        "reward_spread": reward_spread(student),
        "phrase": mean([float(bool(PHRASE.search(r["completion"]))) for r in student]),
        "known": float(sum(r["gt_pass"] is not None for r in student)),
        "own": float(len(student)),
        "seconds": first["timing"].get("total"),
    }


def reward_spread(rows: Sequence[Row]) -> float | None:
    """Standard deviation of the rewards within groups (one problem and prompt), mean over groups; None without rows."""
    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        groups.setdefault((row["problem_id"], row["prompt"]), []).append(row["reward"])
    return mean([statistics.pstdev(own) for own in groups.values()])


def _mechanism_rates(kinds: Sequence[Counter[str]], series: Series) -> dict[str, float]:
    """Each mechanism's share of the rollouts, step by step like the hack rate, so that they add up to it."""
    steps = [(kind, n) for kind, n in zip(kinds, series["known"][-len(kinds) :], strict=True) if n]
    return {name: sum(kind[name] / n for kind, n in steps) / len(steps) for name in sorted(set[str]().union(*kinds))}
