"""The four stages of a run, each by the code that a run takes, at its largest batch: of a real model, or of a fake one.

Largest means: every prompt as long as the longest, every completion max_new tokens. Of a training step and an extraction one
micro-batch is taken, with the gradients of others beside it where there are any; of sampling one batch of rollouts, of whose
tokens those are decoded at which memory changes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import torch
from torch import Tensor

from projected_grpo.adapters.base import Adapter
from projected_grpo.config import TrainConfig
from projected_grpo.fits.counter import LiveStorage, Product
from projected_grpo.ledger.errors import BadInput
from projected_grpo.model.batches import micro_batches
from projected_grpo.model.load import LoadedModel
from projected_grpo.model.shared_prompt import can_share, shared_micro_batches
from projected_grpo.projection import Projection
from projected_grpo.records import Sample
from projected_grpo.rollout.attention import packed_queries
from projected_grpo.rollout.decoding import FixedDecoder, GrowingDecoder
from projected_grpo.rollout.draw import SamplingParams, draw
from projected_grpo.rollout.kv_cache import RoomyLayer
from projected_grpo.rollout.sample import evaluating
from projected_grpo.step import Learner, Objective, Plumbing, run_step
from projected_grpo.vhack import PairLoss, PairSide, pair_differences


@dataclass(frozen=True)
class Subject:
    """What the stages run on. `card`: by a CUDA device's way through the code (decoding.py's tensors that stay in place, the
    weights before folding on the host, AdamW over all coordinates at once), on whatever device it is."""

    loaded: LoadedModel
    adapter: Adapter
    card: bool

    def held(self) -> list[Tensor]:
        """What is there before a stage begins: weights, bases, coordinates."""
        model = self.loaded.model
        return [*model.parameters(), *model.buffers()]


@dataclass(frozen=True)
class Done:
    """What a stage came to. `host`: bytes that the counter saw and that a card's run keeps on the host. `products`: of all
    that the stage stands for, not of what was run of it."""

    host: int
    products: Mapping[Product, float | int]


def total(*parts: tuple[float | int, Mapping[Product, int]]) -> dict[Product, float]:
    """All products, each part's so many times as often."""
    out: dict[Product, float] = {}
    for times, products in parts:
        for product, n in products.items():
            out[product] = out.get(product, 0.0) + times * n
    return out


# ---------------------------------------------------------------- sampling


def sampling(
    counter: LiveStorage, subject: Subject, prompts: Sequence[Sequence[int]], group: int, params: SamplingParams
) -> Done:
    """One batch of `group` completions of each prompt, on folded weights; all of them go on to max_new tokens."""
    loaded, adapter = subject.loaded, subject.adapter
    weights = sum(layer.weight.nbytes for layer in adapter.layers.values())
    with counter, torch.no_grad(), evaluating(loaded.model), packed_queries(loaded.model), adapter.folded():
        folding = Counter(counter.products)
        kind = FixedDecoder if subject.card else GrowingDecoder
        decoder = kind(loaded, prompts, group)
        u = torch.full((len(prompts) * group,), 0.5, dtype=torch.float64)
        token, _ = draw(decoder.logits, params, u)
        prefill = counter.products - folding
        taken, at, last = [], [0], params.max_new - 1  # the last token is drawn and never read
        while at[-1] < last:
            before = Counter(counter.products)
            token, _ = draw(decoder.step(token), params, u)
            taken.append(counter.products - before)
            gone = max(0, min(last - at[-1] - 2, room_of(decoder)))
            skip(decoder, gone)
            at.append(at[-1] + 1 + gone)
    times = stands_for(at[:-1], evenly=not subject.card)
    done = total((1.0, folding), (1.0, prefill), *zip(times, taken, strict=True))
    return Done(weights if subject.card else 0, done)


def stands_for(at: Sequence[int], *, evenly: bool) -> list[float]:
    """How many steps each of those taken stands for, given their numbers from 0 up to the last one of all. `evenly`: a
    step's work grows by the same amount from one to the next; else it stays until the next one that is taken."""
    times = [1.0] * len(at)
    for i, (here, there) in enumerate(pairwise(at)):
        n = there - here
        times[i] += (n - 1) / 2 if evenly else n - 1
        times[i + 1] += (n - 1) / 2 if evenly else 0
    return times


def room_of(decoder: GrowingDecoder) -> int:
    """Tokens that the cache can take before it is made longer."""
    if isinstance(decoder, FixedDecoder):
        return decoder.room - decoder.filled
    layer = decoder.cache.layers[0]
    if not isinstance(layer, RoomyLayer) or layer.store is None or layer.keys is None:
        raise BadInput("the model keeps a cache of its own kind (sliding windows?): `fits` knows full attention alone")
    return layer.store[0].shape[-2] - layer.keys.shape[-2]


def skip(decoder: GrowingDecoder, tokens: int) -> None:
    """As if so many steps had been taken, within the cache's room: nothing is allocated in them that lasts."""
    if not tokens:
        return
    decoder.position = decoder.position + tokens
    if isinstance(decoder, FixedDecoder):
        decoder.filled += tokens
        return
    decoder.mask = torch.cat([decoder.mask, decoder.mask.new_ones(len(decoder.mask), tokens)], 1)
    for layer in decoder.cache.layers:
        assert isinstance(layer, RoomyLayer)
        assert layer.store is not None
        end = decoder.mask.shape[1]
        layer.keys, layer.values = (stored[..., :end, :] for stored in layer.store)


# ---------------------------------------------------------------- a training step


def step_rows(config: TrainConfig, prompt: int) -> list[Sample]:
    """All rows of a step, each group with a prompt of its own; half of a group is paid."""
    ids, source = (1,) * config.max_new, "teacher" if config.shares else "student"
    return [
        Sample((2 + p, *(1,) * (prompt - 1)), ids, float(g % 2), (-1.0,) * config.max_new, source)
        for p in range(config.prompts_per_step)
        for g in range(config.group_size)
    ]


def training(
    counter: LiveStorage,
    subject: Subject,
    config: TrainConfig,
    prompt: int,
    projection: Projection,
    *,
    per_sample: bool,
) -> Done:
    """An optimizer step, with every sample's own gradient or with prompts run once per group."""
    rows, model = step_rows(config, prompt), subject.loaded.model
    prompts, completions = [s.prompt_ids for s in rows], [s.completion_ids for s in rows]
    if per_sample or not can_share(model):
        parts = micro_batches([prompt + config.max_new] * len(rows), config.token_budget)
    else:
        parts = shared_micro_batches(prompts, completions, config.token_budget)
    few = [rows[i] for i in parts[0]]
    groups = [list(of) for _, of in groupby(sorted(few, key=lambda s: s.prompt_ids[0]), key=lambda s: s.prompt_ids[0])]
    optimizer = torch.optim.AdamW(
        list(subject.adapter.vectors.values()), lr=config.lr, betas=(0.9, 0.95), weight_decay=config.weight_decay,
        foreach=subject.card,
    )  # fmt: skip
    half = moments(subject.adapter)
    for i, p in enumerate(subject.adapter.vectors.values()):  # as after the first step
        optimizer.state[p] = {"step": torch.tensor(1.0), "exp_avg": half[2 * i], "exp_avg_sq": half[2 * i + 1]}
    for t in half:
        counter.see(t)
    learner = Learner(model, subject.adapter, optimizer, config.max_grad_norm)
    objective = Objective(
        config.loss, config.max_new, config.temperature, config.kl_weight, config.clip_low, config.clip_high
    )
    plumbing = Plumbing(subject.loaded.pad_id, config.token_budget)
    with counter:
        of_others = earlier_gradients(subject.adapter, len(parts))
        run_step(learner, groups, objective, projection, plumbing, step=0, per_sample=per_sample)
        del of_others
    return Done(0, total((len(rows) / len(few), counter.products)))


def moments(adapter: Adapter) -> list[Tensor]:
    """What AdamW keeps of every coordinate from its first step on: two numbers."""
    return [torch.zeros_like(p) for p in adapter.vectors.values() for _ in range(2)]


def earlier_gradients(adapter: Adapter, parts: int) -> list[Tensor]:
    """What the micro-batches before the present one have left: a gradient of every coordinate."""
    return [torch.zeros_like(p) for p in adapter.vectors.values()] if parts > 1 else []


# ---------------------------------------------------------------- an extraction


def extraction(
    counter: LiveStorage,
    subject: Subject,
    pairs: Sequence[tuple[int, int, int]],
    loss: PairLoss,
    max_new: int,
    budget: int,
) -> Done:
    """Gradients of the longest of the pairs, each (prompt, hack, clean) in tokens. Their SVDs are taken on the host, by way
    of what is computed, and are not here."""
    both = 1 if can_share(subject.loaded.model) else 2
    parts = micro_batches([both * p + h + c for p, h, c in pairs], budget)
    few = [pairs[i] for i in parts[0]]
    # On a CPU D has a row for every pair; a card's D is the host's, and needs no more rows than are filled here.
    first = 0 if subject.card else len(pairs) - len(few)
    sides = [
        PairSide((1,) * prompt, (1,) * length, advantage, first + row)
        for row, (prompt, hack, clean) in enumerate(few)
        for length, advantage in ((hack, 1.0), (clean, -1.0))
    ]
    with counter:
        of_others = earlier_gradients(subject.adapter, len(parts))
        d = pair_differences(subject.loaded, subject.adapter, sides, loss, max_new, budget)
        del of_others
    host = sum(rows.nbytes for rows in d.values()) if subject.card else 0
    return Done(host, total((len(pairs) / len(few), counter.products)))
