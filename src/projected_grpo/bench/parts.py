"""All parts of a bench run, one after the other."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from projected_grpo.bench.against_trl import measure_trl
from projected_grpo.bench.backward import measure_backward, measure_memory
from projected_grpo.bench.extraction import measure_extraction
from projected_grpo.bench.floor import peak_flops
from projected_grpo.bench.generation import measure_generation
from projected_grpo.bench.grading import measure_grading
from projected_grpo.bench.measure import Figure, NotHere
from projected_grpo.bench.settings import BenchConfig, Part
from projected_grpo.bench.startup import measure_dev_run, measure_startup
from projected_grpo.bench.steps import measure_step
from projected_grpo.bench.world import World


@dataclass
class Bench:
    """A run of the bench: what to measure on which world, and what was found so far."""

    config: BenchConfig
    world: World
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    peak: float | None = None
    """FLOP/s of the fastest matrix product, once the floor was measured."""

    @property
    def repeats(self) -> int:
        """Measurements of each side."""
        return self.config.repeats or self.world.sizes.repeats

    def _floor(self) -> list[Figure]:
        self.peak, figures = peak_flops(self.world, self.repeats, self.config.warmup)
        return figures

    def _part(self, part: Part) -> list[Figure]:
        world, repeats, warmup = self.world, self.repeats, self.config.warmup
        few = min(repeats, 3)  # a fresh process each: slow to make, and hardly any spread
        todo: dict[Part, Callable[[], list[Figure]]] = {
            "floor": self._floor,
            "generation": lambda: measure_generation(world, repeats, warmup, self.peak),
            "backward": lambda: measure_backward(world, repeats, warmup, self.peak),
            "memory": lambda: measure_memory(world, few),
            "step": lambda: measure_step(world, repeats, warmup, self.peak),
            "trl": lambda: measure_trl(world, repeats, warmup),
            "grading": lambda: measure_grading(world.sizes.grading_problems, few),
            "extraction": lambda: measure_extraction(world, repeats, warmup, self.peak),
            "startup": lambda: measure_startup(world, few, only_first=self.config.quick),
            "dev_run": measure_dev_run,
        }
        return todo[part]()

    def measure(self, part: Part) -> list[Figure]:
        """One part's figures, kept; a note instead where it cannot be measured here. A smoke has no bars."""
        try:
            found = self._part(part)
        except NotHere as e:
            self.notes.append(str(e))
            return []
        except torch.OutOfMemoryError:
            self.notes.append(f"{part}: one side does not fit into this GPU's memory, so nothing was measured")
            return []
        if self.config.quick:
            found = [dataclasses.replace(f, bar=None) for f in found]
        self.figures += found
        return found
