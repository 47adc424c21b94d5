"""Which runs a UAT may set side by side: the teacher's pool, and replays of it that differ in nothing but V or the arm."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from projected_grpo.arms import Recipe
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import NoPath, finished_manifest
from projected_grpo.ledger.step_file import Row, read_run
from projected_grpo.verdicts.comparison import OF_LOSS, OF_V, differences, facts_of
from projected_grpo.verdicts.finished_runs import load_runs
from projected_grpo.verdicts.matching import group_runs
from projected_grpo.verdicts.registry import CLAIMS, REQUIRABLE, Line, UatClaim

OF_ARM = frozenset({"config.arm", "config.gate", "config.project", "config.overshoot", "config.preserve_magnitude"})
"""Between a replay that removes V and one that only measures the same V, cut in the same way."""
REPLAYS: Mapping[str, tuple[str, str, frozenset[str]]] = {
    "vanilla": ("vanilla", "none", frozenset()),
    "projected": ("projected", "none", OF_ARM),
    "random": ("vanilla", "random", OF_V),
    "grpo": ("vanilla", "none", OF_LOSS),
}
"""Of each replay: its arm, the --control of its V, and in what it may differ from the vanilla one."""
LOSSES = {"vanilla": "nll", "grpo": "grpo"}
"""The --loss of V where both are there."""


@dataclass(frozen=True)
class UatConfig:
    """probe_uat: verdicts T1 to T4, T7 where there is a second V, and T5 where its runs are named, from step files alone."""

    pool: Path = Path("out/probe_distill/teacher_pool")
    """Run directory of the teacher's pool."""
    vanilla: Path = Path("out/probe_distill/vanilla")
    """Run directory of the vanilla replay."""
    projected: Path = Path("out/probe_distill/projected")
    """Run directory of the projected replay."""
    random: NoPath = Path()
    """Run directory of a vanilla replay that measured a random V. Empty: `random` beside --vanilla, where there is one."""
    grpo: NoPath = Path()
    """Run directory of a vanilla replay that measured a V of --loss grpo, for T7. Empty: `grpo` beside --vanilla, where
    there is one."""
    trajectory: NoPath = Path()
    """Folder with the training runs on mixed groups that T5 is judged from (`just probe-grpo`). Empty: T5 is not judged."""
    require: tuple[UatClaim, ...] = REQUIRABLE
    """Verdicts that decide the exit code: 0 all PASS, 1 one FAILs, 3 one is NOT_EVALUABLE."""
    details: bool = False
    """Print every number, interval and caveat, as they are written to --out."""
    out: NoPath = Path()
    """Write the details to this .txt file, its numbers (.json) and histogram next to it; empty = uat.txt in --projected."""


@dataclass(frozen=True)
class Replays:
    """Rows of the runs that a UAT reads; the replays are lists of steps, one group (one problem) a step."""

    paths: Mapping[str, Path]
    """pool, vanilla, projected, and those of the next two that are there."""
    recipe: Recipe
    """By which V was removed in the projected replay."""
    pool: list[Row]
    vanilla: list[list[Row]]
    projected: list[list[Row]]
    random: Sequence[list[Row]] = ()
    """The same rollouts measured against a random V; empty where there is no such replay."""
    grpo: Sequence[list[Row]] = ()
    """The same rollouts measured against a V of --loss grpo; empty where there is no such replay."""


def read_replays(config: UatConfig) -> Replays:
    """Returns the rows of every run of a UAT. BadInput when one is unfinished, of another kind, arm or V than it is given
    as, or of other rollouts, another model or other settings than the vanilla replay."""
    paths = {name: getattr(config, name) for name in ("pool", "vanilla", "projected")}
    for name in ("random", "grpo"):
        given, usual = getattr(config, name), config.vanilla.parent / name
        if given != Path() or usual.is_dir():
            paths[name] = usual if given == Path() else given
    manifests = {name: _manifest(name, path, "grpo" in paths) for name, path in paths.items()}
    facts = {name: facts_of(manifest) for name, manifest in manifests.items()}
    for name, (_, _, about) in REPLAYS.items():
        if name in paths and (differing := differences(facts["vanilla"], facts[name], about)):
            raise BadInput(
                f"{config.vanilla} and {paths[name]} differ in {'; '.join(differing)}; replay the same pool with the same "
                "settings"
            )
    steps = {name: read_run(path) for name, path in paths.items()}
    pool = list(chain.from_iterable(steps.pop("pool")))
    if not _texts(chain.from_iterable(steps["vanilla"])) <= _texts(pool):
        raise BadInput(f"--pool {config.pool}: does not hold the rollouts that {config.vanilla} replayed")
    done = manifests["projected"]["config"]
    return Replays(paths, Recipe(done["gate"], done["project"]), pool, **steps)


def _manifest(name: str, path: Path, both_losses: bool) -> Mapping[str, Any]:
    """BadInput when a run is not what `name` says, or not finished."""
    if not path.is_dir():
        raise BadInput(f"--{name} {path}: no such directory; `just queue-probe` makes all three and judges them")
    manifest = finished_manifest(path, ("teacher_pool" if name == "pool" else "probe_distill",), f"--{name}")
    if name == "pool":
        return manifest
    needed, control, _ = REPLAYS[name]
    if (arm := manifest["config"]["arm"]) != needed:
        raise BadInput(f"--{name} {path}: is a run of arm {arm!r}, not {needed!r}")
    wanted = {"control": control} | ({"loss": LOSSES[name]} if both_losses and name in LOSSES else {})
    for flag, want in wanted.items():
        if (found := (manifest.get("vhack") or {}).get(flag)) != want:
            raise BadInput(
                f"--{name} {path}: was measured against a V of --{flag} {found}, where --{flag} {want} is needed"
            )
    return manifest


def _texts(rows: Iterable[Row]) -> set[tuple[Any, ...]]:
    """Which rollouts these are."""
    return {(r["problem_id"], r["sample_id"], r["completion"]) for r in rows}


def trajectory_of(config: UatConfig) -> Line | None:
    """T5 of the training runs below --trajectory; None without it. BadInput when T5 is required all the same, when there is
    no projected run on mixed groups, or when there are several settings of it."""
    if config.trajectory == Path():
        if "T5" in config.require:
            raise BadInput("--require T5: name the folder of its training runs with --trajectory (`just probe-grpo`)")
        return None
    runs = load_runs(config.trajectory).runs
    found = CLAIMS["T5"].judged(group_runs(runs), runs)
    if len(found) != 1:
        raise BadInput(
            f"--trajectory {config.trajectory}: holds {len(found)} settings of projected on groups with base rows, one is "
            "needed; name the folder of a `just probe-grpo`"
        )
    return replace(found[0], verdict=replace(found[0].verdict, name="T5"))
