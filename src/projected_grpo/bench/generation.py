"""Sampling against Hugging Face `generate()`: the same model, prompts, sampling and number of tokens."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import GenerationConfig

from projected_grpo.bench.measure import Call, Figure, Work, interleaved, rates, ratio
from projected_grpo.bench.settings import SEED
from projected_grpo.bench.setup import TEMPERATURE, TOP_P, Bench, model_flops
from projected_grpo.model.logprobs import left_padded
from projected_grpo.rollout.draw import SamplingParams
from projected_grpo.rollout.sample import evaluating, sample_tokens

BAR, GPU_RATE = (">=", 3.0), (">=", 5000.0)


class Sampler:
    """The ways to sample a step's completions of max_new tokens. With `varying`, and `end_rows` as a forward hook of the
    vocabulary product, they end after a quarter of max_new to all of it: the same lengths on all sides."""

    def __init__(self, bench: Bench, *, varying: bool = False) -> None:
        self.bench, self.varying = bench, varying
        s, draw = bench.sizes, torch.Generator().manual_seed(SEED)
        drawn = torch.randint(max(2, s.max_new // 4), s.max_new + 1, (s.rows,), generator=draw)
        self.lengths = (drawn if varying else torch.full((s.rows,), s.max_new)).to(bench.device)
        self.eos = bench.loaded.tokenizer.eos_token_id if varying else -1  # no token is -1
        self.loaded = dataclasses.replace(bench.loaded, eos_ids=frozenset({self.eos}))
        self.going, self.token = self.lengths, 0

    def end_rows(self, module: nn.Module, args: tuple, logits: Tensor) -> Tensor:  # noqa: ARG002 - torch's signature
        """Call n gives token n of every row that `going` has the length of (2 rows or more)."""
        self.token += 1
        column = torch.full_like(logits[..., self.eos], -torch.inf)
        left = self.going[self.going >= self.token]
        if len(logits) == len(left) < len(self.going):  # the rows that have ended left the batch
            self.going = left
        if len(logits) == len(self.going):  # else the prefill of prompts that are repeated to their groups later
            column[self.going == self.token] = 1e4
        logits[..., self.eos] = column
        return logits

    def ours(self) -> Work:
        """rollout.sample_tokens on folded weights: one prefill per prompt, all rows together."""
        b, self.going, self.token = self.bench, self.lengths, 0
        params = SamplingParams(b.sizes.max_new, TEMPERATURE, TOP_P, 0)
        with b.adapter.folded():
            sampled = sample_tokens(self.loaded, [p.ids for p in b.prompts], b.sizes.group, params, b.keys())
        return self._work([ids for ids, _ in sampled])

    def generated(self, at_once: int) -> Work:
        """generate() with num_return_sequences of so many left-padded prompts at a time, on the same folded weights."""
        b, model, pad_id, done = self.bench, self.loaded.model, self.loaded.pad_id, []
        config = GenerationConfig(
            do_sample=True, temperature=TEMPERATURE, top_p=TOP_P, top_k=0, max_new_tokens=b.sizes.max_new, use_cache=True,
            num_return_sequences=b.sizes.group, pad_token_id=pad_id, eos_token_id=self.eos if self.varying else None,
        )  # fmt: skip
        torch.manual_seed(SEED)
        with b.adapter.folded(), torch.no_grad(), evaluating(model):
            for first in range(0, len(b.prompts), at_once):
                rows = slice(first * b.sizes.group, (first + at_once) * b.sizes.group)
                self.going, self.token = self.lengths[rows], 0
                ids, mask = left_padded([p.ids for p in b.prompts[first : first + at_once]], pad_id, b.device)
                out = model.generate(input_ids=ids, attention_mask=mask.long(), generation_config=config)
                done += out[:, ids.shape[1] :].tolist()
        return self._work(done)

    def _work(self, completions: Sequence[list[int]]) -> Work:
        """Tokens up to the first end-of-sequence token, that one included; what follows is padding."""
        ends = [(*ids, self.eos).index(self.eos) + 1 for ids in completions]
        tokens = sum(min(end, len(ids)) for end, ids in zip(ends, completions, strict=True))
        return {"completions": len(completions), "tokens": tokens}

    def sides(self) -> dict[str, Call]:
        """Ours first."""
        every = len(self.bench.prompts)
        return {
            "sample_tokens": self.ours,
            "generate() per prompt": lambda: self.generated(1),
            "one padded generate()": lambda: self.generated(every),
        }


def measure_generation(bench: Bench) -> list[Figure]:
    """Fixed and varying lengths; a floor and on a GPU a rate for the fixed ones. UnequalWork when tokens differ."""
    varying, figures = Sampler(bench, varying=True), []
    fixed = interleaved(Sampler(bench).sides(), bench.repeats)
    with bench.loaded.model.get_output_embeddings().register_forward_hook(varying.end_rows):
        varied = interleaved(varying.sides(), bench.repeats)
    floor = bench.floor(model_flops(bench.sizes, bench.prompt_lengths, backward=False))
    rate_bar = GPU_RATE if bench.device.type == "cuda" else None
    for kind, sides, below, bar in (("fixed", fixed, floor, rate_bar), ("varying", varied, None, None)):
        ours, per_prompt, padded = sides
        figures += [
            ratio(f"{kind} lengths", ours, per_prompt, bar=BAR, floor=below),
            ratio(f"{kind} lengths", ours, padded, floor=below),
            Figure(f"{kind} lengths, {bench.sizes.rows} rows", rates(ours, "tokens"), "tokens/s", bar),
        ]
    return figures
