"""Tables, plots and verdicts of the finished runs below a directory: H1, H2, T5 and T6, or one table of its own (--only).
Exit code: 0 what is asked passes, 1 it fails, 3 it cannot be judged."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import NoPath
from projected_grpo.run import cli


@dataclass(frozen=True)
class ResultsConfig:
    """What to judge."""

    dirs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """Directory with finished runs, at any depth, or a file that they are kept in: NAME.runs.jsonl.gz.
    Several of them only with --out NAME.runs.jsonl.gz."""
    only: Literal["", "interventions", "channels"] = ""
    """interventions: every arm in one table and plot, by held-out rates. channels: each auxiliary loss with and
    without it."""
    out: NoPath = Path()
    """Directory for the tables, numbers and plots; what is there is replaced. Empty: results (or interventions,
    channels) in DIR; of a file NAME.runs.jsonl.gz, out/results/NAME. A file NAME.runs.jsonl.gz: keep the runs in it,
    and judge nothing."""
    require: tuple[Literal["H1", "H2", "T5"], ...] = ()
    """Verdicts that decide the exit code. Empty: all that are judged."""


def main() -> int:
    config = cli.parse_plain(ResultsConfig, __doc__)
    from projected_grpo.report import channels, interventions, results
    from projected_grpo.verdicts.run_summaries import is_summary, runs_at, write_summaries

    if config.require and (config.only or is_summary(config.out)):
        raise BadInput(
            f"--require {' '.join(config.require)}: is of the verdicts alone; leave it or --only, --out FILE out"
        )
    if not config.dirs:
        raise BadInput("missing: a directory of runs, as in `just results out/toy`")
    if is_summary(config.out):
        studies = [(path, runs_at(path)) for path in config.dirs]
        kept = write_summaries(config.out, *studies)
        lost = [f"left out: {path}: {why}" for _, found in studies for path, why in found.left_out]
        print(*lost, sep="\n")
        bottom_line(config.out, "⚪", f"{kept} runs, {config.out.stat().st_size / 1024:,.0f} KiB; {len(lost)} left out")
        return 0
    if len(config.dirs) > 1:
        raise BadInput(f"{len(config.dirs)} directories: only --out NAME.runs.jsonl.gz takes several together")
    path = config.dirs[0]
    if config.only:
        found = runs_at(path)
        made = channels.output(found) if config.only == "channels" else interventions.bench_of(found).output()
    else:
        made = results.output(results.report_on(path), config.require)
    name = config.only or "results"
    usual = path / name if path.is_dir() else Path("out") / name / path.name.partition(".")[0]
    out = config.out if config.out != Path() else usual
    made.write(out)
    print(made.text)
    bottom_line(out, {0: "PASS", 1: "FAIL"}.get(made.code, "NOT_EVALUABLE"), made.bottom)
    return made.code


if __name__ == "__main__":
    cli.run(main)
