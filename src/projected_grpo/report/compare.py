"""Two runs, or two folders of them, side by side: rates and cosines at matched steps, V against V extracted again, effect
sizes of a V each, and T6 where one side has a LoRA.

    compare(Path("out/a"), Path("out/b")) -> what is printed, T6's lines
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.rates import RATE_NAMES, known_mean, number, running_mean
from projected_grpo.ledger.step_file import MODULE_FILE, NAMES, read_modules, read_run
from projected_grpo.report.tables import Table
from projected_grpo.report.uat.inputs import read_replay
from projected_grpo.report.verdict_text import line_text
from projected_grpo.verdicts.adapters import adapter_of, re_extracted_of, t6_of
from projected_grpo.verdicts.extraction import paired
from projected_grpo.verdicts.finished_runs import Run, load_runs
from projected_grpo.verdicts.matching import between_adapters, differ, differences
from projected_grpo.verdicts.probe import T4, T4_PLUS
from projected_grpo.verdicts.registry import Line

POINTS = 6
"""Steps at which series are shown, the first and the last among them."""
RATES = {rate: f"{name} %" for rate, name in RATE_NAMES.items()}
COSINES = {name: name for name in ("cos_in", "cos_out", "cos_update_in", "cos_update")}
Pairs = Mapping[str, Sequence[tuple[Run, Run]]]
"""Arm -> the same replicate of both sides."""
RE_EXTRACTED = ("arm", "side", "replicate", "steps", "overlap", "null", "cos_in", "cos_out", "left")
RE_EXTRACTED_NOTES = """\
Re-extracted V: V extracted again from the run's pairs at its trained adapter (`just re-extract`). overlap: mean squared
cosine of the principal angles between both; null: of unrelated subspaces, k / n. cos_in, cos_out: hack-ward part of the
pairs' gradient along re-extracted V, before and after V is removed; left: their ratio."""


def compare(a: Path, b: Path, replays: tuple[Path, Path] | None = None) -> tuple[str, tuple[Line, ...]]:
    """Returns both sides, run by run of one arm and seed, and T6's lines. BadInput when a side has no finished run, no run
    has a fellow on the other side, or two fellows differ in more than their arm, adapter or seed: the fields are named with
    both values."""
    one, other = (list(load_runs(path).runs) for path in (a, b))
    pairs, unpaired = _paired(one, other)
    for x, y in (both for of_arm in pairs.values() for both in of_arm):
        if differing := between_adapters(x, y) if adapter_of(x) != adapter_of(y) else differences(x, y):
            raise BadInput(f"{x.path} and {y.path} cannot be compared: {differ(x, y, differing)}")
    t6 = tuple(t6_of(list({run.path.resolve(): run for run in (*one, *other)}.values())))
    sides = [
        (arm, side, run) for arm, both in pairs.items() for i, side in enumerate("AB") for run in (p[i] for p in both)
    ]
    again = [row for arm, side, run in sides for row in _re_extracted_rows(arm, side, run)]
    header = ["arm", "side", "adapter", "lr", "V", "replicate", "steps", "folder"]
    parts = [
        Table("", header, [_facts(*side) for side in sides]).text(),
        _series("Rates", RATES, pairs, 100.0, 1),
        _series("Cosines", COSINES, pairs, 1.0, 4),
        *([f"{Table('', RE_EXTRACTED, again).text()}\n{RE_EXTRACTED_NOTES}"] if again else []),
        *([effects(*replays)] if replays else []),
        *(f"not compared: {line}" for line in unpaired),
        *("\n".join(line_text(line)) for line in t6),
    ]
    return "\n\n".join(parts), t6


def _facts(arm: str, side: str, run: Run) -> list[str]:
    v = f"k {run.facts.get('vhack.k', '-')}, {run.facts.get('vhack.loss', '-')}"
    return [arm, side, adapter_of(run), str(run.config("lr")), v, str(run.seed), str(run.steps), str(run.path)]


def _series(title: str, names: Mapping[str, str], pairs: Pairs, scale: float, digits: int) -> str:
    """Means over replicates of running means, at steps evenly spread over the shortest run."""
    body = []
    for arm, both in pairs.items():
        last = min(run.steps for pair in both for run in pair) - 1
        means = [_mean_series([pair[side] for pair in both], name) for name in names for side in (0, 1)]
        for step in sorted({round(last * i / (POINTS - 1)) for i in range(POINTS)}):
            body.append([arm, str(step), str(len(both)), *(number(mean[step], scale, digits) for mean in means)])
    header = ["arm", "step", "replicates", *(f"{what} {side}" for what in names.values() for side in "AB")]
    return f"{title}: mean over replicates of the mean over the 10 steps that end at each\n{Table('', header, body).text()}"


def _mean_series(runs: Sequence[Run], name: str) -> list[float | None]:
    """Step by step, the mean over runs of the running mean of a series."""
    return [known_mean(at) for at in zip(*(running_mean(run.series[name]) for run in runs), strict=False)]


def _re_extracted_rows(arm: str, side: str, run: Run) -> list[list[str]]:
    """A row for every record of V extracted again; of a projected run without one, why."""
    head, records = [arm, side, str(run.seed)], run.re_extracted.records if run.re_extracted else ()
    if not records:
        return [[*head, str(re_extracted_of(run)), *["-"] * 5]] if run.projects else []
    return [
        [*head, str(r.steps), *(f"{x:.4f}" for x in (r.overlap, r.null, r.cos_in, r.cos_out, r.left))] for r in records
    ]


def effects(a: Path, b: Path) -> str:
    """Returns T4's effect size, and its companion's, of the V of either replay as a table. BadInput when one is no finished
    vanilla replay against a V, or they are not of the same rollouts."""
    (first, one), (second, other) = (read_replay("vanilla", path) for path in (a, b))
    if first["pool_hash"] != second["pool_hash"]:
        raise BadInput(f"{a} and {b}: replays of two pools; replay the same pool against either V")
    rows = [[row for step in steps for row in step] for steps in (one, other)]
    found = {contrast.name: paired(contrast, *rows) for contrast in (T4, T4_PLUS)}
    body = [[name, p.one.text, p.other.text, p.gain.text] for name, p in found.items()]
    return Table("", ["effect size g [95 %] over problems", "V of A", "V of B", "A - B"], body).text()


# ---------------------------------------------------------------- which runs


def _paired(one: Sequence[Run], other: Sequence[Run]) -> tuple[Pairs, tuple[str, ...]]:
    if len(one) == len(other) == 1:
        return {" / ".join(dict.fromkeys((one[0].arm, other[0].arm))): [(one[0], other[0])]}, ()
    a, b = _by_replicate(one), _by_replicate(other)
    pairs: dict[str, list[tuple[Run, Run]]] = {}
    for (arm, seed), run in a.items():
        if (arm, seed) in b:
            pairs.setdefault(arm, []).append((run, b[arm, seed]))
    if not pairs:
        raise BadInput(
            f"{one[0].path.parent} and {other[0].path.parent}: no arm and seed that both have; nothing can be compared"
        )
    unpaired = [f"{arm} {seed} of A" for arm, seed in a if (arm, seed) not in b]
    return pairs, (*unpaired, *(f"{arm} {seed} of B" for arm, seed in b if (arm, seed) not in a))


def _by_replicate(runs: Sequence[Run]) -> dict[tuple[str, int], Run]:
    found: dict[tuple[str, int], Run] = {}
    for run in runs:
        if (first := found.setdefault((run.arm, run.seed), run)) is not run:
            raise BadInput(f"{first.path} and {run.path}: both are {run.arm} {run.seed}; name folders with one of each")
    return found


def first_difference(a: Path, b: Path) -> str:
    """Returns where two runs first differ, number by number and timing aside, or an empty string. BadInput on a damaged
    run."""
    left, right = read_run(a), read_run(b)
    for step, (rows_a, rows_b) in enumerate(zip(left, right, strict=False)):
        if len(rows_a) != len(rows_b):
            return f"step {step}: {len(rows_a)} rows against {len(rows_b)}"
        for i, (x, y) in enumerate(zip(rows_a, rows_b, strict=True)):
            for name in NAMES:
                if name != "timing" and x[name] != y[name]:
                    return f"step {step}, row {i}, {name}: {x[name]!r:.80} against {y[name]!r:.80}"
    if len(left) != len(right):
        return f"{len(left)} steps against {len(right)}"
    sides = [read_modules(run) if (run / MODULE_FILE).exists() else None for run in (a, b)]
    return "" if sides[0] == sides[1] else f"{MODULE_FILE}: not the same numbers (or one run has none)"
