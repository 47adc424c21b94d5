"""Configs of the scripts that run chains: one frozen dataclass each; the text under a field is its --help."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from projected_grpo.arms import ARMS, Arm
from projected_grpo.chains.channels import CHANNEL_ARMS
from projected_grpo.chains.plans import GRPO_ARMS, GRPO_STEPS, Plan, Unit
from projected_grpo.chains.studies import DOSE_ARMS, WORLD_OF, Chain
from projected_grpo.config import TrainConfig, at_least
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import NoPath
from projected_grpo.presets import PRESETS, Preset, PresetName, presets
from projected_grpo.worlds.toy_shapes import check_toy_model

SEEDS = (41, 42, 43)
SEEDS_OF: Mapping[Chain, tuple[int, ...]] = {"small": (41, 42)}
"""Of a study that has its own: a unit of the real model takes hours."""


def unfit(arm: Arm, preset: Preset) -> str:
    """Why an arm cannot be run under a preset, or would mean nothing there; empty: it can."""
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
class Sweep:
    """Fields of every script that runs arms on seeds."""

    seeds: tuple[int, ...] = ()
    """One unit each: a unit has its own seed, bootstrap sample of the pairs, V, control bases and rollouts. Empty: 41 42 43;
    of the chain small 41 42."""
    bases: tuple[int, ...] = (0,)
    """Builds of a built-in base model, given to the units in turn: `0 101 102` are three. A claim about more than one base
    needs more than one."""
    adapter: Literal["antipasto", "lora"] = "antipasto"
    """Which coordinates train, in every script of the chain."""
    quick: bool = False
    """A first look: the first unit alone, the preset's few steps, fewer doses. It can show that something is wrong, and no
    more."""
    arms: tuple[str, ...] = ()
    """Arms to train (`train toy --help` says what each does). Empty: every arm of the registry, rivals in the chain `rivals`
    alone; where a teacher's pool is mixed in, which pays the loophole, all but those that have nothing to hack."""
    steps: int = 0
    """Optimizer steps of every arm; 0 = the preset's: where that has a horizon, a unit's vanilla stops by itself at so many
    times its onset, and the unit's other arms run for as many steps."""

    def validate(self) -> None:
        """BadInput on values that no chain could use."""
        if odd := [a for a in self.arms if a not in ARMS]:
            raise BadInput(f"--arms {odd[0]}: choose from {', '.join(ARMS)}")
        if len(set(self.arms)) != len(self.arms):
            raise BadInput(f"--arms {' '.join(self.arms)}: give each once")
        if len(set(self.seeds)) != len(self.seeds):
            raise BadInput(f"--seeds {' '.join(map(str, self.seeds))}: give each once")
        if len(set(self.bases)) != len(self.bases) or not self.bases:
            raise BadInput(f"--bases {' '.join(map(str, self.bases))}: give at least one, each once")
        for name in ("seeds", "bases"):
            if (least := min(getattr(self, name), default=0)) < 0:
                raise BadInput(f"--{name} {least}: each must be 0 or more")
        at_least(self, "steps", 0)
        if self.quick and len(self.seeds) > 1:
            told = " ".join(map(str, self.seeds))
            raise BadInput(f"--seeds {told}: --quick runs one unit; give one seed, or leave --quick out")
        if not Path("scripts/train.py").exists():
            raise BadInput("scripts/train.py: not here; run from the project's folder")

    @property
    def rivals(self) -> bool:
        """Whether the other answers to hacking are run too."""
        return False

    @property
    def own_seeds(self) -> tuple[int, ...]:
        """Those of the chain, where none are asked for."""
        return SEEDS

    def planned(self, name: PresetName, out: Path, model: str, problems: str = "") -> Plan:
        """The plan that the fields and a preset give."""
        preset = PRESETS[name]
        every = tuple(
            arm.name for arm in ARMS.values() if not unfit(arm, preset) and (self.rivals or arm.role != "rival")
        )
        if odd := [(a, why) for a in self.arms if (why := unfit(ARMS[a], preset))]:
            raise BadInput(f"--arms {odd[0][0]}: {odd[0][1]}; leave this arm out")
        seeds = self.seeds or self.own_seeds
        seeds = seeds[:1] if self.quick else seeds
        units = tuple(Unit(s, self.bases[i % len(self.bases)], s, f"_{s}") for i, s in enumerate(seeds))
        fixed = self.quick or self.steps or not preset.onsets
        steps = self.steps or (preset.quick_steps if self.quick else preset.cap if preset.onsets else 0)
        return Plan(
            preset,
            out,
            model,
            units,
            self.arms or every,
            steps or presets(TrainConfig)[name].steps,
            0.0 if fixed else preset.onsets,
            preset.pool_problems,
            preset.replays,
            problems,
            self.adapter,
            self.quick,
        )


CHOOSES_ARMS = ("full", "toy", "rivals", "dose")
"""Chains whose arms can be chosen."""


def check_arms(chain: Chain, arms: tuple[str, ...]) -> None:
    """BadInput where arms are chosen for a chain that has its own, and would run those whatever was asked for."""
    if chain == "dose" and (odd := [arm for arm in arms if arm not in ("vanilla", *DOSE_ARMS)]):
        raise BadInput(f"--arms {odd[0]}: the study dose is of {', '.join(DOSE_ARMS)}, beside vanilla")
    if arms and chain not in CHOOSES_ARMS:
        own = f"is of {' and '.join(CHANNEL_ARMS)}" if chain in ("channels", "trace") else "has runs of its own"
        raise BadInput(f"--arms {' '.join(arms)}: the study {chain} {own}; leave --arms out")


@dataclass(frozen=True)
class ToyConfig(Sweep):
    """toy: the chain from the base model to the results."""

    out: Path = Path("out/toy")
    """Folder of the whole chain; one that exists is continued."""
    study: Chain = "toy"
    """toy: the probe, every arm and control. unknown: V from two of the four mechanisms, all six splits. variants: other
    gates and targets, and V refreshed. dose: 1 to 96 directions of V, of placebo, and random ones of equal energy.
    adapters: a LoRA and the singular basis on the same units (T6). losses: V of the training loss and V of the NLL, on pools
    of their own (T7). rivals: every arm and every other answer to hacking. channels: vanilla and projected with and
    without other channels; trace: the same, its pairs from traces."""
    model: str = "toy"
    """`toy`; `toy-deep`, of another width and depth."""
    doses: tuple[int, ...] = ()
    """Directions of the study dose, `16` or `4 16`; empty: its own. With --arms, of these kinds alone."""
    threads: int = 0
    """Most threads at once; 0 = one per core."""
    dry: bool = False
    """Print the commands and stop."""

    @property
    def rivals(self) -> bool:
        return self.study == "rivals"

    def planned(self, name: PresetName, out: Path, model: str, problems: str = "") -> Plan:
        return replace(super().planned(name, out, model, problems), doses=self.doses)

    def validate(self) -> None:
        super().validate()
        check_toy_model(self.model)
        if (world := WORLD_OF.get(self.study, "toy")) != "toy":
            raise BadInput(f"--study {self.study}: a study of the {world} world; use `just {world}`")
        check_arms(self.study, self.arms)
        if self.doses and (self.study != "dose" or min(self.doses) < 1 or len(set(self.doses)) != len(self.doses)):
            told = f"--doses {' '.join(map(str, self.doses))}"
            raise BadInput(f"{told}: whole numbers of at least 1, each once, of --study dose alone")
        at_least(self, "threads", 0)


@dataclass(frozen=True)
class QueueConfig(Sweep):
    """enqueue: put a chain into a queue. Fields may be given as words too: `preset=toy backend=slurm`."""

    chain: Chain = "full"
    """probe: V, teacher pool, replays, UAT: the cheap look. grpo: 20 steps of vanilla and projected on groups of teacher,
    untrained model and student, T5. full: V, every arm of every unit, results. rivals: the same, and every other answer to
    hacking. channels: vanilla and projected with and without trace DPO and hint distillation. trace: the same of trace DPO,
    its pairs from traces of several turns and teachers behind a local endpoint. small: the study of the real
    small model. The others are studies of the toy world (`toy --help`)."""
    preset: PresetName = "full"
    """The world to run in."""
    backend: Literal["pueue", "slurm", "here"] = "pueue"
    """pueue or slurm: queue it and return. here: run it in this terminal."""
    out: NoPath = Path()
    """Folder of the whole chain; one that exists is continued. Empty: out/queue/CHAIN-PRESET."""
    problems: str = ""
    """Problems to train and to probe on: `builtin`, or the benchmark's JSON-lines file. Empty: the preset's."""
    n_problems: int = 0
    """Problems of the teacher's pool; 0 = the preset's."""
    voters: int = 3
    """Builds of a better model that vote, in the chains channels and trace: three or more, an odd number."""
    port: int = 8000
    """Of the chain trace: where they are served, on 127.0.0.1."""
    parallel: int = 0
    """Links at once; 0 = one per GPU (fast, full) or per core (tiny, toy, small). Slurm decides for itself."""
    slurm: str = ""
    """More arguments of sbatch, in one string: "--partition=gpu --time=12:00:00"."""
    dry: bool = False
    """Print the commands that would be added, add nothing."""

    def validate(self) -> None:
        super().validate()
        at_least(self, "n_problems", 0)
        at_least(self, "parallel", 0)
        if self.chain == "grpo" and (self.steps or self.arms):
            raise BadInput(
                f"--chain grpo: T5 is of {GRPO_STEPS} steps of {' and '.join(GRPO_ARMS)}; leave --steps and --arms out"
            )
        check_arms(self.chain, self.arms)
        if self.voters < 3 or self.voters % 2 == 0:
            raise BadInput(f"--voters {self.voters}: must be odd and 3 or more: the majority decides")
        if not 1 <= self.port <= 65535:
            raise BadInput(f"--port {self.port}: must be in 1 to 65535")
        if (world := WORLD_OF.get(self.chain, self.preset)) != self.preset:
            raise BadInput(f"--chain {self.chain}: a study of the {world} world; use preset={world}")
        if self.slurm and self.backend != "slurm":
            raise BadInput(f"--slurm {self.slurm!r}: only with --backend slurm")

    @property
    def rivals(self) -> bool:
        return self.chain == "rivals"

    @property
    def own_seeds(self) -> tuple[int, ...]:
        return SEEDS_OF.get(self.chain, SEEDS)

    @property
    def home(self) -> Path:
        """The chain's folder."""
        return self.out if self.out != Path() else Path("out/queue") / f"{self.chain}-{self.preset}"

    def plan(self) -> Plan:
        """What is to be run."""
        model = "toy" if self.preset == "toy" else ""
        plan = self.planned(self.preset, self.home, model, self.problems)
        plan, n = replace(plan, voters=self.voters, port=self.port), self.n_problems
        return replace(plan, pool_problems=n, replays=min(n, plan.replays)) if n else plan
