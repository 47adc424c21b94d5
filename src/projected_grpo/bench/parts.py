"""The parts of a bench run: what the document calls each, and what measures it."""

from collections.abc import Callable
from dataclasses import replace

import torch

from projected_grpo.bench import backward, generation, grading, reading, setup, startup, steps
from projected_grpo.bench.measure import Figure, NotHere
from projected_grpo.bench.settings import Part

REGISTRY: dict[Part, tuple[str, Callable[[setup.Bench], list[Figure]]]] = {
    "floor": ("floor", setup.measure_floor),
    "generation": ("generation", generation.measure_generation),
    "backward": ("forward + backward", backward.measure_backward),
    "memory": ("peak memory", backward.measure_memory),
    "step": ("step", steps.measure_step),
    "trl": ("step", steps.measure_trl),
    "grading": ("grading", grading.measure_grading),
    "extraction": ("extraction", backward.measure_extraction),
    "results": ("results", reading.measure_results),
    "startup": ("start-up", startup.measure_startup),
    "dev_run": ("start-up", startup.measure_dev_run),
}


def measure(bench: setup.Bench, part: Part) -> list[Figure]:
    """One part's figures; a note instead where it cannot be measured here. The bars are those of the reference point."""
    judged = not (bench.config.quick or bench.config.shapes)
    title, run = REGISTRY[part]
    try:
        return [replace(f, part=title, bar=f.bar if judged else None) for f in run(bench)]
    except NotHere as e:
        bench.notes.append(str(e))
    except torch.OutOfMemoryError:
        bench.notes.append(f"{part}: one side does not fit into this GPU's memory, so nothing was measured")
    return []
