"""Write docs/results.md, the tables of docs/interventions.md and docs/small.md, README's table and picture, and their
plots, from docs/evidence, and docs/metrics.md from the schema of step files.

From the repository's root: `just docs-results`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from projected_grpo.ledger import step_file
from projected_grpo.ledger.files import write_atomic
from projected_grpo.ledger.rates import number
from projected_grpo.report.interventions import Bench, bench_of, frontier
from projected_grpo.report.plots import all_plots, hack_rates, save
from projected_grpo.report.results import Report, report_on
from projected_grpo.report.tables import held_out_rate
from projected_grpo.report.text import Table

DOCS, EVIDENCE = Path("docs"), Path("docs/evidence")
TOY = EVIDENCE / "toy.runs.jsonl.gz"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
FRONT = (
    "untrained", "no_loophole", "vanilla", "projected", "random", "placebo", "random_energy", "random_share", "kl",
    "penalty_phrase", "penalty_probe",
)  # fmt: skip
"""README's rows, and the arms of the plots."""
COLUMNS = ("arm", "was shown", "hacks %", "learning retained", "broken", "removed %")
PICTURE = ("vanilla", "projected", "random_energy", "random_share")


def front_table(bench: Bench) -> str:
    """README's table: some rows and columns of the main table."""
    table = bench.table
    rows = [dict(zip(table.header, cells, strict=True)) for cells in table.body if cells[0] in FRONT]
    return Table("", COLUMNS, [[row[name] for name in COLUMNS] for row in rows]).text("github")


def small_table(report: Report) -> str:
    """The table of docs/small.md, a line a run."""
    runs = [run for group in report.groups for run in group.runs]
    steps = sorted({done for run in runs for done in run.evals})
    body = []
    for run in sorted(runs, key=lambda run: run.seed):
        removed, onset = number(run.whole("update_removed"), 100.0, 0), number(run.onset, digits=0)
        of = [[number(held_out_rate(run, done, rate), 100.0) for rate in ("hack", "gt")] for done in steps]
        body.append([f"{run.seed} {run.arm}", removed, onset, *(f"{hack} ({gt})" for hack, gt in of)])
    header = ["replicate, arm", "update energy removed %", "onset", *(f"step {done}" for done in steps)]
    return Table("", header, body).text("github")


def embedded(page: Path, text: str) -> str:
    """Returns a page with what stands between its results markers replaced."""
    head, _, rest = page.read_text("utf-8").partition(BEGIN)
    return f"{head}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}"


def metrics_markdown() -> str:
    """Returns docs/metrics.md, from the schema."""

    def table(*rows: Sequence[str]) -> str:
        cells = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
        return "\n".join(["", f"| {cells[0]} |", f"|{'---|' * len(rows[0])}", *(f"| {row} |" for row in cells[1:]), ""])

    def columns(of: Iterable[step_file.Column]) -> list[tuple[str, ...]]:
        return [(f"`{c.name}`", c.level, c.type, c.unit, "yes" if c.null else "", c.meaning) for c in of]

    header = ("column", "level", "type", "unit", "may be null", "meaning")
    return f"""# Columns of a step file

Schema version {step_file.SCHEMA_VERSION}. One JSON object per sample in `step_NNN.jsonl.gz`; every key is in every row.
Printed from `src/projected_grpo/ledger/step_file.py` by `just docs-results`; do not edit by hand.
{table(header, *columns(step_file.COLUMNS))}
## The column `channels`
{table(("number", "of", "meaning"), *((f"`{name}`", of, text) for of, name, text in step_file.CHANNEL_NUMBERS))}
## The side file of modules

`modules.jsonl.gz`, of a run with a V. The first line names the `modules` and their coordinates `n`; every other
line is a `step`: each column below is a list, one value a module in that order, to 7 digits
{table(header, *columns(step_file.MODULE_COLUMNS))}"""


def made() -> tuple[dict[Path, str], dict[str, Figure]]:
    """Returns the pages by their place, and the plots by their name."""
    report = report_on(TOY)
    bench = bench_of(report.found)
    # Twenty arms are more than a plot shows.
    plots = all_plots([group for group in report.groups if group.name in FRONT])
    small = report_on(EVIDENCE / "small.runs.jsonl.gz")
    pages = {
        DOCS / "metrics.md": metrics_markdown(),
        DOCS / "results.md": report.markdown(plots),
        DOCS / "interventions.md": embedded(DOCS / "interventions.md", bench.table.markdown().strip()),
        DOCS / "small.md": embedded(DOCS / "small.md", small_table(small)),
        Path("README.md"): embedded(Path("README.md"), front_table(bench)),
    }
    worlds = {"toy world": report, "small world (135 M)": small}
    front = {title: [g for g in found.groups if g.name in PICTURE] for title, found in worlds.items()}
    return pages, {**plots, "frontier": frontier(bench.rows), "front": hack_rates(front)}


def main() -> None:
    pages, plots = made()
    for path, text in pages.items():
        write_atomic(path, text.encode())
    for stem, figure in plots.items():
        save(figure, DOCS / "plots", stem)
    print("\n".join(map(str, [*pages, DOCS / "plots"])))


if __name__ == "__main__":
    main()
