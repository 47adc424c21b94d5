"""V extracted again from the trained adapters of a finished run: does the V that it used still point hack-ward there,
or have its coordinates moved away from under it? Written to re_extracted.json in the run; T6 reads it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from projected_grpo.ledger.folder import NoPath
from projected_grpo.run import cli


@dataclass(frozen=True)
class ReExtractConfig:
    """Which run to measure."""

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a finished training run with a V; every adapter that --keep-adapter-every kept, and the last one."""
    vhack: NoPath = Path()
    """The V that the run used, where it is no longer in its place."""


def main() -> None:
    config = cli.parse_plain(ReExtractConfig, __doc__)
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.re_extracted import write_re_extracted
    from projected_grpo.run.refresh import measured

    found = measured(config.run, config.vhack)
    path = write_re_extracted(config.run, found)
    last = found[-1]
    said = (
        f"{config.run.name}: V in use against re-extracted V after {last.steps} steps: {last.standing:.2f} of the way from "
        f"unrelated (0) to the same (1); removing it leaves {last.left:.2f} of the hack-ward gradient"
    )
    header = ["steps", "overlap", "unrelated", "cos_in", "cos_out", "left"]
    body = [[r.steps, r.overlap, r.null, r.cos_in, r.cos_out, r.left] for r in found]
    bottom_line(path, "⚪", said, [header, *body])


if __name__ == "__main__":
    cli.run(main)
