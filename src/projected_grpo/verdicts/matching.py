"""Which runs may be averaged, which may be compared, and which are independent of one another.

    groups = group_runs(runs);  reference("vanilla", groups[0], runs);  differences(a, b);  independence(compared)

What two runs must share, and what an arm or a seed is about, is one list: verdicts/comparison.py. What differs beyond it is
named with both values, and nothing is concluded from the two.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from projected_grpo.arms import ARMS, OF_EQUAL_REMOVAL, RECIPE
from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.verdicts import comparison
from projected_grpo.verdicts.comparison import OF_ADAPTER, OF_BASE, OF_CHANNEL, OF_RANK, OF_SEED, of_arms
from projected_grpo.verdicts.finished_runs import Run
from projected_grpo.verdicts.registry import Finding

Compared = Mapping[str, Mapping[int, Run]]
"""Arm -> seed -> run."""

# ---------------------------------------------------------------- what differs


def differences(a: Run, b: Run, also: Collection[str] = ()) -> list[str]:
    """In what two runs differ that they should share, each with both values; `also`: what may differ beyond their arms and
    seeds."""
    free = {*also}
    if a.arm != b.arm:
        free |= of_arms(a.arm, b.arm)
        controls = {a.facts.get("vhack.control"), b.facts.get("vhack.control")}
        if controls & {*OF_EQUAL_REMOVAL} and _rank(a) == _rank(b):
            free |= OF_RANK
    if a.seed != b.seed:
        free |= OF_SEED | (OF_BASE if a.origin != b.origin else frozenset())
    return comparison.differences(a.facts, b.facts, free)


def between_adapters(a: Run, b: Run) -> list[str]:
    """The same of two runs of one arm and seed that differ in their adapter. Each may last as long as its adapter's
    vanilla says."""
    by_onset = all(run.config("until_onsets") or run.config("horizon_of") not in (None, ".") for run in (a, b))
    return differences(a, b, {*OF_ADAPTER, "steps done"} if by_onset else OF_ADAPTER)


def _rank(run: Run) -> int:
    """How many directions a module its V is of: those that were extracted, or the first of them."""
    k = int(run.facts.get("vhack.k") or 0)
    return min(k, run.config("k_use") or k)


def differ(a: Run, b: Run, what: Sequence[str]) -> str:
    """Says that two runs differ in `what`."""
    return f"{base_name(a)} {a.seed} and {base_name(b)} {b.seed} differ in {'; '.join(what)}"


# ---------------------------------------------------------------- groups

SETTINGS = (
    "model", "adapter", "project", "gate", "k_use", "noise_floor", "overshoot", "refresh_every", "lr", "steps",
    "V.pairs", "V.k", "V.modules", "V.modes", "V.loss", "V.control",
    "prompts_per_step", "group_size", "preserve_magnitude", "lora_rank", "warmup", "loss", "beta",
    "problems", "hint", "prompt_setup", "max_new", "temperature", "top_p", "top_k", "teacher_pool", "mix", *OF_CHANNEL,
)  # fmt: skip
"""Settings that tell runs of one arm apart, in the order in which a group's name lists them."""
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
    """The arm as tables and plots call it. One whose V is from informed pairs has another name than the arm."""
    title = ARMS[run.arm].title if run.arm in ARMS else run.arm
    return f"{title} informed" if informed(run) else title


def informed(run: Run) -> bool:
    """Returns whether it used a V from pairs that were written when the hack had been seen: it knows what to look for."""
    arm = ARMS.get(run.arm)
    return arm is not None and arm.vhack is not None and run.facts.get("vhack.pairs") == "small-informed"


def setting(run: Run, name: str) -> Any:
    """Returns a setting by its name; None where it is not known, or follows from the onset (steps). A sampled pool is
    "pool" wherever it lies."""
    if name.startswith("V."):
        return run.facts.get(f"vhack.{name[2:]}")
    if name == "steps" and (run.config("until_onsets") or run.config("horizon_of") not in (None, ".")):
        return None
    found = run.config(name)
    return "pool" if name == "teacher_pool" and found not in ("", "pairs") else found


def settings(run: Run) -> dict[str, Any]:
    return {name: setting(run, name) for name in SETTINGS}


def group_runs(runs: Sequence[Run]) -> list[RunGroup]:
    """Runs of one arm and the same settings; where an arm's runs differ, the settings that differ join the name.

    BadInput on two runs of one group with the same seed: their mean would count one seed twice.
    """
    by_name: dict[str, dict[int, Run]] = {}
    of = {run.path: settings(run) for run in runs}
    for run in sorted(runs, key=lambda r: (order_of(r.arm), _natural(r.path))):
        own_settings = of[run.path]
        peers = [of[r.path] for r in runs if base_name(r) == base_name(run)]
        differing = [s for s in SETTINGS if any(peer[s] != own_settings[s] for peer in peers)]
        usual = {**asdict(ARMS[run.arm].recipe or RECIPE), **BY_DEFAULT} if run.projects else {}
        off = [s for s, of_recipe in usual.items() if own_settings[s] != of_recipe]
        off += ["V.pairs"] if _of_other_pairs(run) else []
        shown = [f"{s}={own_settings[s]}" for s in SETTINGS if s in (*differing, *off) and own_settings[s] is not None]
        placed = by_name.setdefault(" ".join([base_name(run), *shown]), {})
        if run.seed in placed:
            raise BadInput(
                f"{placed[run.seed].path} and {run.path}: two runs of {base_name(run)} with seed {run.seed} and the same "
                "settings; move one of them elsewhere"
            )
        placed[run.seed] = run
    return [RunGroup(name, tuple(placed[seed] for seed in sorted(placed))) for name, placed in by_name.items()]


def _of_other_pairs(run: Run) -> bool:
    """Whether it used a V from pairs that are neither its run's nor its model's (of a V of words they never are)."""
    arm, pairs = ARMS.get(run.arm), run.facts.get("vhack.pairs")
    if arm is None or arm.vhack in (None, "words") or not pairs or not run.config("pairs"):
        return False
    return pairs not in (run.config("pairs"), run.config("model"))


def _natural(path: Path) -> list[tuple[str, int]]:
    """By which k2 comes before k16."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", path.as_posix())]


def order_of(arm: str) -> tuple[int, str]:
    """Returns an arm's place in tables: the registry's, and behind it by name."""
    arms = list(ARMS)
    return (arms.index(arm) if arm in arms else len(arms), arm)


# ---------------------------------------------------------------- comparing


@dataclass(frozen=True)
class Reference:
    """The runs of an arm that a group is compared with."""

    runs: Mapping[int, Run]
    """By seed."""
    refused: Mapping[int, str]
    """Seeds of the group of which there is such a run that differs in more than it may, and in what."""


def reference(arm: str, group: RunGroup, runs: Sequence[Run]) -> Reference:
    """Returns the runs of `arm` that differ from the group's run of their seed (where it has none: from its first) in
    nothing but what the two arms are about. Of several, the one with the most facts in common."""
    ours = group.by_seed
    found: dict[int, Run] = {}
    refused: dict[int, str] = {}
    for seed in sorted({r.seed for r in runs if r.arm == arm}):
        like = ours.get(seed, group.runs[0])
        there = (r for r in runs if (r.arm, r.seed) == (arm, seed))
        best = min(there, key=lambda r: (len(differences(r, like)), -in_common(r, like)))
        if not (differing := differences(best, like)):
            found[seed] = best
        elif seed in ours:
            refused[seed] = differ(best, like, differing)
    return Reference(found, refused)


def in_common(a: Run, b: Run) -> int:
    """Returns how many of their facts are equal."""
    return sum(a.facts.get(name) == value for name, value in b.facts.items())


def mismatches(compared: Compared) -> list[str]:
    """Returns how the runs of one comparison differ between seeds, arm by arm, and which V is from informed pairs."""
    wrong = []
    for arm, by_seed in compared.items():
        runs = list(by_seed.values())
        wrong += [differ(other, runs[0], what) for other in runs[1:] if (what := differences(other, runs[0]))]
        wrong += [
            f"{arm} {run.seed}: its V is from {run.facts['vhack.pairs']}, written when the hack had been seen: no evidence "
            f"of {arm}"
            for run in runs
            if informed(run)
        ]
    return wrong


def bases_of(runs: Iterable[Run]) -> dict[int, str]:
    """Returns the base model of each seed. Builds of one base_seed are one base, and so are two base_seeds of the same
    weights."""
    named: dict[str, str] = {}
    return {run.seed: named.setdefault(run.facts.get("model_hash") or run.origin, run.origin) for run in runs}


def independence(compared: Compared) -> Finding:
    """Returns whether the seeds of a comparison are independent replicates: no arm that removes V uses one V, or V from one
    draw of pairs, at two seeds. Names the base of each: a claim about the world needs several."""
    name, shared = "independent replicates", []
    bases: dict[str, set[int]] = {}
    for arm, by_seed in compared.items():
        if arm in ARMS and ARMS[arm].projects:
            shared += _shared(arm, by_seed)
        for seed, base in bases_of(by_seed.values()).items():
            bases.setdefault(base, set()).add(seed)
    numbers = {"replicates": sum(map(len, bases.values())), "bases": len(bases)}
    if shared:
        return Finding(name, "NOT_EVALUABLE", "; ".join(shared), numbers)
    where = "; ".join(f"{base}: {', '.join(map(str, sorted(seeds)))}" for base, seeds in bases.items())
    return Finding(name, "PASS", f"no two share a V or a draw of pairs; {len(bases)} base(s): {where}", numbers)


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
