"""Channels beside the policy in the loop: without weight they are not there, with one they teach what they should."""

import pytest
import torch
from harness import by_autograd, measure, put, shake, theta_of
from signals import ROWS, assert_same, gradient, plain_logits, step_of
from steps_of import GROUPS, basis_for

from projected_grpo import step as step_module
from projected_grpo.channels.auxiliary import ActionPair, HintDistill, Taid, TraceDPO
from projected_grpo.channels.hint_distill import SDPO, Distillation
from projected_grpo.channels.policy import advantages
from projected_grpo.channels.trace_dpo import SIMPO, Preference
from projected_grpo.ledger.errors import NonFinite
from projected_grpo.projection import Projection
from projected_grpo.step import Objective

PAIRS = (ActionPair((5, 6), (30, 31, 32), (33,)), ActionPair((7,), (34,), (35, 36)))
HINT, TRACE = HintDistill(0.5, ROWS), TraceDPO(0.25, PAIRS, Preference(beta=2.0))


def test_without_weight_the_step_is_plain_grpo_bit_for_bit(tiny, antipasto, monkeypatch):
    monkeypatch.setattr(step_module, "accumulate", lambda *_: pytest.fail("a channel of weight 0 was computed"))
    shake(antipasto, seed=1)
    start, seen = theta_of(antipasto), []
    for signals in ((), [HintDistill(0.0, ROWS), TraceDPO(0.0, PAIRS), Taid(0.0, ROWS, None, 0.4)]):
        put(antipasto, start)
        optimizer = torch.optim.AdamW(list(antipasto.vectors.values()), lr=0.1)
        result = step_of(tiny, antipasto, signals, optimizer=optimizer)
        seen.append((theta_of(antipasto), {k: v for k, v in result.step.items() if k != "timing"}, result.samples))
    (there, *plain), (here, *off) = seen
    assert all(torch.equal(there[name], here[name]) for name in there)
    assert plain == off
    assert plain[0]["channels"] is None


# ---------------------------------------------------------------- the gradient, against the plainest computation


def plain_logp(model, prompt, completion):
    logps = plain_logits(model, prompt, completion).log_softmax(-1)
    return logps[range(len(completion)), list(completion)].sum()


def plain_hint(loaded, _):
    """beta 1/2, by its definition: the mean over tokens of the two KLs to the mixture."""
    total = 0.0
    for row in ROWS:
        p = plain_logits(loaded.model, row.prompt_ids, row.completion_ids).softmax(-1)
        with torch.no_grad():
            q = plain_logits(loaded.model, row.hinted_ids, row.completion_ids).softmax(-1)
        m = (p + q) / 2
        total = total + ((p * (p / m).log()).sum() + (q * (q / m).log()).sum()) / 2
    return total / sum(len(row.completion_ids) for row in ROWS)


def plain_dpo(loaded, adapter):
    total = 0.0
    for pair in PAIRS:
        sides = []
        for ids in (pair.chosen_ids, pair.rejected_ids):
            with torch.no_grad(), adapter.disabled():
                ref = plain_logp(loaded.model, pair.prompt_ids, ids)
            sides.append(plain_logp(loaded.model, pair.prompt_ids, ids) - ref)
        total = total - torch.sigmoid(2.0 * (sides[0] - sides[1])).log()
    return total / len(PAIRS)


def test_the_total_gradient_is_the_weighted_sum(tiny64, adapter64):
    shake(adapter64, seed=1)
    policy = gradient(tiny64, adapter64)
    expected, vectors = policy, list(adapter64.vectors.values())
    with by_autograd(adapter64):
        for weight, loss in ((0.5, plain_hint), (0.25, plain_dpo)):
            own = torch.autograd.grad(loss(tiny64, adapter64), vectors)
            expected = {n: e + weight * g for (n, e), g in zip(expected.items(), own, strict=True)}
    found = gradient(tiny64, adapter64, [HINT, TRACE])
    for name, g in found.items():
        torch.testing.assert_close(g, expected[name], rtol=1e-6, atol=1e-9)
    assert any(float((g - policy[n]).norm()) > 1e-6 for n, g in found.items())


def per_token(kind):
    return Objective(kind, max_new=8, clip_low=1.0, clip_high=1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        {"signals": [HintDistill(0.5, ROWS, SDPO), TraceDPO(0.25, PAIRS, SIMPO)]},
        {"signals": [HintDistill(0.5, ROWS, Distillation(top_k=3), "base")]},
        {"objective": per_token("dapo")},
        {"objective": per_token("dppo")},
    ],
)
def test_micro_batches_change_nothing(tiny64, antipasto64, how):
    shake(antipasto64, seed=1)
    assert_same(*(gradient(tiny64, antipasto64, budget=budget, **how) for budget in (10_000, 1)))


# ---------------------------------------------------------------- what is told


def test_each_channel_is_measured_against_v_by_itself(tiny64, antipasto64):
    shake(antipasto64, seed=1)
    basis = basis_for(antipasto64)
    told = step_of(tiny64, antipasto64, [HINT, TRACE], projection=Projection(basis)).step["channels"]
    assert list(told) == ["policy", "hint_distill", "trace_dpo"]
    alone = gradient(tiny64, antipasto64)
    for name, signal in (("hint_distill", HINT), ("trace_dpo", TRACE)):
        both = gradient(tiny64, antipasto64, [signal])
        own = {n: both[n] - alone[n] for n in both}
        seen = measure(own, basis)
        assert told[name]["cos"] == pytest.approx(seen.cos, rel=1e-5)
        assert told[name]["cos_signed"] == pytest.approx(seen.cos_signed, rel=1e-4)
        assert told[name]["energy"] == pytest.approx(seen.energy, rel=1e-5)
        assert told[name]["grad_norm"] == pytest.approx(float(torch.cat(list(own.values())).norm()), rel=1e-5)
        assert told[name]["weight"] == signal.weight
    assert told["policy"]["cos"] == pytest.approx(measure(alone, basis).cos, rel=1e-5)
    assert told["trace_dpo"]["loss"] == pytest.approx(float(plain_dpo(tiny64, antipasto64).detach()), rel=1e-6)
    assert told["hint_distill"]["loss"] == pytest.approx(float(plain_hint(tiny64, antipasto64).detach()), rel=1e-6)


def test_v_is_measured_on_the_sum_and_taken_out_of_it(tiny64, antipasto64):
    shake(antipasto64, seed=1)
    basis = basis_for(antipasto64)
    whole = measure(gradient(tiny64, antipasto64, [HINT, TRACE]), basis)
    found = step_of(tiny64, antipasto64, [HINT, TRACE], projection=Projection(basis)).step["cos_in"]
    assert found == pytest.approx(whole.cos, rel=1e-5)
    left = gradient(tiny64, antipasto64, [HINT, TRACE], projection=Projection(basis, "grad", "no_gate"))
    assert measure(left, basis).energy < 1e-12 < whole.energy


# ---------------------------------------------------------------- what they learn


def test_the_base_teacher_stays_what_it_was(tiny64, antipasto64):
    """Of a model whose adapter is off the teacher does not move with the student; at its start the two are one."""
    kinds = [HintDistill(1.0, ROWS, teacher=t) for t in ("live", "base")]
    at_start, moved = [], []
    for found in (at_start, moved):
        for signal in kinds:
            found.append(step_of(tiny64, antipasto64, [signal]).step["channels"]["hint_distill"]["loss"])
        shake(antipasto64, seed=2, scale=0.3)
    assert at_start[0] == pytest.approx(at_start[1], rel=1e-9)
    assert abs(moved[0] - moved[1]) > 1e-6


def test_every_token_of_a_step_weighs_the_same(tiny64, antipasto64):
    shake(antipasto64, seed=1)
    a = advantages(torch.tensor([[s.reward for s in GROUPS[0]]]), "dapo")[0]
    rows = step_of(tiny64, antipasto64, objective=per_token("dapo")).samples
    assert rows[0]["loss"] == pytest.approx(-float(a[0]) * min(rows[0]["ratio"], 2.0) * 2 / 10, rel=1e-4)


# ---------------------------------------------------------------- what is refused


def test_a_channel_that_is_not_finite_is_named_and_moves_nothing(tiny, antipasto):
    before = theta_of(antipasto)
    with pytest.raises(NonFinite, match="step 3, channel trace_dpo: the loss is nan"):
        step_of(tiny, antipasto, [TraceDPO(1.0, PAIRS, Preference(beta=1e308))], lr=1.0)
    assert all(torch.equal(before[n], p) for n, p in antipasto.vectors.items())
