"""Whole training steps as the product takes them: generate, grade, backward, optimizer, step file, checkpoint."""

import functools
import itertools
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from loguru import logger

from projected_grpo.bench.backward import objective_of, projection_of
from projected_grpo.bench.floor import backward_flops, generation_flops
from projected_grpo.bench.measure import Figure, Work, figure, interleaved, ratio, weighted
from projected_grpo.bench.setup import HINT, TEMPERATURE, TOP_P, Bench
from projected_grpo.config import TrainConfig
from projected_grpo.groups.live import live_groups
from projected_grpo.presets import presets
from projected_grpo.run.session import Session

BAR, PEAK_BAR, SECONDS_BAR = ("<=", 1.15), ("<=", 36.0), ("<=", 60.0)
QUIET = ("projected_grpo.run.session", "projected_grpo.ledger.folder")


def train_config(bench: Bench, out: Path) -> TrainConfig:
    """The settings of every measured step; no KL term, so no side runs a reference."""
    s = bench.sizes
    return TrainConfig(
        seed=bench.config.seed, token_budget=s.token_budget, out=out, hint=HINT, group_size=s.group, max_new=s.max_new,
        temperature=TEMPERATURE, top_p=TOP_P, prompts_per_step=s.prompts, lr=1e-5, warmup=0, beta=0.0,
        grader_workers=torch.get_num_threads(),
    )  # fmt: skip


def stepper(bench: Bench, out: Path, arm: str = "vanilla") -> Callable[[bool], Work]:
    """Start a session of one arm in an empty folder. Returns what takes one whole step, with per-sample gradients or not."""
    config, numbers = train_config(bench, out), itertools.count()
    optimizer = torch.optim.AdamW(list(bench.adapter.vectors.values()), lr=config.lr, betas=(0.9, 0.95))
    objective, projection = objective_of(bench), projection_of(bench, arm)
    session = Session(config, "bench", out, bench.loaded, bench.adapter, optimizer, objective, projection)
    session.start(10**9)

    def step(per_sample: bool) -> Work:
        number, b = next(numbers), bench
        with b.adapter.folded():
            groups, timing = live_groups(
                config, b.loaded, b.prompts, b.tasks, b.sizes.group, b.keys(number), "student", loophole=True
            )
        session.take(number, 10**9, groups, timing, per_sample=per_sample)
        lengths = [len(r.completion_ids) for g in groups for r in g.rollouts]
        return {"completions": len(lengths), "tokens": sum(lengths)}

    return step


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


def measure_step(bench: Bench) -> list[Figure]:
    """What V and its diagnostics add to a vanilla step without any."""
    s, lengths, cuda = bench.sizes, bench.prompt_lengths, bench.device.type == "cuda"
    with quiet_sessions() as folder:
        vanilla, projected = (stepper(bench, folder / arm, arm) for arm in ("vanilla", "projected"))
        plain, summed, each_plain, each = bench.timed({
            "vanilla, nothing measured": functools.partial(vanilla, False),
            "projected": functools.partial(projected, False),
            "vanilla, per-sample gradients": functools.partial(vanilla, True),
            "projected, per-sample gradients": functools.partial(projected, True),
        })  # fmt: skip
    every = presets(TrainConfig)["full" if cuda else "toy"].per_sample_every
    usual = weighted("projected", (1 - 1 / every, summed), (1 / every, each))
    floor = bench.floor(generation_flops(s, lengths) + backward_flops(s, lengths, s.max_new, s.group))
    whole = figure("vanilla: generate, grade, backward, optimizer", plain.times, "s")
    figures = [
        replace(whole, floor=floor and plain.median / floor),
        ratio(f"projected, per-sample gradients every {every}", usual, plain, BAR, floor, longer=True),
        ratio("projected, per-sample gradients in every step", each, plain, None, floor, longer=True),
        ratio("the same, on both sides", each, each_plain, None, floor, longer=True),
    ]
    return [*figures, *(gpu_figures(bench) if cuda else [])]


def gpu_figures(bench: Bench) -> list[Figure]:
    """Peak memory of a step, and the seconds of the benchmark's own step: 32 prompts x 8 completions."""
    benchmark = replace(bench, sizes=replace(bench.sizes, prompts=32, group=8))
    with quiet_sessions() as folder:
        small = stepper(bench, folder / "small")
        torch.cuda.reset_peak_memory_stats()
        small(True)
        peak = torch.cuda.max_memory_allocated() / 2**30
        large = functools.partial(stepper(benchmark, folder / "large"), True)
        timed = interleaved({"256": large}, 1, 1)["256"]
    what = f"peak memory of a step of {bench.sizes.rows}, token budget {bench.sizes.token_budget}"
    return [
        figure(what, [peak], "GiB", PEAK_BAR),
        figure(f"a step of {benchmark.sizes.rows} completions", timed.times, "s", SECONDS_BAR),
    ]
