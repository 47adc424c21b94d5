"""What `just queue-full` and the other chains can be asked for; the text under a field is its --help."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from projected_grpo.arms import ARMS, Arm, ArmName, arms_of
from projected_grpo.config import TrainConfig, check_bounds
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import NoPath
from projected_grpo.presets import PRESETS, Preset, PresetName, presets

ChainName = Literal[
    "probe", "full", "grpo", "rivals", "toy", "unknown", "variants", "dose", "adapters", "channels", "trace",
    "small",
]  # fmt: skip
WORLD_OF: Mapping[str, PresetName] = {"unknown": "toy", "variants": "toy", "dose": "toy", "small": "small"}
"""The preset that a study is about, where it is about one."""
LEADING = ("vanilla", "projected")
"""Run first: the first answer needs them alone."""
GRPO_STEPS = 20
SMALLER: Mapping[int, tuple[tuple[str, ...], tuple[str, ...]]] = {
    80: ((), ()),
    48: (("--gradient-checkpointing", "full"), ("--rollout-batch", "128")),
    24: (("--gradient-checkpointing", "full", "--token-budget", "2048"), ("--rollout-batch", "16")),
}  # fmt: skip
"""By GiB of a GPU: flags of every script that loads the model, and of those that sample (docs/use.md)."""
CORE = ("random_energy", "random_share", "placebo")
EVERY = tuple(dict.fromkeys((*CORE, "no_loophole", *arms_of("control"), *arms_of("variant"))))
CONTROLS: Mapping[str, tuple[str, ...]] = {"none": (), "core": CORE, "all": EVERY}
"""What `controls` adds to vanilla and projected, in the order of what it decides."""


@dataclass(frozen=True)
class Replicate:
    """One independent replicate. Its seed draws the pairs of its V, its control bases and its rollouts."""

    seed: int
    base: int = 0
    """Which build of a built-in base model."""
    tag: str = ""
    """Ends the names of its links. Empty: the probe's, whose V is of all pairs."""


def fits(arm: Arm, preset: Preset) -> bool:
    """Returns whether an arm can be run under a preset and means something there."""
    return not (
        (not arm.loophole and preset.teacher_share == "pool")  # the teacher's pool pays the loophole
        or ("prompt" in arm.sees and preset.teacher_share)  # half of each group was written under another prompt
        or ("prompt" in arm.sees and not preset.instructed)  # its model reads no instructions
        or ("score" in arm.sees and not preset.judges)  # a judge's question does not fit its model's context
    )


@dataclass(frozen=True)
class QueueConfig:
    """enqueue: run a chain, or put it into a queue. Fields may be given as words too: `preset=toy backend=slurm`."""

    chain: ChainName = "full"
    """probe: V, teacher pool, replays, UAT. full: extract, verify, vanilla and projected of every seed, results. grpo: 20
    steps on mixed groups, T5. rivals: every arm and every other answer to hacking. channels, trace: vanilla and projected
    with and without auxiliary losses. Studies: toy, unknown, variants, dose, adapters (T6), small."""
    preset: PresetName = "full"
    """The world to run in."""
    backend: Literal["pueue", "slurm", "local"] = "pueue"
    """pueue or slurm: queue it and return. local: run its links in this terminal, one after the other."""
    out: NoPath = Path()
    """Folder of the whole chain; one that exists is continued. Empty: out/PRESET-CHAIN."""
    seeds: tuple[int, ...] = ()
    """One replicate each, with a draw of the pairs, V and controls. Empty: 41 42 43; of the chain small 41 42."""
    bases: tuple[int, ...] = (0,)
    """Builds of a built-in base model, given to the replicates in turn: `0 101 102` are three."""
    controls: Literal["none", "core", "all"] = "none"
    """Of the chain full, run behind vanilla and projected. core: random_energy, random_share, placebo. all: each control."""
    arms: tuple[ArmName, ...] = ()
    """Arms to train (docs/use.md lists them); empty: the chain's."""
    steps: int = 0
    """Optimizer steps of every arm; 0 = the preset's: a number of vanilla's onsets, where the preset has a horizon."""
    quick: bool = False
    """A pilot (n = 1): the first replicate, few steps. It can show that something is wrong, and no more."""
    model: Literal["", "toy", "toy-deep"] = ""
    """Of preset toy: `toy-deep` is another width and depth. Empty: the preset's."""
    problems: str = ""
    """Problems to train and to probe on: `builtin`, or the benchmark's JSON-lines file. Empty: the preset's."""
    n_problems: int = 0
    """Problems of the teacher's pool; 0 = the preset's."""
    gpu_gb: Literal[80, 48, 24] = 80
    """Memory of the GPU. 48 and 24 take smaller batches (docs/use.md): slower."""
    port: int = 8000
    """Of the chain trace: where they are served, on 127.0.0.1."""
    slurm: str = ""
    """More arguments of sbatch, in one string: "--partition=gpu --time=12:00:00"."""
    dry: bool = False
    """Print each link with its hours and its command, and their sum; add nothing."""

    def validate(self) -> None:
        """Raises BadInput on what no run of this chain or preset could use, or would ignore."""
        check_bounds(vars(self), {})
        arms, world = f"--arms {' '.join(self.arms)}", WORLD_OF.get(self.chain, self.preset)
        unfit = [name for name in self.arms if not fits(ARMS[name], self.world)]
        faults = [f"--arms {name}: means nothing under preset {self.preset}; leave this arm out" for name in unfit]
        if world != self.preset:
            faults.append(f"--chain {self.chain}: a study of the {world} world; use preset={world}")
        if self.model and self.preset != "toy":
            faults.append(f"--model {self.model}: chains take another model in preset toy alone; use preset=toy")
        if not self.bases:
            faults.append("--bases: give at least one")
        if self.arms and self.chain not in ("full", "toy", "rivals"):
            faults.append(f"{arms}: the chain {self.chain} chooses its arms; leave --arms out")
        if self.arms and "vanilla" not in self.arms and (self.onsets or any(ARMS[a].derived for a in self.arms)):
            faults.append(f"{arms}: runs are made from the replicate's vanilla, or as long as it needs; add vanilla")
        if faults:
            raise BadInput("; ".join(faults))

    @property
    def home(self) -> Path:
        """The chain's folder."""
        both = dict.fromkeys((self.preset, self.chain))
        return self.out if self.out != Path() else Path("out") / "-".join(both)

    @property
    def world(self) -> Preset:
        """The preset itself."""
        return PRESETS[self.preset]

    @property
    def replicates(self) -> tuple[Replicate, ...]:
        """The replicates."""
        # One of the real small model takes hours.
        seeds = self.seeds or ((41, 42) if self.chain == "small" else (41, 42, 43))
        return tuple(
            Replicate(seed, self.bases[i % len(self.bases)], f"_{seed}")
            for i, seed in enumerate(seeds[:1] if self.quick else seeds)
        )

    @property
    def probed(self) -> Replicate:
        """The probe's replicate: the first base, V of all pairs."""
        return replace(self.replicates[0], tag="")

    @property
    def onsets(self) -> float:
        """How many times its vanilla's onset a replicate's runs last; 0: `run_steps`."""
        return 0.0 if self.quick or self.steps or self.chain == "grpo" else self.world.onsets

    @property
    def run_steps(self) -> int:
        """Optimizer steps of every run; with `onsets` the most that vanilla may take."""
        asked = GRPO_STEPS if self.chain == "grpo" else self.steps or (self.world.quick_steps if self.quick else 0)
        return asked or (self.world.cap if self.onsets else presets(TrainConfig)[self.preset].steps)

    @property
    def run_arms(self) -> tuple[str, ...]:
        """The arms that are asked for, else the chain's, in the order of what they decide; without those that mean nothing
        under the preset."""
        if self.chain in ("full", "toy"):
            wanted = (*LEADING, *CONTROLS["all" if self.chain == "toy" else self.controls])
        else:
            wanted = tuple(arm.name for arm in ARMS.values() if self.chain == "rivals" or arm.role != "rival")
        return self.arms or tuple(name for name in wanted if fits(ARMS[name], self.world))
