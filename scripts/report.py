"""One self-contained HTML page of an experiment: what was run, verdicts, tables, plots, and rollouts to browse. Exit code: 0
when the page is written, whatever the verdicts say (`results` and `probe_uat` gate a queue)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from projected_grpo.config import flag
from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.errors import EXIT_OK, BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.ledger.folder import NoPath
from projected_grpo.run import cli


@dataclass(frozen=True)
class ReportConfig:
    """What to put into the page."""

    dirs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Runs, or directories with runs at any depth; unfinished runs are shown with a remark."""
    out: NoPath = Path()
    """The page, an .html file; what stands there is replaced. Empty: report.html in the first of DIRS."""
    max_rollouts: int = 8000
    """Most rollouts in the page: of more, a sample spread over runs, labels and steps. 8000 of the benchmark's length make
    about 3 MB, the plots 1.5."""


def main() -> int:
    config = cli.parse_plain(ReportConfig, __doc__)
    if not config.dirs:
        raise BadInput("no directory given; name a run, or a directory that holds runs, such as out/toy")
    if config.max_rollouts < 1:
        raise BadInput(f"{flag('max_rollouts')} {config.max_rollouts}: must be 1 or more")
    out = config.out if config.out != Path() else config.dirs[0] / "report.html"
    if out.is_dir():
        raise BadInput(f"--out {out}: is a directory; name a file in it, such as {out / 'report.html'}")
    from projected_grpo.groups.mechanisms import mechanism_of
    from projected_grpo.report.page.document import page
    from projected_grpo.report.page.experiment import find, remarks, trained
    from projected_grpo.verdicts.registry import Finding, exit_code

    found = find(config.dirs)
    report = trained(found, mechanism_of)
    text, shown = page(found, report, config.max_rollouts)
    data = text.encode()
    write_atomic(out, data)
    print("\n".join([*remarks(found, report), shown.note]))
    judged = report.verdicts if report else [Finding("H1", "NOT_EVALUABLE", "no finished training run")]
    cue = {0: "PASS", 1: "FAIL"}.get(exit_code(judged, [v.name for v in judged]), "NOT_EVALUABLE")
    told = "; ".join(f"{v.name} {v.status}" for v in judged)
    bottom_line(
        out, cue, f"{told}; a page of {len(data) / 1e6:.1f} MB, {len(shown.rows):,} of {shown.total:,} rollouts"
    )
    return EXIT_OK


if __name__ == "__main__":
    cli.run(main)
