"""The evil expert: a mixture of delta_S with a router of the prompt, against the plain adapter and autograd."""

import copy
from dataclasses import replace

import pytest
import torch
from harness import by_autograd, put, shake, theta_of
from steps_of import DR, basis_for
from torch.func import functional_call

from projected_grpo.channels.policy import policy_loss
from projected_grpo.config import TrainConfig
from projected_grpo.interventions.base import Intervention, Setup
from projected_grpo.interventions.experts import Experts, on_singular_directions
from projected_grpo.ledger.errors import BadInput
from projected_grpo.model.learner import Learner
from projected_grpo.model.logprobs import token_batch
from projected_grpo.presets import presets
from projected_grpo.projection import Projection
from projected_grpo.records import Sample
from projected_grpo.run.intervening import intervention_for, prompt_state_of
from projected_grpo.step import run_step

GROUPS = [
    [Sample((5, 6, 7), (20, 21), 3.5, (-7.6, -7.6)), Sample((5, 6, 7), (22, 23, 24), 0.0, (-7.6, -7.6, -7.6))],
    [Sample((8, 9), (25,), 0.5, (-7.6,)), Sample((8, 9), (26, 27, 28, 29), 2.0, (-7.6,) * 4)],
]


class One(Experts):
    """A mixture of one expert, which starts at zero with a teacher that is the model."""

    EXPERTS = 1


def mixture(loaded, adapter, scale=0.0, change=None, arm="experts", page=Experts):
    """An intervention; the teacher's change is given, or `scale` times a fixed random one."""
    g = torch.Generator().manual_seed(3)
    change = change or {
        n: scale * torch.randn(layer.weight.shape, generator=g).to(layer.weight) for n, layer in adapter.layers.items()
    }
    given = {"teacher": change, "prompt_state": prompt_state_of(loaded, adapter, 99)}
    return page(Setup(arm, 41, "antipasto", coordinates=adapter.vectors, model=loaded.model, **given))


def steps(loaded, adapter, intervention, groups, n=1, decay=0.3, clip=0.5, **more):
    optimizer = torch.optim.AdamW(list(adapter.vectors.values()), lr=0.05, betas=(0.9, 0.95), weight_decay=decay)
    learner = Learner(loaded.model, adapter, optimizer, loaded.pad_id, 10_000, clip)
    projection = Projection(basis_for(adapter))
    return [run_step(learner, groups, DR, projection, step=i, intervention=intervention, **more) for i in range(n)]


def test_one_expert_is_the_ordinary_adapter_bit_for_bit(tiny, antipasto):
    """Three steps with clipping, decay and Adam's moments: the same theta and the same columns."""
    groups = [GROUPS[0]]
    plain, theta = steps(tiny, antipasto, Intervention(), groups, 3), theta_of(antipasto)
    put(antipasto)
    mixed = steps(tiny, antipasto, mixture(tiny, antipasto, page=One), groups, 3)
    assert all(float(t.abs().max()) > 0 for t in theta.values())
    assert all(torch.equal(theta[name], p) for name, p in antipasto.vectors.items())
    for a, b in zip(plain, mixed, strict=True):
        assert a.samples == b.samples
        assert {**a.step, "timing": 0} == {**b.step, "timing": 0}


def test_the_experts_and_the_routers_gradients_are_autograds_of_the_mixtures_definition(
    tiny64, antipasto64, monkeypatch
):
    """theta(p) = w(p) D built anew inside autograd, a forward pass a sample, against what the loop collects."""
    page = mixture(tiny64, antipasto64, scale=0.02)
    g = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for p in page.trained.values():
            p.add_(0.02 * torch.randn(p.shape, generator=g, dtype=p.dtype))
    found = {}

    def update(update, _):
        found.update({n: p.grad.clone() for n, p in page.trained.items()})
        return update

    monkeypatch.setattr(page, "update", update)
    steps(tiny64, antipasto64, page, GROUPS)

    experts = {n: (page.starts[n] + p.detach()).requires_grad_() for n, p in page.learned.items()}
    router, bias = page.router.detach().requires_grad_(), page.bias.detach().requires_grad_()
    loss = torch.zeros((), dtype=torch.float64)
    for group in GROUPS:
        mean = sum(s.reward for s in group) / len(group)
        for s in group:
            f = page.prompt_state(s.prompt_ids).double()
            w = (router @ (f / f.abs().sum()) + bias).softmax(0)
            batch = token_batch([s.prompt_ids], [s.completion_ids], tiny64.pad_id, "cpu")
            theta = {f"{n}.theta": w @ e for n, e in experts.items()}
            with by_autograd(antipasto64):
                logits = functional_call(tiny64.model, theta, (), {"input_ids": batch.input_ids}).logits[:, :-1]
            logps = logits.log_softmax(-1).gather(-1, batch.targets[..., None]).squeeze(-1)
            old = torch.zeros_like(logps)
            old[batch.loss_mask] = torch.tensor(s.behaviour_logps, dtype=old.dtype)
            loss = loss + policy_loss(
                torch.where(batch.loss_mask, logps, 0.0), batch.loss_mask, torch.tensor([s.reward - mean]),
                kind="dr_grpo", rows=4, max_new=8, tokens=10, behaviour_logps=old, ref_logps=None, beta=0.0,
                clip_low=0.2, clip_high=0.2,
            ).per_sample.sum()  # fmt: skip
    wanted = torch.autograd.grad(loss, [*experts.values(), router, bias])
    for name, grad in zip((*experts, "router", "bias"), wanted, strict=True):
        torch.testing.assert_close(found[name], grad, atol=1e-10, rtol=1e-6)
        assert float(grad.abs().max()) > 0, name


def test_the_seed_by_hand_and_how_much_of_the_teacher_it_keeps(tiny, antipasto):
    """U, V the identity: of ((3, 4), (0, 5)) the diagonal is (3, 5), 34 of 50 of its energy. A change that is an
    adapter's own is kept whole, and the merged expert is that teacher."""
    eye = torch.eye(2)
    assert on_singular_directions(torch.tensor([[3.0, 4.0], [0.0, 5.0]]), eye, eye).tolist() == [3.0, 5.0]
    shake(antipasto, scale=0.3)
    theta = theta_of(antipasto)
    change = {n: layer.delta_weight(layer.theta).detach() for n, layer in antipasto.layers.items()}
    page = mixture(tiny, antipasto, change=change)
    for name, start in page.starts.items():
        torch.testing.assert_close(start[-1], theta[name], atol=1e-4, rtol=1e-3)
        assert not start[:-1].any()
    assert page.kept == pytest.approx(1, abs=1e-4)
    with page.only_part():
        assert all(torch.allclose(p, theta[n], atol=1e-4) for n, p in antipasto.vectors.items())
    share = sum(antipasto.sizes.values()) / sum(layer.weight.numel() for layer in antipasto.layers.values())
    assert mixture(tiny, antipasto, scale=1.0).kept == pytest.approx(share, rel=0.15)  # of an arbitrary change


def test_deployed_the_seeded_expert_has_no_part_and_the_rest_adds_up_to_one(tiny, antipasto):
    """Whatever stands in it: another seed, the same deployed policy. As trained it is another."""
    page = mixture(tiny, antipasto, scale=0.5)
    shaken = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in page.learned.values():
            p.add_(0.1 * torch.randn(p.shape, generator=shaken))
        page.bias.copy_(torch.tensor([0.0, 1.0, 3.0]))
    ids = torch.tensor([[5, 6, 7, 20]])

    def logits(context):
        with torch.no_grad(), context(), page.routed((5, 6, 7)), antipasto.merged():
            return tiny.model(input_ids=ids).logits

    deployed, trained, alone = logits(page.deployed), logits(page.training), logits(page.only_part)
    w = page.weights(page.router @ (f := page.prompt_state((5, 6, 7))) / f.abs().sum() + page.bias).detach()
    name, theta = next(iter(antipasto.vectors.items()))
    with page.deployed(), page.routed((5, 6, 7)):
        torch.testing.assert_close(theta.detach(), (w[:2] / w[:2].sum()) @ page.experts(name)[:2])
    with torch.no_grad():
        for s in page.starts.values():
            s[-1].mul_(-2)
    assert torch.equal(logits(page.deployed), deployed)
    assert not torch.equal(logits(page.training), trained)
    assert not torch.equal(logits(page.only_part), alone)


def test_the_control_starts_as_far_out_in_every_module_and_elsewhere(tiny, antipasto):
    seeded = mixture(tiny, antipasto, scale=1.0)
    control, again = (mixture(tiny, antipasto, scale=1.0, arm="experts_random") for _ in range(2))
    for name, start in seeded.starts.items():
        a, b = start[-1], control.starts[name][-1]
        assert float(b.norm()) == pytest.approx(float(a.norm()), rel=1e-4)
        assert abs(float(a @ b)) < 0.6 * float(a.norm() * b.norm())
    assert all(torch.equal(control.starts[n], again.starts[n]) for n in control.starts)


def test_decay_pulls_the_seed_to_its_start_and_the_others_to_zero(tiny, antipasto):
    """No advantage, no gradient: D = (1, ...) shrinks by lr x decay = .05 x .4, the router and the seed stay."""
    page = mixture(tiny, antipasto, scale=0.02)
    with torch.no_grad():
        for p in page.learned.values():
            p.fill_(1.0)
    router, starts = page.router.detach().clone(), copy.deepcopy(page.starts)
    flat = [[replace(s, reward=1.0) for s in group] for group in GROUPS]
    steps(tiny, antipasto, page, flat, decay=0.4)
    assert all(torch.allclose(p, torch.tensor(1 - 0.05 * 0.4)) for p in page.learned.values())
    assert torch.equal(page.router, router)
    assert all(torch.equal(starts[n], s) for n, s in page.starts.items())


def test_experts_and_router_are_clipped_together(tiny, antipasto):
    """Adam's first moment after one step is a tenth of what it was given: of length 1e-3 over all of them."""
    page = mixture(tiny, antipasto, scale=0.02)
    steps(tiny, antipasto, page, GROUPS, clip=1e-3)
    moments = [page.optimizer.state[p]["exp_avg"] for n, p in page.trained.items() if n != "met"]
    assert float(torch.cat([m.flatten() for m in moments]).norm()) == pytest.approx(1e-4, rel=1e-3)
    assert all(float(m.abs().max()) > 0 for m in moments)


@pytest.mark.slow
def test_a_channel_beside_experts_is_refused_as_its_gradient_would_be_lost(tiny, antipasto):
    config = replace(presets(TrainConfig)["tiny"], arm="experts", teacher="tiny", alpha=0.5, distill_hint="none")
    with pytest.raises(BadInput, match=r"--alpha 0\.5: --arm experts has other coordinates for every prompt"):
        intervention_for(config, tiny, antipasto, None)
