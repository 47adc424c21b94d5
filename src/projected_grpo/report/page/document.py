"""One self-contained HTML page of an experiment: `just report`.

Nothing is fetched: the Content-Security-Policy forbids all of the network and every script and style but the page's own
two, by their hashes. What models wrote stands in a gzipped block of data and reaches the page as text only. The same runs
give the same bytes.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from html import escape
from importlib.resources import files

from projected_grpo.report.page import parts
from projected_grpo.report.page.columns import columns, packed
from projected_grpo.report.page.experiment import Experiment, remarks, sources
from projected_grpo.report.page.probes import probed
from projected_grpo.report.page.rollouts import KINDS, Shown, sample
from projected_grpo.report.plots import all_plots
from projected_grpo.report.results_md import HOW_TO_READ, Report
from projected_grpo.report.tables import all_tables

PAGE = files("projected_grpo.report.page")
_SLOT = re.compile(r"\{\{(\w+)\}\}")
POLICY = (
    "default-src 'none'; script-src 'sha256-{js}'; style-src 'sha256-{css}'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)


def page(found: Experiment, report: Report | None, most: int) -> tuple[str, Shown]:
    """The page, and the rollouts in it, at most so many. BadInput on a damaged step file."""
    shown = sample(sources(found, report), most)
    css, js = (PAGE.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    slots = {
        "policy": POLICY.format(js=_hash(js), css=_hash(css)), "css": css, "js": js, "title": escape(found.name),
        "about": parts.about(found, [source.arm for source in shown.sources]),
        "remarks": parts.bullets(remarks(found, report), "remarks"),
        "verdicts": parts.hypothesis(report.judged if report else []) + parts.probe(probed(found)),
        "how_to_read": escape(HOW_TO_READ), "note": escape(shown.note), "data": packed(columns(shown)),
        "numbers": parts.numbers(all_tables(report.groups, report.found.runs), report.root) if report else NONE,
        "plots": parts.figures(all_plots(report.groups)) if report else NONE, "kinds": _kinds(),
    }  # fmt: skip
    return filled(PAGE.joinpath("page.html").read_text("utf-8"), slots), shown


NONE = "<p>None: no finished training run.</p>"


def filled(template: str, slots: Mapping[str, str]) -> str:
    """The template with each {{slot}} replaced, once: what is filled in is not looked at again."""
    return _SLOT.sub(lambda match: slots[match[1]], template)


def _hash(text: str) -> str:
    """As a Content-Security-Policy names an inline script or style."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _kinds() -> str:
    boxes = (
        f'<label><input type="checkbox" name="label" value="{i}" checked> {escape(kind.replace("_", " "))}</label>'
        for i, kind in enumerate(KINDS)
    )
    return "\n".join(boxes)
