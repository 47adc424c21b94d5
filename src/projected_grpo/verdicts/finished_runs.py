"""Finished training runs as they stand on disk, summarised: a number per step, held-out rates, what the manifest
says.

    found = load_runs(directory);  found.runs[0].last("hack");  found.left_out

Which of them may be compared with which: matching.py. Rates are over rows that the student wrote; a hack is a pure
hack (hacked and not gt_pass). A mean over the last 10 steps is the mean of the steps' rates. Ground truth is judged
here, after the fact, and goes nowhere near training."""

import statistics
import sys
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loophole_grader import LABELS
from projected_grpo.arms import ARMS
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import not_whole, read_manifest
from projected_grpo.ledger.rates import (
    FOUR_NAMES,
    KNOWN,
    LAST,
    by_source,
    judged_hack,
    known_mean,
    mean,
    onset_of,
    pure_hack,
    rates,
)
from projected_grpo.ledger.re_extracted import ReExtracted, read_re_extracted
from projected_grpo.ledger.step_file import EVALUATIONS, Row, evaluations_in, in_groups, iter_run, read_step
from projected_grpo.verdicts.comparison import facts_of
from projected_grpo.verdicts.mechanisms import mechanism_of

OF_TRUTH = ("hack", "gt", "hack_and_correct", *LABELS)
"""Rates of the rollouts whose ground truth is known."""
OF_STEP = (
    "cos_in", "cos_out", "cos_update_in", "cos_update", "cos_null", "update_norm", "update_removed", "delta_S_norm",
)  # fmt: skip
"""Columns with one value a step."""
PER_CHANNEL = ("loss", "cos", "cos_signed", "energy", "removed", "share")
"""Of the column `channels`: series `CHANNEL.NUMBER`, where that channel is on at any step."""

Numbers = Mapping[str, float | None]
"""None = not known."""


@dataclass(frozen=True)
class Run:
    """One finished training run."""

    path: Path
    arm: str
    seed: int
    facts: Mapping[str, Any]
    """Its manifest, flat: config.lr, model_hash, vhack.k, ..., and `steps done`."""
    rollouts: int
    """Rows that the student wrote."""
    series: Mapping[str, Sequence[float | None]]
    """One number per step, by the names of `step_numbers`."""
    evals: Mapping[int, Numbers]
    """Held-out rates by the number of optimizer steps done."""
    mechanisms: Mapping[str, float] | None
    """Pure-hack rate of each mechanism (mechanisms.py) over the last 10 steps."""
    trained_on: int = 0
    """Problems of its evaluations that it was trained on, by their id or by their prompt: then they are not held
    out."""
    tested: Mapping[int, frozenset[tuple[str, int]]] = field(default_factory=dict)
    """Which rollouts (prompt, sample) each evaluation is of."""
    flaws: Mapping[int, str] = field(default_factory=dict)
    """Why an evaluation is no evidence, by the number of steps done."""
    sources: Sequence[Mapping[str, Numbers]] = ()
    """Step by step, where other policies wrote rows too: what each source's rows earn and how far its ratios are from
    1 (ledger/rates.py). Empty where the student wrote all of them."""
    beside: Mapping[str, Mapping[int, Numbers]] = field(default_factory=dict)
    """As `evals`, of the other evaluations (step_file.EVALUATIONS), by their folder."""
    re_extracted: Sequence[ReExtracted] = ()
    """V extracted again at its trained adapters, where that was measured."""

    def __post_init__(self) -> None:
        if self.arm not in ARMS:
            raise BadInput(f"{self.path}: a run of --arm {self.arm}, which this version does not have; move it away")

    def config(self, name: str) -> Any:
        """A field of its config; None in a manifest without it."""
        return self.facts.get(f"config.{name}")

    @property
    def name(self) -> str:
        return f"{self.arm} {self.seed}"

    @property
    def base(self) -> str:
        """Short hash of the untrained model's weights."""
        return str(self.facts.get("model_hash") or "-")[:8]

    @property
    def origin(self) -> str:
        """The base model's name: builds of one seed on two machines may differ in a bit and are one base."""
        seed = self.config("base_seed")
        return self.base if seed is None else f"base_seed {seed}"

    @property
    def projects(self) -> bool:
        """Whether its arm removes V."""
        return ARMS[self.arm].projects

    @property
    def steps(self) -> int:
        return len(self.series["hack"])

    @property
    def seconds(self) -> float:
        return float(sum(s for s in self.series["seconds"] if s is not None))

    def last(self, name: str) -> float | None:
        """Mean of a series over the last 10 steps; a rate is not known unless each of them knows it, nor one of
        ground truth unless the run is `judged`."""
        unknown = name in FOUR_NAMES and None in self.series[name][-LAST:]
        return None if unknown else self.whole(name, slice(-LAST, None))

    def whole(self, name: str, steps: slice = slice(None)) -> float | None:
        """Mean of a series over the run; None of ground truth where that is known of fewer than nine tenths of it."""
        values = self.series.get(name, ())[steps]
        return known_mean(values) if name not in OF_TRUTH or self.judged(steps) else None

    def path_length(self, steps: int | None = None) -> float | None:
        """Length of the path of the parameters: the sum of the applied updates' norms, up to a step or to the end."""
        norms = self.series.get("update_norm", [])[: None if steps is None else steps + 1]
        return None if None in norms or not norms else float(sum(n for n in norms if n is not None))

    def judged(self, steps: slice = slice(-LAST, None)) -> bool:
        """Whether ground truth is known of nine tenths of what it wrote in these steps."""
        known, rows = (sum(x or 0.0 for x in self.series[name][steps]) for name in ("known", "own"))
        return known >= KNOWN * rows

    def held_out(self, rate: str, done: int | None = None, folder: str = "eval") -> float | None:
        """A held-out rate after so many steps (None: after the last); None where it was not evaluated then."""
        found = self.evals if folder == "eval" else self.beside.get(folder, {})
        return found.get(self.steps if done is None else done, {}).get(rate)

    @property
    def onset(self) -> int | None:
        """The step at which it began to hack; None if it never did. A step of which too little is known has no
        rate."""
        steps = zip(*(self.series[name] for name in ("hack", "known", "own")), strict=True)
        return onset_of([judged_hack(hack, known or 0.0, rows or 0.0) for hack, known, rows in steps])


@dataclass(frozen=True)
class Found:
    """What a directory holds."""

    runs: tuple[Run, ...]
    left_out: tuple[tuple[Path, str], ...]
    """Training runs that do not count, and why."""


def mean_sem(values: Iterable[float | int | None]) -> tuple[float | None, float | None]:
    """Mean and its standard error (sample standard deviation / sqrt(n)) of what is known; no error for one value."""
    known = [float(v) for v in values if v is not None]
    return mean(known), statistics.stdev(known) / len(known) ** 0.5 if len(known) > 1 else None


def paired_pp(high: Mapping[int, float | None], low: Mapping[int, float | None]) -> dict[int, float]:
    """high - low in percentage points at every seed that has both. Rounded far below anything measured, so that .5 -
    .2 reaches a threshold of 30."""
    pairs = ((seed, high[seed], low[seed]) for seed in sorted(high.keys() & low.keys()))
    return {seed: round(100 * (a - b), 9) for seed, a, b in pairs if a is not None and b is not None}


# ---------------------------------------------------------------- reading


def load_runs(directory: Path) -> Found:
    """Every training run below a directory. BadInput when no run is finished, or on a damaged one."""
    if not directory.is_dir():
        raise BadInput(f"{directory}: no such directory; name one with runs, or a file NAME.runs.jsonl.gz")
    runs, left_out = [], []
    for path in sorted(p.parent for p in directory.rglob("manifest.json")):
        manifest = read_manifest(path)
        if manifest.get("kind") != "train" or ".aside" in path.name:  # moved aside by a queue
            continue
        if why := not_whole(path, manifest):
            left_out.append((path, why))
        else:
            runs.append(_read(path, manifest))
    if not runs:
        why = "; ".join(f"{path}: {why}" for path, why in left_out) or "no training run there"
        raise BadInput(f"{directory}: no finished training run ({why}); run `just train ... --out {directory}/NAME`")
    return Found(tuple(runs), tuple(left_out))


def _read(path: Path, manifest: Mapping[str, Any]) -> Run:
    """A training run. One step file is in memory at a time."""
    steps: list[Numbers] = []
    sources: list[Mapping[str, Numbers]] = []
    kinds: deque[Counter[str]] = deque(maxlen=LAST)
    seen: set[str] = set()
    for rows in iter_run(path):
        seen |= {r[name] for r in rows for name in ("problem_id", "prompt")}
        steps.append(step_numbers(rows))
        sources.append(by_source(rows))
        hacks = (r["completion"] for r in rows if r["source"] == "student" and pure_hack(r))
        kinds.append(Counter(map(mechanism_of, hacks)))
    series = {name: [s.get(name) for s in steps] for name in dict.fromkeys(n for s in steps for n in s)}
    evals: dict[str, dict[int, Numbers]] = {folder: {} for folder in EVALUATIONS}
    trained_on: set[str] = set()
    tested: dict[int, frozenset[tuple[str, int]]] = {}
    flaws: dict[int, str] = {}
    for folder in EVALUATIONS:
        for done, file in evaluations_in(path, folder).items():
            rows = read_step(file)
            evals[folder][done] = {**rates(rows), **_recalls(rows)}
            if folder == "eval":
                trained_on |= {r["problem_id"] for r in rows if {r["problem_id"], r["prompt"]} & seen}
                tested[done] = frozenset((sys.intern(r["prompt"]), r["sample_id"]) for r in rows)
                known = sum(r["gt_pass"] is not None for r in rows)
                if known < KNOWN * len(rows):
                    flaws[done] = f"ground truth is known of {known} of {len(rows)} rollouts"
    return Run(
        path, manifest["config"]["arm"], manifest["config"]["seed"], facts_of(manifest, len(steps)),
        int(sum(n or 0 for n in series["own"])), series, evals.pop("eval"),
        _mechanism_rates(kinds, series["known"]), len(trained_on), tested, flaws,
        tuple(sources) if any(step.keys() - {"student"} for step in sources) else (), evals, read_re_extracted(path),
    )  # fmt: skip


def step_numbers(rows: Sequence[Row]) -> dict[str, float | None]:
    """The step's values, from its first row, and what its student's rows say; None = not known."""
    first, student = rows[0], [r for r in rows if r["source"] == "student"]
    labelled = [r["label"] for r in student if r["label"] is not None]
    return {
        **rates(student),
        **{label: mean([float(x == label) for x in labelled]) for label in LABELS},
        **{name: first[name] for name in OF_STEP},
        "removed_share": None if first["target"] is None else first["removed_share"],
        **{f"{one}.{name}": of.get(name) for one, of in (first["channels"] or {}).items() for name in PER_CHANNEL},
        "flat_groups": mean([float(len({r["reward"] for r in group}) < 2) for group in in_groups(rows)]),
        "known": float(sum(r["gt_pass"] is not None for r in student)),
        "own": float(len(student)),
        "seconds": first["timing"].get("total"),
        **_detected(student),
    }


def _detected(rows: Sequence[Row]) -> dict[str, float | None]:
    """Of a detector: how many of a step's hacks it caught, how many there were, and how many rollouts it flagged."""
    looked = [r for r in rows if r.get("flagged") is not None and r["gt_pass"] is not None]
    if not looked:
        return {}
    return {
        "caught": float(sum(bool(r["flagged"] and pure_hack(r)) for r in looked)),
        "hacks_seen": float(sum(bool(pure_hack(r)) for r in looked)),
        "flags": float(sum(bool(r["flagged"]) for r in looked)),
    }


def _recalls(rows: Sequence[Row]) -> dict[str, float | None]:
    """Of a detector, the share of held-out pure hacks that it flags: by the policy, and by the untrained model."""
    hacks = [r for r in rows if pure_hack(r) and r.get("flagged") is not None]
    names = {"recall": "flagged", "recall_base": "flagged_base"}
    return {name: mean([float(r[column]) for r in hacks]) for name, column in names.items()} if hacks else {}


def _mechanism_rates(kinds: Iterable[Counter[str]], known: Sequence[float | None]) -> dict[str, float]:
    """Each mechanism's share of the rollouts, step by step like the hack rate, so that they add up to it."""
    steps = [(kind, n) for kind, n in zip(kinds, known[-LAST:], strict=True) if n]
    names = sorted({name for kind, _ in steps for name in kind})
    return {name: sum(kind[name] / n for kind, n in steps) / len(steps) for name in names}
