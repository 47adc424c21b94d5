"""What `just results` makes of runs, whichever table is asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.figure import Figure

from projected_grpo.ledger.files import write_atomic
from projected_grpo.report.plots import save


@dataclass(frozen=True)
class Output:
    """Everything that is written and printed."""

    text: str
    """For the terminal."""
    bottom: str
    """The last line: what was found."""
    code: int
    """Exit code: 0 PASS, 1 FAIL, 3 not evaluable."""
    files: Mapping[str, str]
    """File name -> its text."""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    """Stem -> figure, for plots/."""

    def write(self, out: Path) -> None:
        for stem, figure in self.figures.items():
            save(figure, out / "plots", stem)
        for name, text in self.files.items():
            write_atomic(out / name, text.encode())
