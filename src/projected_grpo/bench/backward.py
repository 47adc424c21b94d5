"""A step's gradient by every way there is, in time and in memory: ours against the plain ones.

    y = x W^T + b + ((x Vh^T) * delta_S) U^T        as it is written, autograd keeps what it likes
    log-probabilities from the whole [rows, tokens, vocab] logits tensor

On the very tensors of the adapter at hand, so all ways give a gradient of the same delta_S.
"""

import functools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F

from projected_grpo.adapters.antipasto import AntiPaSTOLinear
from projected_grpo.bench.floor import backward_flops
from projected_grpo.bench.measure import Figure, NotHere, UnequalWork, doing, figure, ratio
from projected_grpo.bench.settings import QUICK, BenchConfig, Sizes
from projected_grpo.bench.setup import TEMPERATURE, Bench, build_bench
from projected_grpo.losses import advantages, policy_loss
from projected_grpo.model.batches import micro_batches
from projected_grpo.model.logprobs import token_batch
from projected_grpo.model.shared_prompt import can_share
from projected_grpo.projection import Projection
from projected_grpo.records import Sample
from projected_grpo.step import Learner, Objective, Plumbing, run_step
from projected_grpo.vhack import random_basis

Grads = dict[str, Tensor]
Groups = Sequence[Sequence[Sample]]
SPEED_BAR, MEMORY_BAR = (">=", 4.0), ("<=", 0.5)
NAMES = {"shared": "shared prompt, summed gradient", "whole": "whole rows, per-sample gradients"}
"""The first one that the model allows is what most training steps do, and has the bars."""
BASELINE, NAIVE = "full logits", "full logits, one backward per sample"
TOLERANCE = {"float32": 1e-3, "bfloat16": 1e-1}
"""Relative, over all modules together; bfloat16 rounds activations."""
EXACT = {"MALLOC_MMAP_THRESHOLD_": "1048576"}
"""Tensors of 1 MiB and more are given back when freed. Left alone glibc raises this bound as it goes, and whether freed
tensors stay in its heap is chance: the same run took 1,200 or 2,000 MiB."""


def random_groups(bench: Bench) -> Groups:
    """A group of completions of max_new random tokens per prompt, with rewards that differ within it."""
    s, draw = bench.sizes, torch.Generator().manual_seed(bench.config.seed)
    drawn = torch.randint(s.vocab, (s.prompts, s.group, s.max_new), generator=draw).tolist()
    return [
        [Sample(prompt.ids, tuple(ids), float(i % 2)) for i, ids in enumerate(rows)]
        for prompt, rows in zip(bench.prompts, drawn, strict=True)
    ]


def plain_forward(own: AntiPaSTOLinear, x: Tensor) -> Tensor:
    """An adapted Linear as it is written."""
    return F.linear(x, own.weight, own.bias) + ((x @ own.Vh.T) * own.theta.to(x.dtype)) @ own.U.T


def full_logits_grads(bench: Bench, groups: Groups, *, one_by_one: bool = False) -> Grads:
    """By the plain ways; micro-batches within the same budget, or one row each, so that every sample's own gradient is known
    before it is added to the sum."""
    loaded, adapter, rows = bench.loaded, bench.adapter, [s for g in groups for s in g]
    a = advantages(torch.tensor([[s.reward for s in g] for g in groups]), "dr_grpo").flatten().to(bench.device)
    lengths = [len(s.prompt_ids) + len(s.completion_ids) for s in rows]
    total = {n: torch.zeros_like(p) for n, p in adapter.vectors.items()}
    for chosen in micro_batches(lengths, 1 if one_by_one else bench.sizes.token_budget):
        adapter.zero_grad()
        prompts, completions = zip(*((rows[i].prompt_ids, rows[i].completion_ids) for i in chosen), strict=True)
        batch = token_batch(prompts, completions, loaded.pad_id, bench.device)
        with mock.patch.object(AntiPaSTOLinear, "forward", plain_forward):
            logits = loaded.model(input_ids=batch.input_ids, use_cache=False).logits[:, :-1].float() / TEMPERATURE
            logps = logits.log_softmax(-1).gather(2, batch.targets[..., None]).squeeze(2)
            del logits
            policy_loss(
                logps, batch.loss_mask, a[chosen], kind="dr_grpo", rows=len(rows), max_new=bench.sizes.max_new
            ).per_sample.sum().backward()
        for name, own in adapter.grads().items():
            total[name] += own
    adapter.zero_grad()
    return total


def objective_of(bench: Bench) -> Objective:
    """Dr. GRPO without a KL term: neither side runs a reference."""
    return Objective("dr_grpo", bench.sizes.max_new, TEMPERATURE)


def projection_of(bench: Bench, arm: str = "vanilla") -> Projection:
    """Vanilla has no V; projected is what the toy chain does, with a random V: where it points changes no cost."""
    if arm == "vanilla":
        return Projection()
    k, seed, theta = bench.sizes.directions, bench.config.seed, bench.adapter.vectors
    v = {n: random_basis((min(k, len(p)), len(p)), seed, n).to(p) for n, p in theta.items()}
    return Projection(v, "update", "no_gate")


def our_grads(bench: Bench, groups: Groups, *, per_sample: bool) -> Grads:
    """From step.run_step itself, its bookkeeping included, with an optimizer that leaves the parameters alone."""
    adapter, found = bench.adapter, Grads()
    keep = torch.optim.SGD(list(adapter.vectors.values()), lr=0.0)
    keep.register_step_pre_hook(lambda *_: found.update({n: g.detach().clone() for n, g in adapter.grads().items()}))
    learner = Learner(bench.loaded.model, adapter, keep)
    plumbing = Plumbing(bench.loaded.pad_id, bench.sizes.token_budget)
    run_step(learner, groups, objective_of(bench), projection_of(bench), plumbing, step=0, per_sample=per_sample)
    return found


def ways(bench: Bench) -> dict[str, Callable[[], Grads]]:
    """The same gradient by every way that the model at hand allows; the baselines last."""
    groups, own = (
        random_groups(bench),
        {"shared": False, "whole": True} if can_share(bench.loaded.model) else {"whole": True},
    )
    return {
        **{name: functools.partial(our_grads, bench, groups, per_sample=each) for name, each in own.items()},
        BASELINE: functools.partial(full_logits_grads, bench, groups),
        NAIVE: functools.partial(full_logits_grads, bench, groups, one_by_one=True),
    }


def check_same_gradient(name: str, ours: Grads, baseline: Grads, tolerance: float) -> float:
    """||ours - baseline|| / ||baseline|| over all modules. UnequalWork when that is more than rounding, or the baseline is
    zero."""
    mine, theirs = (torch.cat([g[n].double().flatten() for n in baseline]) for g in (ours, baseline))
    if not theirs.any():
        raise UnequalWork(f"{name}: the baseline's gradient is zero, so nothing was computed")
    gap = float((mine - theirs).norm() / theirs.norm())
    if not gap <= tolerance:
        differ = f"the two gradients differ by {gap:.2g} of their norm (at most {tolerance:g})"
        raise UnequalWork(f"{name}: {differ}, so no ratio is taken")
    return gap


def check_gradients(bench: Bench) -> dict[str, float]:
    """Relative gap of each of our ways to the baseline's gradient. UnequalWork when one is more than rounding."""
    grads = {name: way() for name, way in ways(bench).items()}
    baseline, tolerance = grads.pop(BASELINE), TOLERANCE[bench.sizes.dtype]
    gaps = {name: check_same_gradient(name, found, baseline, tolerance) for name, found in grads.items()}
    return {name: gap for name, gap in gaps.items() if name != NAIVE}


def measure_backward(bench: Bench) -> list[Figure]:
    """Seconds of each way, after its gradient was checked."""
    gaps, s = check_gradients(bench), bench.sizes
    work = {"completion tokens": s.rows * s.max_new}
    *ours, plain, naive = bench.timed({name: doing(work, way) for name, way in ways(bench).items()})
    floor = bench.floor(backward_flops(s, bench.prompt_lengths, s.max_new, s.group))
    figures = [
        ratio(f"{NAMES[way.title]} (agrees to {gaps[way.title]:.0e})", way, plain, None if i else SPEED_BAR, floor)
        for i, way in enumerate(ours)
    ]
    return [*figures, ratio(NAMES["whole"], ours[-1], naive, None, floor)]


def measure_memory(bench: Bench) -> list[Figure]:
    """Peak memory that each way adds to what was there before it: allocated on a GPU, resident in a fresh process each on a
    CPU. NotHere where the system does not tell."""
    cuda, found = bench.device.type == "cuda", ways(bench)
    del found[NAIVE]
    peaks = {
        name: [_cuda_peak(way)] if cuda else [_peak_in_fresh_process(bench, name) for _ in range(min(bench.repeats, 3))]
        for name, way in found.items()
    }
    if min(map(min, peaks.values())) <= 0:
        raise UnequalWork(f"peak memory of one way is nothing: {peaks}")
    cells = {name: f"{name}: {statistics.median(peak) / 2**20:,.0f} MiB" for name, peak in peaks.items()}
    base = peaks.pop(BASELINE)
    figures = []
    for i, (name, peak) in enumerate(peaks.items()):
        ratios = [a / b for a, b in zip(peak, base, strict=True)]
        figures.append(figure(NAMES[name], ratios, "x", None if i else MEMORY_BAR, cells[name], cells[BASELINE]))
    return figures


def _cuda_peak(way: Callable[[], Grads]) -> int:
    way()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()
    way()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - base


def _peak_in_fresh_process(bench: Bench, name: str) -> int:
    told = json.dumps([name, asdict(bench.sizes), bench.config.seed, torch.get_num_threads()])
    command, env = [sys.executable, "-m", "projected_grpo.bench.backward", told], {**os.environ, **EXACT}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise RuntimeError(f"peak memory of {name}: the process failed\n{done.stderr}")
    return int(done.stdout.split()[-1])


def resident(key: str) -> int:
    """VmRSS (now) or VmHWM (its peak) of this process, in bytes. NotHere without Linux's /proc."""
    status = Path("/proc/self/status")
    if not status.exists():
        raise NotHere("peak memory on a CPU is read from /proc, which is not here")
    return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith(key + ":"))


def added_memory(told: str) -> int:
    """In the fresh process: bytes by which one way's peak is above what was resident before it."""
    name, sizes, seed, threads = json.loads(told)
    torch.set_num_threads(threads)
    config = BenchConfig(device="cpu", seed=seed)
    ways(build_bench(config, QUICK))[name]()  # libraries and thread pools are loaded now
    way = ways(build_bench(config, Sizes(**sizes)))[name]
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    base = resident("VmRSS")
    way()
    return resident("VmHWM") - base


if __name__ == "__main__":
    print(added_memory(sys.argv[1]))
