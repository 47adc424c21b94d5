"""All channels in a run: what each learns from, ablations, resume, what is told, what is refused."""

import dataclasses
import math
from functools import partial

import pytest
import torch
from harness import by_autograd, cut_after, run_script, shake
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from test_signals import ROWS, assert_same, gradient, plain_logits, step_of

from projected_grpo.adapters import attach_antipasto
from projected_grpo.channels import taid
from projected_grpo.channels.auxiliary import ActionPair, Taid
from projected_grpo.channels.hint_distill import OPSD, SDPO
from projected_grpo.channels.trace_dpo import DPO, SIMPO
from projected_grpo.config import TrainConfig
from projected_grpo.data.preferences import MAJORITY, Preferences, StoredPair, read_preferences, write_preferences
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.ledger.step_file import read_run
from projected_grpo.model.learner import Learner
from projected_grpo.model.logprobs import two_sided
from projected_grpo.presets import presets
from projected_grpo.records import Group, Outcome, Rollout
from projected_grpo.run.auxiliary_losses import AuxiliaryLosses, after_peer
from projected_grpo.worlds.builtin import pool_pairs
from projected_grpo.worlds.models import load_model

TINY = presets(TrainConfig)["tiny"]
CHAT = (("user", "Write a program and should pass all tests."),)


@pytest.fixture(scope="module")
def pairs_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    pairs = [StoredPair(f"t{i}", 0, 3, 2, MAJORITY, CHAT, f"print({i})", "pass") for i in range(5)]
    write_preferences(path, Preferences(tuple(pairs), 6, 6))
    return path


# ---------------------------------------------------------------- the collator


IDS = st.lists(st.integers(0, 9), max_size=5).map(tuple)
PROMPT = st.lists(st.integers(0, 9), min_size=1, max_size=6).map(tuple)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(PROMPT, PROMPT, IDS, IDS), min_size=1, max_size=6), st.integers(1, 60))
def test_every_row_is_collated_once_as_it_is(rows, budget):
    """Pad is a token that occurs in prompts and completions: masks come from lengths alone."""
    first, second = ([(r[i], r[2 + i]) for r in rows] for i in (0, 1))
    seen = []
    for chosen, one, other in two_sided(first, second, budget, 3, torch.device("cpu")):
        seen += chosen
        for sides, batch in ((first, one), (second, other)):
            assert batch.loss_token_ids() == [list(sides[i][1]) for i in chosen]
            for i, ids in zip(chosen, batch.input_ids.tolist(), strict=True):
                whole = [*sides[i][0], *sides[i][1]]
                assert ids == [*whole, *([3] * (len(ids) - len(whole)))]
        width = max(len(one.input_ids[0]), len(other.input_ids[0]))
        assert len(chosen) == 1 or 2 * width * len(chosen) <= budget
    assert sorted(seen) == list(range(len(rows)))


# ---------------------------------------------------------------- TAID


def plain_taid(model, teacher, t):
    """By its definition, a row at a time: the mean over tokens of the cross-entropy to the target at t."""
    total = 0.0
    for row in ROWS:
        own = plain_logits(model, row.prompt_ids, row.completion_ids)
        with torch.no_grad():
            theirs = plain_logits(teacher, row.prompt_ids, row.completion_ids)
        target = ((1 - t) * own.detach() + t * theirs).softmax(-1)
        total = total - (target * own.log_softmax(-1)).sum()
    return total / sum(len(row.completion_ids) for row in ROWS)


@pytest.mark.slow
def test_taid_in_the_loop_is_its_definition_a_row_at_a_time(tiny64, cache):
    """Micro-batches of one row too; one row is empty."""
    teacher = load_model("tiny", "float32", "cpu", 41, cache, "tiny").model.double()
    adapter = attach_antipasto(tiny64.model)
    shake(adapter, seed=1)
    rows = [dataclasses.replace(row, hinted_ids=row.prompt_ids) for row in ROWS]
    before = gradient(tiny64, adapter)
    with by_autograd(adapter):
        loss = plain_taid(tiny64.model, teacher, 0.4)
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
    fresh = AuxiliaryLosses(config)
    fresh.restore(AuxiliaryLosses(config).state())
    assert math.isnan(fresh.progress.previous_loss)
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


def peers(tiny, **options):
    """Hint distillation from a paid peer."""
    config = dataclasses.replace(TINY, alpha=1.0, distill_hint="peer", hint="none", **options)
    return AuxiliaryLosses(config, hinted=partial(after_peer, tiny, {"p": pool_pairs()[0].problem.messages}))


def test_a_peer_is_the_first_other_attempt_that_was_paid_whatever_its_labels(tiny):
    auxiliary = peers(tiny)
    group = group_of(tiny, (3.5, 0.5, 1.0, 3.5), ("student", "student", "teacher", "student"))
    [signal] = auxiliary.at(0, [group])
    read = [tiny.tokenizer.decode(row.hinted_ids) for row in signal.rows]
    assert ["# attempt 2" in read[0], "# attempt 0" in read[1], "# attempt 0" in read[2]] == [True] * 3
    assert all("Correct solution:\n\n# attempt" in text for text in read)
    assert [row.prompt_ids for row in signal.rows] == [(5, 6)] * 3
    unpaid = group_of(tiny, (0.5, 0.5), ("student", "student"))
    assert auxiliary.at(0, [unpaid])[0].rows == []
    alone = group_of(tiny, (3.5, 0.5), ("student", "student"))
    assert [row.completion_ids for row in auxiliary.at(0, [alone])[0].rows] == [alone.rollouts[1].completion_ids]


def test_rows_without_a_demonstration_count_in_the_mean(tiny):
    """TRL masks them and divides by all (sdpo_trainer.py, loss.mean()): else few successes make the channel heavy."""
    [signal] = peers(tiny, distill_loss="sdpo").at(0, [group_of(tiny, (3.5, 0.5, 0.5), ("student",) * 3)])
    assert (len(signal.rows), signal.asked) == (2, 3)
    adapter = attach_antipasto(tiny.model)
    learner = Learner(tiny.model, adapter, torch.optim.SGD(adapter.vectors.values()), tiny.pad_id, 1000)
    three, two = (
        sum(float(o.loss.detach()) for o in dataclasses.replace(signal, asked=n).losses(learner)) for n in (3, 0)
    )
    assert three == pytest.approx(two * 2 / 3, rel=1e-5)
    assert two != 0


@pytest.mark.parametrize(
    ("changed", "options"),
    [
        ({"alpha": 1.0, "distill_hint": "peer"}, OPSD),
        ({"alpha": 1.0, "distill_hint": "peer", "distill_loss": "sdpo", "temperature": 1.0}, SDPO),
        ({"trace_weight": 1.0}, DPO),
        ({"trace_weight": 1.0, "trace_loss": "simpo"}, SIMPO),
    ],
)
def test_upstreams_options_are_the_defaults(changed, options):
    auxiliary = AuxiliaryLosses(dataclasses.replace(TINY, **changed), pairs=[ActionPair((1,), (2,), (3,))])
    [loss] = auxiliary.at(0, [])
    assert loss.options == options


# ---------------------------------------------------------------- runs


ALL = (
    "--alpha", "2", "--distill-hint", "none", "--trace-weight", ".5", "--trace-batch", "3", "--taid-weight", ".25",
    "--teacher", "tiny", "--mix", "teacher=.5,base=.25", "--teacher-pool", "pairs", "--max-new", "8",
)  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory, cache, vhack_file, pairs_file):
    """Two steps with every channel on and rows of every source, whole, and cut after one."""
    home = tmp_path_factory.mktemp("runs")
    train = ("train", "tiny", *ALL, "--trace-pairs", pairs_file, "--arm", "projected", "--vhack", vhack_file(), "--steps", 2,
             "--cache", cache)  # fmt: skip
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
    one, other = (
        [{k: v for k, v in row.items() if k != "timing"} for rows in read_run(home / name) for row in rows]
        for name in ("whole", "cut")
    )
    assert one == other
    # Tensor by tensor: a file's metadata are in another order each time that it is written.
    whole, cut = (load_file(home / name / "adapter.safetensors") for name in ("whole", "cut"))
    assert whole.keys() == cut.keys()
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"alpha": 0.5}, "--alpha 0.5 needs another hint"),
        ({"alpha": 0.5, "distill_hint": "simple_overwrite_tests"}, "needs another hint than"),
        ({"trace_weight": 0.5}, r"--trace-pairs \.: none given"),
        ({"taid_weight": 1.0, "teacher": ""}, "--taid-weight 1: needs a teacher"),
        ({"alpha": -1.0}, "--alpha -1.0: must be 0 or more"),
        ({"alpha": 1.0, "distill_hint": "none", "teacher_pool": "pairs", "mix": "teacher=1"}, "leaves none"),
    ],
)  # fmt: skip
def test_a_channel_without_what_it_needs_is_one_line(values, why):
    with pytest.raises(BadInput, match=why) as refused:
        dataclasses.replace(TINY, **values).validate()
    assert "\n" not in str(refused.value)
