"""Each channel's loss and gradient against upstream's own numbers, to 1e-9 in float64. Where a case says what a
common mistake gives, the channel is not that."""

import dataclasses
import pkgutil
from types import SimpleNamespace

import pytest
import torch
from harness import tensor

from projected_grpo.channels.dppo import dppo
from projected_grpo.channels.hint_distill import Distillation, divergence, hint_distill
from projected_grpo.channels.policy import policy_loss
from projected_grpo.channels.taid import Progress, Schedule, advance, taid
from projected_grpo.channels.trace_dpo import Preference, Scored, trace_dpo
from projected_grpo.model.logprobs import token_logps

CLOSE = {"rtol": 1e-9, "atol": 1e-12}
FAMILIES = {
    "trl_bnpo": 4, "trl_dapo": 4, "prime_rl_default": 3, "prime_rl_compute_loss": 1, "opsd_generalized_jsd": 4,
    "opsd_compute_loss": 1, "trl_gkd_generalized_jsd": 3, "trl_sdpo": 2, "trl_dpo_sigmoid": 1, "simpo": 1, "taid": 1,
}  # fmt: skip
DPPO = ("dppo_mask_low", "dppo_mask_high", "adv_tau", "kl_tau")


def logits(nested):
    return tensor(nested).requires_grad_(True)


def ids(nested):
    return tensor(nested, torch.long)


def agrees(loss, case, inputs, grad="grad_student_logits", atol=1e-12):
    """Loss and gradient are the case's, and no known mistake's."""
    loss.backward()
    torch.testing.assert_close(loss.item(), case["expected"]["loss"], **CLOSE)
    torch.testing.assert_close(inputs.grad, tensor(case["expected"][grad]), rtol=1e-9, atol=atol)
    right = case["expected"]["loss"]
    for name, wrong in case["expected"].items():
        if name.startswith("WRONG_") and abs(wrong - right) > 1e-6:
            assert abs(loss.item() - wrong) > 1e-6, name


def test_every_case_of_the_file_is_compared(golden_channels):
    """A family without a test below would be a number that nothing is held to."""
    assert {name: len(family["cases"]) for name, family in golden_channels.items()} == FAMILIES


def policy_of(case, kind, **more):
    """A policy loss with the numbers of a case, and the log-probabilities that it is of."""
    data, p = case["inputs"], case["params"]
    logps, mask = logits(data["per_token_logps"]), tensor(data["completion_mask"]).bool()
    if "tool_mask" in data:
        mask = mask & tensor(data["tool_mask"]).bool()
    old, low = data["old_per_token_logps"], p.get("epsilon_low", p.get("cliprange"))
    terms = policy_loss(
        logps, mask, tensor(data["advantages"]).flatten(), kind=kind, rows=len(mask),
        max_new=p.get("max_completion_length", p.get("generate_max_length")),
        behaviour_logps=None if old is None else tensor(old),
        ref_logps=tensor(data["ref_per_token_logps"]) if p["beta"] else None, beta=p["beta"],
        bias_corrected_kl=p.get("use_bias_correction_kl", False), clip_low=low, clip_high=p.get("epsilon_high", low), **more,
    )  # fmt: skip
    return terms, logps


@pytest.mark.parametrize(
    ("group", "kind", "n"),
    [("trl_grpo", "grpo", 5), ("trl_dr_grpo", "dr_grpo", 5), ("dr_grpo_oat", "dr_grpo", 1), ("trl_bnpo", "bnpo", 4),
     ("trl_dapo", "dapo", 4)],
)  # fmt: skip
def test_policy_equals_trl_and_oat(golden, golden_channels, group, kind, n):
    cases = {**golden["losses"], **golden_channels}[group]["cases"]
    assert len(cases) >= n
    for case in cases:
        data = case["inputs"]
        assert all(m == 1 for m in data.get("loss_masks", ()))
        tokens = data["num_items_in_batch"] if kind == "dapo" else int(tensor(data["completion_mask"]).sum())
        terms, logps = policy_of(case, kind, tokens=tokens)
        agrees(terms.per_sample.sum(), case, logps, "grad_per_token_logps")


def test_the_kl_equals_trls(golden):
    case = golden["losses"]["trl_grpo"]["cases"][0]
    tokens = int(tensor(case["inputs"]["completion_mask"]).sum())
    assert policy_of(case, "grpo")[0].kl_sum / tokens == pytest.approx(case["expected"]["metrics"]["kl"], rel=1e-6)


def test_equals_simple_grpo_from_logits(golden):
    """Their loss starts at the logits: token_logps (identity head) and policy_loss together must give theirs."""
    for case in golden["losses"]["simple_grpo"]["cases"]:
        i, p = case["inputs"], case["params"]
        full = logits(i["logits"])
        tokens = ids(i["input_ids"])
        b, t, v = full.shape
        logps = token_logps(full[:, :-1].reshape(-1, v), torch.eye(v, dtype=full.dtype), tokens[:, 1:].reshape(-1))
        logps = logps.view(b, t - 1)[:, p["plen"] - 1 :]
        torch.testing.assert_close(logps.detach(), tensor(case["expected"]["per_token_logps"]), rtol=1e-12, atol=1e-12)
        terms = policy_loss(
            logps, tensor(i["completion_mask"]).bool(), tensor(i["advantages"]).flatten(),
            kind="grpo", rows=b, max_new=1, behaviour_logps=tensor(i["gen_logps"]),
            ref_logps=tensor(i["ref_per_token_logps"]), beta=p["beta"],
            clip_low=p["clip_param"], clip_high=p["clip_param"],
        )  # fmt: skip
        agrees(terms.per_sample.sum(), case, full, "grad_logits")


def sequence(data):
    """prime-rl's LossInputs (src/prime_rl/trainer/rl/loss.py:14-29 at 559b447) of one sequence."""
    return SimpleNamespace(
        trainer_logprobs=logits(data["trainer_logprobs"]), inference_logprobs=tensor(data["inference_logprobs"]),
        ref_logprobs=None, advantages=tensor(data["advantages"]), loss_mask=tensor(data["loss_mask"]).bool(),
        loss_weights=None,
    )  # fmt: skip


@pytest.mark.parametrize("i", range(3))
def test_dppo_equals_prime_rl(golden_channels, i):
    case = golden_channels["prime_rl_default"]["cases"][i]
    packed = sequence(case["inputs"])
    out = dppo(packed, **{name: case["params"][name] for name in DPPO})
    agrees(out.loss, case, packed.trainer_logprobs, "grad_trainer_logprobs")
    for name, expected in case["expected"]["metrics"].items():
        assert out.metrics[name].item() == pytest.approx(expected, rel=1e-6), name


WEIGHTED = {
    "trainer_logprobs": [-0.5, -1.0, -0.2, -3.0], "inference_logprobs": [-0.9, -1.0, -2.0, -1.0],
    "advantages": [1.0, -0.5, 2.0, -1.0], "loss_mask": [1] * 4,
}  # fmt: skip
"""A token that is kept, one at ratio 1, one dropped upwards, one dropped downwards."""
WEIGHTS = [2.0, 0.5, 1.0, 3.0]
BY_UPSTREAM = (-1.1776493952825406, [-2.8236493952825406, 0.25, 0.36, -1.2])
"""By executing setup_rl_loss_fn(DefaultLossConfig(kl_tau=.1)) of prime-rl 559b447: loss and its gradient."""


def test_dppo_is_a_custom_loss_of_prime_rl_as_it_stands():
    """The import path that docs/channels.md names, set up as `setup_rl_loss_fn` does (loss.py:262-272) and called
    with the fields of upstream's LossInputs, its weights among them."""
    loss_fn = pkgutil.resolve_name("projected_grpo.channels.dppo.dppo")
    inputs = sequence(WEIGHTED)
    inputs.loss_weights = tensor(WEIGHTS)
    out = loss_fn(inputs, kl_tau=0.1)
    out.loss.backward()
    assert {f.name for f in dataclasses.fields(out)} == {"loss", "metrics"}
    torch.testing.assert_close(out.loss.item(), BY_UPSTREAM[0], **CLOSE)
    torch.testing.assert_close(inputs.trainer_logprobs.grad.tolist(), BY_UPSTREAM[1], **CLOSE)


def test_packed_dppo_equals_prime_rls_compute_loss(golden_channels):
    [case] = golden_channels["prime_rl_compute_loss"]["cases"]
    packed = [sequence(data) for data in case["inputs"]["sequences"]]
    outputs = [dppo(s, **{name: case["params"][name] for name in DPPO}) for s in packed]
    loss = torch.stack([out.loss for out in outputs]).sum() / case["params"]["rl_scale"]
    loss.backward()
    torch.testing.assert_close(loss.item(), case["expected"]["loss"], **CLOSE)
    for s, grad in zip(packed, case["expected"]["grad_trainer_logprobs"], strict=True):
        torch.testing.assert_close(s.trainer_logprobs.grad, tensor(grad), **CLOSE)
    for name, expected in case["expected"]["metrics_stacked"].items():
        found = [out.metrics[name].item() for out in outputs]
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("family", "i"),
    [("opsd_generalized_jsd", i) for i in range(4)] + [("trl_gkd_generalized_jsd", i) for i in range(3)],
)
def test_hint_distill_equals_opsd_and_gkd(golden_channels, family, i):
    case = golden_channels[family]["cases"][i]
    data, p = case["inputs"], case["params"]
    student, labels = logits(data["student_logits"]), ids(data["labels"])
    options = Distillation(
        beta=float(p["beta"]), temperature=p["temperature"], token_clip=p.get("token_clip"), top_k=p.get("top_k")
    )
    whole = p.get("num_items_in_batch")
    out = hint_distill(student, tensor(data["teacher_logits"]), labels != -100, labels, options, whole=whole)
    agrees(out.loss, case, student)


def test_the_divergence_before_the_clip_equals_opsds(golden_channels):
    case = golden_channels["opsd_generalized_jsd"]["cases"][3]
    data, mask = case["inputs"], tensor(case["inputs"]["labels"]) != -100
    both = (tensor(data[f"{who}_logits"])[mask] for who in ("student", "teacher"))
    expected = tensor(case["expected"]["per_token_divergence_unclipped"])
    torch.testing.assert_close(divergence(*both, Distillation(beta=0.0)), expected, **CLOSE)


def test_hint_distill_over_two_contexts_equals_opsds_compute_loss(golden_channels):
    """The teacher's prompt is longer: position p - 1 predicts the first token of the completion in each."""
    [case] = golden_channels["opsd_compute_loss"]["cases"]
    data, p = case["inputs"], case["params"]
    full = logits(data["student_logits_full"])
    student = full[:, p["student_prompt_length"] - 1 : -1]
    teacher = tensor(data["teacher_logits_full"])[:, p["teacher_prompt_length"] - 1 : -1]
    labels = ids(data["labels_full"])[:, p["student_prompt_length"] :]
    options = Distillation(beta=p["beta"], temperature=p["temperature"])
    agrees(hint_distill(student, teacher, labels != -100, labels, options).loss, case, full, "grad_student_logits_full")


@pytest.mark.parametrize("i", range(2))
def test_hint_distill_equals_sdpo(golden_channels, i):
    case = golden_channels["trl_sdpo"]["cases"][i]
    data, p = case["inputs"], case["params"]
    student, old = logits(data["student_logits"]), data["old_per_token_logps"]
    options = Distillation(
        mode="sampled_token" if p["distillation_mode"] == "sampled_token" else "vocabulary",
        beta=p["distillation_alpha"], importance_cap=p["distillation_is_clip"], average="sequences",
    )  # fmt: skip
    out = hint_distill(
        student, tensor(data["teacher_logits"]), tensor(data["loss_mask"]).bool(), ids(data["completion_ids"]), options,
        behaviour_logps=None if old is None else tensor(old),
    )  # fmt: skip
    agrees(out.loss, case, student)


def chosen_logps(found, input_ids):
    return found[:, :-1].log_softmax(-1).gather(-1, input_ids[:, 1:, None]).squeeze(-1)


def halves(*tensors):
    return zip(*(t.chunk(2) for t in tensors), strict=True)


def test_trace_dpo_equals_trls_dpo(golden_channels):
    [case] = golden_channels["trl_dpo_sigmoid"]["cases"]
    data, expected = case["inputs"], case["expected"]
    policy, tokens = logits(data["policy_logits"]), ids(data["input_ids"])
    mask = tensor(data["completion_mask"])[:, 1:].bool()
    logps, ref = chosen_logps(policy, tokens), chosen_logps(tensor(data["ref_logits"]), tokens)
    chosen, rejected = (Scored(*side) for side in halves(logps, mask, ref))
    torch.testing.assert_close(chosen.total(), tensor(expected["policy_seq_logps"][:2]), **CLOSE)
    out = trace_dpo(chosen, rejected, Preference(beta=case["params"]["beta"]))
    agrees(out.loss, case, policy, "grad_policy_logits")
    assert out.metrics["margin"].item() == pytest.approx(expected["rewards_margins_mean"], rel=1e-9)
    assert out.metrics["accuracy"].item() == expected["rewards_accuracies_mean"]


def test_trace_dpo_equals_simpo(golden_channels):
    [case] = golden_channels["simpo"]["cases"]
    data, p, expected = case["inputs"], case["params"], case["expected"]
    policy, tokens = logits(data["policy_logits"]), ids(data["input_ids"])
    mask = tensor(data["labels"])[:, 1:] != -100
    chosen, rejected = (Scored(*side) for side in halves(chosen_logps(policy, tokens), mask))
    torch.testing.assert_close(chosen.mean(), tensor(expected["avg_logps"][:2]), **CLOSE)
    options = Preference("simpo", p["beta"], p["gamma_beta_ratio"])
    agrees(trace_dpo(chosen, rejected, options).loss, case, policy, "grad_policy_logits")


def test_taid_equals_upstream(golden_channels):
    [case] = golden_channels["taid"]["cases"]
    data = case["inputs"]
    student = logits(data["student_logits"])
    out = taid(student, tensor(data["teacher_logits"]), tensor(data["mask"]).bool(), case["params"]["t"])
    agrees(out.loss, case, student)


@pytest.mark.parametrize("i", range(4))
def test_the_way_of_t_equals_upstream(golden_channels, i):
    case = golden_channels["taid"]["update_t_traces"][i]
    p = case["params"]
    schedule = Schedule(p["t_start"], p["t_end"], p["alpha"], p["beta"], adaptive=not p["disable_adaptive"])
    progress = Progress(schedule.t_start)
    for seen in case["trace"]:
        progress = advance(progress, schedule, seen["loss"], seen["global_step"], p["num_train_steps"])
        assert progress.t == pytest.approx(seen["t_after"], rel=1e-9)
        assert progress.momentum == pytest.approx(seen["momentum"], rel=1e-9, abs=1e-15)
        assert progress.previous_loss == seen["loss"]
