"""The loop body: what it measures, by hand and against independent computations."""

from dataclasses import replace

import pytest
import torch
from harness import by_autograd, measure, put, shake, theta_of
from steps_of import GROUPS, NLL, basis_for, take

from projected_grpo import step as step_module
from projected_grpo.channels.policy import advantages, nll, policy_loss
from projected_grpo.ledger.errors import NonFinite
from projected_grpo.measures import Rows
from projected_grpo.model.logprobs import token_batch
from projected_grpo.projection import Projection
from projected_grpo.records import Sample
from projected_grpo.step import Objective


def rows_with_a_graph(monkeypatch):
    """Prompts of the rows whose log-probabilities are taken with a graph, as the step goes."""
    seen = []
    original = step_module.completion_logps

    def spy(model, batch, temperature):
        if torch.is_grad_enabled():
            seen.extend(t[m].tolist() for t, m in zip(batch.targets, batch.loss_mask, strict=True))
        return original(model, batch, temperature)

    monkeypatch.setattr(step_module, "completion_logps", spy)
    return seen


@pytest.mark.parametrize(("kind", "whole"), [("grpo", True), ("dapo", False)])
def test_a_flat_group_takes_no_backward_pass_and_nothing_changes_by_that(tiny64, adapter64, monkeypatch, kind, whole):
    """Nor in a step of flat groups alone, where momentum and decay go on: a gradient of zeros is not the same as
    none, which AdamW passes over."""
    learned, samples, start = [], [], theta_of(adapter64)
    for skips in (True, False):
        put(adapter64, start)
        optimizer = torch.optim.AdamW(list(adapter64.vectors.values()), lr=0.1, weight_decay=0.3)
        with monkeypatch.context() as patch:
            if not skips:
                patch.setattr(step_module, "zero_gradient_rows", lambda *_: frozenset())
            for groups in (GROUPS, GROUPS[1:]):
                seen = rows_with_a_graph(patch)
                how = {"objective": Objective(kind, max_new=8), "optimizer": optimizer, "per_sample": whole}
                samples.append(take(tiny64, adapter64, groups, **how).samples)
                learned.append(theta_of(adapter64))
                assert ([25] in seen) is not skips  # of the second group, whose rewards are equal
                assert ([20, 21] in seen) == (groups == GROUPS)
    for step in (0, 1):
        for name, p in learned[step].items():
            torch.testing.assert_close(p, learned[step + 2][name], rtol=1e-6, atol=1e-9)
        for one, other in zip(samples[step], samples[step + 2], strict=True):
            assert [k for k, v in one.items() if v is None] == [k for k, v in other.items() if v is None]
            known = {k: v for k, v in one.items() if v is not None}
            assert known == pytest.approx({k: other[k] for k in known}, rel=1e-6, abs=1e-9)
    assert all(not torch.equal(p, learned[0][name]) for name, p in learned[1].items())


def test_a_step_without_a_gradient_shows_none(tiny, antipasto):
    projection = Projection(basis_for(antipasto), "grad", "one_sided")
    optimizer = torch.optim.AdamW(list(antipasto.vectors.values()), lr=0.1)
    for groups in (GROUPS, GROUPS[1:]):
        found = take(tiny, antipasto, groups, projection=projection, optimizer=optimizer).step
    assert (found["cos_in"], found["cos_out"]) == (None, None)
    assert found["cos_update"] is not None  # momentum moves it on


def test_vanilla_measures_and_leaves_the_gradient_alone(tiny, antipasto):
    """Equal rewards have no gradient; of the last row the sampler's log-probabilities are not known."""
    with_v = take(tiny, antipasto, projection=Projection(basis_for(antipasto)))
    assert [s["advantage"] for s in with_v.samples] == [1.75, -1.75, 0.0, 0.0]
    assert [s["cos_S_contrib"] is None for s in with_v.samples] == [False, False, True, True]
    assert [s["ratio"] is None for s in with_v.samples] == [False, False, False, True]
    moved = theta_of(antipasto)
    put(antipasto)
    without_v = take(tiny, antipasto, projection=Projection())
    assert without_v.samples[0]["cos_S_contrib"] is None  # nothing is claimed
    assert all(torch.equal(moved[n], p) for n, p in antipasto.vectors.items())
    assert with_v.step["cos_out"] == pytest.approx(with_v.step["cos_in"], rel=1e-4)
    assert with_v.step["frac_fired"] == 0.0


def test_projected_takes_the_hackward_part_out_of_what_is_clipped_and_the_optimizer_gets(tiny, antipasto, monkeypatch):
    basis, seen, used = basis_for(antipasto), {}, {}
    clip, step = torch.nn.utils.clip_grad_norm_, torch.optim.AdamW.step

    def clipped(*args):
        seen.update({n: p.grad.clone() for n, p in antipasto.vectors.items()})
        return clip(*args)

    def stepped(self, *args, **kwargs):
        used.update({n: p.grad.clone() for n, p in antipasto.vectors.items()})
        return step(self, *args, **kwargs)

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", clipped)
    monkeypatch.setattr(torch.optim.AdamW, "step", stepped)
    result = take(tiny, antipasto, projection=Projection(basis, "grad"), max_grad_norm=0.1)
    for gradient in (seen, used):
        assert max(float((basis[n] @ g).max()) for n, g in gradient.items()) < 1e-6
    length, bounded = (float(torch.cat(list(g.values())).norm()) for g in (seen, used))
    assert bounded == pytest.approx(min(length, 0.1), rel=1e-4)
    assert result.step["cos_out"] == pytest.approx(measure(seen, basis).cos, abs=1e-6)
    assert result.step["cos_in"] > 0.01
    assert result.step["frac_fired"] > 0.5


@pytest.mark.parametrize("target", ["grad", "update"])
@pytest.mark.parametrize("gate", ["no_gate", "one_sided"])
def test_what_was_removed_is_read_from_what_was_used_and_the_optimizer_leaks_it_back(tiny, antipasto, target, gate):
    basis = basis_for(antipasto)
    step = take(tiny, antipasto, projection=Projection(basis, target, gate), max_grad_norm=1e-3).step
    assert step["target"] == target
    assert step["removed_share"] == pytest.approx(1, abs=1e-2)
    assert step["frac_removed"] == 1
    assert step["update_norm"] > 0
    if target == "update":
        assert step["update_removed"] > 1e-3
        assert step["cos_out"] == pytest.approx(step["cos_in"])  # the gradient was left alone
    if gate == "no_gate":
        assert step["cos_out" if target == "grad" else "cos_update"] < 1e-4
        assert step["cos_in" if target == "grad" else "cos_update_in"] > 0.01
        assert (step["cos_update"] > 0.01) == (target == "grad")  # Adam's preconditioner rotates the step back into V


def test_a_step_that_removes_or_moves_next_to_nothing_shows(tiny, antipasto):
    shake(antipasto, seed=1)
    basis = basis_for(antipasto)
    step = take(tiny, antipasto, projection=Projection(basis, "update", overshoot=1e-4)).step
    assert step["removed_share"] == pytest.approx(1e-4, rel=0.1)
    assert step["frac_removed"] == 0
    step = take(tiny, antipasto, projection=Projection(basis, "update"), lr=1e-30).step
    assert (step["update_norm"], step["removed_share"], step["cos_update"]) == (0, None, None)


def test_the_shrunk_update_is_as_short_as_the_projected_one_and_keeps_its_direction(tiny, antipasto):
    basis, ends = basis_for(antipasto, k=20), {}
    for how in ({}, {"shrink": True}):
        put(antipasto)
        step = take(tiny, antipasto, projection=Projection(basis, "update", **how)).step
        ends[bool(how)] = theta_of(antipasto)
    for n, short in ends[True].items():
        assert float(short.norm()) == pytest.approx(float(ends[False][n].norm()), rel=1e-3)
    assert step["cos_update"] == pytest.approx(step["cos_update_in"], rel=1e-3)


@pytest.mark.parametrize("budget", [10_000, 12])
@pytest.mark.parametrize("objective", [NLL, Objective("grpo", temperature=0.7, beta=0.1)])
def test_per_sample_gradients_are_those_of_single_backward_passes(tiny64, adapter64, objective, budget):
    """One batched pass, and micro-batches, against autograd through the plain model, full logits, a sample at a
    time."""
    shake(adapter64, seed=1)
    basis = basis_for(adapter64)
    step = take(tiny64, adapter64, objective=objective, projection=Projection(basis), lr=0.0, budget=budget)
    found, whole = step.samples, dict.fromkeys(basis, 0.0)
    samples = [s for g in GROUPS for s in g]
    rewards = torch.tensor([[s.reward for s in g] for g in GROUPS])
    usual = [0.0] * 4 if objective.kind == "nll" else advantages(rewards, objective.kind).flatten().tolist()
    for sample, advantage, row in zip(samples, usual, found, strict=True):
        batch = token_batch([sample.prompt_ids], [sample.completion_ids], tiny64.pad_id, "cpu")

        def logps(batch=batch):
            logits = tiny64.model(input_ids=batch.input_ids, use_cache=False).logits[:, :-1] / objective.temperature
            return logits.log_softmax(-1).gather(-1, batch.targets[..., None]).squeeze(-1)

        with by_autograd(adapter64):
            if objective.kind == "nll":
                loss = nll(logps(), batch.loss_mask).sum()
            else:
                with torch.no_grad(), adapter64.disabled():
                    ref = logps()
                old = logps().detach()
                if sample.behaviour_logps:
                    old[batch.loss_mask] = torch.tensor(sample.behaviour_logps, dtype=old.dtype)
                loss = policy_loss(
                    logps(), batch.loss_mask, torch.tensor([advantage]), kind=objective.kind, rows=4, max_new=8,
                    behaviour_logps=old, ref_logps=ref, beta=objective.beta,
                ).per_sample.sum()  # fmt: skip
            grads = torch.autograd.grad(loss, list(adapter64.vectors.values()))
        whole = {name: whole[name] + g for name, g in zip(basis, grads, strict=True)}
        norm = float(torch.cat(grads).norm())
        assert row["grad_norm"] == pytest.approx(norm, rel=1e-4, abs=1e-12)
        if norm > 0:
            along = sum(float((v @ g).sum()) for v, g in zip(basis.values(), grads, strict=True))
            directions = sum(len(v) for v in basis.values())
            assert row["cos_S_contrib"] == pytest.approx(along / (norm * directions**0.5), abs=1e-6)
    assert step.step["cos_in"] == pytest.approx(measure(whole, basis).cos, rel=1e-4)


def test_the_smallest_ratio_and_the_share_at_a_clip_bound_by_hand():
    """Ratios .5, .8, 1, 1.2 and 3 with the clip at .8 and 1.2: at or beyond it are all but 1, four of five tokens."""
    behaviour = torch.full((1, 5), -1.0)
    logps = torch.tensor([[0.5, 0.8, 1.0, 1.2, 3.0]]).log() - 1
    ids = (2, 3, 4, 5, 6)
    batch = token_batch([(1,)], [ids], 0, "cpu")
    rows = Rows([Sample((1,), ids, 1.0, (-1.0,) * 5, "teacher")], {}, torch.zeros(1))
    terms = policy_loss(
        logps, batch.loss_mask, torch.ones(1), kind="grpo", rows=1, max_new=5, behaviour_logps=behaviour
    )
    rows.add([0], batch, logps, behaviour, terms, None)
    assert rows.columns[0]["at_clip"] == pytest.approx(4 / 5)
    assert rows.columns[0]["ratio_low"] == pytest.approx(0.5, rel=1e-5)


def test_kl_is_zero_at_the_start_and_positive_off_it_and_without_beta_runs_no_reference(tiny, antipasto, monkeypatch):
    objective = Objective("dr_grpo", max_new=8, beta=0.1)
    assert take(tiny, antipasto, objective=objective, lr=0.0).step["kl"] == pytest.approx(0.0, abs=1e-7)
    shake(antipasto, scale=0.5)
    assert take(tiny, antipasto, objective=objective, lr=0.0).step["kl"] > 1e-4
    monkeypatch.setattr(type(antipasto), "disabled", lambda _: pytest.fail("a reference forward ran"))
    own = [[replace(s, source="student") for s in group] for group in GROUPS]
    assert take(tiny, antipasto, own).step["kl"] is None


def test_an_empty_completion_is_survived(tiny, antipasto):
    group = [Sample((5, 6), (7, 8), 1.0), Sample((5, 6), (), 0.0)]
    for budget in (10_000, 4):  # with the other one, and alone in its pass, with nothing to go back
        empty = take(tiny, antipasto, [group], budget=budget).samples[1]
        assert (empty["logp"], empty["cos_S_contrib"], empty["loss"]) == (None, None, 0.0)


def test_a_nan_gradient_or_loss_names_step_sample_and_module_and_moves_nothing(tiny, antipasto):
    """The loss stays finite, the backward pass does not; then the loss is not, either."""
    before, layer = theta_of(antipasto), list(antipasto.layers.values())[-1]
    with pytest.MonkeyPatch.context() as patch:
        right = layer.per_sample
        patch.setattr(layer, "per_sample", lambda *args: right(*args).index_fill(0, torch.tensor(1), torch.nan))
        with pytest.raises(
            NonFinite, match=r"step 3, sample \d: the gradient of model.*1\.mlp\.down_proj is not finite"
        ):
            take(tiny, antipasto)
    assert all(torch.equal(before[n], p) for n, p in antipasto.vectors.items())
    with torch.no_grad():
        layer.theta.fill_(torch.nan)
    with pytest.raises(NonFinite, match=r"step 3, sample \d: the loss is nan"):
        take(tiny, antipasto)
