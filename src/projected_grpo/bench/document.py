"""bench.md and its numbers as JSON."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tabulate import tabulate

from projected_grpo.bench.measure import Figure
from projected_grpo.ledger.files import write_atomic

BUSY = 0.3
"""Load average above which other work takes part of the machine."""
HOW_TO_READ = """\
Every figure but those with a unit of their own is a ratio to the baseline named beside it, measured in the same run with the
same number of threads, the two sides in turn; the figure is the median over repeats, its range in brackets. A ratio is taken
only after both sides were checked to have done the same work: equal numbers of tokens, gradients that agree.
Bars of forward + backward are set to the way that gives a step its gradient; samples are told apart in a few steps only, and
that way stands beside one backward pass per sample as well. What is done and why it is exact: speed.md.
"x of floor": seconds over the time that the part's model FLOPs would take at the fastest matrix product measured here."""


def machine(versions: Mapping[str, str | None], threads: int, gpu: str | None) -> dict[str, Any]:
    """What the numbers depend on; no name of the machine."""
    return {
        "cpu": _cpu_model(), "cores": os.cpu_count(), "threads": threads, "memory_gib": _memory_gib(), "gpu": gpu,
        "load_at_start": round(os.getloadavg()[0], 2), "python": platform.python_version(), "versions": dict(versions),
    }  # fmt: skip


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _memory_gib() -> float:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)


def ratio_text(figure: Figure) -> str:
    """A figure with its range, as a cell shows it."""
    digits = ".3g" if figure.value < 1000 else ",.0f"
    unit = "x" if figure.unit == "x" else f" {figure.unit}"
    text = f"{figure.value:{digits}}{unit}"
    return text if figure.low == figure.high else f"{text} ({figure.low:{digits}} to {figure.high:{digits}})"


def table(figures: Sequence[Figure], style: str) -> str:
    """One line per figure, the bar beside it."""
    header = ["part", "what", "figure", "bar", "", "ours", "baseline", "x of floor"]
    body = [
        [f.part, f.what, ratio_text(f), f.bar.text(f.unit) if f.bar else "", f.verdict, f.ours, f.baseline,
         "" if f.floor is None else f"{f.floor:.1f}"]
        for f in figures
    ]  # fmt: skip
    return tabulate(body, header, style, disable_numparse=True)


def markdown(
    figures: Sequence[Figure], notes: Sequence[str], facts: Mapping[str, Any], settings: Mapping[str, Any]
) -> str:
    """The whole document."""
    warning = []
    if facts["load_at_start"] > BUSY:
        warning = [f"**The machine was busy (load {facts['load_at_start']} at the start): preliminary figures.**", ""]
    versions = ", ".join(f"{name} {v}" for name, v in facts["versions"].items() if v)
    where = (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['threads']} threads on every side, {facts['memory_gib']} GiB"
    )
    where += f", {facts['gpu']}" if facts["gpu"] else ", no GPU"
    sizes = ", ".join(f"{k} {v}" for k, v in settings.items())
    return "\n".join([
        "# Speed and memory", "", "Written by `just bench`; do not edit by hand.", "", *warning, HOW_TO_READ, "",
        f"- machine: {where}; Python {facts['python']}, {versions}; load {facts['load_at_start']} at the start",
        f"- settings: {sizes}", *(f"- {note}" for note in notes), "", table(figures, "github"), "",
    ])  # fmt: skip


def write(
    path: Path, figures: Sequence[Figure], notes: Sequence[str], facts: Mapping[str, Any], settings: Mapping[str, Any]
) -> None:
    """The document, and every number beside it as .json. BadInput when it cannot be written."""
    numbers = {
        "machine": dict(facts), "settings": dict(settings), "notes": list(notes),
        "figures": [{**asdict(f), "verdict": f.verdict} for f in figures],
    }  # fmt: skip
    write_atomic(path, markdown(figures, notes, facts, settings).encode())
    write_atomic(path.with_suffix(".json"), (json.dumps(numbers, indent=1) + "\n").encode())
