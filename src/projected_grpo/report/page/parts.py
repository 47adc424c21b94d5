"""Parts of the HTML report: what was run, verdicts, tables and plots, each as a piece of HTML with everything escaped."""

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from projected_grpo.report.page.experiment import Experiment, Member
from projected_grpo.report.page.probes import Probe
from projected_grpo.report.plots import rendered
from projected_grpo.report.tables import Table
from projected_grpo.verdicts.h1 import H1
from projected_grpo.verdicts.registry import CLAIMS, Finding

SIGNS = {"PASS": "✔", "FAIL": "✘", "NOT_EVALUABLE": "○"}
SAID = {True: "YES", False: "no", None: "cannot be told"}
HASHES = ("model_hash", "tokenizer_hash", "problems_hash", "pool_hash")
ALT = {
    "trajectories": "Pure hack rate, ground-truth pass rate and well-formed rate over the run, one line per arm",
    "cosines": "Hack-ward cosine of the gradient before and after projection and of the applied update, beside the null",
    "outcomes": "Shares of the five labels over the run, one panel per arm",
    "pass_versus_hack": "Ground-truth pass rate against pure hack rate at the end, one point per run",
}
TEXT_COLUMNS = ("arm", "mechanism", "clause", "numbers", "claim", "run", "kind", "commit", "argv", "verdict")


NUMBER = ' class="n"'


def table(header: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A table that scrolls sideways by itself: names to the left, numbers to the right. Cells are text, or HTML where
    they are `Html`."""
    text = [name in TEXT_COLUMNS for name in header]
    head = "".join(f'<th scope="col"{"" if t else NUMBER}>{escape(h)}</th>' for h, t in zip(header, text, strict=True))
    rows = "".join(
        "<tr>" + "".join(f"<td{'' if t else NUMBER}>{cell(c)}</td>" for c, t in zip(row, text, strict=True)) + "</tr>\n"
        for row in body
    )
    label = escape(", ".join(header))
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{label}"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{rows}</tbody></table></div>\n"
    )


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def cell(value: str) -> str:
    """A cell's content, escaped unless it is HTML already."""
    return value if isinstance(value, Html) else escape(value)


def badge(status: str) -> Html:
    """A verdict by sign and word, so that colour says nothing alone."""
    return Html(f'<span class="badge {status.lower()}">{SIGNS[status]} {status}</span>')


def bullets(lines: Sequence[str], kind: str = "notes") -> str:
    """A list, or nothing."""
    return f'<ul class="{kind}">{"".join(f"<li>{escape(line)}</li>" for line in lines)}</ul>\n' if lines else ""


# ---------------------------------------------------------------- what was run


def about(found: Experiment, arms: Iterable[str]) -> str:
    """What was run, when, by which code; argv and hashes folded away."""
    facts = "".join(
        f"<dt>{escape(what)}</dt><dd>{escape(said)}</dd>" for what, said in _facts(found.members, arms).items()
    )
    header = ["run", "kind", "seed", "started (UTC)", "finished", "commit", "argv"]
    body = [
        [m.name, m.kind, str(m.config.get("seed", "-")), _when(m), "yes" if m.finished else "NO", _commit(m),
         " ".join(map(str, m.manifest.get("argv") or []))]
        for m in found.members
    ]  # fmt: skip
    hashes = [[m.name, *(str(m.manifest.get(name) or "-") for name in HASHES), _v(m)] for m in found.members]
    return (
        f"<dl class='facts'>{facts}</dl>\n<details><summary>Every run: arguments, commit</summary>{table(header, body)}"
        f"</details>\n<details><summary>Hashes of model, tokenizer, problems, pool and V</summary>"
        f"{table(['run', *HASHES, 'V'], hashes)}</details>\n"
    )


def _facts(members: Sequence[Member], arms: Iterable[str]) -> Mapping[str, str]:
    kinds = Counter(m.kind for m in members)
    starts = sorted(_when(m) for m in members)
    train = [m for m in members if m.kind == "train"] or list(members)
    versions = sorted({f"{name} {v}" for m in members for name, v in (m.manifest.get("versions") or {}).items()})
    return {
        "runs": ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())),
        "started": starts[0] if starts[0] == starts[-1] else f"{starts[0]} to {starts[-1]} (UTC)",
        "model": _each(m.config.get("model") for m in train),
        "adapter": _each(m.config.get("adapter") for m in train),
        "arms": _each(arms),
        "seeds": _each(m.config.get("seed") for m in train),
        "steps": _each(m.config.get("steps") for m in train),
        "commit": _each(_commit(m) for m in members),
        "versions": ", ".join(versions),
    }


def _each(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(str(v) for v in values if v is not None)) or "-"


def _when(member: Member) -> str:
    return str(member.manifest.get("started") or "-").removesuffix("+00:00").replace("T", " ")


def _commit(member: Member) -> str:
    commit = str(member.manifest.get("commit") or "unknown")[:12]
    return commit + (" with uncommitted changes" if member.manifest.get("diff") else "")


def _v(member: Member) -> str:
    facts = member.manifest.get("vhack") or {}
    return (
        ", ".join(f"{name} {facts[name]}" for name in ("control", "modes", "k", "pairs_hash") if name in facts) or "-"
    )


# ---------------------------------------------------------------- verdicts


def clauses(found: Sequence[Finding]) -> str:
    """One row per clause, with its numbers."""
    return table(["clause", "verdict", "numbers"], [[v.name, badge(v.status), v.why] for v in found])


def hypothesis(judged: Sequence[H1]) -> str:
    """H1 and the stricter claim of prevention, clause by clause."""
    parts = []
    for h in judged:
        falsified = "; ".join(f"{what}: {SAID[holds]}" for what, holds in h.falsified.items())
        for verdict, own, more in (
            (h.verdict, h.clauses, f"<p>Falsified by: {escape(falsified)}</p>\n"),
            (h.prevention, h.prevention_clauses, ""),
        ):
            parts.append(f"<h3>{escape(verdict.name)} {badge(verdict.status)}</h3>\n")
            parts.append(f"<p>{escape(verdict.why)}</p>\n{clauses(own)}{more}")
    return "".join(parts) or "<p>H1 was not judged: no finished projected training run.</p>\n"


def probe(found: Sequence[Probe]) -> str:
    """T1 to T4 of every pool with its replays."""
    parts = []
    for one in found:
        rows = [[v.name, badge(v.status), CLAIMS[v.name].says, v.why] for v in one.found]
        parts.append(
            f"<h3>T1 to T4: {escape(one.title)}</h3>\n{table(['clause', 'verdict', 'claim', 'numbers'], rows)}"
        )
    return "".join(parts) or "<p>T1 to T4 were not judged: no finished teacher pool or replay.</p>\n"


# ---------------------------------------------------------------- numbers


def numbers(tables: Sequence[Table], root: Path) -> str:
    """Tables of the training runs, each with its notes and the runs that it comes from."""
    parts = []
    for one in tables:
        own = ", ".join(run.path.relative_to(root).as_posix() for run in one.runs)
        rollouts = sum(run.rollouts for run in one.runs)
        parts.append(f"<h3>{escape(one.title)}</h3>\n{table(one.header, one.body)}{bullets(one.notes)}")
        origin = f"n = {len(one.runs)} runs, {rollouts:,} training rollouts"
        parts.append(f'<details class="from"><summary>{origin}</summary><p>{escape(own)}</p></details>\n')
    return "".join(parts)


def figures(plots: Mapping[str, Figure]) -> str:
    """Plots as images inside the page: in an image an SVG's ids and styles cannot meet those of the page or of another."""
    parts = []
    for stem, figure in plots.items():
        data = base64.b64encode(rendered(figure, "svg")).decode()
        alt = escape(ALT.get(stem, stem))
        image = f'<img alt="{alt}" src="data:image/svg+xml;base64,{data}">'
        parts.append(f"<figure>{image}<figcaption>{alt}</figcaption></figure>\n")
    return "".join(parts)
