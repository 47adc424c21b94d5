"""Tables, plots, the three lines of H1, and T5 of runs on mixed groups, from every finished training run below a directory;
T7 of its replays. Exit code: 0 each line passes for every projected arm, 1 one fails, 3 one cannot be judged. Of replays
alone it is that of T7 over the units, which beside training runs decides nothing."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.ledger.folder import NoPath
from projected_grpo.run import cli


@dataclass(frozen=True)
class ResultsConfig:
    """What to summarise."""

    dir: Annotated[Path, tyro.conf.Positional]
    """Directory with training runs, at any depth, or with T7's replays alone; other kinds of run are passed over. Or a file
    of `just summarise`, or a losses.json of `just losses-table`."""
    out: NoPath = Path()
    """Directory for results.md, results.json and plots/; what stands there is replaced. Empty: results in DIR;
    of a file NAME.runs.jsonl.gz or NAME.losses.json, out/results/NAME."""
    embed: NoPath = Path()
    """A markdown file whose section between the results markers is replaced by the arms and H1."""
    beside: tuple[Path, ...] = ()
    """Directories or files of other studies (doses, another world): a section and a plot each behind the plots of
    results.md, for the reader; they decide nothing."""
    require: tuple[Literal["H1", "T5"], ...] = ()
    """Verdicts that decide the exit code. Empty: all that are judged; T5 is on groups with rows of the untrained model."""


NOT_THERE = {"H1": "no projected run", "T5": "no projected run on groups with base rows"}


def main() -> int:
    config = cli.parse_plain(ResultsConfig, __doc__)
    from projected_grpo.report import plots
    from projected_grpo.report.lives_plot import lives_plots
    from projected_grpo.report.results_md import embedded, report_on
    from projected_grpo.verdicts.registry import Finding, exit_code
    from projected_grpo.verdicts.run_summaries import default_out, study_of
    from projected_grpo.worlds.toy_programs import mechanism_of

    report = report_on(config.dir, mechanism_of)
    document = None
    if config.embed != Path():
        if not config.embed.is_file():
            raise BadInput(f"--embed {config.embed}: no such file")
        document = embedded(config.embed.read_text("utf-8"), report.summary(), config.embed)
    out = config.out if config.out != Path() else default_out(config.dir, "results")
    figures = plots.all_plots(report.groups) | lives_plots(report.groups)
    sections, figures_beside = [], {}
    others = [report_on(directory, mechanism_of) for directory in config.beside]
    for other in others:
        own = plots.plots_beside(other.groups, study_of(other.root))
        sections.append(other.section(list(own)))
        figures_beside |= own
    for stem, figure in (figures | figures_beside).items():
        plots.save(figure, out / "plots", stem)
    write_atomic(out / "results.json", report.json().encode())
    write_atomic(out / "results.md", "\n".join([report.markdown(list(figures)), *sections]).encode())
    if document is not None:
        write_atomic(config.embed, document.encode())
    print(report.printout())
    sys.stdout.flush()
    verdicts = report.verdicts
    missing = [name for name in config.require if not any(v.name.split()[0] == name for v in verdicts)]
    verdicts += [Finding(name, "NOT_EVALUABLE", NOT_THERE[name]) for name in missing]
    asked = [v for v in verdicts if not config.require or v.name.split()[0] in config.require]
    code = exit_code(verdicts, [v.name for v in asked])
    many = len(asked) > 1  # their reasons stand above
    each = "; ".join(f"{v.name} {v.status}" if many else f"{v.name} {v.status}: {v.why}" for v in asked)
    bottom_line(out, {0: "PASS", 1: "FAIL"}.get(code, "NOT_EVALUABLE"), f"{each}; exit code {code}")
    return code


if __name__ == "__main__":
    cli.run(main)
