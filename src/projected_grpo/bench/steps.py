"""Whole training steps as the product takes them: generate, grade, backward, optimizer, step file, checkpoint."""

import dataclasses
import itertools
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from loguru import logger

from projected_grpo.bench.baselines import objective_of
from projected_grpo.bench.flops import backward_flops, generation_flops
from projected_grpo.bench.measure import Bar, Figure, Run, Timed, Work, absolute, interleaved, ratio
from projected_grpo.bench.settings import GPU_STEP
from projected_grpo.bench.world import HINT, TEMPERATURE, TOP_P, World, prompt_lengths
from projected_grpo.config import TrainConfig
from projected_grpo.groups.live import live_groups
from projected_grpo.presets import presets
from projected_grpo.projection import Projection
from projected_grpo.run.session import Session
from projected_grpo.vhack import random_basis

BAR = Bar(1.15, "at most")
PEAK_BAR, SECONDS_BAR = Bar(36.0, "at most"), Bar(60.0, "at most")
QUIET = ("projected_grpo.run.session", "projected_grpo.ledger.folder")


def train_config(world: World, out: Path) -> TrainConfig:
    """The settings of every measured step; no KL term, so no side runs a reference."""
    s = world.sizes
    return TrainConfig(
        seed=world.seed, token_budget=s.token_budget, out=out, hint=HINT, group_size=s.group, max_new=s.max_new,
        temperature=TEMPERATURE, top_p=TOP_P, prompts_per_step=s.prompts, lr=1e-5, warmup=0, beta=0.0,
        grader_workers=torch.get_num_threads(),
    )  # fmt: skip


def random_v(world: World) -> dict[str, torch.Tensor]:
    """A V of the usual rank: what it points at does not change what it costs."""
    theta = world.adapter.vectors
    return {
        n: random_basis((min(world.sizes.directions, size), size), world.seed, n).to(theta[n])
        for n, size in world.adapter.sizes.items()
    }


@dataclass
class Stepper:
    """Takes steps of one arm through the product's own Session."""

    world: World
    session: Session
    timings: list[dict[str, float]] = field(default_factory=list)
    count: itertools.count = field(default_factory=itertools.count)

    def step(self, *, per_sample: bool) -> Work:
        """One whole step; every completion is max_new tokens long."""
        w, number = self.world, next(self.count)
        config = self.session.config
        with w.adapter.folded():
            groups, timing = live_groups(
                config, w.loaded, w.prompts, w.tasks, w.sizes.group, w.keys(number), "student", loophole=True
            )
        rows = self.session.take(number, 10**9, groups, timing, per_sample=per_sample)
        self.timings.append(rows[0]["timing"])
        lengths = [len(r.completion_ids) for g in groups for r in g.rollouts]
        return {"completions": len(lengths), "tokens": sum(lengths)}


def stepper(world: World, out: Path, projection: Projection) -> Stepper:
    """A started session in an empty folder."""
    config = train_config(world, out)
    optimizer = torch.optim.AdamW(list(world.adapter.vectors.values()), lr=config.lr, betas=(0.9, 0.95))
    session = Session(config, "bench", out, world.loaded, world.adapter, optimizer, objective_of(world), projection)
    session.start(10**9)
    return Stepper(world, session)


@contextmanager
def quiet_sessions() -> Generator[Path]:
    """A folder for step files that is gone afterwards, and no line per step."""
    for name in QUIET:
        logger.disable(name)
    try:
        with TemporaryDirectory() as folder:
            yield Path(folder)
    finally:
        for name in QUIET:
            logger.enable(name)


def steps_of(world: World, folder: Path) -> dict[str, Run]:
    """vanilla and projected, samples told apart or not."""
    vanilla = stepper(world, folder / "vanilla", Projection())
    recipe = Projection(random_v(world), "update", "no_gate")  # what the toy chain does with V
    projected = stepper(world, folder / "projected", recipe)
    return {
        "vanilla": lambda: vanilla.step(per_sample=False),
        "projected": lambda: projected.step(per_sample=False),
        "vanilla, told apart": lambda: vanilla.step(per_sample=True),
        "projected, told apart": lambda: projected.step(per_sample=True),
    }


def measure_step(world: World, repeats: int, warmup: int, peak: float | None) -> list[Figure]:
    """What V and its diagnostics add to a vanilla step without any."""
    with quiet_sessions() as folder:
        timed = interleaved(steps_of(world, folder), repeats, warmup, world.synchronize)
    cuda = world.device.type == "cuda"
    every = presets(TrainConfig)["full" if cuda else "toy"].per_sample_every
    plain, told = timed["projected"], timed["projected, told apart"]
    usual = plain.scaled(1 - 1 / every).plus(told.scaled(1 / every))
    vanilla = ("vanilla, nothing measured", timed["vanilla"])
    lengths, s = prompt_lengths(world.prompts), world.sizes
    flops = generation_flops(s, lengths) + backward_flops(s, lengths, s.max_new, s.group)
    floor = None if peak is None else flops / peak
    figures = [
        _seconds("vanilla", timed["vanilla"], floor),
        ratio("step", f"projected, samples told apart every {every}", ("projected", usual), vanilla, BAR, floor,
              longer=True),
        ratio("step", "projected, samples told apart in every step", ("projected", told), vanilla, None, floor, longer=True),
        ratio("step", "the same, both sides told apart in every step", ("projected", told),
             ("vanilla, told apart", timed["vanilla, told apart"]), None, floor, longer=True),
    ]  # fmt: skip
    return [*figures, *(gpu_figures(world) if cuda else [])]


def _seconds(name: str, timed: Timed, floor: float | None) -> Figure:
    made = absolute("step", f"{name}: generate, grade, backward, optimizer", timed.seconds, "s")
    return dataclasses.replace(made, floor=None if floor is None else timed.median / floor)


def gpu_figures(world: World) -> list[Figure]:
    """Peak memory of a step, and the seconds of the benchmark's own step of 256 completions."""
    whole = world.resized(GPU_STEP // 8, 8)
    with quiet_sessions() as folder:
        small = stepper(world, folder / "small", Projection())
        torch.cuda.reset_peak_memory_stats()
        small.step(per_sample=True)
        peak = torch.cuda.max_memory_allocated() / 2**30
        large = stepper(whole, folder / "large", Projection())
        run: Callable[[], Work] = lambda: large.step(per_sample=True)  # noqa: E731
        timed = interleaved({"256": run}, 1, 1, world.synchronize)["256"]
    budget = f"token budget {world.sizes.token_budget}"
    return [
        absolute("step", f"peak memory of a step of {world.sizes.rows}, {budget}", [peak], "GiB", PEAK_BAR),
        absolute("step", f"a step of {whole.sizes.rows} completions", timed.seconds, "s", SECONDS_BAR),
    ]
