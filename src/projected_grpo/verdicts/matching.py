"""Which runs may be averaged, which may be compared, and which are independent of one another.

    groups = group_runs(runs);  reference("vanilla", groups[0], runs);  differ(a, b);  independence(compared)

What two runs must share, and what an arm or a seed is about, is one list: verdicts/comparison.py. What differs beyond
it is named with both values, and nothing is concluded from the two."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from projected_grpo.arms import ARMS, RECIPE, dosed
from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.verdicts.comparison import (
    OF_ADAPTER,
    OF_BASE,
    OF_EQUAL_REMOVAL,
    OF_RANK,
    OF_SEED,
    SETTINGS,
    differences,
    of_arms,
)
from projected_grpo.verdicts.finished_runs import Run
from projected_grpo.verdicts.registry import Finding, condition

Compared = Mapping[str, Mapping[int, Run]]
"""Arm -> seed -> run."""

# ---------------------------------------------------------------- what differs


def differ(a: Run, b: Run, also: Collection[str] = ()) -> str:
    """Returns in what two runs differ that they should share, in words; empty if in nothing. `also`: what may differ
    beyond their arms and seeds."""
    free = {*also}
    if a.arm != b.arm:
        free |= of_arms(a.arm, b.arm)
        controls = {a.facts.get("vhack.control"), b.facts.get("vhack.control")}
        if controls & OF_EQUAL_REMOVAL and _rank(a) == _rank(b):
            free |= OF_RANK
    if a.seed != b.seed:
        free |= OF_SEED | (OF_BASE if a.origin != b.origin else frozenset())
    what = differences(a.facts, b.facts, free)
    return what and f"{base_name(a)} {a.seed} and {base_name(b)} {b.seed} differ in {what}"


def between_adapters(a: Run, b: Run) -> str:
    """The same of two runs of one arm and seed that differ in their adapter. Each may last as long as its adapter's
    vanilla says."""
    return differ(a, b, {*OF_ADAPTER, "steps done"} if _by_onset(a) and _by_onset(b) else OF_ADAPTER)


def _by_onset(run: Run) -> bool:
    """Whether its number of steps follows from an onset."""
    return bool(run.config("until_onsets")) or run.config("horizon_of") not in (None, ".")


def _rank(run: Run) -> int:
    """How many directions a module its V is of: those that were extracted, or the first of them."""
    k = int(run.facts.get("vhack.k") or 0)
    return min(k, run.config("k_use") or k)


# ---------------------------------------------------------------- groups

BY_DEFAULT = {name: getattr(TrainConfig(), name) for name in ("overshoot", "preserve_magnitude")}
"""Of every preset's recipe, besides gate and target: a group that takes V out otherwise says so in its name."""


@dataclass(frozen=True)
class RunGroup:
    """Runs of one arm and the same settings, one a seed."""

    name: str
    runs: tuple[Run, ...]

    @property
    def by_seed(self) -> dict[int, Run]:
        return {run.seed: run for run in self.runs}


def base_name(run: Run) -> str:
    """The arm and its number of directions, as tables and plots call it. One whose V is from informed pairs has
    another name than the arm."""
    return f"{dosed(ARMS[run.arm].title, run.config('k_use') or 0)}{' informed' if informed(run) else ''}"


def informed(run: Run) -> bool:
    """Returns whether it used a V from pairs that were written when the hack had been seen."""
    return ARMS[run.arm].vhack is not None and str(run.facts.get("vhack.pairs")).endswith("-informed")


def _setting(run: Run, name: str) -> Any:
    """None where it is not known, or follows from the onset (steps). A sampled pool is "pool" wherever it lies."""
    if name.startswith("V."):
        return run.facts.get(f"vhack.{name[2:]}")
    if name == "steps" and _by_onset(run):
        return None
    found = run.facts.get(f"config.{name}", run.facts.get(name))
    return "pool" if name == "teacher_pool" and found not in ("", "pairs") else found


def group_runs(runs: Sequence[Run]) -> list[RunGroup]:
    """Runs of one arm and the same settings; where an arm's runs differ, the settings that differ join the name.

    BadInput on two runs of one group with the same seed: their mean would count one seed twice.
    """
    groups: dict[str, dict[int, Run]] = {}
    settings = {run.path: {name: _setting(run, name) for name in SETTINGS} for run in runs}
    for run in sorted(runs, key=lambda r: (order_of(r.arm), _natural(r.path))):
        own, name = settings[run.path], base_name(run)
        usual = {**asdict(ARMS[run.arm].recipe or RECIPE), **BY_DEFAULT} if run.projects else {}
        named = {s for s, of_recipe in usual.items() if own[s] != of_recipe}
        for peer in (settings[r.path] for r in runs if base_name(r) == name):
            named |= {s for s in SETTINGS if peer[s] != own[s]}
        shown = [f"{s}={own[s]}" for s in SETTINGS if s in named and own[s] is not None]
        placed = groups.setdefault(" ".join([name, *shown]), {})
        if (first := placed.setdefault(run.seed, run)) is not run:
            both, why = f"{first.path} and {run.path}", differences(first.facts, run.facts) or "no compared setting"
            raise BadInput(f"{both}: two runs of {name} with seed {run.seed}, that differ in {why}; move one away")
    return [RunGroup(name, tuple(placed[seed] for seed in sorted(placed))) for name, placed in groups.items()]


def _natural(path: Path) -> list[tuple[str, int]]:
    """By which k2 comes before k16."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", path.as_posix())]


def order_of(arm: str) -> int:
    """Returns an arm's place in tables: the registry's."""
    return list(ARMS).index(arm)


# ---------------------------------------------------------------- comparing


def reference(arm: str, group: RunGroup, runs: Sequence[Run]) -> tuple[dict[int, Run], dict[int, str]]:
    """Returns, by seed, the runs of `arm` that differ from the group's run of their seed (where it has none: from its
    first) in nothing but what the two arms are about; and why there is none at seeds of the group where all differ in
    more. Of several, the one with the most facts in common."""
    ours = group.by_seed
    found: dict[int, Run] = {}
    refused: dict[int, str] = {}
    for seed in sorted({r.seed for r in runs if r.arm == arm}):
        like = ours.get(seed, group.runs[0])
        there = (r for r in runs if (r.arm, r.seed) == (arm, seed))
        best = min(there, key=lambda r: (bool(differ(r, like)), -_in_common(r, like)))
        if not (why := differ(best, like)):
            found[seed] = best
        elif seed in ours:
            refused[seed] = why
    return found, refused


def _in_common(a: Run, b: Run) -> int:
    return sum(a.facts.get(name) == value for name, value in b.facts.items())


def mismatches(compared: Compared) -> list[str]:
    """Returns how the runs of one comparison differ between seeds, arm by arm, and which V is from informed pairs."""
    wrong = []
    for arm, by_seed in compared.items():
        runs = list(by_seed.values())
        wrong += [why for other in runs[1:] if (why := differ(other, runs[0]))]
        wrong += [
            f"{arm} {run.seed}: its V is from {run.facts['vhack.pairs']}, written when the hack had been seen: no evidence "
            f"of {arm}"
            for run in runs
            if informed(run)
        ]
    return wrong


def bases_of(runs: Iterable[Run]) -> dict[int, str]:
    """Returns the base model of each seed. Builds of one base_seed are one base, and so are two base_seeds of the
    same weights."""
    named: dict[str, str] = {}
    return {run.seed: named.setdefault(run.facts.get("model_hash") or run.origin, run.origin) for run in runs}


def independence(compared: Compared) -> Finding:
    """Returns whether the seeds of a comparison are independent replicates: no arm that removes V uses one V, or V
    from one draw of pairs, at two seeds. Names the base of each: a claim about the world needs several."""
    removing = {arm: by_seed for arm, by_seed in compared.items() if ARMS[arm].projects}
    shared = [why for arm, by_seed in removing.items() for why in _shared(arm, by_seed)]
    bases: dict[str, set[int]] = {}
    for by_seed in compared.values():
        for seed, base in bases_of(by_seed.values()).items():
            bases.setdefault(base, set()).add(seed)
    where = "; ".join(f"{base}: {', '.join(map(str, sorted(seeds)))}" for base, seeds in bases.items())
    why = f"no two share a V or a draw of pairs; {len(bases)} base(s): {where}"
    return condition("independent replicates", shared, why)


def _shared(arm: str, by_seed: Mapping[int, Run]) -> Iterator[str]:
    """Yields what two seeds of an arm share of their V; random directions come from no pairs."""
    drawn = not (ARMS[arm].measured or "").startswith("random")
    for field in ("v_sha256", *(["pairs_draw"] if drawn else [])):
        of = {seed: run.facts.get(f"vhack.{field}") for seed, run in by_seed.items()}
        for seed, value in of.items():
            if value is None:
                yield f"{arm} {seed}: its V has no {field}; extract it again"
        for (a, one), (b, other) in combinations(of.items(), 2):
            if one == other and one is not None:
                yield f"seeds {a} and {b} share {arm}'s V: {field} {str(one)[:8]}"
