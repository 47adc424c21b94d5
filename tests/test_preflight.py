"""What would not fit is refused before step 0, with a setting that fits."""

import pytest
import torch

from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.projection import Projection
from projected_grpo.rollout.decoding import FIXED_ROOM
from projected_grpo.rollout.sample import Prompt
from projected_grpo.run import preflight as module
from projected_grpo.run.preflight import GIB, Device, cache_bytes, largest_rows, preflight
from projected_grpo.run.session import Session
from projected_grpo.step import Objective

PROMPTS = [Prompt("a", "", (5, 6)), Prompt("b", "", (5, 6, 7, 8, 9, 10))]


class Small(Device):
    """A device on which a token of forward and backward takes `each` bytes."""

    def __init__(self, total, each):
        object.__setattr__(self, "place", torch.device("cpu"))
        self.__dict__.update(bytes=total, each=each, tokens=0)

    def reset(self):
        self.__dict__["tokens"] = 0

    def peak(self):
        return self.held() + self.tokens * self.each

    def held(self):
        return 1000

    def total(self):
        return self.bytes


@pytest.fixture
def tried(tiny, antipasto, monkeypatch, tmp_path):
    """Run the preflight on a device of a size; real forward and backward passes, counted memory."""
    real = module.logps_of

    def run(total, each=1, strict=True, **fields):
        config = TrainConfig(max_new=4, prompts_per_step=2, group_size=4, **fields)
        optimizer = torch.optim.AdamW(list(antipasto.vectors.values()))
        session = Session(config, "train", tmp_path, tiny, antipasto, optimizer, Objective("nll"), Projection())
        device = Small(total, each)

        def counted(model, batch, temperature):
            device.__dict__["tokens"] = batch.input_ids.numel()
            if strict and device.peak() > total:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return real(model, batch, temperature)

        monkeypatch.setattr(module, "logps_of", counted)
        preflight(session, config, PROMPTS, device)

    return run


def test_the_largest_batch_is_the_longest_prompt_with_max_new_tokens():
    config = TrainConfig(max_new=4, prompts_per_step=2, group_size=4)
    for budget, rows in ((1, 1), (29, 2), (30, 3), (10_000, 8)):
        batch = largest_rows(PROMPTS, config, budget, 0)
        assert [len(s.prompt_ids) + len(s.completion_ids) for s in batch] == [10] * rows


def test_what_fits_passes_and_leaves_no_gradient(tried, antipasto):
    tried(10**9)
    assert all(p.grad is None for p in antipasto.vectors.values())


@pytest.mark.parametrize("strict", [True, False], ids=["out of memory", "beyond the margin"])
def test_what_does_not_fit_is_refused_with_a_budget_that_does(tried, strict, antipasto):
    with pytest.raises(BadInput, match=r"--token-budget 80: .* rows of 10 tokens.*--token-budget 30 does"):
        tried(10**6, each=30_000, token_budget=80, strict=strict)  # 33 tokens fit
    assert all(p.grad is None for p in antipasto.vectors.values())


def test_a_row_that_never_fits_asks_for_checkpointing(tried):
    with pytest.raises(BadInput, match=r"--max-new 4: one row of 10 tokens.*--gradient-checkpointing"):
        tried(10**5, each=30_000, token_budget=80)


def test_a_cache_that_does_not_fit_is_refused_with_a_batch_that_does(tried, tiny):
    row = cache_bytes(tiny, 1, 10 + FIXED_ROOM)
    with pytest.raises(BadInput, match=r"--rollout-batch 8: .* 8 rows of 266 tokens.*--rollout-batch 3 fits"):
        tried(int((1000 + 3.5 * row) / 0.95), each=0, rollout_batch=8)


def test_the_formula_of_the_cache_is_what_the_cache_holds(tiny):
    ids = torch.tensor([[5, 6, 7], [8, 9, 10]])
    with torch.no_grad():
        cache = tiny.model(input_ids=ids, use_cache=True).past_key_values
    held = sum(t.numel() * t.element_size() for layer in cache.layers for t in (layer.keys, layer.values))
    assert cache_bytes(tiny, 2, 3) == held
    assert GIB == 2**30
