"""Write what tables and verdicts take from finished runs into one small file, for where the step files cannot go."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.errors import BadInput
from projected_grpo.run import cli


@dataclass(frozen=True)
class SummariseConfig:
    """What to summarise."""

    places: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Directories with training runs, at any depth, or files of this script: units that ran on several machines become one
    file. Only finished runs are taken. `just losses-table` keeps what T7 takes from replays."""
    out: Path
    """The file, NAME.runs.jsonl.gz; what stands there is replaced. Read by `results`, `rivals-table`, `channels-table`."""

    def validate(self) -> None:
        """BadInput on nothing to summarise."""
        if not self.places:
            raise BadInput("no directory and no file is given; `just summarise DIR --out NAME.runs.jsonl.gz`")


def main() -> int:
    config = cli.parse_plain(SummariseConfig, __doc__)
    config.validate()
    from projected_grpo.report.second_v import pairs_below
    from projected_grpo.verdicts.finished_runs import load_runs
    from projected_grpo.verdicts.run_summaries import is_summary, read_summaries, write_summaries
    from projected_grpo.worlds.toy_programs import mechanism_of

    studies = []
    for place in config.places:
        if is_summary(place):
            studies.append((place, read_summaries(place)))
            continue
        (replays, _), kept = pairs_below(place), f"`just losses-table {place}` keeps it, in losses.json"
        found = load_runs(place, mechanism_of, needed=not replays)
        if not found.runs:
            raise BadInput(f"{place}: holds replays alone; what T7 takes from them has a file of its own: {kept}")
        studies.append((place, found))
        if replays:
            print(f"T7 of {len(replays)} pairs of replays is not in it; {kept}")
    n = write_summaries(config.out, *studies)
    lost = [at for _, found in studies for at in found.left_out]
    for path, why in lost:
        print(f"left out: {path}: {why}")
    copies = sum(len(found.runs) for _, found in studies) - n
    also = f"; {copies} copies of runs that are in it already" if copies else ""
    size = config.out.stat().st_size / 1024
    bottom_line(config.out, "🟢", f"{n} runs, {size:,.0f} KiB; {len(lost)} left out{also}")
    return 0


if __name__ == "__main__":
    cli.run(main)
