"""Write report.html, one self-contained page of a folder of runs: verdicts, tables, plots, and rollouts to browse.
Exit code 0 once it is written; `results` and `probe_uat` judge."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.files import write_atomic
from projected_grpo.run import cli


@dataclass(frozen=True)
class ReportConfig:
    """What to put into the page."""

    dir: Annotated[Path, tyro.conf.Positional]
    """Folder with finished training runs at any depth."""


def main() -> None:
    config = cli.parse_plain(ReportConfig, __doc__)
    from projected_grpo.report.page import page
    from projected_grpo.report.results import report_on

    report = report_on(config.dir)
    text = page(report).encode()
    write_atomic(config.dir / "report.html", text)
    bottom_line(config.dir / "report.html", "⚪", f"{len(report.groups)} arms, a page of {len(text) / 1e6:.1f} MB")


if __name__ == "__main__":
    cli.run(main)
