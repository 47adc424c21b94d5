"""T7 of every unit below a directory (pairs of replays that differ in the loss of their V alone), and over all of them; or
of the file that this script wrote of them. Exit code: that of T7 over the units (0 PASS, 1 FAIL, 3 not evaluable); with
fewer than three, 3."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from projected_grpo.ledger.folder import NoPath
from projected_grpo.run import cli


@dataclass(frozen=True)
class LossesConfig:
    """What to judge."""

    dir: Annotated[Path, tyro.conf.Positional]
    """Directory with replays (`just toy chain=losses`, `just queue-probe`), at any depth; or a losses.json, judged again."""
    out: NoPath = Path()
    """Directory for losses.txt and losses.json; what stands there is replaced. Empty: losses in DIR; of a file
    NAME.losses.json, out/losses/NAME."""


def main() -> int:
    config = cli.parse_plain(LossesConfig, __doc__)
    from projected_grpo.ledger.console import CUES, bottom_line
    from projected_grpo.ledger.errors import BadInput
    from projected_grpo.ledger.files import write_atomic
    from projected_grpo.report.second_v import told, units_at
    from projected_grpo.report.tables import line_text
    from projected_grpo.verdicts.extraction_file import units_text
    from projected_grpo.verdicts.registry import exit_code
    from projected_grpo.verdicts.run_summaries import default_out

    if not config.dir.exists():
        raise BadInput(
            f"{config.dir}: no such directory or file; name one that holds replays of `just toy chain=losses`"
        )
    read = units_at(config.dir)
    if not read.units:
        lost = "".join(f"; left out: {path}: {why}" for path, why in read.left_out)
        raise BadInput(
            f"{config.dir}: no two replays of one pool against V of either loss; run `just toy chain=losses`{lost}"
        )
    line = read.over
    found, kept = line.verdict, units_text(read.units)
    out = config.out if config.out != Path() else default_out(config.dir, "losses")
    write_atomic(out / "losses.txt", "\n".join(told(line)).encode())
    write_atomic(out / "losses.json", kept.encode())
    print("\n".join(line_text(line)))
    sys.stdout.flush()
    bottom_line(out, CUES[found.status], f"{found.name} {found.status}: {found.why}")
    return exit_code([found], [found.name])


if __name__ == "__main__":
    cli.run(main)
