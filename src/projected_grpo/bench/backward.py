"""Forward and backward pass of a step, in both of its modes, against full logits under plain autograd: time and memory."""

import functools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

import torch

from projected_grpo.bench.baselines import TOLERANCE, Grads, check_same_gradient, full_logits_grads, our_grads
from projected_grpo.bench.flops import backward_flops
from projected_grpo.bench.measure import Bar, Figure, NotHere, Run, UnequalWork, Work, interleaved, ratio
from projected_grpo.bench.settings import QUICK, Sizes
from projected_grpo.bench.world import World, build_world, prompt_lengths, random_samples
from projected_grpo.model.shared_prompt import can_share

SPEED_BAR, MEMORY_BAR = Bar(4.0), Bar(0.5, "at most")
BASELINE, NAIVE = "full logits", "full logits, one backward per sample"
EXACT = {"MALLOC_MMAP_THRESHOLD_": "1048576"}
"""Tensors of 1 MiB and more are given back when freed. Left alone glibc raises this bound as it goes, and whether freed
tensors stay in its heap is chance: the same run took 1,200 or 2,000 MiB."""
NAMES = {"whole": "whole rows, per-sample gradients", "shared": "shared prompt, summed gradient"}


def ways(world: World) -> dict[str, Callable[[], Grads]]:
    """The same gradient by every way that the model at hand allows; the baselines last."""
    groups = random_samples(world)
    found: dict[str, Callable[[], Grads]] = {"whole": lambda: our_grads(world, groups, per_sample=True)}
    if can_share(world.loaded.model):
        found["shared"] = lambda: our_grads(world, groups, per_sample=False)
    found[BASELINE] = lambda: full_logits_grads(world, groups)
    found[NAIVE] = lambda: full_logits_grads(world, groups, one_by_one=True)
    return found


def way_of_a_step(names: Iterable[str]) -> str:
    """The one that gives a step its gradient, to which the bars are set: samples are told apart in a few steps only."""
    return "shared" if "shared" in names else "whole"


def check_gradients(world: World) -> dict[str, float]:
    """Relative gap of each of our ways to the baseline's gradient. UnequalWork when one is more than rounding."""
    grads = {name: way() for name, way in ways(world).items()}
    baseline = grads.pop(BASELINE)
    gaps = {n: check_same_gradient(n, g, baseline, TOLERANCE[world.sizes.dtype]) for n, g in grads.items()}
    return {n: gap for n, gap in gaps.items() if n != NAIVE}


def _run(way: Callable[[], Grads], world: World) -> Work:
    way()
    return {"completion tokens": world.sizes.rows * world.sizes.max_new}


def measure_backward(world: World, repeats: int, warmup: int, peak: float | None) -> list[Figure]:
    """Seconds of each way, after its gradient was checked."""
    gaps = check_gradients(world)
    sides: dict[str, Run] = {name: functools.partial(_run, way, world) for name, way in ways(world).items()}
    timed = interleaved(sides, repeats, warmup, world.synchronize)
    flops = backward_flops(world.sizes, prompt_lengths(world.prompts), world.sizes.max_new, world.sizes.group)
    floor = None if peak is None else flops / peak
    pairs = [*((name, BASELINE) for name in gaps), ("whole", NAIVE)]
    return [
        ratio("forward + backward", f"{NAMES[n]} (gradients agree to {gaps[n]:.0e})", (n, timed[n]),
                 (baseline, timed[baseline]), SPEED_BAR if (n, baseline) == (way_of_a_step(gaps), BASELINE) else None, floor)
        for n, baseline in pairs
    ]  # fmt: skip


def measure_memory(world: World, repeats: int) -> list[Figure]:
    """Peak memory that each way adds to what was there before it: allocated on a GPU, resident in a fresh process each on a
    CPU. NotHere where the system does not tell."""
    names = [name for name in ways(world) if name != NAIVE]
    if world.device.type == "cuda":
        found = {name: [_cuda_peak(ways(world)[name], world)] for name in names}
    else:
        found = {name: [_peak_in_fresh_process(world, name) for _ in range(repeats)] for name in names}
    if any(peak <= 0 for peaks in found.values() for peak in peaks):
        raise UnequalWork(f"peak memory of one way is nothing: {found}")
    step = way_of_a_step(names)
    return [
        _memory_figure(name, found[name], found[BASELINE], MEMORY_BAR if name == step else None)
        for name in names
        if name != BASELINE
    ]


def _memory_figure(name: str, ours: list[int], baseline: list[int], bar: Bar | None) -> Figure:
    ratios = [a / b for a, b in zip(ours, baseline, strict=True)]
    cells = [f"{n}: {statistics.median(v) / 2**20:,.0f} MiB" for n, v in ((name, ours), (BASELINE, baseline))]
    middle = statistics.median(ratios)
    return Figure("peak memory", NAMES[name], middle, min(ratios), max(ratios), "x", cells[0], cells[1], bar)


def _cuda_peak(way: Callable[[], Grads], world: World) -> int:
    way()
    world.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()
    way()
    world.synchronize()
    return torch.cuda.max_memory_allocated() - base


def _peak_in_fresh_process(world: World, name: str) -> int:
    told = json.dumps([name, asdict(world.sizes), world.seed, torch.get_num_threads()])
    done = subprocess.run(
        [sys.executable, "-m", "projected_grpo.bench.backward", told],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **EXACT},
    )
    if done.returncode:
        raise RuntimeError(f"peak memory of {name}: the process failed\n{done.stderr}")
    return int(done.stdout.split()[-1])


def resident(key: str) -> int:
    """VmRSS (now) or VmHWM (its peak) of this process, in bytes. NotHere without Linux's /proc."""
    status = Path("/proc/self/status")
    if not status.exists():
        raise NotHere("peak memory on a CPU is read from /proc, which is not here")
    return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith(key + ":"))


def child(told: str) -> int:
    """In the fresh process: bytes by which one way's peak is above what was resident before it."""
    name, sizes, seed, threads = json.loads(told)
    torch.set_num_threads(threads)
    ways(build_world(QUICK, "cpu", seed))[name]()  # libraries and thread pools are loaded now
    way = ways(build_world(Sizes(**sizes), "cpu", seed))[name]
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    base = resident("VmRSS")
    way()
    return resident("VmHWM") - base


if __name__ == "__main__":
    print(child(sys.argv[1]))
