"""A gradient by every way there is, in time and in memory, on the very tensors of the adapter at hand: a step's by ours and
by plain ones, in which autograd keeps what it likes and log-probabilities come from the whole [rows, tokens, vocab] logits
tensor; and those of the extraction of V, batched against one backward pass per completion."""

import functools
import itertools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F

from projected_grpo.adapters.antipasto import AntiPaSTOLinear
from projected_grpo.bench.measure import Figure, NotHere, UnequalWork, doing, interleaved, ratio
from projected_grpo.bench.settings import QUICK, SEED, BenchConfig, Sizes
from projected_grpo.bench.setup import HINT, TEMPERATURE, Bench, build_bench, model_flops
from projected_grpo.channels.policy import advantages, nll, policy_loss
from projected_grpo.groups.pairs import builtin_pairs
from projected_grpo.model.batches import micro_batches
from projected_grpo.model.logprobs import completion_logps, token_batch
from projected_grpo.model.shared_prompt import can_share
from projected_grpo.projection import Projection
from projected_grpo.records import Sample
from projected_grpo.step import Learner, Objective, Plumbing, run_step
from projected_grpo.vhack import Differences, PairSide, pair_differences, pair_sides

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
    s, draw = bench.sizes, torch.Generator().manual_seed(SEED)
    drawn = torch.randint(s.vocab, (s.prompts, s.group, s.max_new), generator=draw).tolist()
    return [
        [Sample(prompt.ids, tuple(ids), float(i % 2)) for i, ids in enumerate(rows)]
        for prompt, rows in zip(bench.prompts, drawn, strict=True)
    ]


def plain_forward(own: AntiPaSTOLinear, x: Tensor) -> Tensor:
    """An adapted Linear as it is written: x W^T + b + ((x Vh^T) * delta_S) U^T."""
    return F.linear(x, own.weight, own.bias) + ((x @ own.Vh.T) * own.theta.to(x.dtype)) @ own.U.T


def full_logits_grads(bench: Bench, groups: Groups, *, one_by_one: bool = False) -> Grads:
    """By the plain ways; micro-batches within the same budget, or one row each, so that every sample's own gradient is known
    before it is added to the sum."""
    loaded, adapter, max_new, rows = bench.loaded, bench.adapter, bench.sizes.max_new, [s for g in groups for s in g]
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
            loss = policy_loss(logps, batch.loss_mask, a[chosen], kind="dr_grpo", rows=len(rows), max_new=max_new)
            loss.per_sample.sum().backward()
        for name, own in adapter.grads().items():
            total[name] += own
    adapter.zero_grad()
    return total


def our_grads(bench: Bench, groups: Groups, *, per_sample: bool) -> Grads:
    """From step.run_step itself, its bookkeeping included, with an optimizer that leaves the parameters alone. Dr. GRPO
    without a KL term: neither side runs a reference."""
    adapter, found = bench.adapter, Grads()
    keep = torch.optim.SGD(list(adapter.vectors.values()), lr=0.0)
    keep.register_step_pre_hook(lambda *_: found.update({n: g.detach().clone() for n, g in adapter.grads().items()}))
    learner, objective = (
        Learner(bench.loaded.model, adapter, keep),
        Objective("dr_grpo", bench.sizes.max_new, TEMPERATURE),
    )
    plumbing = Plumbing(bench.loaded.pad_id, bench.sizes.token_budget)
    run_step(learner, groups, objective, Projection(), plumbing, step=0, per_sample=per_sample)
    return found


def ways(bench: Bench) -> dict[str, Callable[[], Grads]]:
    """The same gradient by every way that the model at hand allows; the baselines last."""
    groups, shared = random_groups(bench), ["shared"] if can_share(bench.loaded.model) else []
    return {
        **{n: functools.partial(our_grads, bench, groups, per_sample=n == "whole") for n in (*shared, "whole")},
        BASELINE: functools.partial(full_logits_grads, bench, groups),
        NAIVE: functools.partial(full_logits_grads, bench, groups, one_by_one=True),
    }


def check_same_gradient(name: str, ours: Mapping[str, Tensor], baseline: Mapping[str, Tensor], dtype: str) -> float:
    """||ours - baseline|| / ||baseline|| over all modules. UnequalWork when that is more than this type's rounding, or the
    baseline is zero."""
    mine, theirs = (torch.cat([g[n].double().flatten() for n in baseline]) for g in (ours, baseline))
    if not theirs.any():
        raise UnequalWork(f"{name}: the baseline's gradient is zero, so nothing was computed")
    gap, most = float((mine - theirs).norm() / theirs.norm()), TOLERANCE[dtype]
    if not gap <= most:
        differ = f"the two gradients differ by {gap:.2g} of their norm (at most {most:g})"
        raise UnequalWork(f"{name}: {differ}, so no ratio is taken")
    return gap


def check_gradients(bench: Bench) -> dict[str, float]:
    """Relative gap of every other way to the baseline's gradient. UnequalWork when one is more than rounding."""
    grads = {name: way() for name, way in ways(bench).items()}
    baseline = grads.pop(BASELINE)
    return {name: check_same_gradient(name, found, baseline, bench.sizes.dtype) for name, found in grads.items()}


def measure_backward(bench: Bench) -> list[Figure]:
    """Seconds of each way, after its gradient was checked."""
    gaps, s = check_gradients(bench), bench.sizes
    work = {"completion tokens": s.rows * s.max_new}
    *ours, plain, naive = interleaved(doing(work, ways(bench)), bench.repeats)
    floor = bench.floor(model_flops(s, bench.prompt_lengths, backward=True))
    bars, agrees = {ours[0].title: SPEED_BAR}, "{} (agrees to {:.0e})".format
    figures = [
        ratio(agrees(NAMES[way.title], gaps[way.title]), way, plain, bar=bars.get(way.title), floor=floor)
        for way in ours
    ]
    return [*figures, ratio(NAMES["whole"], ours[-1], naive, floor=floor)]


def measure_memory(bench: Bench) -> list[Figure]:
    """Peak memory that each way adds to what was there before it: allocated on a GPU, resident in a fresh process each on a
    CPU. NotHere where the system does not tell."""
    repeats, added = (1, cuda_peak) if bench.device.type == "cuda" else (min(bench.repeats, 3), fresh_process_peak)
    peaks = {name: [added(bench, name) for _ in range(repeats)] for name in ways(bench) if name != NAIVE}
    if min(map(min, peaks.values())) <= 0:
        raise UnequalWork(f"peak memory of one way is nothing: {peaks}")
    cells = {name: f"{name}: {statistics.median(peak) / 2**20:,.0f} MiB" for name, peak in peaks.items()}
    *ours, base = peaks
    ratios = {name: [a / b for a, b in zip(peaks[name], peaks[base], strict=True)] for name in ours}
    bars = {ours[0]: MEMORY_BAR}
    return [Figure(NAMES[name], ratios[name], "x", bars.get(name), cells[name], cells[base]) for name in ours]


def cuda_peak(bench: Bench, name: str) -> int:
    """Bytes that one way allocates above what was there, after a first time that does not count."""
    way = ways(bench)[name]
    way()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()
    way()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - base


def fresh_process_peak(bench: Bench, name: str) -> int:
    """Bytes that one way adds to a process that does nothing else. NotHere as in `resident`. A plain interpreter, not one
    of multiprocessing's: that leaves a resource tracker behind for as long as we live."""
    resident("VmRSS")
    told = json.dumps([name, asdict(bench.sizes), torch.get_num_threads()])
    command = [sys.executable, "-m", "projected_grpo.bench.backward", told]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **EXACT})
    if done.returncode:
        raise RuntimeError(f"peak memory of {name}: the process failed\n{done.stderr}")
    return int(done.stdout.split()[-1])


def added_memory(name: str, sizes: Sizes, threads: int) -> int:
    """In the fresh process: bytes by which one way's peak is above what was resident before it."""
    torch.set_num_threads(threads)
    config = BenchConfig(device="cpu")
    ways(build_bench(config, QUICK))[name]()  # libraries and thread pools are loaded now
    way = ways(build_bench(config, sizes))[name]
    base = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    way()
    return resident("VmHWM") - base


def resident(key: str) -> int:
    """VmRSS (now) or VmHWM (its peak) of this process, in bytes. NotHere without Linux's /proc."""
    status = Path("/proc/self/status")
    if not status.exists():
        raise NotHere("peak memory on a CPU is read from /proc, which is not here")
    return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith(key + ":"))


def one_by_one(bench: Bench, sides: Sequence[PairSide]) -> Differences:
    """V's gradient differences from a zeroed backward pass per completion."""
    adapter, loaded = bench.adapter, bench.loaded
    out = {name: torch.zeros(len(sides) // 2, n) for name, n in adapter.sizes.items()}
    for row, side in enumerate(sides):
        adapter.zero_grad()
        batch = token_batch([side.prompt_ids], [side.completion_ids], loaded.pad_id, bench.device)
        nll(completion_logps(loaded.model, batch), batch.loss_mask).sum().backward()
        for name, g in adapter.grads().items():
            out[name][row // 2] += g.float().cpu() if row % 2 == 0 else -g.float().cpu()
    adapter.zero_grad()
    return out


def extraction_ways(bench: Bench) -> tuple[list[PairSide], dict[str, Callable[[], Differences]]]:
    """Both completions of as many of the package's pairs as the sizes ask for, and both ways to their differences."""
    s, loaded, adapter = bench.sizes, bench.loaded, bench.adapter
    pairs = list(itertools.islice(itertools.cycle(builtin_pairs()), s.pairs))
    sides = pair_sides(pairs, loaded, HINT, "no_intervention")
    batched = functools.partial(pair_differences, loaded, adapter, sides, "nll", s.max_new, s.token_budget)
    return sides, {"batched": batched, "a backward per completion": functools.partial(one_by_one, bench, sides)}


def measure_extraction(bench: Bench) -> list[Figure]:
    """Pairs per second, batched as extract_vhack_grad does it and one by one, after their differences were checked."""
    s, (sides, both) = bench.sizes, extraction_ways(bench)
    batched, plain = (way() for way in both.values())
    check_same_gradient("extraction", batched, plain, s.dtype)
    work = {"pairs": s.pairs, "completion tokens": sum(len(side.completion_ids) for side in sides)}
    timed = interleaved(doing(work, both), bench.repeats)
    flops = sum(
        model_flops(replace(s, max_new=len(side.completion_ids), group=1), [len(side.prompt_ids)], backward=True)
        for side in sides
    )
    what = f"V from {s.pairs} pairs, {s.pairs / timed[0].median:.1f} pairs/s"
    return [ratio(what, *timed, floor=bench.floor(flops))]


if __name__ == "__main__":
    _name, _sizes, _threads = json.loads(sys.argv[1])
    print(added_memory(_name, Sizes(**_sizes), _threads))
