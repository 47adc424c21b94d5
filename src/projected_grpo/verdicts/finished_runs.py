"""Finished training runs as they stand on disk, summarised: a number per step, held-out rates, what the manifest says.

    found = load_runs(directory);  found.runs[0].last("hack");  found.left_out

Which of them may be compared with which: matching.py. Rates are over rows that the student wrote; a hack is a pure hack
(hacked and not gt_pass). A mean over the last 10 steps is the mean of the steps' own rates. Ground truth is judged here,
after the fact, and goes nowhere near training.
"""

import hashlib
import json
import multiprocessing
import os
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from loophole_grader import LABELS
from projected_grpo.arms import ARMS, RECIPE, Recipe
from projected_grpo.ledger import anew_file, evidence
from projected_grpo.ledger.by_source import by_source
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.ledger.rates import KNOWN, LAST, judged_hack, known_mean, mean, onset_of, pure_hack, rates
from projected_grpo.ledger.step_file import EVALUATIONS, Row, checked
from projected_grpo.verdicts.row_checks import check_evaluation, check_rows, mislabelled, unpaid
from projected_grpo.verdicts.step_numbers import step_numbers

RATES = ("hack", "gt", "form")
OF_TRUTH = ("hack", "gt", "hack_and_correct", *LABELS)
"""Rates of the rollouts alone whose ground truth is known."""
ENDS = (*RATES, "hacked")
"""Rates that say how a run ended: of a step that does not know one, any value could be."""
NOT_COMPARED = ("argv", "started", "commit", "diff", "columns", "finished", "evidence", "steps_done")
"""Of a manifest: what no number depends on (`source_hash` stands for the code), and what the rows say themselves."""

FILES_EACH = 1000
"""Step files for which a process of its own is worth its start."""

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
    anew: anew_file.Found | None = None
    """V extracted anew at its trained adapters; None = not measured."""

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
        """Mean of a series over the last 10 steps; a rate is not known unless each of them knows it, nor one of ground truth
        unless the run is `judged`."""
        values = self.series[name][-LAST:]
        lost = name in ENDS and None in values
        return None if lost or (name in OF_TRUTH and not self.judged) else known_mean(values)

    @property
    def judged(self) -> bool:
        """Whether ground truth is known of nine tenths of what it wrote in the last 10 steps."""
        return self._judged(slice(-LAST, None))

    def _judged(self, steps: slice) -> bool:
        known, own = (sum(x or 0.0 for x in self.series.get(name, ())[steps]) for name in ("known", "own"))
        return known >= KNOWN * own

    def whole(self, name: str) -> float | None:
        """Mean of a series over the run; None of ground truth where that is known of fewer than nine tenths of it."""
        return None if name in OF_TRUTH and not self._judged(slice(None)) else known_mean(self.series[name])

    @property
    def onset(self) -> int | None:
        """The step at which it began to hack; None if it never did. A step of which too little is known has no rate."""
        hack = self.series["hack"]
        known, own = (self.series.get(name) or [0.0] * len(hack) for name in ("known", "own"))
        return onset_of([judged_hack(h, k or 0.0, n or 0.0) for h, k, n in zip(hack, known, own, strict=True)])


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


def load_runs(directory: Path, mechanism_of: MechanismOf | None = None, needed: bool = True) -> Found:
    """Every training run below a directory. BadInput when no run is finished, or on a damaged one; where none is `needed`, a
    directory without any training run has none, and one in which none is finished is refused all the same."""
    if directory.is_file():
        raise BadInput(f"{directory}: no runs of `just train`; name a directory of them, or a file NAME.runs.jsonl.gz")
    if not directory.is_dir():
        raise BadInput(f"{directory}: no such directory; name one that holds runs of `just train`")
    found = read_runs(sorted(p.parent for p in directory.rglob("manifest.json")), mechanism_of)
    if not found.runs and (needed or found.left_out):
        if kept := sorted(p.name for p in directory.glob("*.runs.jsonl.gz")):
            raise BadInput(
                f"{directory}: no runs, but studies that are kept in a file each; name one: {', '.join(kept)}"
            )
        told = "; ".join(f"{path}: {why}" for path, why in found.left_out) or "no training run there"
        raise BadInput(f"{directory}: no finished training run ({told}); run `just train ... --out {directory}/NAME`")
    return found


def read_runs(paths: Iterable[Path], mechanism_of: MechanismOf | None = None, workers: int = 0) -> Found:
    """The training runs among run directories, which may be none. BadInput on a damaged one, the first in their order.

    `workers`: processes that share the runs; 0 = one a core, as far as there are FILES_EACH step files for each. With more
    than one `mechanism_of` must be a function that another process can import.
    """
    paths = list(paths)
    workers = workers or min(os.cpu_count() or 1, sum(len(list(p.glob("step_*.gz"))) for p in paths) // FILES_EACH)
    read = partial(_read, mechanism_of=mechanism_of)
    if workers > 1:
        # spawn: a fork of a process that has threads may hang
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            found = list(pool.map(read, paths))
    else:
        found = list(map(read, paths))
    runs = tuple(one for one in found if isinstance(one, Run))
    return Found(runs, tuple((path, one) for path, one in zip(paths, found, strict=True) if isinstance(one, str)))


def _read(path: Path, mechanism_of: MechanismOf | None) -> Run | str | None:
    """A training run, or why it is left out; None for another kind of run."""
    manifest = read_manifest(path)
    if manifest.get("kind") != "train":
        return None
    return _of_another_time(manifest) or _read_run(path, manifest, mechanism_of)


def _of_another_time(manifest: Mapping[str, Any]) -> str:
    """Why a training run cannot be compared with today's, or an empty string."""
    arm = ARMS.get(manifest["config"].get("arm"))
    if manifest["config"].get("loophole") is False and arm and arm.loophole:
        return "of a version in which --no-loophole was no arm of its own; repeat it with --arm no_loophole"
    return ""


def _read_run(path: Path, manifest: Mapping[str, Any], mechanism_of: MechanismOf | None) -> Run | str:
    """The run, or why it is no evidence: one pass over its files for both."""
    config = manifest["config"]
    found = _Reading(manifest, mechanism_of)
    if why := evidence.check(path, manifest, found.see):
        return why
    if missing := [name for name in ("arm", "seed") if name not in config]:
        raise BadInput(f"{path / 'manifest.json'}: its config lacks {missing[0]!r}; not written by `just train`")
    if "" in found.refused:
        raise found.refused[""]
    if found.unpaid:
        return f"the reward of {found.unpaid} of {found.rows} rows contradicts their labels: a leak, or edited"
    if found.mislabelled:
        return f"the label of {found.mislabelled} rows contradicts what the grader found of them: edited"
    for refused in found.refused.values():
        raise refused
    series = {name: [s.get(name) for s in found.steps] for name in dict.fromkeys(n for s in found.steps for n in s)}
    mechanisms = _mechanism_rates(found.kinds, series) if mechanism_of else None
    return Run(
        path, config["arm"], config["seed"], facts_of(manifest), manifest["evidence"]["rollouts_sha256"], found.rollouts,
        series, found.evals["eval"], mechanisms, len(found.trained_on), found.tested, tuple(found.hashes),
        _undone(path, found.thetas), found.flaws,
        tuple(found.sources) if any(step.keys() - {"student"} for step in found.sources) else (),
        {folder: rates_of for folder, rates_of in found.evals.items() if folder != "eval"}, anew_file.read_anew(path),
    )  # fmt: skip


def _undone(path: Path, thetas: Sequence[tuple[int | None, int | None]]) -> int:
    """Steps behind which the coordinates were changed, but for those that an outer round followed, by a replica's record."""
    rounds = {line["step"] for line in evidence.read_rounds(path)}
    between = enumerate(pairwise(thetas), 1)
    return sum(None not in (a, b) and a != b and done not in rounds for done, ((_, a), (b, _)) in between)


class _Reading:
    """What one pass over a run's files leaves of them: numbers, never the texts of more than the file at hand."""

    def __init__(self, manifest: Mapping[str, Any], mechanism_of: MechanismOf | None) -> None:
        arm = manifest["config"].get("arm", "")
        self.manifest, self.mechanism_of = manifest, mechanism_of
        self.total = (manifest.get("evidence") or {}).get("steps", 0)
        self.loophole = arm not in ARMS or ARMS[arm].loophole
        self.rows = self.rollouts = self.unpaid = self.mislabelled = 0
        self.steps: list[dict[str, float | None]] = []
        self.sources: list[Mapping[str, Mapping[str, float | None]]] = []
        self.kinds: list[Counter[str]] = []
        self.hashes: list[str] = []
        self.thetas: list[tuple[int | None, int | None]] = []
        self.flaws: dict[int, str] = {}
        self.ids: set[str] = set()
        self.prompts: set[str] = set()
        self.trained_on: set[str] = set()
        self.tested: dict[int, frozenset[tuple[str, int]]] = {}
        self.evals: dict[str, dict[int, Mapping[str, float | None]]] = {folder: {} for folder in EVALUATIONS}
        self.refused: dict[str, Exception] = {}
        """The first thing wrong with the rows of the steps (''), and with those of each folder of evaluations."""

    def see(self, file: evidence.File) -> None:
        """Take in the next file."""
        if file.folder not in self.refused:
            try:
                rows = checked(file.rows, file.path)
                self._evaluation(file, rows) if file.folder else self._step(file, rows)
            except Exception as e:  # noqa: BLE001 - it waits: of a run that is no evidence nothing else is said
                self.refused[file.folder] = e

    def _step(self, file: evidence.File, rows: Sequence[Row]) -> None:
        check_rows(rows, self.manifest, file.place, file.path)
        student = [r for r in rows if r["source"] == "student"]
        self.rollouts += len(student)
        self.rows += len(rows)
        self.unpaid += sum(unpaid(r, self.loophole) for r in rows)
        self.mislabelled += sum(map(mislabelled, student))  # a pool's labels may be its authors'
        self.ids |= {r["problem_id"] for r in rows}
        self.prompts |= {r["prompt"] for r in rows}
        if student:
            written = json.dumps(sorted(r["completion_ids"] for r in student))
            self.hashes.append(hashlib.sha256(written.encode()).hexdigest()[:16])
        self.thetas.append((rows[0]["theta_before"], rows[0]["theta_after"]))
        self.steps.append(step_numbers(rows[0], student))
        self.sources.append(by_source(rows))
        if self.mechanism_of and file.place >= self.total - LAST:
            self.kinds.append(Counter(self.mechanism_of(r["completion"]) for r in student if pure_hack(r)))

    def _evaluation(self, file: evidence.File, rows: Sequence[Row]) -> None:
        check_evaluation(rows, self.manifest, file)
        self.evals[file.folder][file.place] = rates(rows)
        if file.folder == "eval":
            seen = (r["problem_id"] for r in rows if r["problem_id"] in self.ids or r["prompt"] in self.prompts)
            self.trained_on.update(seen)
            self.tested[file.place] = frozenset((sys.intern(r["prompt"]), r["sample_id"]) for r in rows)
            if flaw := _flaw(rows, self.loophole):
                self.flaws[file.place] = flaw
        elif wrong := _contradicting(rows, self.loophole and file.folder != "eval_plain"):
            raise BadInput(f"{file.path}: {wrong}; evaluate the run again")


def _flaw(rows: Sequence[Row], loophole: bool) -> str:
    """Why an evaluation's rates are no evidence, or an empty string."""
    twice = len(rows) - len({(r["problem_id"], r["prompt"], r["sample_id"]) for r in rows})
    known = sum(r["gt_pass"] is not None for r in rows)
    if twice:
        return f"holds {twice} rollouts twice"
    if known < KNOWN * len(rows):
        return f"ground truth is known of {known} of {len(rows)} rollouts"
    return _contradicting(rows, loophole)


def _contradicting(rows: Sequence[Row], loophole: bool) -> str:
    """Of how many rows reward or label contradict what the grader found; empty of none."""
    wrong = sum(unpaid(row, loophole) or mislabelled(row) for row in rows)
    return f"reward or label of {wrong} of {len(rows)} rollouts contradicts what the grader found" if wrong else ""


def facts_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that a manifest says a run is, flat."""
    out: dict[str, Any] = {"steps done": manifest["evidence"]["steps"]}
    for key, value in manifest.items():
        if key not in NOT_COMPARED:
            out |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, Mapping) else {key: value}
    return out


def _mechanism_rates(kinds: Sequence[Counter[str]], series: Series) -> dict[str, float]:
    """Each mechanism's share of the rollouts, step by step like the hack rate, so that they add up to it."""
    steps = [(kind, n) for kind, n in zip(kinds, series["known"][-len(kinds) :], strict=True) if n]
    return {name: sum(kind[name] / n for kind, n in steps) / len(steps) for name in sorted(set[str]().union(*kinds))}
