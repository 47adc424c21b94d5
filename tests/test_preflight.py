"""A run whose largest batch does not fit is refused before step 0, with the settings to lower."""

import pytest
import torch

from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.model.load import use_card
from projected_grpo.projection import Projection
from projected_grpo.rollout.sample import Prompt
from projected_grpo.run.policy import Policy
from projected_grpo.run.preflight import check_fits, largest_rows, sample_pass, train_pass
from projected_grpo.step import Objective

PROMPTS = [Prompt("a", "", (5, 6)), Prompt("b", "", (5, 6, 7, 8, 9, 10))]


def test_the_largest_batch_is_the_longest_prompt_with_max_new_tokens():
    for budget, rows in ((1, 1), (20, 2), (30, 3), (10_000, 8)):
        config = TrainConfig(max_new=4, prompts_per_step=2, group_size=4, token_budget=budget)
        batch = largest_rows(PROMPTS, config, 0)
        assert [len(s.prompt_ids) + len(s.completion_ids) for s in batch] == [10] * rows


@pytest.mark.slow
def test_both_passes_run_and_leave_no_gradient(tiny, antipasto):
    config = TrainConfig(max_new=4, prompts_per_step=2, group_size=4)
    optimizer = torch.optim.AdamW(list(antipasto.vectors.values()))
    policy = Policy(config, tiny, antipasto, optimizer, Objective("nll"), Projection())
    rows = largest_rows(PROMPTS, config, tiny.pad_id)
    train_pass(policy, rows)
    sample_pass(policy, config, 2, PROMPTS[0].ids)
    assert all(p.grad is None for p in antipasto.vectors.values())


def test_the_card_that_is_asked_for_is_the_current_one_without_cudnns_attention(monkeypatch):
    """Captures and streams belong to the current card: on another one a recorded graph would be empty, in silence."""
    done = []
    monkeypatch.setattr(torch.cuda, "set_device", done.append)
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", done.append)
    use_card(torch.device("cuda:1"))
    assert done == [torch.device("cuda:1"), False]


def test_what_does_not_fit_is_refused_with_what_to_lower(monkeypatch):
    for name in ("reset_peak_memory_stats", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)

    def work():
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(BadInput, match=r"^sampling does not fit the GPU's memory; lower --group-size$"):
        check_fits(work, torch.device("cpu"), "sampling", "--group-size")
