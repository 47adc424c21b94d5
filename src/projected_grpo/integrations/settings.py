"""What scripts/in_trl.py asks for. No torch here: --help stays fast."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class InTRLConfig:
    """in_trl: independent replicates in TRL's GRPOTrainer, each without the callback and with it."""

    world: Literal["toy", "tiny"] = "toy"
    """The preset whose model, problems, pairs and sizes are used; tiny is the mechanics alone."""
    replicates: tuple[int, ...] = (41, 42, 43)
    """Seeds. Each replicate has its base, its draw of the pairs and its V."""
    steps: int = 300
    """Optimizer steps of every run."""
    save_every: int = 25
    """Steps between two checkpoints; a run that was cut goes on from its last one."""
    cache: Path = Path("out/cache")
    """Where built models and singular value decompositions are kept."""
    out: Path = Path("out/in-trl")
    """Folder of runs; those that are finished are left as they are."""
