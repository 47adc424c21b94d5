"""One self-contained HTML page of an experiment: `just report`.

Nothing is fetched: the Content-Security-Policy forbids all of the network and every script and style but the page's own
two, by their hashes. What models wrote stands in a gzipped block of data and reaches the page as text only. The same runs
give the same bytes.
"""

import base64
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from projected_grpo.report.channels import against_v
from projected_grpo.report.lives_plot import lives_plots
from projected_grpo.report.page.about import about
from projected_grpo.report.page.columns import columns, packed
from projected_grpo.report.page.experiment import Experiment, remarks, sources
from projected_grpo.report.page.probes import probed
from projected_grpo.report.page.rollouts import KINDS, Shown, sample
from projected_grpo.report.plots import all_plots, rendered
from projected_grpo.report.results_md import HOW_TO_READ, Report
from projected_grpo.report.second_v import replayed
from projected_grpo.report.tables import all_tables
from projected_grpo.verdicts.intervals import MIN_UNITS
from projected_grpo.verdicts.registry import CLAIMS

HERE = "projected_grpo.report.page"


def page(found: Experiment, report: Report | None, most: int) -> tuple[str, Shown]:
    """The page, and the rollouts in it, at most so many. BadInput on a damaged step file."""
    shown = sample(sources(found, report), most)
    t7 = replayed(found.root, [member.path for member in found.members])
    plots = all_plots(report.groups) | lives_plots(report.groups) if report else {}
    slots = {
        "css": files(HERE).joinpath("page.css").read_text("utf-8"),
        "js": files(HERE).joinpath("page.js").read_text("utf-8"),
        "title": found.name, "about": about(found.members, [source.arm for source in shown.sources]),
        "remarks": remarks(found, report), "h1": report.judged if report else [],
        "t5": report.mixed if report else [], "t6": report.t6 if report else [],
        "losses": [t7.over] if len(t7.units) >= MIN_UNITS else [],
        "probes": probed(found),
        "claims": CLAIMS, "how_to_read": HOW_TO_READ, "root": found.root,
        "tables": [*all_tables(report.groups, report.found.runs), *against_v(report.found.runs)] if report else [],
        "plots": {stem: _base64(rendered(figure, "svg")) for stem, figure in plots.items()},
        "note": shown.note, "kinds": KINDS, "data": packed(columns(shown)),
    }  # fmt: skip
    return filled('{% include "page.html" %}', slots), shown


def filled(template: str, slots: Mapping[str, Any]) -> str:
    """The template with its slots filled: text is escaped, and what is filled in is not looked at again.

    jinja2.UndefinedError on a slot that is not filled.
    """
    jinja = Environment(
        loader=PackageLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    jinja.filters["sha256"] = _sha256
    return jinja.from_string(template).render(slots)


def _sha256(text: str) -> str:
    """As a Content-Security-Policy names an inline script or style."""
    return _base64(hashlib.sha256(text.encode()).digest())


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
