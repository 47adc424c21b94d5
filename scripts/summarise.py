"""Write what tables and verdicts take from finished runs into one small file, for where the step files cannot go."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from projected_grpo.ledger.console import bottom_line
from projected_grpo.run import cli


@dataclass(frozen=True)
class SummariseConfig:
    """What to summarise."""

    dir: Annotated[Path, tyro.conf.Positional]
    """Directory with training runs, at any depth; taken are finished ones whose rows are what they were sealed with."""
    out: Path
    """The file, NAME.runs.jsonl.gz; what stands there is replaced. Read by `results`, `rivals-table`, `channels-table`."""


def main() -> int:
    config = cli.parse_plain(SummariseConfig, __doc__)
    from projected_grpo.groups.mechanisms import mechanism_of
    from projected_grpo.verdicts.finished_runs import load_runs
    from projected_grpo.verdicts.run_summaries import write_summaries

    found = load_runs(config.dir, mechanism_of)
    write_summaries(config.out, config.dir, found.runs, found.left_out)
    for path, why in found.left_out:
        print(f"left out: {path}: {why}")
    size = config.out.stat().st_size
    bottom_line(config.out, "🟢", f"{len(found.runs)} runs, {size / 1024:,.0f} KiB; {len(found.left_out)} left out")
    return 0


if __name__ == "__main__":
    cli.run(main)
