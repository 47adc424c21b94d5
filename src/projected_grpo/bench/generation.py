"""Sampling against Hugging Face `generate()`: the same model, prompts, sampling and number of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import GenerationConfig

from projected_grpo.bench.flops import generation_flops
from projected_grpo.bench.measure import Bar, Figure, Run, Timed, Work, absolute, interleaved, ratio
from projected_grpo.bench.world import ForcedLengths, World, forced_lengths, prompt_lengths, varying_lengths
from projected_grpo.model.logprobs import left_padded
from projected_grpo.rollout.sample import evaluating, sample_tokens

BAR = Bar(3.0)
GPU_RATE = Bar(5000.0)


def _work(completions: Sequence[Sequence[int]]) -> Work:
    return {"completions": len(completions), "tokens": sum(map(len, completions))}


def _ended(row: list[int], eos: frozenset[int]) -> list[int]:
    """Up to the first end-of-sequence token, that one included; what follows is padding."""
    end = next((i for i, token in enumerate(row) if token in eos), len(row) - 1)
    return row[: end + 1]


@dataclass
class Sampler:
    """The ways to sample a step's completions; `hook` with `lengths` makes them end early."""

    world: World
    hook: ForcedLengths | None = None
    lengths: Sequence[int] = ()

    def _begin(self, rows: slice) -> None:
        if self.hook is not None:
            self.hook.begin(torch.tensor(self.lengths[rows], device=self.world.device))

    def ours(self) -> Work:
        """rollout.sample_tokens on folded weights: one prefill per prompt, all rows together."""
        self._begin(slice(None))
        w = self.world
        with w.adapter.folded():
            sampled = sample_tokens(w.loaded, [p.ids for p in w.prompts], w.sizes.group, w.params, w.keys())
        return _work([ids for ids, _ in sampled])

    def _generate(self, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        w, p = self.world, self.world.params
        ids, mask = left_padded(prompts, w.loaded.pad_id, w.device)
        config = GenerationConfig(
            do_sample=True, temperature=p.temperature, top_p=p.top_p, top_k=0, max_new_tokens=p.max_new, use_cache=True,
            num_return_sequences=w.sizes.group, pad_token_id=w.loaded.pad_id,
            eos_token_id=sorted(w.loaded.eos_ids) if self.hook else None,
        )  # fmt: skip
        with torch.no_grad(), evaluating(w.loaded.model):
            out = w.loaded.model.generate(input_ids=ids, attention_mask=mask.long(), generation_config=config)
        return [_ended(row, w.loaded.eos_ids) for row in out[:, ids.shape[1] :].tolist()]

    def per_prompt(self) -> Work:
        """One generate() per prompt with num_return_sequences, on the same folded weights."""
        torch.manual_seed(self.world.seed)
        done: list[list[int]] = []
        with self.world.adapter.folded():
            for i, prompt in enumerate(self.world.prompts):
                g = self.world.sizes.group
                self._begin(slice(i * g, (i + 1) * g))
                done += self._generate([prompt.ids])
        return _work(done)

    def padded(self) -> Work:
        """One left-padded generate() of all prompts."""
        torch.manual_seed(self.world.seed)
        self._begin(slice(None))
        with self.world.adapter.folded():
            return _work(self._generate([p.ids for p in self.world.prompts]))

    def sides(self) -> dict[str, Run]:
        """Ours first."""
        return {"ours": self.ours, "per prompt": self.per_prompt, "padded": self.padded}


def _figures(world: World, kind: str, timed: dict[str, Timed], floor: float | None) -> list[Figure]:
    ours = ("sample_tokens", timed["ours"])
    spread = [timed["ours"].work["tokens"] / s for s in timed["ours"].seconds]
    rate = GPU_RATE if world.device.type == "cuda" and kind == "fixed" else None
    return [
        ratio("generation", f"{kind} lengths", ours, ("generate() per prompt", timed["per prompt"]), BAR, floor),
        ratio("generation", f"{kind} lengths", ours, ("one padded generate()", timed["padded"]), None, floor),
        absolute("generation", f"{kind} lengths, {world.sizes.rows} rows", spread, "tokens/s", rate),
    ]


def measure_generation(world: World, repeats: int, warmup: int, peak: float | None) -> list[Figure]:
    """Fixed and varying lengths. `peak` in FLOP/s for the floor of the fixed ones. UnequalWork when tokens differ."""
    floor = None if peak is None else generation_flops(world.sizes, prompt_lengths(world.prompts)) / peak
    fixed = interleaved(Sampler(world).sides(), repeats, warmup, world.synchronize)
    with forced_lengths(world) as (ending, hook):
        sampler = Sampler(ending, hook, varying_lengths(world.sizes, world.seed))
        varying = interleaved(sampler.sides(), repeats, warmup, world.synchronize)
    return [*_figures(world, "fixed", fixed, floor), *_figures(world, "varying", varying, None)]
