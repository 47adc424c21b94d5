"""The bench of rivals: one table and one plot of every finished run below a directory, each arm with what it was told. Exit
code: 0, or 3 where there is no rival to set beside projected, or fewer than three units of it."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.errors import EXIT_NOT_EVALUABLE, EXIT_OK, BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.ledger.folder import NoPath
from projected_grpo.run import cli


@dataclass(frozen=True)
class RivalsConfig:
    """What to set side by side."""

    dir: Annotated[Path, tyro.conf.Positional]
    """Directory with training runs, at any depth, or a file of `just summarise`."""
    out: NoPath = Path()
    """Directory for rivals.md, rivals.json and plots/; what stands there is replaced. Empty: rivals in DIR;
    of a file NAME.runs.jsonl.gz, out/rivals/NAME."""
    embed: NoPath = Path()
    """A markdown file whose section between the results markers is replaced by the table."""


def main() -> int:
    config = cli.parse_plain(RivalsConfig, __doc__)
    from projected_grpo.report import plots
    from projected_grpo.report.results_md import embedded
    from projected_grpo.report.rivals import bench_of
    from projected_grpo.report.rivals_plot import hack_against_pass
    from projected_grpo.verdicts.run_summaries import default_out, runs_at

    bench = bench_of(config.dir, runs_at(config.dir))
    document = None
    if config.embed != Path():
        if not config.embed.is_file():
            raise BadInput(f"--embed {config.embed}: no such file")
        document = embedded(config.embed.read_text("utf-8"), bench.table.markdown(config.dir).strip(), config.embed)
    out = config.out if config.out != Path() else default_out(config.dir, "rivals")
    plots.save(hack_against_pass(bench.rows), out / "plots", "rivals")
    write_atomic(out / "rivals.json", bench.json().encode())
    write_atomic(out / "rivals.md", bench.markdown().encode())
    if document is not None:
        write_atomic(config.embed, document.encode())
    print("\n".join([*bench.remarks, "", bench.printed.title, "", bench.printed.text()]))
    sys.stdout.flush()
    missing = bench.verdict.startswith("NOT_EVALUABLE")
    bottom_line(out, "⚪" if missing else "🟢", bench.verdict)
    return EXIT_NOT_EVALUABLE if missing else EXIT_OK


if __name__ == "__main__":
    cli.run(main)
