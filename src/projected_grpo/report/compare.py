"""Two runs, or two folders of them, side by side: rates and cosines at matched steps, and T6 where one side has a
LoRA."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.rates import RATE_NAMES, known_mean, number, running_mean
from projected_grpo.ledger.step_file import MODULE_FILE, NAMES, read_modules, read_run
from projected_grpo.report.text import Table, line_text
from projected_grpo.verdicts.adapters import adapter_of, t6_of
from projected_grpo.verdicts.finished_runs import Run, load_runs
from projected_grpo.verdicts.matching import between_adapters, differ
from projected_grpo.verdicts.registry import Line

POINTS = 6
"""Steps at which series are shown, the first and the last among them."""
RATES = {rate: f"{name} %" for rate, name in RATE_NAMES.items()}
COSINES = {name: name for name in ("cos_in", "cos_out", "cos_update_in", "cos_update")}
Pairs = dict[str, list[tuple[Run, Run]]]
"""Arm -> the same replicate of both sides."""


def compare(a: Path, b: Path) -> tuple[str, tuple[Line, ...]]:
    """Returns both sides, run by run of one arm and seed, and T6's lines. BadInput when a side has no finished run,
    no run has a fellow on the other side, or two fellows differ in more than their arm, adapter or seed: the fields
    are named with both values."""
    one, other = (load_runs(path).runs for path in (a, b))
    pairs = _paired(one, other)
    for x, y in (both for of_arm in pairs.values() for both in of_arm):
        if why := between_adapters(x, y) if adapter_of(x) != adapter_of(y) else differ(x, y):
            raise BadInput(f"{x.path} and {y.path} cannot be compared: {why}")
    t6 = tuple(t6_of(list({run.path.resolve(): run for run in (*one, *other)}.values())))
    facts = [
        [arm, side, adapter_of(run), str(run.config("lr")), f"k {run.facts.get('vhack.k', '-')}", str(run.seed),
         str(run.steps), str(run.path)]
        for arm, both in pairs.items() for i, side in enumerate("AB") for run in (pair[i] for pair in both)
    ]  # fmt: skip
    alone = len(one) + len(other) - len(facts)
    parts = [
        Table("", ["arm", "side", "adapter", "lr", "V", "replicate", "steps", "folder"], facts).text(),
        _series("Rates", RATES, pairs, 100.0, 1),
        _series("Cosines", COSINES, pairs, 1.0, 4),
        *([f"{alone} runs have no fellow of their arm and seed on the other side: not compared"] if alone else []),
        *map(line_text, t6),
    ]
    return "\n\n".join(parts), t6


def _series(title: str, names: Mapping[str, str], pairs: Pairs, scale: float, digits: int) -> str:
    """Means over replicates of running means, at steps evenly spread over the shortest run."""
    body = []
    for arm, both in pairs.items():
        last = min(run.steps for pair in both for run in pair) - 1
        series = ([running_mean(pair[side].series[name]) for pair in both] for name in names for side in (0, 1))
        means = [[known_mean(at) for at in zip(*of_runs, strict=False)] for of_runs in series]
        for step in sorted({round(last * i / (POINTS - 1)) for i in range(POINTS)}):
            body.append([arm, str(step), str(len(both)), *(number(mean[step], scale, digits) for mean in means)])
    header = ["arm", "step", "replicates", *(f"{what} {side}" for what in names.values() for side in "AB")]
    return f"{title}: mean over replicates of the mean over the 10 steps that end at each\n{Table('', header, body).text()}"


def _paired(one: Sequence[Run], other: Sequence[Run]) -> Pairs:
    """Two single runs are a pair whatever their arms. A run without a fellow is in none."""
    if len(one) == len(other) == 1:
        return {" / ".join(dict.fromkeys((one[0].arm, other[0].arm))): [(one[0], other[0])]}
    a, b = ({(run.arm, run.seed): run for run in runs} for runs in (one, other))
    for runs, found in ((one, a), (other, b)):
        if len(found) < len(runs):
            raise BadInput(f"{runs[0].path.parent}: two runs of one arm and seed; name folders with one of each")
    pairs: Pairs = {}
    for arm, seed in a:
        if (arm, seed) in b:
            pairs.setdefault(arm, []).append((a[arm, seed], b[arm, seed]))
    if not pairs:
        raise BadInput(
            f"{one[0].path.parent} and {other[0].path.parent}: no arm and seed that both have; nothing can be compared"
        )
    return pairs


def first_difference(a: Path, b: Path) -> str:
    """Returns where two runs first differ, number by number and timing aside, or an empty string. BadInput on a
    damaged run."""
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
