"""What scripts/export.py asks for. No torch here: --help stays fast."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from projected_grpo.config import at_least
from projected_grpo.ledger.folder import NoPath, check_new

Form = Literal["peft", "folded", "delta"]


@dataclass(frozen=True)
class ExportConfig:
    """export: a Hugging Face folder with a model card, of a finished training run."""

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a finished training run."""
    as_: Annotated[Literal["auto", "peft", "folded", "delta"], tyro.conf.arg(name="as")] = "auto"
    """peft: a PEFT LoRA adapter (of a run with --adapter lora). folded: whole weights, any run. delta: delta_S and a file
    that loads it (of a run with --adapter antipasto). auto: peft for a LoRA, else folded."""
    step: int = 0
    """The adapter after so many steps, one that --keep-adapter-every kept; 0 = the one that the run ended with."""
    beside: tuple[Path, ...] = ()
    """Finished runs that stand beside it in the card: vanilla and controls of the same seed."""
    cache: NoPath = Path()
    """Where built models and singular value decompositions are kept. Empty: the run's own."""
    out: NoPath = Path()
    """Folder to write; must not exist yet. Empty: out/released/ and the run's name."""

    @property
    def folder(self) -> Path:
        """Where it is written."""
        return self.out if self.out != Path() else Path("out/released") / self.run.resolve().name

    def validate(self) -> None:
        """BadInput on values that no export could use."""
        at_least(self, "step", 0)
        check_new(self.folder)
