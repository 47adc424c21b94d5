"""V extracted again from the trained adapters of finished runs: does the V that a run used still point hack-ward there, or
have its coordinates moved away from under it? Written to re_extracted.json in each run; `just compare` and T6 read it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from projected_grpo.ledger.folder import NoPath
from projected_grpo.run import cli


@dataclass(frozen=True)
class ReExtractConfig:
    """Which runs to measure."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of finished training runs with a V; every adapter that --keep-adapter-every kept, and the last one."""
    vhack: NoPath = Path()
    """The V that the run used, where it is no longer in its place; of one run only."""
    cache: NoPath = Path()
    """Where built models and singular value decompositions are kept. Empty: the run's own."""


def main() -> int:
    config = cli.parse_plain(ReExtractConfig, __doc__)
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.errors import BadInput
    from projected_grpo.run.refresh import measured
    from projected_grpo.verdicts.re_extracted import write_re_extracted

    if not config.runs:
        raise BadInput("no run given; name folders of finished training runs")
    given = {name: path for name, path in (("cache", config.cache), ("vhack", config.vhack)) if path != Path()}
    if "vhack" in given and len(config.runs) > 1:
        raise BadInput(f"--vhack {config.vhack}: of one run; {len(config.runs)} are given")
    header = ["run", "steps", "overlap", "unrelated", "cos_in", "cos_out", "left"]
    for run in config.runs:
        found = measured(run, **given)
        path = write_re_extracted(run, found)
        body = [[run.name, r.steps, r.overlap, r.null, r.cos_in, r.cos_out, r.left] for r in found.records]
        last = found.records[-1]
        said = (
            f"{run.name}: V in use against re-extracted V after {last.steps} steps: {last.standing:.2f} of the way from "
            f"unrelated (0) to the same (1); removing it leaves {last.left:.2f} of the hack-ward gradient"
        )
        bottom_line(path, "⚪", said, [header, *body])
    return 0


if __name__ == "__main__":
    cli.run(main)
