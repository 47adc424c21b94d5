"""What would not fit is refused before step 0, with a setting that fits."""

import pytest
import torch

from projected_grpo.config import TrainConfig
from projected_grpo.fits.counter import LiveStorage
from projected_grpo.ledger.errors import BadInput
from projected_grpo.projection import Projection
from projected_grpo.rollout.sample import Prompt
from projected_grpo.run import preflight as module
from projected_grpo.run.preflight import Device, largest_pass, largest_rows, predicted_pass, preflight
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
def test_what_does_not_fit_is_refused_with_a_budget_that_does(tried, strict, antipasto):
    with pytest.raises(BadInput, match=r"--token-budget 80: .* rows of up to 10 tokens.*--token-budget 30 does"):
        tried(10**6, each=30_000, token_budget=80, strict=strict)  # 33 tokens fit
    assert all(p.grad is None for p in antipasto.vectors.values())


def test_a_row_that_never_fits_asks_for_checkpointing(tried):
    with pytest.raises(BadInput, match=r"--max-new 4: one row of 10 tokens.*--gradient-checkpointing"):
        tried(10**5, each=30_000, token_budget=80)


@pytest.fixture
def sampled(monkeypatch):
    """What is predicted of sampling: 8 rows take so many bytes above 500 that are there before."""
    monkeypatch.setattr(
        module, "predicted_sampling", lambda _session, _config, prompt: (8, 500, 500 + 8 * 100 * prompt)
    )


@pytest.mark.usefixtures("sampled")
def test_a_rollout_batch_that_does_not_fit_is_refused_with_one_that_does(tried):
    with pytest.raises(BadInput, match=r"--rollout-batch 8: sampling 8 rows of 10 tokens.*--rollout-batch 4 fits"):
        tried(int((1000 + 4.5 * 600) / 0.95) + 1, each=0, rollout_batch=8)  # the longest prompt: 6 tokens


@pytest.mark.usefixtures("sampled")
def test_less_than_a_group_is_not_advised(tried):
    """A batch holds one group at least: the same refusal would come again."""
    with pytest.raises(BadInput, match=r"sampling 8 rows of 10 tokens.*lower --max-new or --group-size$"):
        tried(int((1000 + 3.5 * 600) / 0.95) + 1, each=0, rollout_batch=8)


@pytest.mark.usefixtures("sampled")
def test_what_is_predicted_stands_beside_what_was_measured(tried, monkeypatch):
    """Above what the device holds: a prediction knows nothing of what else is on it."""
    told = []
    monkeypatch.setattr(module.logger, "info", told.append)
    monkeypatch.setattr(module, "predicted_pass", lambda *_: (7 * 2**30, 10 * 2**30))
    tried(2**40, each=2**30)
    assert "8 rows of 10 tokens: peak 80.00 GiB measured, 3.00 predicted, of 1024.0;" in told[-1]


def test_the_prediction_is_of_the_pass_that_is_tried(tiny, antipasto, tmp_path):
    """The same pass over real tensors, counted storage by storage: within a tenth, and more rows take more."""
    config = TrainConfig(max_new=40, prompts_per_step=2, group_size=4)
    unused = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    session = Session(config, "train", tmp_path, tiny, antipasto, unused, Objective("nll"), Projection())
    peaks = []
    for many in (2, 8):
        rows = largest_rows([Prompt("a", "", (5,) * 60)], config, 100 * many, 0)
        with LiveStorage([*tiny.model.parameters(), *tiny.model.buffers()]) as counter:
            largest_pass(tiny, antipasto, config, rows, torch.device("cpu"))
        antipasto.zero_grad()
        peaks.append(counter.peak)
        assert predicted_pass(session, config, rows)[1] == pytest.approx(counter.peak, rel=0.1)
    assert peaks[1] > 2 * peaks[0]
