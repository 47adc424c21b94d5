"""Extraction of V: per-sample gradients of batched backward passes against one backward pass per completion."""

import itertools
from collections.abc import Sequence

import torch

from projected_grpo.bench.baselines import TOLERANCE, check_same_gradient
from projected_grpo.bench.flops import backward_flops
from projected_grpo.bench.measure import Figure, Work, interleaved, ratio
from projected_grpo.bench.world import HINT, World
from projected_grpo.groups.pairs import builtin_pairs
from projected_grpo.losses import nll
from projected_grpo.model.logprobs import completion_logps, token_batch
from projected_grpo.vhack import Differences, PairSide, pair_differences, pair_sides


def sides_of(world: World) -> list[PairSide]:
    """Both completions of as many of the package's pairs as the sizes ask for."""
    pairs = list(itertools.islice(itertools.cycle(builtin_pairs()), world.sizes.pairs))
    return pair_sides(pairs, world.loaded, HINT, "no_intervention")


def batched(world: World, sides: Sequence[PairSide]) -> Differences:
    """As extract_vhack_grad does it."""
    s = world.sizes
    return pair_differences(world.loaded, world.adapter, sides, "nll", s.max_new, s.token_budget)


def one_by_one(world: World, sides: Sequence[PairSide]) -> Differences:
    """A zeroed backward pass per completion."""
    adapter, loaded = world.adapter, world.loaded
    out = {name: torch.zeros(len(sides) // 2, n) for name, n in adapter.sizes.items()}
    for row, side in enumerate(sides):
        adapter.zero_grad()
        batch = token_batch([side.prompt_ids], [side.completion_ids], loaded.pad_id, world.device)
        nll(completion_logps(loaded.model, batch), batch.loss_mask).sum().backward()
        for name, g in adapter.grads().items():
            out[name][row // 2] += g.float().cpu() if row % 2 == 0 else -g.float().cpu()
    adapter.zero_grad()
    return out


def measure_extraction(world: World, repeats: int, warmup: int, peak: float | None) -> list[Figure]:
    """Pairs per second of both ways, after their differences were checked."""
    sides = sides_of(world)
    check_same_gradient("extraction", batched(world, sides), one_by_one(world, sides), TOLERANCE[world.sizes.dtype])
    work: Work = {"pairs": len(sides) // 2, "completion tokens": sum(len(s.completion_ids) for s in sides)}
    timed = interleaved(
        {"ours": lambda: (batched(world, sides), work)[1], "one by one": lambda: (one_by_one(world, sides), work)[1]},
        repeats, warmup, world.synchronize,
    )  # fmt: skip
    flops = sum(backward_flops(world.sizes, [len(s.prompt_ids)], len(s.completion_ids), 1) for s in sides)
    told = f"V from {work['pairs']} pairs, {timed['ours'].rate('pairs'):.1f} pairs/s"
    ours, baseline = ("batched", timed["ours"]), ("a backward per completion", timed["one by one"])
    return [ratio("extraction", told, ours, baseline, None, None if peak is None else flops / peak)]
