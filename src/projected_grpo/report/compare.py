"""Two runs, or two folders of them, side by side: rates and cosines at matched steps, V against V extracted again, effect
sizes of a V each, and T6 where one side has a LoRA.

    compare(Path("out/a"), Path("out/b")) -> Comparison: text(), t6
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import not_whole, read_manifest
from projected_grpo.ledger.module_file import NAME, read_modules
from projected_grpo.ledger.rates import known_mean, running_mean
from projected_grpo.ledger.step_file import NAMES, Row, read_run
from projected_grpo.report.table import number
from projected_grpo.report.verdict_text import line_text
from projected_grpo.verdicts.adapters import adapter_of, re_extracted_of, t6_of
from projected_grpo.verdicts.extraction import Paired, paired
from projected_grpo.verdicts.finished_runs import Run, load_runs, read_runs
from projected_grpo.verdicts.matching import between_adapters, differ, differences
from projected_grpo.verdicts.probe import T4, T4_PLUS
from projected_grpo.verdicts.registry import Line

POINTS = 6
"""Steps at which series are shown, the first and the last among them."""
RATES = {"hack": "hack %", "gt": "gt_pass %", "form": "well-formed %"}
COSINES = {name: name for name in ("cos_in", "cos_out", "cos_update_in", "cos_update")}
Pairs = Mapping[str, Sequence[tuple[Run, Run]]]
"""Arm -> the same unit of both sides."""
RE_EXTRACTED = ("arm", "side", "unit", "steps", "overlap", "null", "cos_in", "cos_out", "left")
RE_EXTRACTED_NOTES = """\
Re-extracted V: V extracted again from the run's own pairs at its trained adapter (`just re-extract`). overlap: mean squared
cosine of the principal angles between both; null: of unrelated subspaces, k / n. cos_in, cos_out: hack-ward part of the
pairs' gradient along re-extracted V, before and after V is removed; left: their ratio."""


@dataclass(frozen=True)
class Comparison:
    """Everything that is printed."""

    paths: tuple[Path, Path]
    pairs: Pairs
    unpaired: tuple[str, ...]
    """Runs that the other side lacks."""
    t4: Mapping[str, Paired]
    """Effect sizes of either V on one pool; empty without replays."""
    t6: tuple[Line, ...]

    def text(self) -> str:
        """The tables, aligned."""
        again = [row for arm, own in self.pairs.items() for side, runs in zip("AB", zip(*own, strict=True), strict=True)
                for run in runs for row in _re_extracted_rows(arm, side, run)]  # fmt: skip
        parts = [self._runs(), self._series("Rates", RATES, 100.0, 1), self._series("Cosines", COSINES, 1.0, 4)]
        parts += [f"{_table(RE_EXTRACTED, again)}\n{RE_EXTRACTED_NOTES}"] if again else []
        parts += [self._effects()] if self.t4 else []
        parts += [f"not compared: {line}" for line in self.unpaired]
        parts += ["\n".join(line_text(line)) for line in self.t6]
        return "\n\n".join(parts)

    def _runs(self) -> str:
        body = []
        for arm, own in self.pairs.items():
            for i, side in enumerate("AB"):
                runs = [pair[i] for pair in own]
                first = runs[0]
                v = f"k {first.facts.get('vhack.k', '-')}, {first.facts.get('vhack.loss', '-')}"
                seeds, steps = (" ".join(map(str, of)) for of in ([r.seed for r in runs], [r.steps for r in runs]))
                lr = str(first.config("lr"))
                body.append([arm, side, adapter_of(first), lr, v, seeds, steps, str(self.paths[i])])
        return _table(["arm", "", "adapter", "lr", "V", "units", "steps", "folder"], body)

    def _series(self, title: str, names: Mapping[str, str], scale: float, digits: int) -> str:
        """Means over units of running means, at steps evenly spread over the shortest run."""
        body = []
        for arm, own in self.pairs.items():
            last = min(run.steps for pair in own for run in pair) - 1
            means = [[known_mean_of(own, side, name) for side in (0, 1)] for name in names]
            for step in sorted({round(last * i / (POINTS - 1)) for i in range(POINTS)}):
                cells = [number(side[step], scale, digits) for sides in means for side in sides]
                body.append([arm, str(step), str(len(own)), *cells])
        header = ["arm", "step", "units", *(f"{what} {side}" for what in names.values() for side in "AB")]
        return f"{title}: mean over units of the mean over the 10 steps that end at each\n{_table(header, body)}"

    def _effects(self) -> str:
        body = [[name, p.one.text, p.other.text, p.gain.text] for name, p in self.t4.items()]
        return _table(["effect size g [95 %] over problems", "V of A", "V of B", "A - B"], body)


def known_mean_of(own: Sequence[tuple[Run, Run]], side: int, name: str) -> list[float | None]:
    """Returns, step by step, the mean over units of one side's running mean of a series."""
    return [known_mean(at) for at in zip(*(running_mean(pair[side].series[name]) for pair in own), strict=False)]


def _re_extracted_rows(arm: str, side: str, run: Run) -> list[list[str]]:
    """A row for every record of V extracted again; of a projected run without one, why."""
    records, last = run.re_extracted.records if run.re_extracted else (), re_extracted_of(run)
    if not records:
        return [[arm, side, str(run.seed), str(last), *["-"] * 5]] if run.projects else []
    return [
        [
            arm,
            side,
            str(run.seed),
            str(r.steps),
            *(f"{x:.4f}" for x in (r.overlap, r.null, r.cos_in, r.cos_out, r.left)),
        ]
        for r in records
    ]


def _table(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    words = {"arm", "", "side", "adapter", "V", "folder"}
    align = ["left" if name in words or i == 0 else "right" for i, name in enumerate(header)]
    return tabulate(body, header, disable_numparse=True, colalign=align)


# ---------------------------------------------------------------- reading


def compare(a: Path, b: Path, replays: tuple[Path, Path] | None = None) -> Comparison:
    """Returns both sides, run by run of one arm and seed. BadInput when a side has no finished run, no run has a fellow on
    the other side, or two fellows differ in more than their arm, adapter or seed: the fields are named with both values."""
    one, other = _side(a), _side(b)
    pairs, unpaired = _paired(one, other)
    for own in pairs.values():
        for x, y in own:
            differing = between_adapters(x, y) if adapter_of(x) != adapter_of(y) else differences(x, y)
            if differing:
                raise BadInput(f"{x.path} and {y.path} cannot be compared: {differ(x, y, differing)}")
    runs = {run.path.resolve(): run for run in (*one, *other)}
    return Comparison((a, b), pairs, unpaired, effects(*replays) if replays else {}, tuple(t6_of(list(runs.values()))))


def _side(path: Path) -> list[Run]:
    if not (path / "manifest.json").exists():
        return list(load_runs(path).runs)
    found = read_runs([path])
    if not found.runs:
        why = "; ".join(why for _, why in found.left_out) or "not a training run"
        raise BadInput(f"{path}: {why}")
    return list(found.runs)


def _paired(one: Sequence[Run], other: Sequence[Run]) -> tuple[Pairs, tuple[str, ...]]:
    if len(one) == len(other) == 1:
        return {" / ".join(dict.fromkeys((one[0].arm, other[0].arm))): [(one[0], other[0])]}, ()
    sides: list[dict[tuple[str, int], Run]] = []
    for runs in (one, other):
        by_unit: dict[tuple[str, int], Run] = {}
        for run in runs:
            if (first := by_unit.setdefault((run.arm, run.seed), run)) is not run:
                raise BadInput(
                    f"{first.path} and {run.path}: both are {run.arm} {run.seed}; name folders with one of each"
                )
        sides.append(by_unit)
    pairs: dict[str, list[tuple[Run, Run]]] = {}
    for (arm, seed), run in sides[0].items():
        if (arm, seed) in sides[1]:
            pairs.setdefault(arm, []).append((run, sides[1][arm, seed]))
    if not pairs:
        raise BadInput(
            f"{one[0].path.parent} and {other[0].path.parent}: no arm and seed that both have; nothing can be compared"
        )
    unpaired = [f"{arm} {seed} of {name}" for name, mine, theirs in (("A", *sides), ("B", *sides[::-1]))
                for arm, seed in mine if (arm, seed) not in theirs]  # fmt: skip
    return pairs, tuple(unpaired)


def effects(a: Path, b: Path) -> dict[str, Paired]:
    """Returns T4's effect size, and its companion's, of the V of either replay. BadInput when one is no finished vanilla
    replay, or they are not of the same rollouts."""
    one, other = _replay(a), _replay(b)
    if read_manifest(a)["pool_hash"] != read_manifest(b)["pool_hash"]:
        raise BadInput(f"{a} and {b}: replays of two pools; replay the same pool against either V")
    return {contrast.name: paired(contrast, one, other) for contrast in (T4, T4_PLUS)}


def _replay(path: Path) -> list[Row]:
    manifest = read_manifest(path)
    if (manifest.get("kind"), manifest["config"].get("arm")) != ("probe_distill", "vanilla"):
        raise BadInput(f"{path}: a {manifest.get('kind')} of arm {manifest['config'].get('arm')}, not a vanilla replay")
    if why := not_whole(path, manifest):
        raise BadInput(f"{path}: {why}")
    return [row for rows in read_run(path) for row in rows]


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
    sides = [read_modules(run) if (run / NAME).exists() else None for run in (a, b)]
    return "" if sides[0] == sides[1] else f"{NAME}: not the same numbers (or one run has none)"
