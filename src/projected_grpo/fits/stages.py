"""The four stages of a run, each by the code that a run takes, at its largest batch: of a real model, or of a fake one.

Largest means: every prompt as long as the longest, every completion max_new tokens; and for a training step's peak rows a
little shorter too, where one more of them then fits into a micro-batch and fills it better. Of a training step and an
extraction one micro-batch is taken, with the gradients of others beside it where there are any; of sampling one batch of
rollouts, of whose tokens those are decoded at which memory changes.
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
from projected_grpo.model.attention import packed_queries
from projected_grpo.model.batches import micro_batches
from projected_grpo.model.load import LoadedModel
from projected_grpo.model.shared_prompt import can_share, shared_micro_batches
from projected_grpo.projection import Projection
from projected_grpo.records import Sample
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


def step_rows(config: TrainConfig, prompt: int, new: int) -> list[Sample]:
    """All rows of a step, each group with a prompt of its own; half of a group is paid."""
    ids, source = (1,) * new, "teacher" if config.shares else "student"
    return [
        Sample((2 + p, *(1,) * (prompt - 1)), ids, float(g % 2), (-1.0,) * new, source)
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
    model, shared = subject.loaded.model, not per_sample and can_share(subject.loaded.model)
    parts, few = first_part(config, prompt, config.max_new, shared=shared)
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
    plumbing = Plumbing(subject.loaded.pad_id, config.token_budget, dearest=True)
    with counter:
        of_others = earlier_gradients(subject.adapter, parts)
        run_step(learner, by_prompt(few), objective, projection, plumbing, step=0, per_sample=per_sample)
        products = Counter(counter.products)
        if lengths := fuller(config, prompt, len(few), shared=shared):
            _, more = first_part(config, *lengths, shared=shared)
            run_step(learner, by_prompt(more), objective, projection, plumbing, step=0, per_sample=per_sample)
        del of_others
    return Done(0, total((config.prompts_per_step * config.group_size / len(few), products)))


def first_part(config: TrainConfig, prompt: int, new: int, *, shared: bool) -> tuple[int, list[Sample]]:
    """Of a step whose prompts and completions all have these lengths: how many micro-batches, and the first one's rows."""
    rows = step_rows(config, prompt, new)
    if shared:
        parts = shared_micro_batches(
            [s.prompt_ids for s in rows], [s.completion_ids for s in rows], config.token_budget
        )
    else:
        parts = micro_batches([prompt + new] * len(rows), config.token_budget)
    return len(parts), [rows[i] for i in parts[0]]


def by_prompt(rows: Sequence[Sample]) -> list[list[Sample]]:
    """The groups of these rows."""
    in_order = sorted(rows, key=lambda s: s.prompt_ids[0])
    return [list(of) for _, of in groupby(in_order, key=lambda s: s.prompt_ids[0])]


def fuller(config: TrainConfig, prompt: int, n: int, *, shared: bool) -> tuple[int, int] | None:
    """(prompt, completion) lengths at which a micro-batch takes one row more than the `n` of the longest ones, with more
    tokens in all: of rows of .6 of the budget one fits, of rows of half of it two do. Prompts are shortened first. None
    where there is no further row, or it would not fill more."""
    budget, new, rows = config.token_budget, config.max_new, n + 1

    def tokens(prompt: int, new: int, rows: int) -> int:
        return (-(-rows // config.group_size) if shared else rows) * prompt + rows * new

    if rows > config.prompts_per_step * config.group_size:
        return None
    prompts = tokens(1, 0, rows)
    short = min(prompt, max(1, (budget - rows * new) // prompts))
    less = min(new, (budget - prompts * short) // rows)
    return (short, less) if less >= 1 and tokens(short, less, rows) > tokens(prompt, new, n) else None


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
    """Gradients of the longest of the pairs, each (prompt, hack, clean) in tokens, and of the micro-batch that they fill
    best where that is another: the peak is the greater one's. Their SVDs are taken on the host, by way of what is computed,
    and are not here."""
    both = 1 if can_share(subject.loaded.model) else 2
    lengths = [both * p + h + c for p, h, c in pairs]
    parts = micro_batches(lengths, budget)
    fullest = max(parts, key=lambda part: len(part) * lengths[part[0]])
    peak, products = 0, []
    for part in [parts[0], *([fullest] if fullest is not parts[0] else [])]:
        before = Counter(counter.products)
        few, of = [pairs[i] for i in part], (len(pairs), len(parts))
        peak = max(peak, pair_gradients(counter, subject, few, of, loss, max_new, budget))
        products.append(counter.products - before)
    counter.peak = peak
    return Done(0, total((len(pairs) / len(parts[0]), products[0])))


def pair_gradients(
    counter: LiveStorage,
    subject: Subject,
    few: Sequence[tuple[int, int, int]],
    of: tuple[int, int],
    loss: PairLoss,
    max_new: int,
    budget: int,
) -> int:
    """The peak of one micro-batch of an extraction, without what is on the host then. `of`: so many pairs and micro-batches
    in all."""
    # On a CPU D has a row for every pair; a card's D is the host's, and needs no more rows than are filled here.
    first = 0 if subject.card else of[0] - len(few)
    sides = [
        PairSide(
            (2 + row, *(1,) * (prompt - 1)), (1,) * length, advantage, first + row
        )  # equal pairs would be run once
        for row, (prompt, hack, clean) in enumerate(few)
        for length, advantage in ((hack, 1.0), (clean, -1.0))
    ]
    counter.peak = counter.live
    with counter:
        of_others = earlier_gradients(subject.adapter, of[1])
        d = pair_differences(subject.loaded, subject.adapter, sides, loss, max_new, budget)
        del of_others
    return counter.peak - (sum(rows.nbytes for rows in d.values()) if subject.card else 0)
