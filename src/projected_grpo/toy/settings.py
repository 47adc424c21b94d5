"""Configs of the toy world's own scripts: one frozen dataclass each; the text under a field is its --help."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from projected_grpo.config import Prompting, Sampling
from projected_grpo.errors import BadInput

TOY_MODELS = ("toy", "toy-deep")


@dataclass(frozen=True)
class BuildToyConfig(Sampling):
    """build_toy: base model and teacher, held against their bars."""

    model: str = "toy"
    """`toy` (3 layers, width 128) or `toy-deep` (5 layers, width 96)."""
    problems: str = "toy-held-out"
    """The problems that the bars are measured on."""
    group_size: int = 8
    """Completions per problem."""
    max_new: int = 72
    """Longest completion, in tokens."""
    temperature: float = 1.0
    """Sampling temperature."""
    top_p: float = 1.0
    """Nucleus sampling; 1 switches it off."""

    def validate(self) -> None:
        super().validate()
        if self.model not in TOY_MODELS:
            raise BadInput(f"--model {self.model}: the toy world has {', '.join(TOY_MODELS)}")


@dataclass(frozen=True)
class ToyConfig:
    """toy: the chain from the base model to the results."""

    out: Path = Path("out/toy")
    """Folder of the whole chain; one that exists is continued."""
    study: Literal["arms", "unknown"] = "arms"
    """arms: every arm and control. unknown: V from two of the four mechanisms, all six splits."""
    model: str = "toy"
    """`toy` or `toy-deep`, another width and depth."""
    seeds: tuple[int, ...] = (41, 42, 43)
    """Seeds of every arm."""
    arms: tuple[str, ...] = ("vanilla", "projected", "random", "placebo", "no_loophole")
    """Arms to train; no_loophole is vanilla with correctness alone paid."""
    steps: int = 200
    """Optimizer steps of every arm."""
    threads: int = 0
    """Most threads at once; 0 = one per core."""
    dry: bool = False
    """Print the commands and stop."""

    def validate(self) -> None:
        """BadInput on values that no chain could use."""
        known = ToyConfig.arms
        if odd := [a for a in self.arms if a not in known]:
            raise BadInput(f"--arms {odd[0]}: choose from {', '.join(known)}")
        if self.model not in TOY_MODELS:
            raise BadInput(f"--model {self.model}: the toy world has {', '.join(TOY_MODELS)}")
        if len(set(self.seeds)) != len(self.seeds) or not self.seeds:
            raise BadInput(f"--seeds {' '.join(map(str, self.seeds))}: give at least one, each once")
        if self.steps < 1:
            raise BadInput(f"--steps {self.steps}: must be 1 or more")


@dataclass(frozen=True)
class MutantsConfig(Prompting):
    """mutants: the sneaky fails, injected one by one."""

    model: str = "toy"
    """`toy` or `toy-deep`."""
    pairs: str = "toy"
    """Pairs that V and its mutants are made from."""
    k: int = 32
    """Directions per module."""
    n_problems: int = 24
    """Groups of the teacher's pool, replayed in both arms for every mutant."""
    random_bases: int = 99
    """Random bases that V must beat on the held-out pairs."""
    grader_workers: int = 0
    """Sandbox processes that grade; 0 = one per core."""
    out: Path = Path("out/mutants")
    """Folder for all runs; must not exist yet."""
