"""The parts of a bench run: what the document calls each, and what measures it."""

from collections.abc import Callable
from dataclasses import replace

import torch

from projected_grpo.bench.against_trl import measure_trl
from projected_grpo.bench.backward import measure_backward, measure_memory
from projected_grpo.bench.extraction import measure_extraction
from projected_grpo.bench.floor import measure_floor
from projected_grpo.bench.generation import measure_generation
from projected_grpo.bench.grading import measure_grading
from projected_grpo.bench.measure import Figure, NotHere
from projected_grpo.bench.settings import Part
from projected_grpo.bench.setup import Bench
from projected_grpo.bench.startup import measure_dev_run, measure_startup
from projected_grpo.bench.steps import measure_step

REGISTRY: dict[Part, tuple[str, Callable[[Bench], list[Figure]]]] = {
    "floor": ("floor", measure_floor),
    "generation": ("generation", measure_generation),
    "backward": ("forward + backward", measure_backward),
    "memory": ("peak memory", measure_memory),
    "step": ("step", measure_step),
    "trl": ("step", measure_trl),
    "grading": ("grading", measure_grading),
    "extraction": ("extraction", measure_extraction),
    "startup": ("start-up", measure_startup),
    "dev_run": ("start-up", measure_dev_run),
}


def measure(bench: Bench, part: Part) -> list[Figure]:
    """One part's figures; a note instead where it cannot be measured here. A smoke has no bars."""
    title, run = REGISTRY[part]
    try:
        return [replace(f, part=title, bar=None if bench.config.quick else f.bar) for f in run(bench)]
    except NotHere as e:
        bench.notes.append(str(e))
    except torch.OutOfMemoryError:
        bench.notes.append(f"{part}: one side does not fit into this GPU's memory, so nothing was measured")
    return []
