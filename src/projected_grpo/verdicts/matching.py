"""Which runs may be averaged, which may be compared, and which are independent of one another.

    groups = group_runs(runs);  reference("vanilla", groups[0], runs);  differences(a, b);  independence(compared)

What two runs must share, and what an arm or a seed is about, is one list: ledger/comparison.py. Whatever else differs is
named with both values, and nothing is concluded from the two.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from projected_grpo.arms import ARMS
from projected_grpo.config import TrainConfig
from projected_grpo.ledger import comparison
from projected_grpo.ledger.comparison import OF_ADAPTER, OF_BASE, OF_CHANNEL, OF_RANK, OF_SEED, of_arms
from projected_grpo.ledger.errors import BadInput
from projected_grpo.records import TOLD_AFTERWARDS
from projected_grpo.verdicts.finished_runs import Run
from projected_grpo.verdicts.registry import Finding

# ---------------------------------------------------------------- what differs


def differences(a: Run, b: Run, also: Collection[str] = ()) -> list[str]:
    """In what two runs differ that they should share, each with both values; `also`: what may differ beyond their arms and
    seeds."""
    free = {*also}
    if a.arm != b.arm:
        free |= of_arms(a.arm, b.arm)
        if "random_energy" in (a.facts.get("vhack.control"), b.facts.get("vhack.control")) and _rank(a) == _rank(b):
            free |= OF_RANK
    if a.seed != b.seed:
        free |= OF_SEED | (OF_BASE if a.origin != b.origin else frozenset())
    return comparison.differences(a.facts, b.facts, free)


def between_adapters(a: Run, b: Run) -> list[str]:
    """The same of two runs of one arm and seed that differ in their adapter. Each may last as long as its own adapter's
    vanilla says."""
    by_onset = all(run.config("until_onsets") or run.config("horizon_of") not in (None, ".") for run in (a, b))
    return differences(a, b, {*OF_ADAPTER, "steps done"} if by_onset else OF_ADAPTER)


def _rank(run: Run) -> int:
    """How many directions a module its V is of: those that were extracted, or the first of them."""
    k = int(run.facts.get("vhack.k") or 0)
    return min(k, run.config("k_use") or k)


@dataclass(frozen=True)
class Differ:
    """That runs of two arms differ in more than they may."""

    arms: tuple[str, str]
    what: tuple[str, ...]
    """As in `differences`."""
    seeds: tuple[tuple[int, int], ...]
    """At which: of the one's run and of the other's."""

    def __str__(self) -> str:
        (a, b), (first, *more) = self.arms, self.seeds
        who = f"{a} {first[0]} and {b} {first[1]}"
        if more:
            who = f"{a} and {b} of seeds {' '.join(str(seed) for seed, _ in self.seeds)}"
        return f"{who} differ in {'; '.join(self.what)}"


Wrong = Differ | str
"""Why runs are no match: two of them differ, or anything else, in words."""


def differ(a: Run, b: Run, what: Sequence[str]) -> Differ:
    """That two runs differ in `what`."""
    return Differ((base_name(a), base_name(b)), tuple(what), ((a.seed, b.seed),))


def gathered(wrong: Iterable[Wrong]) -> str:
    """All of it in a line, each thing once, and two arms that differ in the same at several seeds told once for them all."""
    at: dict[Wrong, dict[tuple[int, int], None]] = {}
    for one in wrong:
        if isinstance(one, Differ) and all(a == b for a, b in one.seeds):
            at.setdefault(replace(one, seeds=()), {}).update(dict.fromkeys(one.seeds))
        else:
            at[one] = {}
    every = (replace(one, seeds=tuple(own)) if isinstance(one, Differ) and own else one for one, own in at.items())
    return "; ".join(map(str, every))


# ---------------------------------------------------------------- groups

_NAMED_FIRST = ("model", "adapter", "project", "gate", "k_use", "noise_floor", "overshoot", "refresh_every", "lr",
                "steps", "V.pairs", "V.k", "V.modules", "V.modes", "V.loss", "V.control")  # fmt: skip
SETTINGS = (
    *_NAMED_FIRST, "prompts_per_step", "group_size", "preserve_magnitude", "lora_rank", "warmup", "loss", "beta",
    "problems", "hint", "prompt_setup", "max_new", "temperature", "top_p", "top_k", "teacher_pool", "mix", *OF_CHANNEL,
)  # fmt: skip
"""Settings that tell runs of one arm apart, in the order in which a group's name lists them."""
BY_DEFAULT = {name: getattr(TrainConfig(), name) for name in ("overshoot", "preserve_magnitude")}
"""Of every preset's recipe, beside its gate and target: a group that takes V out otherwise says so in its name."""


@dataclass(frozen=True)
class RunGroup:
    """Runs of one arm and the same settings, one a seed."""

    name: str
    runs: tuple[Run, ...]


def base_name(run: Run) -> str:
    """The arm as tables and plots call it. One whose V was told the hack never goes by the arm's own name."""
    title = ARMS[run.arm].title if run.arm in ARMS else run.arm
    return f"{title} informed" if _informed(run) else title


def _informed(run: Run) -> bool:
    """Whether it used a V from pairs that were written when the hack had been seen; a V that is measured alone tells it
    nothing."""
    told = run.facts.get("vhack.pairs") in TOLD_AFTERWARDS
    return run.arm in ARMS and ARMS[run.arm].vhack is not None and told


def setting(run: Run, name: str) -> Any:
    """A setting by its name. A field that an old manifest lacks had today's default, but for the recipe, of which nothing
    is assumed. A sampled pool is "pool" wherever it lies: units on two bases have one each, and its contents are compared.
    None: not known, there is no V, or (steps) it was not chosen but follows from the onset."""
    if name == "V.pairs":  # of a V from before its pairs' name was kept, the first digits of their hash
        return run.facts.get("vhack.pairs") or str(run.facts.get("vhack.pairs_hash") or "")[:8] or None
    if name.startswith("V."):
        return run.facts.get(f"vhack.{name[2:]}")
    if name == "steps" and (run.config("until_onsets") or run.config("horizon_of") not in (None, ".")):
        return None
    usual = None if name in ("gate", "project") else getattr(TrainConfig(), name, None)
    found = run.facts.get(f"config.{name}", usual)
    return "pool" if name == "teacher_pool" and found not in ("", "pairs") else found


def settings(run: Run) -> dict[str, Any]:
    """Every setting of a run."""
    return {name: setting(run, name) for name in SETTINGS}


def group_runs(runs: Sequence[Run]) -> list[RunGroup]:
    """Runs of one arm and the same settings; where an arm's runs differ, the settings that differ join the name.

    BadInput on two runs of one group with the same seed: their mean would count one seed twice.
    """
    by_name: dict[str, dict[int, Run]] = {}
    of = {run.path: settings(run) for run in runs}
    for run in sorted(runs, key=lambda r: (_order(r), _natural(r.path))):
        own_settings = of[run.path]
        peers = [of[r.path] for r in runs if base_name(r) == base_name(run)]
        differing = [s for s in SETTINGS if any(peer[s] != own_settings[s] for peer in peers)]
        usual = {**(asdict(run.usual) if run.usual else {}), **(BY_DEFAULT if run.projects else {})}
        off = [s for s, of_recipe in usual.items() if own_settings[s] != of_recipe]
        off += ["V.pairs"] if _of_other_pairs(run) else []
        shown = [f"{s}={own_settings[s]}" for s in SETTINGS if s in (*differing, *off) and own_settings[s] is not None]
        own = by_name.setdefault(" ".join([base_name(run), *shown]), {})
        if run.seed in own:
            raise BadInput(
                f"{own[run.seed].path} and {run.path}: two runs of {base_name(run)} with seed {run.seed} and the same "
                "settings; move one of them elsewhere"
            )
        own[run.seed] = run
    return [RunGroup(name, tuple(own[seed] for seed in sorted(own))) for name, own in by_name.items()]


def _of_other_pairs(run: Run) -> bool:
    """Whether it used a V from pairs that are neither its run's nor its model's (of a V of words they never are)."""
    arm, pairs = ARMS.get(run.arm), run.facts.get("vhack.pairs")
    if arm is None or arm.vhack in (None, "words") or not pairs or not run.config("pairs"):
        return False
    return pairs not in (run.config("pairs"), run.config("model"))


def _natural(path: Path) -> list[tuple[str, int]]:
    """By which k2 comes before k16."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", path.as_posix())]


def _order(run: Run) -> tuple[int, str]:
    arms = list(ARMS)
    return (arms.index(run.arm) if run.arm in arms else len(arms), run.arm)


# ---------------------------------------------------------------- comparing


@dataclass(frozen=True)
class Reference:
    """The runs of an arm that a group is compared with."""

    runs: Mapping[int, Run]
    """By seed."""
    refused: tuple[Differ, ...]
    """Seeds of the group of which there is such a run, but one that differs in more than it may."""


def reference(arm: str, group: RunGroup, runs: Sequence[Run]) -> Reference:
    """Runs of `arm` that differ from the group's run of their seed (where it has none: from its first) in nothing but
    what the two arms are about. Of several, the one most like it."""
    own = {run.seed: run for run in group.runs}
    found: dict[int, Run] = {}
    refused = []
    for seed in sorted({r.seed for r in runs if r.arm == arm}):
        like = own.get(seed, group.runs[0])
        asked = [(differences(r, like), -_likeness(r, like), i, r) for i, r in enumerate(runs)
                 if (r.arm, r.seed) == (arm, seed)]  # fmt: skip
        differing, _, _, best = min(asked, key=lambda x: (len(x[0]), *x[1:3]))
        if not differing:
            found[seed] = best
        elif seed in own:
            refused.append(differ(best, like, differing))
    return Reference(found, tuple(refused))


def _likeness(a: Run, b: Run) -> int:
    return sum(a.facts.get(name) == value for name, value in b.facts.items())


def mismatches(compared: Mapping[str, Mapping[int, Run]]) -> list[Wrong]:
    """How the runs of one comparison differ, arm by arm between seeds."""
    return [
        differ(other, first, differing)
        for by_seed in compared.values()
        for first in list(by_seed.values())[:1]
        for other in by_seed.values()
        if (differing := differences(other, first))
    ]


def kinds_of_v(compared: Mapping[str, Mapping[int, Run]]) -> list[str]:
    """Runs whose V is of another kind than their arm's or was told the hack, and V of one unit that stand for two kinds."""
    out = []
    for arm, by_seed in compared.items():
        for seed, run in by_seed.items():
            kind = run.facts.get("vhack.control")
            if arm in ARMS and kind is not None and kind != ARMS[arm].measured:
                out.append(f"{arm} {seed} was run with a V of the kind {kind}, its arm is of {ARMS[arm].measured}")
            if _informed(run):
                pairs = setting(run, "V.pairs")
                out.append(
                    f"{arm} {seed}: its V is from {pairs}, written when the hack had been seen: no evidence of {arm}"
                )
    taken = [(arm, seed, run) for arm, own in compared.items() if arm in ARMS and ARMS[arm].projects
             for seed, run in own.items()]  # fmt: skip
    for (arm, seed, run), (other, s, two) in combinations(taken, 2):
        same = run.facts.get("vhack.v_sha256")
        if (
            seed == s
            and ARMS[arm].measured != ARMS[other].measured
            and same
            and same == two.facts.get("vhack.v_sha256")
        ):
            out.append(f"{arm} {seed} and {other} {seed} used one V: v_sha256 {str(same)[:8]}")
    return out


def bases_of(runs: Iterable[Run]) -> dict[int, str]:
    """The base of each seed. Builds of one base_seed are one base, and so are two base_seeds of the same weights."""
    named: dict[str, str] = {}
    return {run.seed: named.setdefault(run.facts.get("model_hash") or run.origin, run.origin) for run in runs}


# ---------------------------------------------------------------- independent units


def independence(compared: Mapping[str, Mapping[int, Run]]) -> Finding:
    """Whether the seeds of a comparison are units of their own: no arm that takes V out uses one V, or V from one draw of
    pairs, at two seeds. Tells which base each stands on: a claim about the world needs several."""
    name, shared = "independent units", []
    bases: dict[str, set[int]] = {}
    for arm, by_seed in compared.items():
        if arm in ARMS and ARMS[arm].projects:
            shared += _shared(arm, by_seed)
        for seed, base in bases_of(by_seed.values()).items():
            bases.setdefault(base, set()).add(seed)
    numbers = {"units": sum(map(len, bases.values())), "bases": len(bases)}
    if shared:
        return Finding(name, "NOT_EVALUABLE", "; ".join(shared), numbers)
    where = "; ".join(f"{base}: {', '.join(map(str, sorted(seeds)))}" for base, seeds in bases.items())
    return Finding(name, "PASS", f"no two share a V or a draw of pairs; {len(bases)} base(s): {where}", numbers)


def _shared(arm: str, by_seed: Mapping[int, Run]) -> Iterator[str]:
    """What two seeds of an arm share of their V."""
    for seed, run in by_seed.items():
        if not run.facts.get("vhack.v_sha256"):
            yield f"{arm} {seed}: its V has no v_sha256; extract it again"
        if _drawn(run) and run.facts.get("vhack.pairs_draw") is None:
            yield f"{arm} {seed}: its V has no pairs_draw, so it may share one; extract it again"
    for (a, one), (b, other) in combinations(by_seed.items(), 2):
        for field in ("v_sha256", *(["pairs_draw"] if _drawn(one) else [])):
            value = one.facts.get(f"vhack.{field}")
            if value is not None and value == other.facts.get(f"vhack.{field}"):
                yield f"seeds {a} and {b} share {arm}'s V: {field} {str(value)[:8]}"


def _drawn(run: Run) -> bool:
    """Whether its V is made from pairs: random directions come from none."""
    return not str(run.facts.get("vhack.control")).startswith("random")
