"""One self-contained HTML page of a folder of runs: verdicts, tables, plots and rollouts to browse (`just report
DIR`).

Nothing is fetched. What models wrote is in a block of JSON and reaches the page as text only.
"""

import base64
import itertools
import json
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from projected_grpo.ledger.step_file import iter_run
from projected_grpo.report.plots import all_plots, rendered
from projected_grpo.report.results import HOW_TO_READ, Report
from projected_grpo.report.tables import all_tables

MOST = 4000
"""Rollouts in the page."""
COLUMNS = (
    "step", "label", "reward", "gt_pass", "hacked", "advantage", "cos_S_contrib", "comp_len", "problem_id",
    "prompt", "completion",
)  # fmt: skip
"""Columns of a row that the page shows."""


def page(report: Report) -> str:
    """Returns the page. Raises BadInput on a damaged step file."""
    jinja = Environment(
        loader=PackageLoader("projected_grpo.report", "."), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    figures = all_plots(report.groups)
    rollouts = sample(report)
    return jinja.get_template("page.html").render(
        title=report.root.name, remarks=report.remarks, how_to_read=HOW_TO_READ,
        lines=report.lines, tables=all_tables(report.groups, report.found.runs),
        plots={stem: base64.b64encode(rendered(figure, "svg")).decode("ascii") for stem, figure in figures.items()},
        shown=len(rollouts), total=sum(run.rollouts for run in report.found.runs),
        data=json.dumps(rollouts, allow_nan=False).replace("<", "\\u003c"),
    )  # fmt: skip


def sample(report: Report) -> list[dict[str, Any]]:
    """Returns at most MOST of the student's rows, every run with an equal share, evenly spaced over its own."""
    runs = [(group.name, run) for group in report.groups for run in group.runs]
    share = max(1, MOST // len(runs))
    out = []
    for name, run in runs:
        path, every = run.path.relative_to(report.root).as_posix(), max(1, -(-run.rollouts // share))
        own = (row for rows in iter_run(run.path) for row in rows if row["source"] == "student")
        rows = itertools.islice(own, 0, every * share, every)
        out += [{"run": path, "arm": name, **{key: row[key] for key in COLUMNS}} for row in rows]
    return out[:MOST]
