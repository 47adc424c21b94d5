"""Which runs a UAT may set side by side: the teacher's pool, and replays of it that differ in nothing but V or the
arm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import NoPath, finished_manifest
from projected_grpo.ledger.step_file import Row, read_run
from projected_grpo.verdicts.comparison import OF_LOSS, OF_V, differences, facts_of
from projected_grpo.verdicts.registry import REQUIRABLE, UatClaim

OF_ARM = frozenset({"config.arm", "config.gate", "config.project", "config.overshoot", "config.preserve_magnitude"})
"""Between a replay that removes V and one that only measures the same V, cut in the same way."""
REPLAYS: Mapping[str, tuple[str, str, str, frozenset[str]]] = {
    "vanilla": ("vanilla", "none", "nll", frozenset()),
    "projected": ("projected", "none", "", OF_ARM),
    "random": ("vanilla", "random", "", OF_V),
    "grpo": ("vanilla", "none", "grpo", OF_LOSS),
}
"""Of each replay: its arm, the --control and (for T7) the --loss of its V, and in what it may differ from vanilla."""
Steps = Sequence[list[Row]]
"""Of a replay one group (one problem) a step."""


@dataclass(frozen=True)
class UatConfig:
    """probe_uat: verdicts T1 to T4, and T7 where there is a second V, from step files alone."""

    pool: Path = Path("out/probe_distill/teacher_pool")
    """Run directory of the teacher's pool."""
    vanilla: Path = Path("out/probe_distill/vanilla")
    """Run directory of the vanilla replay."""
    projected: Path = Path("out/probe_distill/projected")
    """Run directory of the projected replay."""
    random: NoPath = Path()
    """Run directory of a vanilla replay that measured a random V. Empty: `random` beside --vanilla, where there is
    one."""
    grpo: NoPath = Path()
    """Run directory of a vanilla replay that measured a V of --loss grpo, for T7. Empty: `grpo` beside --vanilla,
    where there is one."""
    require: tuple[UatClaim, ...] = REQUIRABLE
    """Verdicts that decide the exit code: 0 all PASS, 1 one FAILs, 3 one is NOT_EVALUABLE."""
    details: bool = False
    """Print the tables behind the verdicts too."""
    out: NoPath = Path()
    """Write the tables to this .txt file, every number (.json) and the histogram next to it; empty = uat.txt in
    --projected."""


def read_replays(config: UatConfig) -> dict[str, Steps]:
    """Returns the steps of the runs that a UAT reads: pool, vanilla, projected, and random and grpo where they are
    there. BadInput when one is unfinished, of another kind, arm or V than it is given as, or of other rollouts,
    another model or other settings than the vanilla replay."""
    paths = {name: getattr(config, name) for name in ("pool", "vanilla", "projected")}
    for name in ("random", "grpo"):
        given, usual = getattr(config, name), config.vanilla.parent / name
        if given != Path() or usual.is_dir():
            paths[name] = usual if given == Path() else given
    facts = {}
    for name, path in paths.items():
        if not path.is_dir():
            raise BadInput(f"--{name} {path}: no such directory; `just queue-probe` makes all three and judges them")
        kind = "teacher_pool" if name == "pool" else "probe_distill"
        facts[name] = facts_of(finished_manifest(path, (kind,), f"--{name}"))
    for name, (arm, control, loss, about) in REPLAYS.items():
        if name not in paths:
            continue
        wanted = {"config.arm": arm, "vhack.control": control}
        if loss and "grpo" in paths:
            wanted["vhack.loss"] = loss
        for fact, value in wanted.items():
            if (found := facts[name].get(fact)) != value:
                flag = fact.partition(".")[2]
                raise BadInput(f"--{name} {paths[name]}: made with --{flag} {found}, where --{flag} {value} is needed")
        if differing := differences(facts["vanilla"], facts[name], about):
            raise BadInput(
                f"{config.vanilla} and {paths[name]} differ in {differing}; replay the same pool with the same settings"
            )
    replays: dict[str, Steps] = {name: read_run(path) for name, path in paths.items()}
    of_pool, replayed = (
        {(r["problem_id"], r["sample_id"], r["completion"]) for r in chain(*replays[n])} for n in ("pool", "vanilla")
    )
    if not replayed <= of_pool:
        raise BadInput(f"--pool {config.pool}: does not hold the rollouts that {config.vanilla} replayed")
    return replays
