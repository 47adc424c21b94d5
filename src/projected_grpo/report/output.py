"""What `just results` makes of runs, whichever table is asked for: files, plots, a text for the terminal, an exit code."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.figure import Figure

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.report.plots import save

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


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
    summary: str = ""
    """Markdown for a document that quotes the numbers (--embed)."""

    def write(self, out: Path, embed: Path | None = None) -> None:
        """Writes the files and plots, and the summary into `embed`. BadInput, before anything is written, when that is no
        file or has no section."""
        document = embedded(embed, self.summary) if embed else ""
        for stem, figure in self.figures.items():
            save(figure, out / "plots", stem)
        for name, text in self.files.items():
            write_atomic(out / name, text.encode())
        if embed:
            write_atomic(embed, document.encode())


def embedded(place: Path, summary: str) -> str:
    """Returns a document with its results section replaced. BadInput when there is no such file, or no section."""
    if not place.is_file():
        raise BadInput(f"--embed {place}: no such file")
    head, begin, rest = place.read_text("utf-8").partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise BadInput(
            f"--embed {place}: has no section between {BEGIN} and {END}; add these two lines where it should be"
        )
    return f"{head}{BEGIN}\n{summary}\n{END}{tail}"
