"""The A/B of channels from every finished run below a directory: verdicts, hack rates, each channel's gradient against V.
Exit code: 0 where every channel is VALIDATED, 1 where one is not, 3 where none can be judged."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.errors import EXIT_FAILED, EXIT_NOT_EVALUABLE, EXIT_OK
from projected_grpo.ledger.files import write_atomic
from projected_grpo.ledger.folder import NoPath
from projected_grpo.run import cli
from projected_grpo.verdicts.channels import AB


@dataclass(frozen=True)
class ChannelsConfig:
    """What to judge."""

    dir: Annotated[Path, tyro.conf.Positional]
    """Directory with training runs, at any depth, or a file of `just summarise`."""
    out: NoPath = Path()
    """Directory for channels.md; what stands there is replaced. Empty: channels in DIR;
    of a file NAME.runs.jsonl.gz, out/channels/NAME."""


def hacks(ab: AB) -> str:
    """What became of the hack rate, which decides nothing and is never left out."""
    if not ab.hack:
        return ""
    return f"; held-out pure hacks {sum(ab.hack.values()) / len(ab.hack):+.1f} pp, n = {len(ab.hack)}"


def main() -> int:
    config = cli.parse_plain(ChannelsConfig, __doc__)
    from projected_grpo.report.channels import document, tables_of
    from projected_grpo.verdicts.run_summaries import default_out, runs_at

    loaded = runs_at(config.dir)
    found, tables = tables_of(loaded.runs)
    remarks = [f"left out: {path}: {why}" for path, why in loaded.left_out]
    out = config.out if config.out != Path() else default_out(config.dir, "channels")
    write_atomic(out / "channels.md", document(found, tables, config.dir, remarks).encode())
    for table in tables:
        print(f"\n{table.title}\n\n{table.text()}")
    print()
    for ab in found:
        print(f"{ab.arm}, {' + '.join(ab.channels)}: {ab.status}: {ab.why}{hacks(ab)}")
    sys.stdout.flush()
    known = [ab for ab in found if ab.status != "NOT_EVALUABLE"]
    if not known:
        why = "no channel can be judged" if found else "no run with a channel beside the policy"
        bottom_line(out, "⚪", f"NOT_EVALUABLE: {why}")
        return EXIT_NOT_EVALUABLE
    good = [ab for ab in found if ab.status == "VALIDATED"]
    told = f"{len(good)} of {len(found)} VALIDATED; no pass rate is read without the hack rate beside it"
    bottom_line(out, "🟢" if len(good) == len(found) else "🔴", told)
    return EXIT_OK if len(good) == len(found) else EXIT_FAILED


if __name__ == "__main__":
    cli.run(main)
