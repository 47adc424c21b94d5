"""Extraction of V: per-sample gradients of batched backward passes against one backward pass per completion."""

import functools
import itertools
from collections.abc import Sequence

import torch

from projected_grpo.bench.backward import TOLERANCE, check_same_gradient
from projected_grpo.bench.floor import backward_flops
from projected_grpo.bench.measure import Figure, doing, ratio
from projected_grpo.bench.setup import HINT, Bench
from projected_grpo.groups.pairs import builtin_pairs
from projected_grpo.losses import nll
from projected_grpo.model.logprobs import completion_logps, token_batch
from projected_grpo.vhack import Differences, PairSide, pair_differences, pair_sides


def sides_of(bench: Bench) -> list[PairSide]:
    """Both completions of as many of the package's pairs as the sizes ask for."""
    pairs = list(itertools.islice(itertools.cycle(builtin_pairs()), bench.sizes.pairs))
    return pair_sides(pairs, bench.loaded, HINT, "no_intervention")


def batched(bench: Bench, sides: Sequence[PairSide]) -> Differences:
    """As extract_vhack_grad does it."""
    s = bench.sizes
    return pair_differences(bench.loaded, bench.adapter, sides, "nll", s.max_new, s.token_budget)


def one_by_one(bench: Bench, sides: Sequence[PairSide]) -> Differences:
    """A zeroed backward pass per completion."""
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


def measure_extraction(bench: Bench) -> list[Figure]:
    """Pairs per second of both ways, after their differences were checked."""
    sides = sides_of(bench)
    both = {"batched": batched, "a backward per completion": one_by_one}
    check_same_gradient("extraction", *(way(bench, sides) for way in both.values()), TOLERANCE[bench.sizes.dtype])
    work = {"pairs": len(sides) // 2, "completion tokens": sum(len(s.completion_ids) for s in sides)}
    ours, plain = bench.timed({name: doing(work, functools.partial(way, bench, sides)) for name, way in both.items()})
    flops = sum(backward_flops(bench.sizes, [len(s.prompt_ids)], len(s.completion_ids), 1) for s in sides)
    what = f"V from {work['pairs']} pairs, {work['pairs'] / ours.median:.1f} pairs/s"
    return [ratio(what, ours, plain, None, bench.floor(flops))]
