"""Which runs a UAT may set side by side: the teacher's pool, and replays of it that differ in nothing but V or the arm."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from projected_grpo.arms import RECIPE, Recipe
from projected_grpo.ledger.comparison import OF_LOSS, OF_V, differences, facts_of
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import NoPath, not_whole, read_manifest
from projected_grpo.ledger.step_file import Row, read_run
from projected_grpo.verdicts.finished_runs import load_runs
from projected_grpo.verdicts.matching import group_runs
from projected_grpo.verdicts.registry import CLAIMS, REQUIRABLE, Line, UatClaim

Manifest = Mapping[str, Any]
OF_ARM = frozenset({"config.arm", "config.gate", "config.project", "config.overshoot", "config.preserve_magnitude"})
"""Between a replay that removes V and one that only measures the same V, cut in the same way."""


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
    """Write the details here, its numbers (.json) and histogram beside it; empty = uat.txt in --projected."""

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

    pool: list[Row]
    vanilla: list[list[Row]]
    projected: list[list[Row]]
    random: list[list[Row]] | None
    """The same rollouts measured against a random V; None where there is no such replay."""
    random_path: Path | None
    recipe: Recipe = RECIPE
    """By which V was taken out in the projected replay."""
    grpo: list[list[Row]] | None = None
    """The same rollouts measured against a V of --loss grpo; None where there is no such replay."""
    grpo_path: Path | None = None


def read_replays(config: UatConfig) -> Replays:
    """Read and check every run of a UAT. BadInput when one is unfinished, no longer what was written, of another kind, arm
    or V than it is given as, or of other rollouts, another model or other settings than the vanilla replay."""
    for name in ("pool", "vanilla", "projected"):
        if not (path := getattr(config, name)).is_dir():
            raise BadInput(f"--{name} {path}: no such directory; `just queue-probe` makes all three and judges them")
    random, grpo = random_of(config), grpo_of(config)
    _check_run("pool", config.pool, read_manifest(config.pool))
    manifests = {"vanilla": read_manifest(config.vanilla), "projected": read_manifest(config.projected)}
    paths = {"vanilla": config.vanilla, "projected": config.projected}
    if random is not None:
        manifests["random"], paths["random"] = read_manifest(random), random
    if grpo is not None:
        manifests["grpo"], paths["grpo"] = read_manifest(grpo), grpo
    for name, manifest in manifests.items():
        _check_run(name, paths[name], manifest)
        _check_kind(name, paths[name], manifest)
    if grpo is not None:
        _check_losses(paths, manifests)
    for name in list(manifests)[1:]:
        _check_same_replay(paths, manifests, name)
    rows = {name: read_run(path) for name, path in paths.items()}
    pool = [r for s in read_run(config.pool) for r in s]
    known = {_text(r) for r in pool}
    if any(_text(r) not in known for s in rows["vanilla"] for r in s):
        raise BadInput(f"--pool {config.pool}: does not hold the rollouts that {config.vanilla} replayed")
    done = manifests["projected"]["config"]
    recipe = Recipe(done["gate"], done["project"])
    return Replays(pool, rows["vanilla"], rows["projected"], rows.get("random"), random, recipe, rows.get("grpo"), grpo)


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


def random_of(config: UatConfig) -> Path | None:
    """The random V's replay: --random, or the folder `random` beside the vanilla replay where there is one."""
    if config.random != Path():
        return config.random
    beside = config.vanilla.parent / "random"
    return beside if beside.is_dir() else None


def grpo_of(config: UatConfig) -> Path | None:
    """The replay against a V of --loss grpo: --grpo, or the folder `grpo` beside the vanilla replay where there is one."""
    if config.grpo != Path():
        return config.grpo
    beside = config.vanilla.parent / "grpo"
    return beside if beside.is_dir() else None


def _check_run(name: str, path: Path, manifest: Manifest) -> None:
    """Of its kind, finished, with all of its steps."""
    kind = "teacher_pool" if name == "pool" else "probe_distill"
    if (found := manifest.get("kind")) != kind:
        raise BadInput(f"--{name} {path}: is a run of kind {found!r}, where {kind!r} is needed")
    if why := not_whole(path, manifest):
        raise BadInput(f"--{name} {path}: {why}")


def _check_kind(name: str, path: Path, manifest: Manifest) -> None:
    """Of the arm, and measured against the kind of V that it is given as."""
    arm = "projected" if name == "projected" else "vanilla"
    if (found := manifest["config"].get("arm")) != arm:
        raise BadInput(f"--{name} {path}: is a run of arm {found!r}, not {arm!r}")
    control = "random" if name == "random" else "none"
    found = (manifest.get("vhack") or {}).get("control")
    if found is None:
        raise BadInput(f"--{name} {path}: was replayed without a V; repeat it with --vhack FILE")
    if found != control:
        raise BadInput(
            f"--{name} {path}: was measured against a V made with --control {found}, where --control {control} is needed"
        )


def _check_losses(paths: Mapping[str, Path], manifests: Mapping[str, Manifest]) -> None:
    """Of a pair of replays that differ in the loss of their V, each has the loss that it is given as."""
    for name, needed in (("vanilla", "nll"), ("grpo", "grpo")):
        if (loss := manifests[name]["vhack"].get("loss", "nll")) != needed:
            raise BadInput(
                f"--{name} {paths[name]}: was measured against a V of --loss {loss}, where --loss {needed} is needed beside "
                f"{paths['vanilla' if name == 'grpo' else 'grpo']}"
            )


def _check_same_replay(paths: Mapping[str, Path], manifests: Mapping[str, Manifest], name: str) -> None:
    """The same rollouts, model, settings and V as the vanilla replay, but for what this replay is there for."""
    about = {"projected": OF_ARM, "random": OF_V, "grpo": OF_LOSS}[name]
    if differing := differences(facts_of(manifests["vanilla"]), facts_of(manifests[name]), about):
        raise BadInput(
            f"{paths['vanilla']} and {paths[name]} differ in {'; '.join(differing)}; replay the same pool with the same "
            "settings"
        )


def _text(row: Row) -> tuple[Any, ...]:
    return row["problem_id"], row["sample_id"], row["completion"]
