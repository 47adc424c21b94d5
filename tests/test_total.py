"""All channels in a run: what each learns from, ablations, resume, what is told, what is refused."""

import dataclasses
import math
from functools import partial
from pathlib import Path

import pytest
import torch
from harness import POOLED, by_autograd, cut_after, refused, run_script, shake
from safetensors.torch import load_file
from signals import ROWS, assert_same, gradient, plain_logits, step_of

from projected_grpo.adapters.antipasto import attach_antipasto
from projected_grpo.channels import taid
from projected_grpo.channels.auxiliary import ActionPair, Taid
from projected_grpo.channels.hint_distill import OPSD, SDPO
from projected_grpo.channels.trace_dpo import DPO, SIMPO
from projected_grpo.config import TrainConfig
from projected_grpo.data.pairs import pool_pairs
from projected_grpo.data.preferences import MAJORITY, Preferences, StoredPair, read_preferences, write_preferences
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import open_run, read_manifest
from projected_grpo.ledger.step_file import read_run
from projected_grpo.ledger.step_log import without_gradient
from projected_grpo.model.learner import Learner
from projected_grpo.presets import presets
from projected_grpo.records import Group, Outcome, Rollout
from projected_grpo.report.compare import first_difference
from projected_grpo.run.auxiliary_losses import AuxiliaryLosses, after_peer
from projected_grpo.worlds.models import load_model

TINY = presets(TrainConfig)["tiny"]


@pytest.fixture(scope="module")
def pairs_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    chat = (("user", "Write a program and should pass all tests."),)
    pairs = [StoredPair(f"t{i}", 0, 3, 2, MAJORITY, chat, f"print({i})", "pass") for i in range(5)]
    write_preferences(path, Preferences(tuple(pairs), 6, 6))
    return path


# ---------------------------------------------------------------- TAID


@pytest.mark.slow
def test_taid_in_the_loop_is_its_definition_a_row_at_a_time(tiny64, cache):
    """The mean over tokens of the cross-entropy to the target at .4. Micro-batches of one row too; one row is
    empty."""
    teacher = load_model("tiny", "float32", "cpu", 41, cache, "tiny").model.double()
    adapter = attach_antipasto(tiny64.model)
    shake(adapter, seed=1)
    rows = [dataclasses.replace(row, hinted_ids=row.prompt_ids) for row in ROWS]
    before, loss = gradient(tiny64, adapter), torch.zeros(())
    with by_autograd(adapter):
        for row in ROWS:
            ours, theirs = (plain_logits(m, row.prompt_ids, row.completion_ids) for m in (tiny64.model, teacher))
            target = (0.6 * ours + 0.4 * theirs).softmax(-1).detach()
            loss = loss - (target * ours.log_softmax(-1)).sum() / sum(len(row.completion_ids) for row in ROWS)
        own = torch.autograd.grad(loss, list(adapter.vectors.values()))
    expected = {name: g + 0.5 * mine for (name, g), mine in zip(before.items(), own, strict=True)}
    for budget in (10_000, 1):
        assert_same(expected, gradient(tiny64, adapter, [Taid(0.5, rows, teacher, 0.4)], budget=budget))
    told = step_of(tiny64, adapter, [Taid(0.5, rows, teacher, 0.4)]).step["channels"]["taid"]
    assert told["loss"] == pytest.approx(float(loss.detach()), rel=1e-6)
    assert told["rows"] == 3


def test_the_target_moves_as_upstream_moves_it_and_a_checkpoint_keeps_where_it_is():
    config = dataclasses.replace(TINY, taid_weight=1.0, teacher="tiny", steps=10)
    auxiliary = AuxiliaryLosses(config)
    expected = taid.Progress(taid.Schedule().t_start)
    for step, loss in enumerate((5.0, 4.0, 4.5)):
        told = {"taid": {"loss": loss, "rows": 2.0}}
        auxiliary.after(step, told)
        assert told["taid"]["t"] == expected.t
        expected = taid.advance(expected, taid.Schedule(), loss, step, 10)
        again = AuxiliaryLosses(config)
        again.restore(auxiliary.state())
        assert again.progress == auxiliary.progress == expected
    auxiliary.after(3, {"taid": {"loss": 0.0, "rows": 0.0}})  # a step in which nothing was distilled moves nothing
    assert auxiliary.progress == expected


# ---------------------------------------------------------------- what a hint's teacher reads


def group_of(tiny, rewards, sources):
    ids = tiny.text_ids("x = 1")
    rollouts = tuple(
        Rollout("p", i, source, "?", f"# attempt {i}", (5, 6), ids, False, (-1.0,) * len(ids))
        for i, source in enumerate(sources)
    )
    return Group("p", rollouts, rewards, (Outcome(True, True, True, None),) * len(rewards))


def peers(tiny, rewards, sources, **options):
    """A group, and hint distillation from a paid peer at it."""
    config = dataclasses.replace(TINY, alpha=1.0, distill_hint="peer", hint="none", **options)
    auxiliary = AuxiliaryLosses(
        config, hinted=partial(after_peer, tiny, {"p": pool_pairs("builtin")[0].problem.messages})
    )
    group = group_of(tiny, rewards, sources)
    return group, auxiliary.at(0, [group])[0]


def test_a_peer_is_the_first_other_attempt_that_was_paid_whatever_its_labels(tiny):
    _, signal = peers(tiny, (3.5, 0.5, 1.0, 3.5), ("student", "student", "teacher", "student"))
    read = [tiny.tokenizer.decode(row.hinted_ids) for row in signal.rows]
    assert ["# attempt 2" in read[0], "# attempt 0" in read[1], "# attempt 0" in read[2]] == [True] * 3
    assert all("Correct solution:\n\n# attempt" in text for text in read)
    assert [row.prompt_ids for row in signal.rows] == [(5, 6)] * 3
    assert peers(tiny, (0.5, 0.5), ("student",) * 2)[1].rows == []
    alone, signal = peers(tiny, (3.5, 0.5), ("student",) * 2)
    assert [row.completion_ids for row in signal.rows] == [alone.rollouts[1].completion_ids]


def test_rows_without_a_demonstration_count_in_the_mean(tiny):
    """TRL masks them and divides by all (sdpo_trainer.py, loss.mean()): else few successes make the channel heavy."""
    _, signal = peers(tiny, (3.5, 0.5, 0.5), ("student",) * 3, distill_loss="sdpo")
    assert (len(signal.rows), signal.asked) == (2, 3)
    adapter = attach_antipasto(tiny.model)
    learner = Learner(tiny.model, adapter, torch.optim.SGD(adapter.vectors.values()), tiny.pad_id, 1000)
    three, two = (
        sum(float(o.loss.detach()) for o in dataclasses.replace(signal, asked=n).losses(learner)) for n in (3, 0)
    )
    assert three == pytest.approx(two * 2 / 3, rel=1e-5)
    assert two != 0


def test_upstreams_options_are_the_defaults():
    peer = {"alpha": 1.0, "distill_hint": "peer"}
    for changed, options in (
        (peer, OPSD),
        ({**peer, "distill_loss": "sdpo", "temperature": 1.0}, SDPO),
        ({"trace_weight": 1.0}, DPO),
        ({"trace_weight": 1.0, "trace_loss": "simpo"}, SIMPO),
    ):
        auxiliary = AuxiliaryLosses(dataclasses.replace(TINY, **changed), pairs=[ActionPair((1,), (2,), (3,))])
        assert auxiliary.at(0, [])[0].options == options


# ---------------------------------------------------------------- runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory, cache, vhack_file, pairs_file):
    """Two steps with every channel on and rows of every source, whole, and cut after one."""
    home = tmp_path_factory.mktemp("runs")
    train = (
        "train", "tiny", "--alpha", "2", "--distill-hint", "none", "--trace-weight", ".5", "--trace-batch", "3",
        "--trace-pairs", pairs_file, "--taid-weight", ".25", "--teacher", "tiny", "--mix", "teacher=.5,base=.25",
        "--teacher-pool", "pairs", "--max-new", 8, "--arm", "projected", "--vhack", vhack_file(), "--steps", 2,
        "--loss", "dppo", "--cache", cache,
    )  # fmt: skip
    assert run_script(*train, "--out", home / "whole") == 0
    with cut_after(1):
        assert run_script(*train, "--out", home / "cut") == 130
    state = torch.load(home / "cut/checkpoint.pt", weights_only=True)
    assert run_script(*train, "--out", home / "cut", "--resume") == 0
    return home, state


@pytest.mark.slow
def test_every_channel_learns_in_a_run_and_says_so(runs, pairs_file):
    home, _ = runs
    steps = read_run(home / "whole")
    for rows in steps:
        told = rows[0]["channels"]
        assert list(told) == ["policy", "hint_distill", "trace_dpo", "taid"]
        students = sum(r["source"] == "student" for r in rows)
        assert [told[name]["rows"] for name in ("hint_distill", "trace_dpo", "taid")] == [students, 3, students]
        assert sum(of["share"] for of in told.values()) == pytest.approx(1.0, abs=1e-5)
        for name, of in told.items():
            assert of["grad_norm"] > 0, name
            assert 0 < of["removed"] <= 1, name
            assert of["removed"] == pytest.approx(of["energy"], abs=1e-5), name  # no_gate takes all of it
        assert told["policy"]["loss"] == pytest.approx(sum(r["loss"] for r in rows), abs=1e-6)
        assert any(r["cos_S_contrib"] is not None for r in rows)  # the policy's rows are measured as ever
    assert steps[0][0]["channels"]["trace_dpo"]["loss"] == pytest.approx(math.log(2))
    assert steps[0][0]["channels"]["taid"]["t"] == pytest.approx(0.4)
    manifest = read_manifest(home / "whole")
    assert manifest["pairs_sha256"] == read_preferences(pairs_file).sha256
    assert manifest["taid_teacher_hash"] != manifest["model_hash"]


@pytest.mark.slow
def test_a_run_with_every_channel_goes_on_bit_for_bit(runs):
    home, state = runs
    assert set(state["auxiliary"]) == {"taid"}
    assert state["basis"] == {}  # V is in its file; test_refresh_and_evaluation resumes one that was extracted again
    assert first_difference(home / "whole", home / "cut") == ""
    # Tensor by tensor: a file's metadata are in another order each time that it is written.
    whole, cut = (load_file(home / name / "adapter.safetensors") for name in ("whole", "cut"))
    assert whole.keys() == cut.keys()
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [0, 1])
def test_a_run_that_is_cut_before_a_checkpoint_was_due_goes_on(script, steps):
    train = ("train", "tiny", *POOLED, "--steps", 2, "--checkpoint-every", 9)
    assert script(*train, "--out", "whole")[0] == 0
    with cut_after(steps):
        assert script(*train, "--out", "cut")[0] == 130
    if not steps:  # what a kill leaves that comes with the manifest
        Path("cut/checkpoint.pt").unlink()
    assert script(*train, "--out", "cut", "--resume")[0] == 0
    assert first_difference(Path("whole"), Path("cut")) == ""


@pytest.mark.slow
def test_a_finished_run_is_made_longer_to_the_bits_of_a_long_one(script, tmp_path, projected, vhack_file):
    train = ("train", "tiny", "--arm", "projected", "--vhack", vhack_file(), *POOLED, "--out", "run")
    assert script(*train, "--steps", 2)[0] == 0
    refused(script(*train, "--steps", 1, "--resume"), "--steps 1: run has done 2; give 2 or more")
    assert script(*train, "--steps", 4, "--resume")[0] == 0
    assert first_difference(projected(), tmp_path / "run") == ""
    whole, longer = (load_file(run / "adapter.safetensors") for run in (projected(), tmp_path / "run"))
    assert all(torch.equal(whole[name], longer[name]) for name in whole)
    manifest = read_manifest(tmp_path / "run")
    assert (manifest["config"]["steps"], manifest["steps_done"], manifest["finished"]) == (4, 4, True)


# ---------------------------------------------------------------- what is refused


def test_steps_on_which_taids_target_depends_stay_as_they_were(tmp_path):
    config = dataclasses.replace(TINY, taid_weight=1.0, teacher="tiny", steps=2)
    open_run(tmp_path / "run", "train", config)
    with pytest.raises(BadInput, match=r"--steps 4: .*run has 2, which --meet and --taid-weight need; repeat it"):
        open_run(tmp_path / "run", "train", dataclasses.replace(config, steps=4), resume=True)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"alpha": 0.5}, "--alpha 0.5 needs another hint"),
        ({"alpha": 0.5, "distill_hint": "simple_overwrite_tests"}, "needs another hint than"),
        ({"trace_weight": 0.5}, r"--trace-pairs \.: is no file"),
        ({"taid_weight": 1.0, "teacher": ""}, "--taid-weight 1: needs a teacher"),
        ({"alpha": -1.0}, "--alpha -1.0: must be 0 or more"),
    ],
)  # fmt: skip
def test_a_channel_without_what_it_needs_is_one_line(values, why):
    with pytest.raises(BadInput, match=why) as refused:
        dataclasses.replace(TINY, **values).validate()
    assert "\n" not in str(refused.value)


def test_a_channel_that_was_never_on_is_named():
    """A run in which no peer was ever paid ended green without a word."""
    first, second = (
        {"channels": {name: {"grad_norm": norm} for name, norm in norms.items()}}
        for norms in ({"policy": 0.5, "hint_distill": None, "taid": 0.0}, {"policy": None, "taid": 1e-9})
    )
    assert without_gradient([first]) == ["hint_distill", "taid"]
    assert without_gradient([first, second]) == ["hint_distill"]
    assert without_gradient([{"channels": None}]) == []
