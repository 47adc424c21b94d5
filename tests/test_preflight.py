"""What would not fit is refused before step 0, with a setting that fits."""

import pytest
import torch

from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.projection import Projection
from projected_grpo.rollout.sample import Prompt
from projected_grpo.run import preflight as module
from projected_grpo.run.preflight import Device, largest_rows, preflight
from projected_grpo.run.session import Session
from projected_grpo.step import Objective

PROMPTS = [Prompt("a", "", (5, 6)), Prompt("b", "", (5, 6, 7, 8, 9, 10))]


class Small(Device):
    """A device of `total` bytes, on which work takes the bytes that `counted` says."""

    def __init__(self, total):
        object.__setattr__(self, "place", torch.device("cpu"))
        self.__dict__.update(bytes=total, used=0)

    def reset(self):
        self.__dict__["used"] = 0

    def peak(self):
        return self.used

    def total(self):
        return self.bytes


@pytest.fixture
def tried(tiny, antipasto, monkeypatch, tmp_path):
    """Run the preflight on a device of a size, where a token of training and one of sampling cost so many bytes."""
    logps_of, sample_tokens = module.logps_of, module.sample_tokens

    def run(total, train=1, sample=1, strict=True, **fields):
        config = TrainConfig(max_new=4, prompts_per_step=2, group_size=4, **fields)
        optimizer = torch.optim.AdamW(list(antipasto.vectors.values()))
        session = Session(config, "train", tmp_path, tiny, antipasto, optimizer, Objective("nll"), Projection())
        device = Small(total)

        def use(used):
            device.__dict__["used"] = used
            if strict and used > total:
                raise torch.OutOfMemoryError("CUDA out of memory")

        def counted_logps(model, batch, temperature):
            use(train * batch.input_ids.numel())
            return logps_of(model, batch, temperature)

        def counted_sampling(loaded, prompts, group_size, params, keys):
            use(sample * group_size * sum(len(ids) + params.max_new for ids in prompts))
            return sample_tokens(loaded, prompts, group_size, params, keys)

        monkeypatch.setattr(module, "logps_of", counted_logps)
        monkeypatch.setattr(module, "sample_tokens", counted_sampling)
        preflight(session, config, PROMPTS, device)

    return run


def test_the_largest_batch_is_the_longest_prompt_with_max_new_tokens():
    config = TrainConfig(max_new=4, prompts_per_step=2, group_size=4)
    for budget, rows in ((1, 1), (20, 2), (30, 3), (10_000, 8)):
        batch = largest_rows(PROMPTS, config, budget, 0)
        assert [len(s.prompt_ids) + len(s.completion_ids) for s in batch] == [10] * rows


def test_rows_a_little_shorter_that_fill_the_budget_better_are_tried_instead():
    """19 tokens hold one row of 10 or two of 9, which a run meets as well."""
    config = TrainConfig(max_new=4, prompts_per_step=2, group_size=4)
    for budget, rows in ((19, [9, 9]), (29, [9, 9, 9])):
        batch = largest_rows(PROMPTS, config, budget, 0)
        assert [len(s.prompt_ids) + len(s.completion_ids) for s in batch] == rows
        assert {s.prompt_ids for s in batch} == {(5, 6, 7, 8, 9)}


def test_what_fits_passes_and_leaves_no_gradient(tried, antipasto):
    tried(10**9)
    assert all(p.grad is None for p in antipasto.vectors.values())


@pytest.mark.parametrize("strict", [True, False], ids=["out of memory", "beyond the margin"])
def test_a_token_budget_that_does_not_fit_is_refused_with_one_that_does(tried, strict, antipasto):
    with pytest.raises(BadInput, match=r"--token-budget 80: .* rows of up to 10 tokens.*--token-budget 30 does"):
        tried(10**6, train=30_000, token_budget=80, strict=strict)  # 33 tokens fit
    assert all(p.grad is None for p in antipasto.vectors.values())


def test_a_row_that_never_fits_asks_for_checkpointing(tried):
    with pytest.raises(BadInput, match=r"--max-new 4: one row of 10 tokens.*--gradient-checkpointing"):
        tried(10**5, train=30_000, token_budget=80)


def test_a_rollout_batch_that_does_not_fit_is_refused_with_one_that_does(tried):
    with pytest.raises(BadInput, match=r"--rollout-batch 8: sampling 8 rows of 10 tokens.*--rollout-batch 4 does"):
        tried(10**6, sample=20_000, rollout_batch=8)  # 50 tokens fit


def test_a_group_that_does_not_fit_asks_for_a_smaller_one(tried):
    with pytest.raises(BadInput, match=r"--group-size 4: .*lower --group-size or --max-new"):
        tried(10**6, sample=30_000, rollout_batch=8)
