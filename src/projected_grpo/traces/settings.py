"""Options of `just multi-turn`. No torch here: --help stays fast."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from projected_grpo.config import Sampling
from projected_grpo.ledger.folder import NoPath


@dataclass(frozen=True)
class MultiTurnConfig(Sampling):
    """multi_turn: traces in which the model sees what came of its answer, and tries again."""

    turns: int = 3
    """Most answers in a trace, two to four."""
    who: Literal["base", "teacher", "trained"] = "base"
    """--model as it is, with --teacher, or with the adapter of --trained."""
    teacher: str = "tiny"
    """PEFT LoRA (hub id or folder) for --who teacher."""
    trained: NoPath = Path()
    """Folder of a finished training run, for --who trained."""
    n_problems: int = 0
    """Problems to sample; 0 = all."""
    resume: bool = False
    """Continue in --out: only what is missing is sampled."""

    def faults(self) -> Iterator[str]:
        if (self.who == "trained") != (self.trained != Path()):
            yield f"--who {self.who}: --trained RUN and --who trained go together"
