"""Configs of the scripts that run chains: one frozen dataclass each; the text under a field is its --help."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from projected_grpo.arms import ARMS
from projected_grpo.chains.plans import Plan
from projected_grpo.config import TrainConfig, at_least
from projected_grpo.ledger.errors import BadInput
from projected_grpo.parallel import cores
from projected_grpo.presets import PRESETS, PresetName, presets
from projected_grpo.toy.settings import check_toy_model


@dataclass(frozen=True)
class Sweep:
    """Fields of every script that runs arms on seeds."""

    seeds: tuple[int, ...] = (41, 42, 43)
    """Seeds of every arm."""
    arms: tuple[str, ...] = ()
    """Arms to train (`train --help` says what each does). Empty: every arm of the registry on tiny and toy, elsewhere all
    but those that have nothing to hack."""
    steps: int = 0
    """Optimizer steps of every arm; 0 = the preset's."""

    def validate(self) -> None:
        """BadInput on values that no chain could use."""
        if odd := [a for a in self.arms if a not in ARMS]:
            raise BadInput(f"--arms {odd[0]}: choose from {', '.join(ARMS)}")
        if len(set(self.arms)) != len(self.arms):
            raise BadInput(f"--arms {' '.join(self.arms)}: give each once")
        if len(set(self.seeds)) != len(self.seeds) or not self.seeds:
            raise BadInput(f"--seeds {' '.join(map(str, self.seeds))}: give at least one, each once")
        at_least(self, "steps", 0)
        if not Path("scripts/train.py").exists():
            raise BadInput("scripts/train.py: not here; run from the project's folder")

    def planned(self, name: PresetName, out: Path, model: str, problems: str = "") -> Plan:
        """The plan that the fields and a preset give."""
        preset = PRESETS[name]
        every = tuple(arm.name for arm in ARMS.values() if preset.on_cpu or arm.role != "ceiling")
        if preset.teacher_share == "pool" and (unpaid := [a for a in self.arms if not ARMS[a].loophole]):
            raise BadInput(
                f"--arms {unpaid[0]}: the teacher's pool of preset {name} pays the loophole; leave this arm out"
            )
        steps = self.steps or presets(TrainConfig)[name].steps
        return Plan(
            preset,
            out,
            model,
            self.seeds,
            self.arms or every,
            steps,
            preset.pool_problems,
            preset.replays,
            problems,
            cores(),
        )


@dataclass(frozen=True)
class ToyConfig(Sweep):
    """toy: the chain from the base model to the results."""

    out: Path = Path("out/toy")
    """Folder of the whole chain; one that exists is continued."""
    study: Literal["toy", "unknown", "variants"] = "toy"
    """toy: every arm and control. unknown: V from two of the four mechanisms, all six splits. variants: other gates and
    targets, and V refreshed."""
    model: str = "toy"
    """`toy` or `toy-deep`, another width and depth."""
    threads: int = 0
    """Most threads at once; 0 = one per core."""
    dry: bool = False
    """Print the commands and stop."""

    def validate(self) -> None:
        super().validate()
        check_toy_model(self.model)
        at_least(self, "threads", 0)


@dataclass(frozen=True)
class QueueConfig(Sweep):
    """enqueue: put a chain into a queue. Fields may be given as words too: `preset=toy backend=slurm`."""

    chain: Literal["probe", "full"] = "full"
    """probe: V, teacher pool, replays, UAT: the cheap look. full: V, every arm on every seed, results."""
    preset: PresetName = "full"
    """The world to run in."""
    backend: Literal["pueue", "slurm", "here"] = "pueue"
    """pueue or slurm: queue it and return. here: run it in this terminal."""
    out: Path = Path()
    """Folder of the whole chain; one that exists is continued. Empty: out/queue/CHAIN-PRESET."""
    problems: str = ""
    """Problems to train and to probe on: `builtin`, or the benchmark's JSON-lines file. Empty: the preset's."""
    n_problems: int = 0
    """Problems of the teacher's pool; 0 = the preset's."""
    parallel: int = 0
    """Links at once; 0 = one per GPU (fast, full) or per core (tiny, toy). Slurm decides for itself."""
    slurm: str = ""
    """More arguments of sbatch, in one string: "--partition=gpu --time=12:00:00"."""
    dry: bool = False
    """Print the commands that would be added, add nothing."""

    def validate(self) -> None:
        super().validate()
        at_least(self, "n_problems", 0)
        at_least(self, "parallel", 0)
        if self.slurm and self.backend != "slurm":
            raise BadInput(f"--slurm {self.slurm!r}: only with --backend slurm")

    @property
    def home(self) -> Path:
        """The chain's folder."""
        return self.out if self.out != Path() else Path("out/queue") / f"{self.chain}-{self.preset}"

    def plan(self) -> Plan:
        """What is to be run."""
        model = PRESETS[self.preset].values["model"] if PRESETS[self.preset].builds_base else ""
        plan = self.planned(self.preset, self.home, model, self.problems)
        n = self.n_problems
        return replace(plan, pool_problems=n, replays=min(n, plan.replays)) if n else plan
