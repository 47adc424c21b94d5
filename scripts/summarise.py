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
    """Directory with training runs, at any depth; taken are finished ones whose rows are what they were sealed with.
    What T7 takes from replays `just losses-table` keeps."""
    out: Path
    """The file, NAME.runs.jsonl.gz; what stands there is replaced. Read by `results`, `rivals-table`, `channels-table`."""


def main() -> int:
    config = cli.parse_plain(SummariseConfig, __doc__)
    from projected_grpo.groups.mechanisms import mechanism_of
    from projected_grpo.ledger.errors import BadInput
    from projected_grpo.report.second_v import pairs_below
    from projected_grpo.verdicts.finished_runs import load_runs
    from projected_grpo.verdicts.run_summaries import write_summaries

    replays, kept = pairs_below(config.dir), f"`just losses-table {config.dir}` keeps it, in losses.json"
    found = load_runs(config.dir, mechanism_of, needed=not replays)
    if not found.runs:
        raise BadInput(f"{config.dir}: holds replays alone; what T7 takes from them has a file of its own: {kept}")
    write_summaries(config.out, config.dir, found.runs, found.left_out)
    if replays:
        print(f"T7 of {len(replays)} pairs of replays is not in it; {kept}")
    for path, why in found.left_out:
        print(f"left out: {path}: {why}")
    size = config.out.stat().st_size
    bottom_line(config.out, "🟢", f"{len(found.runs)} runs, {size / 1024:,.0f} KiB; {len(found.left_out)} left out")
    return 0


if __name__ == "__main__":
    cli.run(main)
