"""Which runs a UAT may set side by side: the teacher's pool, and replays of it that differ in nothing but V or the arm."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from projected_grpo.arms import RECIPE, Recipe
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import NoPath, finished_manifest, read_manifest
from projected_grpo.ledger.step_file import Row, read_run
from projected_grpo.verdicts.comparison import OF_LOSS, OF_V, differences, facts_of
from projected_grpo.verdicts.finished_runs import load_runs
from projected_grpo.verdicts.matching import group_runs
from projected_grpo.verdicts.registry import CLAIMS, REQUIRABLE, Line, UatClaim

Manifest = Mapping[str, Any]
OF_ARM = frozenset({"config.arm", "config.gate", "config.project", "config.overshoot", "config.preserve_magnitude"})
"""Between a replay that removes V and one that only measures the same V, cut in the same way."""


@dataclass(frozen=True)
class Given:
    """What a replay must be, by its arm and its V, and in what it may differ from the vanilla one."""

    arm: str = "vanilla"
    control: str = "none"
    loss: str = ""
    """Empty: any."""
    about: frozenset[str] = frozenset()


REPLAYS = {
    "vanilla": Given(),
    "projected": Given(arm="projected", about=OF_ARM),
    "random": Given(control="random", about=OF_V),
    "grpo": Given(loss="grpo", about=OF_LOSS),
}


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
    expect: str = ""
    """A sentence printed under the table that says what is expected here (random weights, a dry run)."""
    details: bool = False
    """Print every number, interval and caveat, as they are written to --out."""
    out: NoPath = Path()
    """Write the details here, its numbers (.json) and histogram next to it; empty = uat.txt in --projected."""

    def validate(self) -> None:
        """BadInput when nothing is required, or the printout would have the name of what is written beside it."""
        if not self.require:
            raise BadInput(
                f"--require: no verdict behind it; name some of {', '.join(REQUIRABLE)}, or leave the option out"
            )
        if "T5" in self.require and self.trajectory == Path():
            raise BadInput(
                "--require T5: name the folder of its training runs with --trajectory (`just probe-grpo` makes them)"
            )
        if self.out.suffix == ".json":
            raise BadInput(
                f"--out {self.out}: the printout is text; end it in .txt (the numbers go to .json beside it)"
            )


@dataclass(frozen=True)
class Replays:
    """Rows of the runs that a UAT reads; the replays are lists of steps, one group (one problem) a step."""

    paths: Mapping[str, Path]
    """pool, vanilla, projected, and those of the next two that are there."""
    pool: list[Row]
    vanilla: list[list[Row]]
    projected: list[list[Row]]
    random: Sequence[list[Row]] = ()
    """The same rollouts measured against a random V; empty where there is no such replay."""
    grpo: Sequence[list[Row]] = ()
    """The same rollouts measured against a V of --loss grpo; empty where there is no such replay."""
    recipe: Recipe = RECIPE
    """By which V was removed in the projected replay."""


def read_replays(config: UatConfig) -> Replays:
    """Returns the rows of every run of a UAT. BadInput when one is unfinished, of another kind, arm or V than it is given
    as, or of other rollouts, another model or other settings than the vanilla replay."""
    paths = {name: getattr(config, name) for name in ("pool", "vanilla", "projected")}
    for name in ("random", "grpo"):
        given, usual = getattr(config, name), config.vanilla.parent / name
        if given != Path() or usual.is_dir():
            paths[name] = usual if given == Path() else given
    for name, path in paths.items():
        if not path.is_dir():
            raise BadInput(f"--{name} {path}: no such directory; `just queue-probe` makes all three and judges them")
    pool = list(chain.from_iterable(read_replay("pool", paths["pool"])[1]))
    rows = {}
    of_vanilla = facts_of(read_manifest(config.vanilla))
    for name in [name for name in paths if name != "pool"]:
        loss = "nll" if name == "vanilla" and "grpo" in paths else ""
        manifest, rows[name] = read_replay(name, paths[name], loss)
        if differing := differences(of_vanilla, facts_of(manifest), REPLAYS[name].about):
            raise BadInput(
                f"{config.vanilla} and {paths[name]} differ in {'; '.join(differing)}; replay the same pool with the same "
                "settings"
            )
    if not _texts(chain.from_iterable(rows["vanilla"])) <= _texts(pool):
        raise BadInput(f"--pool {config.pool}: does not hold the rollouts that {config.vanilla} replayed")
    done = read_manifest(config.projected)["config"]
    return Replays(paths, pool, recipe=Recipe(done["gate"], done["project"]), **rows)


def trajectory_of(config: UatConfig) -> Line | None:
    """T5 of the training runs below --trajectory; None without it. BadInput when there is no projected run on mixed groups,
    or when there are several settings of it."""
    if config.trajectory == Path():
        return None
    runs = load_runs(config.trajectory).runs
    found = CLAIMS["T5"].judged(group_runs(runs), runs)
    if len(found) != 1:
        raise BadInput(
            f"--trajectory {config.trajectory}: holds {len(found)} settings of projected on groups with base rows, one is "
            "needed; name the folder of a `just probe-grpo`"
        )
    return replace(found[0], verdict=replace(found[0].verdict, name="T5"))


def read_replay(name: str, path: Path, loss: str = "") -> tuple[Manifest, list[list[Row]]]:
    """Returns the manifest and the steps of a pool or replay. BadInput when it is not what `name` says, or not finished."""
    needed = REPLAYS.get(name)
    manifest = finished_manifest(path, ("probe_distill" if needed else "teacher_pool",), f"--{name}")
    if needed:
        if (arm := manifest["config"]["arm"]) != needed.arm:
            raise BadInput(f"--{name} {path}: is a run of arm {arm!r}, not {needed.arm!r}")
        v = manifest.get("vhack") or {}
        for flag, want in (("control", needed.control), ("loss", loss or needed.loss)):
            if v.get(flag) != want and want:
                raise BadInput(
                    f"--{name} {path}: was measured against a V of --{flag} {v.get(flag)}, where --{flag} {want} is needed"
                )
    return manifest, read_run(path)


def _texts(rows: Iterable[Row]) -> set[tuple[Any, ...]]:
    """Which rollouts these are."""
    return {(r["problem_id"], r["sample_id"], r["completion"]) for r in rows}
