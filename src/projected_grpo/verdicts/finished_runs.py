"""Finished training runs as they stand on disk, summarised: series per step, groups of runs that may be averaged, and
which vanilla or control run a run may be compared with.

    found = load_runs(directory);  groups = group_runs(found.runs);  reference("vanilla", groups[0], found.runs)

Rates are over rows that the student wrote; a hack is a pure hack (hacked and not gt_pass). A mean over the last 10 steps
is the mean of the steps' own rates. Ground truth is judged here, after the fact, and goes nowhere near training.
"""

import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loophole_grader import LABELS
from projected_grpo.arms import ARMS, RECIPE, Recipe
from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.ledger.rates import known_mean, mean, pure_hack, rates
from projected_grpo.ledger.step_file import Row, iter_run, read_step, step_path, steps_in

LAST = 10
"""Steps at the end of a run that a verdict looks at, and the window of every running mean."""
ONSET_RATE = 0.5
RATES = ("hack", "gt", "form")
COSINES = ("cos_in", "cos_out", "cos_update", "cos_null")
COMPUTE = ("steps", "prompts_per_step", "group_size")
PROJECTION = ("project", "gate", "k_use", "noise_floor", "overshoot", "preserve_magnitude", "V.k")
"""What a control must share with the projected run that it controls for: the same removal, of the same rank."""
TRAINING = ("model", "adapter", "lora_rank", "lr", "warmup", "loss", "beta", "problems", "hint",
            "prompt_setup", "max_new", "temperature", "top_p", "top_k", "teacher_pool", "teacher_fraction")  # fmt: skip
"""What every run of one comparison must share."""
_NAMED_FIRST = ("model", "adapter", "project", "gate", "k_use", "noise_floor", "overshoot", "refresh_every", "lr",
                "steps", "V.k", "V.modes", "V.loss", "V.control")  # fmt: skip
SETTINGS = tuple(dict.fromkeys((*_NAMED_FIRST, *COMPUTE, *PROJECTION, *TRAINING)))
"""Settings that tell runs of one arm apart, in the order in which a group's name lists them."""

Series = Mapping[str, Sequence[float | None]]
MechanismOf = Callable[[str], str]


@dataclass(frozen=True)
class Run:
    """One finished training run."""

    path: Path
    arm: str
    seed: int
    settings: Mapping[str, Any]
    rollouts: int
    """Rows that the student wrote."""
    series: Series
    """One number per step: hack, gt, form, hacked, the labels' shares, the cosines, rows with known ground truth,
    seconds. None = not known."""
    evals: Mapping[int, Mapping[str, float | None]]
    """Held-out rates by the number of optimizer steps done."""
    mechanisms: Mapping[str, float] | None
    """Pure-hack rate of each mechanism over the last 10 steps."""

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
    def compute(self) -> tuple[Any, ...]:
        """Steps, prompts per step and group size."""
        return tuple(self.settings[name] for name in COMPUTE)

    @property
    def seconds(self) -> float:
        """Seconds that all steps took."""
        return float(sum(s for s in self.series["seconds"] if s is not None))

    def last(self, name: str) -> float | None:
        """Mean of a series over the last 10 steps."""
        return known_mean(self.series[name][-LAST:])

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


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ in their seed alone."""

    name: str
    runs: tuple[Run, ...]


def onset_of(hack: Sequence[float | None]) -> int | None:
    """First step t at which the mean hack rate of steps t-9 to t is above one half; None if it never is."""
    means = running_mean(hack)
    return next((t for t, m in enumerate(means) if t >= LAST - 1 and m is not None and m > ONSET_RATE), None)


def running_mean(values: Sequence[float | None]) -> list[float | None]:
    """Mean of up to 10 values that end at each place."""
    return [known_mean(values[max(0, t - LAST + 1) : t + 1]) for t in range(len(values))]


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
        if why := _unusable(path, manifest):
            left_out.append((path, why))
        else:
            runs.append(_read_run(path, manifest, mechanism_of))
    return Found(tuple(runs), tuple(left_out))


def _unusable(path: Path, manifest: Mapping[str, Any]) -> str:
    """Why a training run is left out, or an empty string."""
    if not manifest.get("finished"):
        return "not finished; continue it with --resume"
    arm = ARMS.get(manifest["config"].get("arm"))
    if manifest["config"].get("loophole") is False and arm and arm.loophole:
        return "of a version in which --no-loophole was no arm of its own; repeat it with --arm no_loophole"
    if (done := len(steps_in(path))) != (asked := manifest["config"].get("steps")):
        return f"{done} step files, but its manifest says {asked} steps"
    return ""


def _read_run(path: Path, manifest: Mapping[str, Any], mechanism_of: MechanismOf | None) -> Run:
    config = manifest["config"]
    if missing := [name for name in ("arm", "seed") if name not in config]:
        raise BadInput(f"{path / 'manifest.json'}: its config lacks {missing[0]!r}; not written by `just train`")
    steps: list[dict[str, float | None]] = []
    kinds: list[Counter[str]] = []
    rollouts, total = 0, config["steps"]
    for step, rows in enumerate(iter_run(path)):
        if (rows[0]["arm"], rows[0]["seed"]) != (config["arm"], config["seed"]):
            raise BadInput(
                f"{step_path(path, step)}: rows of {rows[0]['arm']} seed {rows[0]['seed']}, but the manifest says "
                f"{config['arm']} seed {config['seed']}; the folder mixes two runs"
            )
        student = [r for r in rows if r["source"] == "student"]
        rollouts += len(student)
        steps.append(_step_numbers(rows[0], student))
        if mechanism_of and step >= total - LAST:
            kinds.append(Counter(mechanism_of(r["completion"]) for r in student if pure_hack(r)))
    series = {name: [s[name] for s in steps] for name in steps[0]}
    mechanisms = _mechanism_rates(kinds, series) if mechanism_of else None
    return Run(
        path, config["arm"], config["seed"], _settings(manifest), rollouts, series,
        _evals(path), mechanisms,
    )  # fmt: skip


def _step_numbers(first: Row, student: Sequence[Row]) -> dict[str, float | None]:
    labelled = [r["label"] for r in student if r["label"] is not None]
    return {
        **rates(student),
        **{label: mean([float(x == label) for x in labelled]) for label in LABELS},
        **{name: first[name] for name in COSINES},
        "known": float(sum(r["gt_pass"] is not None for r in student)),
        "seconds": first["timing"].get("total"),
    }


def _mechanism_rates(kinds: Sequence[Counter[str]], series: Series) -> dict[str, float]:
    """Each mechanism's share of the rollouts, step by step like the hack rate, so that they add up to it."""
    steps = [(kind, n) for kind, n in zip(kinds, series["known"][-len(kinds) :], strict=True) if n]
    return {name: sum(kind[name] / n for kind, n in steps) / len(steps) for name in sorted(set[str]().union(*kinds))}


def _evals(path: Path) -> dict[int, dict[str, float | None]]:
    """Held-out evaluations of a run: they need not be of every step."""
    found = [(int(m[1]), p) for p in (path / "eval").glob("*") if (m := re.fullmatch(r"step_(\d+)\.jsonl\.gz", p.name))]
    return {step: rates(read_step(p)) for step, p in sorted(found)}


def _settings(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting by its name; a field that an old manifest lacks had today's default, but for the recipe, of which
    nothing is assumed. None: not known, or there is no V."""
    config, v = manifest["config"], manifest.get("vhack") or {}
    usual = {name: getattr(TrainConfig(), name, None) for name in SETTINGS} | dict.fromkeys(asdict(RECIPE))
    return {name: v.get(name[2:]) if name.startswith("V.") else config.get(name, usual[name]) for name in SETTINGS}


# ---------------------------------------------------------------- grouping and comparing


def base_name(run: Run) -> str:
    """The arm as tables and plots call it."""
    return ARMS[run.arm].title if run.arm in ARMS else run.arm


def group_runs(runs: Sequence[Run]) -> list[RunGroup]:
    """Runs of one arm and the same settings; where an arm's runs differ, the settings that differ join the name.

    BadInput on two runs of one group with the same seed: their mean would count one seed twice.
    """
    by_name: dict[str, dict[int, Run]] = {}
    for run in sorted(runs, key=lambda r: (_order(r), r.path)):
        peers = [r for r in runs if base_name(r) == base_name(run)]
        differing = [s for s in SETTINGS if any(r.settings[s] != run.settings[s] for r in peers)]
        off = [s for s, usual in asdict(run.usual).items() if run.settings[s] != usual] if run.usual else []
        shown = [f"{s}={run.settings[s]}" for s in SETTINGS if s in (*differing, *off) and run.settings[s] is not None]
        own = by_name.setdefault(" ".join([base_name(run), *shown]), {})
        if run.seed in own:
            raise BadInput(
                f"{own[run.seed].path} and {run.path}: two runs of {base_name(run)} with seed {run.seed} and the same "
                "settings; move one of them elsewhere"
            )
        own[run.seed] = run
    return [RunGroup(name, tuple(own[seed] for seed in sorted(own))) for name, own in by_name.items()]


def _order(run: Run) -> tuple[int, str]:
    arms = list(ARMS)
    return (arms.index(run.arm) if run.arm in arms else len(arms), run.arm)


def reference(arm: str, group: RunGroup, runs: Sequence[Run]) -> dict[int, Run]:
    """By seed, the run of `arm` that a group is compared with: trained alike, and for a control with the same removal.

    Of several, the one of the same compute and most like the group otherwise.
    """
    like = group.runs[0]
    # Without a loophole the prompt and the reward differ by design.
    must = [s for s in TRAINING if like.loophole or s != "hint"]
    must += PROJECTION if ARMS[arm].projects else ()

    def fit(run: Run) -> tuple[bool, int]:
        return run.compute == like.compute, sum(run.settings[s] == like.settings[s] for s in SETTINGS)

    alike = [r for r in runs if r.arm == arm and all(r.settings[s] == like.settings[s] for s in must)]
    return {seed: max((r for r in alike if r.seed == seed), key=fit) for seed in sorted({r.seed for r in alike})}


def unmatched_compute(runs: Sequence[Run]) -> str:
    """How runs differ in steps or rollouts per step, or an empty string."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for run in runs:
        found.setdefault(run.compute, []).append(f"{base_name(run)} {run.seed}")
    if len(found) < 2:
        return ""
    told = [f"{s} steps x {p} prompts x {g} completions: {', '.join(who)}" for (s, p, g), who in found.items()]
    return "not matched compute: " + "; ".join(told)
