"""Two runs, or two folders of them, side by side: what they differ in, cosines, V against re-extracted V, rates at matched
steps, effect sizes of a V each, and T6 where one side has a LoRA.

    compare(Path("out/a"), Path("out/b")) -> Comparison: text(), json(), t6
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import not_whole, plain, read_manifest
from projected_grpo.ledger.rates import known_mean, running_mean
from projected_grpo.ledger.step_file import Row, read_run
from projected_grpo.report.results_md import line_numbers
from projected_grpo.report.tables import line_text, number
from projected_grpo.verdicts.adapters import adapter_of, re_extracted_of, t6_of
from projected_grpo.verdicts.effects import Effect
from projected_grpo.verdicts.finished_runs import Run, load_runs, read_runs
from projected_grpo.verdicts.h1 import Line
from projected_grpo.verdicts.matching import between_adapters, differ, differences
from projected_grpo.verdicts.paired import Paired, paired
from projected_grpo.verdicts.probe import T4, T4_PLUS

POINTS = 6
"""Steps at which series are shown, the first window and the last among them."""
RATES = {"hack": "hack %", "gt": "gt_pass %", "form": "well-formed %"}
COSINES = {name: name for name in ("cos_in", "cos_out", "cos_update_in", "cos_update")}
Pairs = Mapping[str, Sequence[tuple[Run, Run]]]
"""Arm -> the same unit of both sides."""


@dataclass(frozen=True)
class Comparison:
    """Everything that is printed and written."""

    paths: tuple[Path, Path]
    pairs: Pairs
    alone: tuple[str, ...]
    """Runs that the other side lacks."""
    t4: Mapping[str, Paired]
    """Effect sizes of either V on one pool; empty without replays."""
    t6: tuple[Line, ...]

    def text(self) -> str:
        """The tables, aligned."""
        parts = [self._runs(), self._series("Rates", RATES, 100.0, 1), self._series("Cosines", COSINES, 1.0, 4)]
        parts += [f"{_table(RE_EXTRACTED, self.re_extracted)}\n{RE_EXTRACTED_NOTES}"] if self.re_extracted else []
        parts += [self._effects()] if self.t4 else [NO_REPLAYS]
        parts += [f"not compared: {line}" for line in self.alone]
        parts += ["\n".join(line_text(line, "simple")) for line in self.t6]
        return "\n\n".join(part for part in parts if part)

    def json(self) -> dict[str, Any]:
        """Every number."""
        return plain({
            "a": self.paths[0], "b": self.paths[1], "not_compared": self.alone,
            "arms": {
                arm: {
                    "seeds": [a.seed for a, _ in own],
                    "steps": self._points(own),
                    **{
                        side: {
                            name: [self._mean(own, i, name, t) for t in self._points(own)] for name in (*RATES, *COSINES)
                        }
                        for i, side in enumerate("ab")
                    },
                }
                for arm, own in self.pairs.items()
            },
            "re_extracted": [dict(zip(RE_EXTRACTED, row, strict=True)) for row in self.re_extracted],
            "t4": {
                name: {"a": _effect_json(p.one), "b": _effect_json(p.other), "a_minus_b": _effect_json(p.gain)}
                for name, p in self.t4.items()
            },
            "t6": [line_numbers(line) for line in self.t6],
        })  # fmt: skip

    def _runs(self) -> str:
        body = []
        for arm, own in self.pairs.items():
            for i, side in enumerate("AB"):
                runs = [pair[i] for pair in own]
                first = runs[0]
                seeds, steps = (
                    " ".join(str(x) for x in of) for of in ([r.seed for r in runs], [r.steps for r in runs])
                )
                v = f"k {first.facts.get('vhack.k', '-')}, {first.facts.get('vhack.loss', '-')}"
                body.append(
                    [arm, side, adapter_of(first), str(first.config("lr")), v, seeds, steps, str(self.paths[i])]
                )
        return _table(["arm", "", "adapter", "lr", "V", "units", "steps", "folder"], body)

    def _points(self, own: Sequence[tuple[Run, Run]]) -> list[int]:
        """Matched steps: so many of the shortest run's, evenly spread, the last one among them."""
        last = min(run.steps for pair in own for run in pair) - 1
        return sorted({round(last * i / (POINTS - 1)) for i in range(POINTS)})

    def _mean(self, own: Sequence[tuple[Run, Run]], side: int, name: str, step: int) -> float | None:
        """Over units, of the mean over up to 10 steps that end at this one."""
        return known_mean(running_mean(pair[side].series[name])[step] for pair in own)

    def _series(self, title: str, names: Mapping[str, str], scale: float, digits: int) -> str:
        body = []
        for arm, own in self.pairs.items():
            for step in self._points(own):
                cells = [self._mean(own, side, name, step) for name in names for side in (0, 1)]
                body.append([arm, str(step), str(len(own)), *(number(cell, scale, digits) for cell in cells)])
        header = ["arm", "step", "units", *(f"{what} {side}" for what in names.values() for side in "AB")]
        return f"{title}: mean over units of the mean over the 10 steps that end at each\n{_table(header, body)}"

    @property
    def re_extracted(self) -> list[list[str]]:
        """A row for every record of V extracted again, of runs that have one; why not, of projected runs that have none."""
        out = []
        for arm, own in self.pairs.items():
            for side, runs in zip("AB", zip(*own, strict=True), strict=True):
                for run in runs:
                    out += _re_extracted_rows(arm, side, run)
        return out

    def _effects(self) -> str:
        body = [[name, _effect(p.one), _effect(p.other), _effect(p.gain)] for name, p in self.t4.items()]
        return _table(["effect size g [95 %] over problems", "V of A", "V of B", "A - B"], body)


NO_REPLAYS = (
    "T4 effect sizes: not given. Replay one pool with each side's V (`probe_distill --arm vanilla`) and name them by "
    "--replay-a, --replay-b."
)
RE_EXTRACTED = ("arm", "side", "unit", "steps", "overlap", "null", "rms cos", "null rms", "cos_in", "cos_out", "left")
RE_EXTRACTED_NOTES = """\
Re-extracted V: V extracted again from the run's own pairs at its trained adapter (`just re-extract`). overlap: mean squared
cosine of the principal angles between both; null: of unrelated subspaces, k / n, its root next to the root of the overlap.
cos_in, cos_out: hack-ward part of the pairs' gradient along re-extracted V, before and after V is removed; left: their
ratio. A V that has drifted shows overlap near null and cos_out near cos_in."""


def _re_extracted_rows(arm: str, side: str, run: Run) -> list[list[str]]:
    found, last = run.re_extracted, re_extracted_of(run)
    if found is None or (isinstance(last, str) and "not of its trained" in last):
        return [[arm, side, str(run.seed), last if isinstance(last, str) else "-", *["-"] * 7]] if run.projects else []
    return [
        [arm, side, str(run.seed), str(r.steps), *(f"{x:.4f}" for x in (
            r.overlap, r.null, r.overlap**0.5, r.null**0.5, r.cos_in, r.cos_out, r.left))]
        for r in found.records
    ]  # fmt: skip


def _table(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    words = {"arm", "", "side", "adapter", "V", "folder"}
    align = ["left" if name in words or i == 0 else "right" for i, name in enumerate(header)]
    return tabulate(body, header, disable_numparse=True, colalign=align)


def _effect(effect: Effect) -> str:
    if effect.g is None:
        return f"- ({effect.interval.why})"
    low, high = effect.interval.low, effect.interval.high
    return f"{effect.g:+.2f} " + ("[-]" if low is None or high is None else f"[{low:+.2f}, {high:+.2f}]")


def _effect_json(effect: Effect) -> dict[str, Any]:
    return {"g": effect.g, **asdict(effect.interval)}


# ---------------------------------------------------------------- reading


def compare(a: Path, b: Path, replays: tuple[Path, Path] | None = None) -> Comparison:
    """Both sides, run by run of one arm and seed. BadInput when a side has no finished run, no run has a fellow on the other
    side, or two fellows differ in more than their arm, adapter or seed: the fields are named with both values."""
    one, other = _side(a), _side(b)
    matched, alone = _matched(one, other)
    for own in matched.values():
        for x, y in own:
            differing = between_adapters(x, y) if adapter_of(x) != adapter_of(y) else differences(x, y)
            if differing:
                raise BadInput(f"{x.path} and {y.path} cannot be compared: {differ(x, y, differing)}")
    runs = {run.path.resolve(): run for run in (*one, *other)}
    return Comparison((a, b), matched, alone, effects(*replays) if replays else {}, tuple(t6_of(list(runs.values()))))


def _side(path: Path) -> list[Run]:
    if not (path / "manifest.json").exists():
        return list(load_runs(path).runs)
    found = read_runs([path])
    if not found.runs:
        why = "; ".join(why for _, why in found.left_out) or "not a training run"
        raise BadInput(f"{path}: {why}")
    return list(found.runs)


def _matched(one: Sequence[Run], other: Sequence[Run]) -> tuple[Pairs, tuple[str, ...]]:
    if len(one) == len(other) == 1:
        names = dict.fromkeys((one[0].arm, other[0].arm))
        return {" / ".join(names): [(one[0], other[0])]}, ()
    sides: list[dict[tuple[str, int], Run]] = []
    for runs in (one, other):
        by_unit: dict[tuple[str, int], Run] = {}
        for run in runs:
            if (first := by_unit.setdefault((run.arm, run.seed), run)) is not run:
                raise BadInput(
                    f"{first.path} and {run.path}: both are {run.arm} {run.seed}; name folders with one of each"
                )
        sides.append(by_unit)
    shared = [unit for unit in sides[0] if unit in sides[1]]
    if not shared:
        raise BadInput(
            f"{one[0].path.parent} and {other[0].path.parent}: no arm and seed that both have; nothing can be compared"
        )
    pairs: dict[str, list[tuple[Run, Run]]] = {}
    for unit in shared:
        pairs.setdefault(unit[0], []).append((sides[0][unit], sides[1][unit]))
    alone = [f"{arm} {seed} of {name} alone" for name, mine, theirs in (("A", *sides), ("B", *sides[::-1]))
             for arm, seed in mine if (arm, seed) not in theirs]  # fmt: skip
    return pairs, tuple(alone)


def effects(a: Path, b: Path) -> dict[str, Paired]:
    """T4's effect size, and its companion's, of the V of either replay. BadInput when one is no finished vanilla replay, or
    they are not of the same rollouts."""
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
