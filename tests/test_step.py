"""The loop body: what it measures, by hand and against independent computations."""

import pytest
import torch
from conftest import finite, shake

from projected_grpo.ledger.errors import NonFinite
from projected_grpo.ledger.step_file import token_crc
from projected_grpo.losses import nll
from projected_grpo.model.logprobs import completion_logps, token_batch
from projected_grpo.projection import Projection, measure
from projected_grpo.records import Sample
from projected_grpo.step import Learner, Objective, Plumbing, run_step
from projected_grpo.vhack import random_basis

GROUPS = [
    [Sample((5, 6, 7), (20, 21), 3.5, (-7.6, -7.6)), Sample((5, 6, 7), (22, 23, 24), 0.0, (-7.6, -7.6, -7.6))],
    [Sample((8, 9), (25,), 0.5, (-7.6,)), Sample((8, 9), (26, 27, 28, 29), 0.5)],
]
NLL, DR = Objective("nll"), Objective("dr_grpo", max_new=8)


def basis_for(adapter, k=2):
    return {n: random_basis((k, p.numel()), 7, n).to(p.dtype) for n, p in adapter.vectors.items()}


def take(
    loaded, adapter, groups=GROUPS, objective=DR, projection=None, lr=0.1, budget=10_000, max_grad_norm=0.0, **kwargs
):
    optimizer = torch.optim.AdamW(list(adapter.vectors.values()), lr=lr, weight_decay=0.0)
    projection = projection or Projection(basis_for(adapter))
    learner = Learner(loaded.model, adapter, optimizer, max_grad_norm)
    return run_step(learner, groups, objective, projection, Plumbing(loaded.pad_id, budget), step=3, **kwargs)


@pytest.mark.parametrize("kind", ["nll", "dr_grpo", "grpo"])
def test_micro_batches_change_nothing(tiny64, adapter64, kind):
    results = []
    for budget in (10_000, 12, 1):
        shake(adapter64, seed=1)
        before = {n: p.detach().clone() for n, p in adapter64.vectors.items()}
        results.append(take(tiny64, adapter64, objective=Objective(kind, max_new=8), budget=budget, lr=1e-3))
        with torch.no_grad():
            for n, p in adapter64.vectors.items():
                p.copy_(before[n])
        shake(adapter64, seed=1, scale=-0.05)  # back to the start
    for other in results[1:]:
        for a, b in zip(results[0].samples, other.samples, strict=True):
            assert {k: v for k, v in a.items() if v is not None} == pytest.approx(
                {k: v for k, v in b.items() if v is not None}, rel=1e-4, abs=1e-7
            )
        assert results[0].step["cos_in"] == pytest.approx(other.step["cos_in"], rel=1e-4)


def test_cos_s_contrib_by_its_definition(tiny64, adapter64):
    """sum_m sum_i V_mi g_bm / (||g_b|| sqrt(directions)), from one backward per sample."""
    basis = basis_for(adapter64)
    batched = take(tiny64, adapter64, objective=NLL, projection=Projection(basis), lr=0.0)
    for i, sample in enumerate(s for g in GROUPS for s in g):
        single = take(tiny64, adapter64, [[sample]], NLL, Projection(basis), lr=0.0)
        assert batched.samples[i]["cos_S_contrib"] == pytest.approx(
            single.samples[0]["cos_S_contrib"], rel=1e-4, abs=1e-7
        )
        assert batched.samples[i]["grad_norm"] == pytest.approx(single.samples[0]["grad_norm"], rel=1e-4)


def test_cos_s_contrib_along_the_samples_own_gradient_by_hand(tiny, antipasto):
    """V_m = g_m / ||g_m||: sum_m ||g_m|| / (||g|| sqrt(modules)), and minus that against it."""
    got = {}
    sample = GROUPS[0][0]
    without_v = take(tiny, antipasto, [[sample]], NLL, Projection(None), lr=0.0)
    assert without_v.samples[0]["cos_S_contrib"] is None  # nothing is claimed
    with antipasto.per_sample(lambda n, g: got.update({n: g[0].clone()})):
        batch = token_batch([sample.prompt_ids], [sample.completion_ids], tiny.pad_id, "cpu")
        nll(completion_logps(tiny.model, batch), batch.loss_mask).sum().backward()
    norms = {n: float(g.norm()) for n, g in got.items()}
    along = {n: (g / norms[n])[None] for n, g in got.items()}
    expected = sum(norms.values()) / (sum(v * v for v in norms.values()) ** 0.5 * len(norms) ** 0.5)
    for sign in (1.0, -1.0):
        basis = {n: sign * v for n, v in along.items()}
        result = take(tiny, antipasto, [[sample]], NLL, Projection(basis), lr=0.0)
        assert result.samples[0]["cos_S_contrib"] == pytest.approx(sign * expected, rel=1e-4)


def test_vanilla_measures_and_leaves_the_gradient_alone(tiny, antipasto):
    with_v = take(tiny, antipasto, projection=Projection(basis_for(antipasto)))
    moved = {n: p.detach().clone() for n, p in antipasto.vectors.items()}
    with torch.no_grad():
        for p in antipasto.vectors.values():
            p.zero_()
    take(tiny, antipasto, projection=Projection(None))
    assert all(torch.equal(moved[n], p) for n, p in antipasto.vectors.items())
    assert with_v.step["cos_out"] == with_v.step["cos_in"]
    assert with_v.step["frac_fired"] == 0.0


def test_projected_takes_the_hackward_part_out_of_what_the_optimizer_gets(tiny, antipasto, monkeypatch):
    basis = basis_for(antipasto)
    seen = {}
    original = torch.optim.AdamW.step

    def spy(self, *args, **kwargs):
        seen.update({n: p.grad.clone() for n, p in antipasto.vectors.items()})
        return original(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.AdamW, "step", spy)
    result = take(tiny, antipasto, projection=Projection(basis, "grad"))
    assert max(float((basis[n] @ g).max()) for n, g in seen.items()) < 1e-6
    assert result.step["cos_out"] == pytest.approx(measure(seen, basis).cos, abs=1e-9)
    assert result.step["cos_in"] > 0.01
    assert result.step["frac_fired"] > 0.5


def test_the_optimizer_leaks_the_direction_back_and_the_update_target_does_not(tiny, antipasto):
    basis = basis_for(antipasto)
    leaked = take(tiny, antipasto, projection=Projection(basis, "grad", "no_gate")).step
    assert leaked["cos_out"] < 1e-5
    assert leaked["cos_update"] > 0.01  # Adam's preconditioner rotates the step back into V
    with torch.no_grad():
        for p in antipasto.vectors.values():
            p.zero_()
    applied = take(tiny, antipasto, projection=Projection(basis, "update", "no_gate")).step
    assert applied["cos_in"] > 0.01
    assert applied["cos_update"] < 1e-4
    assert applied["cos_out"] < 1e-4


def test_rewards_alone_decide_the_policy_gradient(tiny, antipasto):
    result = take(tiny, antipasto)
    assert [s["advantage"] for s in result.samples] == [1.75, -1.75, 0.0, 0.0]
    assert all(s["cos_S_contrib"] is None for s in result.samples[2:])  # equal rewards: no gradient, nothing claimed
    assert all(finite(s["cos_S_contrib"]) for s in result.samples[:2])


def test_kl_is_null_without_beta_and_runs_no_reference(tiny, antipasto, monkeypatch):
    monkeypatch.setattr(type(antipasto), "disabled", lambda _: pytest.fail("a reference forward ran"))
    assert take(tiny, antipasto).step["kl"] is None


def test_kl_is_zero_at_the_start_and_positive_off_it(tiny, antipasto):
    objective = Objective("dr_grpo", max_new=8, beta=0.1)
    assert take(tiny, antipasto, objective=objective, lr=0.0).step["kl"] == pytest.approx(0.0, abs=1e-7)
    shake(antipasto, scale=0.5)
    assert take(tiny, antipasto, objective=objective, lr=0.0).step["kl"] > 1e-4


def test_loss_tokens_are_taken_from_the_mask_that_the_loss_used(tiny, antipasto):
    for row, sample in zip(take(tiny, antipasto).samples, [s for g in GROUPS for s in g], strict=True):
        assert row["loss_tokens"] == len(sample.completion_ids)
        assert row["loss_tokens_crc"] == token_crc(sample.completion_ids)


def test_without_behaviour_logps_there_is_no_ratio(tiny, antipasto):
    rows = take(tiny, antipasto).samples
    assert rows[3]["ratio"] is None
    assert rows[3]["behaviour_logp"] is None
    assert finite(rows[0]["ratio"])


def test_an_empty_completion_is_survived(tiny, antipasto):
    group = [Sample((5, 6), (), 0.0), Sample((5, 6), (7, 8), 1.0)]
    rows = take(tiny, antipasto, [group]).samples
    assert (rows[0]["logp"], rows[0]["cos_S_contrib"], rows[0]["loss"]) == (None, None, 0.0)


def test_a_nan_gradient_names_step_sample_and_module_and_moves_nothing(tiny, antipasto):
    """The loss stays finite, the backward pass does not."""
    before = {n: p.detach().clone() for n, p in antipasto.vectors.items()}
    layer = list(antipasto.layers.values())[-1]
    layer.register_full_backward_hook(lambda *_: None)
    original = layer.per_sample

    def poisoned(x, g, theta):
        out = original(x, g, theta)
        out[1] = float("nan")
        return out

    layer.per_sample = poisoned
    with pytest.raises(
        NonFinite, match=r"step 3, sample \d: the gradient of model\.layers\.1\.mlp\.down_proj is not finite"
    ):
        take(tiny, antipasto)
    assert all(torch.equal(before[n], p) for n, p in antipasto.vectors.items())


def test_a_nan_loss_names_step_and_sample(tiny, antipasto):
    with torch.no_grad():
        list(antipasto.vectors.values())[-1].fill_(float("nan"))
    with pytest.raises(NonFinite, match=r"step 3, sample \d: the loss is nan"):
        take(tiny, antipasto)


def test_gradient_clipping_is_after_projection(tiny, antipasto, monkeypatch):
    order = []
    original = torch.nn.utils.clip_grad_norm_

    def spy(parameters, norm):
        parameters = list(parameters)
        order.append(max(float((basis[n] @ p.grad).max()) for n, p in antipasto.vectors.items()))
        return original(parameters, norm)

    basis = basis_for(antipasto)
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", spy)
    take(tiny, antipasto, projection=Projection(basis, "grad"), max_grad_norm=0.1)
    assert order
    assert order[0] < 1e-6
