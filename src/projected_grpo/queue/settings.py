"""What `just queue-full` and the other chains can be asked for; the text under a field is its --help."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from projected_grpo.arms import ARMS, Arm, arms_of
from projected_grpo.config import TrainConfig, at_least
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import NoPath
from projected_grpo.presets import PRESETS, Preset, PresetName, presets
from projected_grpo.worlds.toy_tasks import SHAPES

ChainName = Literal[
    "probe", "full", "grpo", "rivals", "toy", "unknown", "variants", "dose", "adapters", "losses", "channels", "trace",
    "small",
]  # fmt: skip
SEEDS: Mapping[str, tuple[int, ...]] = {"small": (41, 42)}
"""By chain; of the others 41, 42, 43. A replicate of the real model takes hours."""
WORLD_OF: Mapping[str, PresetName] = {"unknown": "toy", "variants": "toy", "dose": "toy", "small": "small"}
"""The preset that a study is about, where it is about one."""
CHOOSES_ARMS = ("full", "toy", "rivals", "dose")
LEADING = ("vanilla", "projected")
"""Run first: the first answer needs them alone."""
DOSE_ARMS = ("projected", "placebo", "random_energy")
DOSES, QUICK_DOSES = (1, 2, 4, 8, 16, 32, 48, 64, 96), (4, 16, 48)
GRPO_STEPS = 20
SMALLER: Mapping[int, tuple[tuple[str, ...], tuple[str, ...]]] = {
    80: ((), ()), 48: ((), ("--rollout-batch", "128")), 24: (("--token-budget", "2048"), ("--rollout-batch", "16")),
}  # fmt: skip
"""By GiB of a GPU: flags of every script that loads the model, and of those that sample (docs/use.md)."""
CORE = ("random_energy", "random_share", "placebo")
OTHERS = tuple(arm for arm in ("no_loophole", *arms_of("control"), *arms_of("variant")) if arm not in CORE)
CONTROLS: Mapping[str, tuple[str, ...]] = {"none": (), "core": CORE, "all": (*CORE, *OTHERS)}
"""What `controls` adds to vanilla and projected, in the order of what it decides."""


@dataclass(frozen=True)
class Replicate:
    """One independent replicate. Its seed draws the pairs of its V, its control bases and its rollouts."""

    seed: int
    base: int = 0
    """Which build of a built-in base model."""
    tag: str = ""
    """Ends the names of its links. Empty: the probe's, whose V is of all pairs."""


def unfit(arm: Arm, preset: Preset) -> str:
    """Returns why an arm cannot be run under a preset, or would mean nothing there; empty: it can."""
    if not arm.loophole and preset.teacher_share == "pool":
        return f"the teacher's pool of preset {preset.name} pays the loophole"
    if "prompt" in arm.sees and preset.teacher_share:
        return f"half of each group of preset {preset.name} was written under another prompt"
    if "prompt" in arm.sees and not preset.instructed:
        return f"the model of preset {preset.name} reads no instructions"
    if "score" in arm.sees and not preset.judges:
        return f"a judge's question does not fit the context of preset {preset.name}'s model, which a chain would ask"
    return ""


@dataclass(frozen=True)
class QueueConfig:
    """enqueue: run a chain, or put it into a queue. Fields may be given as words too: `preset=toy backend=slurm`."""

    chain: ChainName = "full"
    """probe: V, teacher pool, replays, UAT. full: extract, verify, vanilla and projected of every seed, results. grpo: 20
    steps on mixed groups, T5. rivals: every arm and every other answer to hacking. channels, trace: vanilla and projected
    with and without auxiliary losses. Studies: toy, unknown, variants, dose, adapters (T6), losses (T7), small."""
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
    arms: tuple[str, ...] = ()
    """Arms to train (docs/use.md lists them); empty: the chain's."""
    adapter: Literal["antipasto", "lora"] = "antipasto"
    """Which coordinates train, in every script of the chain."""
    steps: int = 0
    """Optimizer steps of every arm; 0 = the preset's: a number of vanilla's onsets, where the preset has a horizon."""
    quick: bool = False
    """A pilot (n = 1): the first replicate, few steps. It can show that something is wrong, and no more."""
    model: str = ""
    """Of preset toy: `toy-deep` is another width and depth. Empty: the preset's."""
    problems: str = ""
    """Problems to train and to probe on: `builtin`, or the benchmark's JSON-lines file. Empty: the preset's."""
    n_problems: int = 0
    """Problems of the teacher's pool; 0 = the preset's."""
    gpu_gb: Literal[80, 48, 24] = 80
    """Memory of the GPU. 48 and 24 sample fewer completions at once (docs/use.md): slower."""
    doses: tuple[int, ...] = ()
    """Directions of the study dose; empty: its usual ones."""
    voters: int = 3
    """Builds of a better model that vote, in the chains channels and trace: three or more, an odd number."""
    port: int = 8000
    """Of the chain trace: where they are served, on 127.0.0.1."""
    parallel: int = 0
    """Links at once in pueue; 0 = one per GPU (fast, full), or as many as the cores have room for."""
    slurm: str = ""
    """More arguments of sbatch, in one string: "--partition=gpu --time=12:00:00"."""
    dry: bool = False
    """Print each link with its hours and its command, and their sum; add nothing."""

    def validate(self) -> None:
        """Raises BadInput on values that no chain could use."""
        for name in ("arms", "seeds", "bases", "doses"):
            given = getattr(self, name)
            if len(set(given)) != len(given):
                raise BadInput(f"--{name} {' '.join(map(str, given))}: give each once")
        for name in ("steps", "n_problems", "parallel"):
            at_least(self, name, 0)
        if not self.bases or min((*self.seeds, *self.bases)) < 0:
            raise BadInput("--seeds, --bases: give whole numbers of 0 or more, at least one base")
        if self.quick and len(self.seeds) > 1:
            raise BadInput(f"--seeds {' '.join(map(str, self.seeds))}: --quick runs one replicate; give one seed")
        if self.voters < 3 or self.voters % 2 == 0:
            raise BadInput(f"--voters {self.voters}: must be odd and 3 or more: the majority decides")
        if self.slurm and self.backend != "slurm":
            raise BadInput(f"--slurm {self.slurm!r}: only with --backend slurm")
        if not Path("scripts/train.py").exists():
            raise BadInput("scripts/train.py: not here; run from the project's folder")
        self._check_chain()
        self._check_arms()

    def _check_chain(self) -> None:
        """Raises BadInput on what this chain or preset would ignore."""
        if (world := WORLD_OF.get(self.chain, self.preset)) != self.preset:
            raise BadInput(f"--chain {self.chain}: a study of the {world} world; use preset={world}")
        if self.model:
            if self.preset != "toy":
                raise BadInput(f"--model {self.model}: chains take another model in preset toy alone; use preset=toy")
            if self.model not in SHAPES:
                raise BadInput(f"--model {self.model}: the toy world has {', '.join(SHAPES)}")
        if self.bases != (0,) and not self.world.builds_base:
            raise BadInput(
                f"--bases {' '.join(map(str, self.bases))}: preset {self.preset} builds no base; leave it out"
            )
        if self.controls != "none" and (self.chain != "full" or self.arms):
            raise BadInput(
                f"--controls {self.controls}: only the chain full has controls to choose; use chain=full without arms"
            )
        if self.doses and (self.chain != "dose" or not 1 <= min(self.doses) <= max(self.doses) <= DOSES[-1]):
            raise BadInput(
                f"--doses {' '.join(map(str, self.doses))}: give numbers of 1 to {DOSES[-1]}, and chain=dose"
            )
        if self.gpu_gb != 80 and self.world.on_cpu:
            raise BadInput(f"--gpu-gb {self.gpu_gb}: preset {self.preset} runs without a GPU; leave it out")
        if self.chain == "grpo" and self.steps:
            raise BadInput(f"--steps {self.steps}: T5 is of {GRPO_STEPS} steps; leave it out")

    def _check_arms(self) -> None:
        """Raises BadInput on arms that there are not, that this chain would not run, or that mean nothing in the world."""
        if odd := [a for a in self.arms if a not in ARMS]:
            raise BadInput(f"--arms {odd[0]}: choose from {', '.join(ARMS)}")
        if self.chain == "dose" and (odd := [arm for arm in self.arms if arm not in ("vanilla", *DOSE_ARMS)]):
            raise BadInput(f"--arms {odd[0]}: the study dose is of {', '.join(DOSE_ARMS)}, and vanilla")
        if self.arms and self.chain not in CHOOSES_ARMS:
            raise BadInput(f"--arms {' '.join(self.arms)}: the chain {self.chain} chooses its arms; leave --arms out")
        if odd := [(a, why) for a in self.arms if (why := unfit(ARMS[a], self.world))]:
            raise BadInput(f"--arms {odd[0][0]}: {odd[0][1]}; leave this arm out")
        if self.chain not in ("full", "toy", "rivals") or "vanilla" in self.run_arms:
            return
        if derived := [a for a in self.arms if ARMS[a].derived]:
            raise BadInput(
                f"--arms {' '.join(self.arms)}: {derived[0]} is made from the replicate's vanilla; add vanilla"
            )
        if self.onsets:
            raise BadInput(
                f"--arms {' '.join(self.arms)}: on preset {self.preset} a replicate runs for {self.onsets:g} times its "
                "vanilla's onset; add vanilla, or give --steps"
            )

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
        seeds = self.seeds or SEEDS.get(self.chain, (41, 42, 43))
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
        return self.arms or tuple(name for name in wanted if not unfit(ARMS[name], self.world))
