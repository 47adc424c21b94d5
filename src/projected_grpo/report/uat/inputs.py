"""Which runs a UAT may set side by side: the teacher's pool, and replays of it that differ in nothing but V or the arm."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from projected_grpo.arms import Recipe
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import NoPath, finished_manifest
from projected_grpo.ledger.step_file import Row, read_run
from projected_grpo.verdicts.comparison import OF_LOSS, OF_V, differences, facts_of
from projected_grpo.verdicts.registry import REQUIRABLE, UatClaim

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
    """probe_uat: verdicts T1 to T4, and T7 where there is a second V, from step files alone."""

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
    require: tuple[UatClaim, ...] = REQUIRABLE
    """Verdicts that decide the exit code: 0 all PASS, 1 one FAILs, 3 one is NOT_EVALUABLE."""
    details: bool = False
    """Print the tables behind the verdicts too."""
    out: NoPath = Path()
    """Write the tables to this .txt file, every number (.json) and the histogram next to it; empty = uat.txt in
    --projected."""


@dataclass(frozen=True)
class Replays:
    """The runs that a UAT reads, by their names: pool, vanilla, projected, and random and grpo where they are there."""

    paths: Mapping[str, Path]
    steps: Mapping[str, list[list[Row]]]
    """Of a replay one group (one problem) a step."""
    recipe: Recipe
    """By which V was removed in the projected replay."""

    def rows(self, name: str) -> list[Row]:
        """Returns all rows of a run; none of one that is not there."""
        return [row for rows in self.steps.get(name, ()) for row in rows]


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
                f"{config.vanilla} and {paths[name]} differ in {differing}; replay the same pool with the same settings"
            )
    done = manifests["projected"]["config"]
    found = Replays(
        paths, {name: read_run(path) for name, path in paths.items()}, Recipe(done["gate"], done["project"])
    )
    of_pool, replayed = (
        {(r["problem_id"], r["sample_id"], r["completion"]) for r in found.rows(name)} for name in ("pool", "vanilla")
    )
    if not replayed <= of_pool:
        raise BadInput(f"--pool {config.pool}: does not hold the rollouts that {config.vanilla} replayed")
    return found


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
