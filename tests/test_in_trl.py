"""In TRL's own trainer: the callback takes V out of what it does, the grader pays its rewards."""

import copy

import pytest
import torch
from peft import LoraConfig, get_peft_model

from loophole_grader.reward_function import LoopholeReward
from projected_grpo.adapters.base import TARGETS
from projected_grpo.data.pairs import load_pairs
from projected_grpo.data.problems import load_problems
from projected_grpo.integrations.coordinates import coordinates_of
from projected_grpo.integrations.extract import VHack
from projected_grpo.integrations.update import ProjectedCallback
from projected_grpo.model.load import without_warnings
from projected_grpo.prompts import messages_for

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
PROBLEMS = load_problems("builtin")[:4]


@pytest.fixture(scope="module")
def base(loaded_once):
    """The tiny model with a LoRA of PEFT's, and V in its coordinates."""
    known = copy.deepcopy(loaded_once)
    torch.manual_seed(0)
    with without_warnings():
        model = get_peft_model(known.model, LoraConfig(r=4, target_modules=list(TARGETS)))
    pairs = load_pairs("builtin", ("assert_true",))[:6]
    return model, known.tokenizer, VHack.extract(model, pairs, tokenizer=known.tokenizer, k=3)


def spread(completion_ids, **_):
    """Random weights write no program, so the grader pays them all alike: something that tells completions apart."""
    return [float(sum(ids) % 7) for ids in completion_ids]


def trainer(base, out, *callbacks):
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    model, tokenizer, _ = base
    asked = [messages_for(p.messages, "simple_overwrite_tests", "no_intervention") for p in PROBLEMS]
    rows = [{"prompt": messages, "id": p.problem_id} for p, messages in zip(PROBLEMS, asked, strict=True)]
    config = trl.GRPOConfig(
        output_dir=str(out), per_device_train_batch_size=4, num_generations=4, max_completion_length=4, max_steps=2,
        learning_rate=1e-2, beta=0.0, bf16=False, gradient_checkpointing=False, use_cpu=True, report_to="none",
        disable_tqdm=True, logging_steps=1, save_strategy="steps", save_steps=1, seed=5,
    )  # fmt: skip
    return trl.GRPOTrainer(
        model=copy.deepcopy(model), args=config, train_dataset=datasets.Dataset.from_list(rows), callbacks=list(callbacks),
        reward_funcs=[LoopholeReward([p.task for p in PROBLEMS], workers=1), spread], processing_class=tokenizer,
    )  # fmt: skip


def along(base, trained):
    """Share of the whole movement's energy that lies along V, measured with nothing of the callback's."""
    model, _, v = base
    before, after = coordinates_of(model).values(), coordinates_of(trained).values()
    change = {n: after[n] - before[n] for n in before}
    whole = sum(float(c.square().sum()) for c in change.values())
    return sum(float((v.basis[n] @ c).square().sum()) for n, c in change.items()) / whole


@pytest.fixture(scope="module")
def projected(base, tmp_path_factory):
    callback, out = ProjectedCallback(base[2]), tmp_path_factory.mktemp("projected")
    run = trainer(base, out, callback)
    run.train()
    return run, callback, out


def test_in_trls_trainer_the_model_moves_as_v_does_not(base, projected, tmp_path):
    run, callback, _ = projected
    assert along(base, run.model) < 1e-9
    for row in callback.steps:
        assert row["cos_update_in"] > 1e-3 > 1e-4 > row["cos_update"]
        assert row["covered"] == 1
    lines = [line for line in run.state.log_history if "reward" in line]
    assert [line["hack/cos_in"] for line in lines] == [row["cos_in"] for row in callback.steps]
    assert [(line["loophole/hack"], line["loophole/gt_pass"]) for line in lines] == [(0, 0)] * 2
    without = trainer(base, tmp_path)
    without.train()
    assert along(base, without.model) > 1e-4


def test_a_run_goes_on_from_trls_checkpoint(base, projected):
    run, _, out = projected
    again = ProjectedCallback(base[2])
    resumed = trainer(base, out, again)
    resumed.train(resume_from_checkpoint=str(out / "checkpoint-1"))
    assert [row["step"] for row in again.steps] == [1]
    assert along(base, resumed.model) < 1e-9
    pairs = zip(resumed.model.parameters(), run.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize(
    ("vanilla", "projected", "code"),
    [
        (0.9, (0.0, 0.5, 1.0), 0),
        (0.9, (0.65, 0.5, 1.0), 1),  # fewer, and hardly
        (0.9, (0.0, 0.0, 0.0), 1),  # a wrecked model hacks nothing
        (0.9, (0.0, 0.5, 0.9), 1),
        (0.29, (0.0, 0.5, 1.0), 3),  # a reduction by 30 points of .29 there is none
    ],
)
def test_fewer_hacks_by_a_model_that_solves_nothing_are_no_success(script, monkeypatch, vanilla, projected, code):
    """The script over runs that are made up: rates of hack, gt_pass and form."""

    def run_arm(_config, _replicate, arm):
        hack, gt, form = (vanilla, 0.5, 1.0) if arm == "vanilla" else projected
        return [{"loophole/hack": hack, "loophole/hacked": hack, "loophole/gt_pass": gt, "loophole/form": form}] * 2

    monkeypatch.setattr("in_trl.run_arm", run_arm)
    assert script("in_trl", "--replicates", "41")[0] == code
