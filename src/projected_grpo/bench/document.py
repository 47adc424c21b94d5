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
from projected_grpo.parallel import cores

BUSY = 0.3
"""Load average above which other work takes part of the machine."""
HOW_TO_READ = """\
A figure in "x" is a ratio to the baseline named beside it: both sides measured in turn, in one run, with the same number of
threads, after a check that they do the same work (equal numbers of tokens, gradients that agree). Medians over repeats, the
range in brackets. "x of floor": seconds over the time that the part's model FLOPs would take at the fastest matrix product
measured here. Forward + backward and peak memory have their bar on what most training steps do: the summed gradient, from
shared prompts where the model allows it. Per-sample gradients, which few steps take, have none. Why all this is exact:
speed.md."""
Facts = Mapping[str, Any]


def machine(versions: Mapping[str, str | None], threads: int, gpu: str | None) -> dict[str, Any]:
    """What the numbers depend on; no name of the machine."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    memory = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    where = {"cpu": cpu, "cores": cores(), "threads": threads, "memory_gib": memory, "gpu": gpu}
    load = round(os.getloadavg()[0], 2)
    return {**where, "load_at_start": load, "python": platform.python_version(), "versions": dict(versions)}


def figure_text(figure: Figure) -> str:
    """A figure with its range, as a cell shows it."""
    digits, low, high = ".3g" if figure.value < 1000 else ",.0f", min(figure.values), max(figure.values)
    text = f"{figure.value:{digits}} {figure.unit}".replace(" x", "x")
    return text if low == high else f"{text} ({low:{digits}} to {high:{digits}})"


def table(figures: Sequence[Figure], style: str) -> str:
    """One line per figure."""
    header = ["part", "what", "figure", "bar", "ours", "baseline", "x of floor"]
    body = []
    for f in figures:
        bar = f"{f.bar[0]} {f.bar[1]:g} {f.unit}: {f.verdict}".replace(" x", "x") if f.bar else ""
        body.append([f.part, f.what, figure_text(f), bar, f.ours, f.baseline, f.floor and f"{f.floor:.1f}"])
    return tabulate(body, header, style, disable_numparse=True)


def markdown(figures: Sequence[Figure], notes: Sequence[str], facts: Facts, settings: Facts) -> str:
    """The whole document."""
    versions = ", ".join(f"{name} {v}" for name, v in facts["versions"].items() if v)
    load = f"load {facts['load_at_start']} at the start"
    where = (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['threads']} threads on every side, {facts['memory_gib']} GiB, "
        f"{facts['gpu'] or 'no GPU'}; Python {facts['python']}, {versions}; {load}"
    )
    told = [f"machine: {where}", f"settings: {', '.join(f'{k} {v}' for k, v in settings.items())}", *notes]
    head = ["# Speed and memory", "", "Written by `just bench`; do not edit by hand.", ""]
    if facts["load_at_start"] > BUSY:
        head.append(f"**The machine was busy ({load}): preliminary figures.**\n")
    return "\n".join([*head, HOW_TO_READ, "", *(f"- {line}" for line in told), "", table(figures, "github"), ""])


def write(path: Path, figures: Sequence[Figure], notes: Sequence[str], facts: Facts, settings: Facts) -> None:
    """The document, and every number beside it as .json. BadInput when it cannot be written."""
    told = [
        {**asdict(f), "value": f.value, "low": min(f.values), "high": max(f.values), "verdict": f.verdict}
        for f in figures
    ]
    numbers = {"machine": dict(facts), "settings": dict(settings), "notes": list(notes), "figures": told}
    write_atomic(path, markdown(figures, notes, facts, settings).encode())
    write_atomic(path.with_suffix(".json"), (json.dumps(numbers, indent=1) + "\n").encode())
