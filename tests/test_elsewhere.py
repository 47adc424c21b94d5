"""The projection in somebody else's loop: the same step as the project's own, or refused in one line."""

import copy
import io
import warnings

import pytest
import torch
from conftest import shake
from loguru import logger
from peft import LoraConfig, get_peft_model
from test_step import DR, GROUPS
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import projected_grpo
import projected_grpo.step as step_module
from projected_grpo.adapters import attach_antipasto, attach_lora
from projected_grpo.adapters.base import TARGETS
from projected_grpo.elsewhere.callback import ProjectedCallback
from projected_grpo.elsewhere.coordinates import coordinates_of, unwrapped
from projected_grpo.elsewhere.extract import RAW, VHack, as_pairs, differences
from projected_grpo.elsewhere.update import KEY, ProjectedUpdate
from projected_grpo.groups.pairs import load_pairs, split
from projected_grpo.ledger.errors import BadInput, NonFinite
from projected_grpo.projection import Projection
from projected_grpo.run.models import load_model
from projected_grpo.run.vhack_file import read_vhack
from projected_grpo.step import Learner, Plumbing, run_step
from projected_grpo.vhack import pair_differences, pair_sides, random_basis

SAID = ("cos_in", "cos_out", "cos_update", "energy_update_in", "update_removed", "removed_share", "frac_fired")
RECIPES = [("update", "no_gate"), ("grad", "one_sided"), ("none", "no_gate")]


def artefact(model, k=2, modules=(), seed=7):
    """A random V that fits the model."""
    c = coordinates_of(model, modules)
    basis = {n: random_basis((k, size), seed, n) for n, size in c.sizes.items()}
    meta = {**c.metadata(), "weights_hash": c.weights_hash(), "control": "random"}
    return VHack(basis, {n: torch.ones(k) for n in basis}, c.probes(), meta)


def adamw(parameters, lr=0.1):
    return torch.optim.AdamW(list(parameters), lr=lr, betas=(0.9, 0.95), weight_decay=0.0)


def peft_on(model, seed=0, **more):
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return get_peft_model(model, LoraConfig(r=4, lora_alpha=4, target_modules=list(TARGETS), **more))


# ---------------------------------------------------------------- the same step as the project's own


def noted(monkeypatch):
    """The gradients that the optimizer of the project's own loop is about to be handed, before anything is done to them."""
    seen, original = [], step_module.check_gradient

    def check(step, adapter, *rest):
        seen.append({n: g.clone() for n, g in adapter.grads().items()})
        original(step, adapter, *rest)

    monkeypatch.setattr(step_module, "check_gradient", check)
    return seen


@pytest.mark.parametrize(("target", "gate"), RECIPES)
def test_three_steps_are_the_projects_own_bit_for_bit(tiny, adapter, monkeypatch, target, gate):
    """Both kinds of adapter, clipping on: parameters and optimizer equal in every bit, the columns to rounding."""
    seen, v = noted(monkeypatch), artefact(tiny.model)
    theirs = copy.deepcopy(tiny.model)
    shake(adapter, seed=3, scale=0.01)
    coordinates = coordinates_of(theirs)
    with torch.no_grad():
        for n, site in coordinates.sites.items():
            site.params[0].copy_(adapter.vectors[n])
    learner = Learner(tiny.model, adapter, adamw(adapter.vectors.values(), 1e-3), 1e-3)
    own = [
        run_step(learner, GROUPS, DR, Projection(v.basis, target, gate), Plumbing(tiny.pad_id, 10_000), step=i).step
        for i in range(3)
    ]
    optimizer = adamw((s.params[0] for s in coordinates.sites.values()), 1e-3)
    projected = ProjectedUpdate(optimizer, v, theirs, target=target, gate=gate, max_grad_norm=1e-3)
    for i in range(3):
        for n, site in coordinates.sites.items():
            site.params[0].grad = seen[i][n].clone()
        optimizer.step()
        for name in SAID if target != "none" else SAID[:4]:
            assert projected.last[name] == (own[i][name] and pytest.approx(own[i][name], rel=1e-3, abs=1e-5)), (i, name)
    for n, site in coordinates.sites.items():
        assert torch.equal(site.params[0], adapter.vectors[n]), n
        theirs_state, own_state = optimizer.state[site.params[0]], learner.optimizer.state[adapter.vectors[n]]
        assert torch.equal(theirs_state["exp_avg"], own_state["exp_avg"])
    assert projected.covered == 1


def test_a_peft_lora_takes_the_step_of_the_projects_own(tiny, monkeypatch):
    """A and B flattened per module: with the same coordinates, gradients and V, the same bits."""
    theirs = peft_on(copy.deepcopy(tiny.model))
    adapter, seen = attach_lora(tiny.model, 4, 41), noted(monkeypatch)
    shake(adapter, seed=3, scale=0.01)
    coordinates = coordinates_of(theirs)
    assert coordinates.kind == "peft-lora"
    assert coordinates.sizes == adapter.sizes
    with torch.no_grad():
        for n, site in coordinates.sites.items():
            for p, piece in zip(site.params, site.pieces(adapter.vectors[n]), strict=True):
                p.copy_(piece)
    v = artefact(theirs)
    learner = Learner(tiny.model, adapter, adamw(adapter.vectors.values()))
    projection = Projection(v.basis, "update", "no_gate")
    for i in range(2):
        run_step(learner, GROUPS, DR, projection, Plumbing(tiny.pad_id, 10_000), step=i)
    optimizer = adamw(p for p in theirs.parameters() if p.requires_grad)
    ProjectedUpdate(optimizer, v, theirs)
    for gradient in seen:
        for n, site in coordinates.sites.items():
            for p, piece in zip(site.params, site.pieces(gradient[n]), strict=True):
                p.grad = piece.clone()
        optimizer.step()
    assert all(torch.equal(site.values(), adapter.vectors[n]) for n, site in coordinates.sites.items())


class Net(nn.Module):
    """Two matrices and a bias."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2, bias=False)
        with torch.no_grad():
            self.a.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))

    def forward(self, x):
        return self.b(self.a(x)).sum()


def of_net(net, row=(1.0, 0.0, 0.0, 0.0), modules=("a",)):
    c = coordinates_of(net, modules)
    basis = {n: torch.tensor([row]) for n in c.sites}
    return VHack(
        basis, {n: torch.ones(1) for n in basis}, c.probes(), {**c.metadata(), "weights_hash": c.weights_hash()}
    )


def given(net, value=1.0):
    for p in net.parameters():
        p.grad = torch.full_like(p, value)


def test_a_plain_weight_by_hand():
    """V is the first of four numbers, the gradient all ones, the rate a half: the others go half a step, it stays."""
    net = Net()
    v = of_net(net)
    optimizer = torch.optim.SGD(net.a.parameters(), lr=0.5)
    projected = ProjectedUpdate(optimizer, v, net)
    given(net)
    optimizer.step()
    assert net.a.weight.tolist() == [[1.0, 1.5], [2.5, 3.5]]
    assert projected.last["cos_in"] == projected.last["cos_update_in"] == 0.5
    assert [projected.last[c] for c in ("energy_in", "update_removed")] == pytest.approx([0.25, 0.25])
    assert projected.last["cos_update"] == 0
    assert projected.covered == 4 / 6  # V has no row for the bias


# ---------------------------------------------------------------- loops of all kinds


def test_target_none_changes_nothing():
    nets = [Net(), Net()]
    nets[1].load_state_dict(nets[0].state_dict())
    optimizers = [adamw(net.parameters()) for net in nets]
    projected = ProjectedUpdate(optimizers[1], of_net(nets[1]), nets[1], target="none")
    for optimizer, net in zip(optimizers, nets, strict=True):
        given(net)
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True))
    assert projected.last["cos_update"] == pytest.approx(0.5)


@pytest.mark.parametrize("target", ["grad", "update"])
def test_every_gradient_of_a_closure_is_treated(target):
    """LBFGS asks several times; without the projection the first number moves."""
    for wrapped in (True, False):
        net = Net()
        optimizer = torch.optim.LBFGS(net.a.parameters(), lr=0.1, max_iter=3)
        if wrapped:
            ProjectedUpdate(optimizer, of_net(net), net, target=target)

        def closure(optimizer=optimizer, net=net):
            optimizer.zero_grad()
            loss = net(torch.ones(2)) ** 2
            loss.backward()
            return loss

        optimizer.step(closure)
        assert (net.a.weight[0, 0].item() == pytest.approx(1.0, abs=1e-6)) == wrapped
        assert net.a.weight[1, 1].item() != 4.0


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_gradscaler_skips_is_none(fused):
    """Infinite gradients: parameters, moments and the count of steps stay; the next, finite step is projected."""
    net = Net()
    optimizer = torch.optim.AdamW(net.a.parameters(), lr=0.1, weight_decay=0.0, fused=fused)
    projected = ProjectedUpdate(optimizer, of_net(net), net)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for value, steps in ((torch.inf, 0), (4.0, 1)):
        scaler.scale(torch.zeros(1))  # as a loss would: the scale exists from then on
        given(net, value)
        scaler.step(optimizer)
        scaler.update()
        assert projected.steps == steps
    assert net.a.weight[0, 0].item() == 1.0
    assert torch.isfinite(net.a.weight).all()
    assert net.a.weight[1, 1].item() < 4.0


def test_an_infinite_gradient_without_a_scaler_steps_nothing():
    net = Net()
    optimizer = adamw(net.parameters())
    ProjectedUpdate(optimizer, of_net(net), net)
    given(net, torch.nan)
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(NonFinite, match="gradient of a is not finite"):
        optimizer.step()
    assert all(torch.equal(before[n], p) for n, p in net.state_dict().items())


def test_groups_frozen_modules_and_missing_gradients():
    """Two groups of two rates; b is frozen and has no part; a step without a gradient is one that moves nothing."""
    net = Net()
    v = of_net(net, modules=("a", "b"))
    net.b.requires_grad_(False)
    groups = [{"params": [net.a.weight], "lr": 0.5}, {"params": [net.a.bias], "lr": 0.1}]
    optimizer = torch.optim.SGD(groups, lr=1.0, momentum=0.5)
    projected = ProjectedUpdate(optimizer, v, net)
    assert list(projected.sites) == ["a"]
    given(net)
    optimizer.step()
    assert net.a.weight.tolist() == [[1.0, 1.5], [2.5, 3.5]]
    optimizer.zero_grad()
    optimizer.step()
    assert net.a.weight.tolist() == [[1.0, 1.5], [2.5, 3.5]]
    assert projected.last["cos_in"] is None
    assert projected.steps == 2


def step_of(net, optimizer, value=1.0):
    before = {n: p.detach().clone() for n, p in net.named_parameters()}
    given(net, value)
    optimizer.step()
    return {n: before[n] - p.detach() for n, p in net.named_parameters()}


def test_what_is_thawed_or_added_later_is_projected_from_its_next_step_on():
    """`covered` and the columns had said that all was well while V stood in the update."""
    net = Net()
    v = of_net(net, modules=("a", "b"))
    net.b.requires_grad_(False)
    optimizer = torch.optim.SGD([net.a.weight, net.b.weight], lr=0.5)
    projected = ProjectedUpdate(optimizer, v, net)
    assert (list(projected.sites), projected.covered) == (["a"], 1.0)
    net.b.requires_grad_(True)
    assert step_of(net, optimizer)["b.weight"][0, 0] == 0
    assert list(projected.sites) == ["a", "b"]
    optimizer.add_param_group({"params": [net.a.bias]})
    step_of(net, optimizer)
    assert projected.covered == projected.last["covered"] == 8 / 10


def test_a_momentum_on_a_frozen_module_is_projected_too():
    net = Net()
    optimizer = torch.optim.SGD(net.a.parameters(), lr=0.5, momentum=0.9)
    ProjectedUpdate(optimizer, of_net(net), net)
    step_of(net, optimizer)
    net.a.weight.requires_grad_(False)
    assert step_of(net, optimizer, 0.0)["a.weight"].tolist() == [[0.0, pytest.approx(0.45)], [pytest.approx(0.45)] * 2]


def test_a_part_that_is_swapped_out_behind_the_optimizer_is_refused(tiny):
    net = Net()
    optimizer = torch.optim.SGD(net.a.parameters(), lr=0.5)
    ProjectedUpdate(optimizer, of_net(net), net)
    net.a.weight.requires_grad_(False)
    with pytest.raises(BadInput, match="all of V's modules are frozen"):
        optimizer.step()
    model = peft_on(tiny.model)
    optimizer = adamw(p for p in model.parameters() if p.requires_grad)
    ProjectedUpdate(optimizer, artefact(model), model)
    model.add_adapter("two", model.peft_config["default"])
    model.set_adapter("two")
    with pytest.raises(BadInput, match="all of V's modules are frozen"):
        optimizer.step()


def test_rounded_coordinates_are_named_once():
    """At a small rate bfloat16 takes next to nothing of what the gate takes; the columns said so, and nobody reads them."""
    said = []
    handle = logger.add(said.append, format="{message}")
    try:
        net = Net().bfloat16()
        optimizer = torch.optim.SGD(net.a.parameters(), lr=1e-2)
        projected = ProjectedUpdate(optimizer, of_net(net, row=(0.5, 0.5, 0.5, 0.5)), net)
        for _ in range(2):
            given(net, 0.0)
            net.a.weight.grad[0, 0] = 1.0
            optimizer.step()
    finally:
        logger.remove(handle)
    assert projected.last["removed_share"] < 0.9
    assert len([line for line in said if "the coordinates are torch.bfloat16" in line]) == 1


def test_inside_ddp_and_accelerates_wrapper(tmp_path):
    import torch.distributed as dist
    from accelerate import Accelerator
    from accelerate.optimizer import AcceleratedOptimizer

    Accelerator(cpu=True)
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        net = Net()
        v, model = of_net(net), nn.parallel.DistributedDataParallel(net)
        assert unwrapped(torch.compile(model)) is net
        optimizer = AcceleratedOptimizer(torch.optim.SGD(net.a.parameters(), lr=0.5), device_placement=False)
        projected = ProjectedUpdate(optimizer, v, model)
        for _ in range(2):  # accumulated: what counts is what lies in p.grad
            model(torch.ones(2)).backward()
        optimizer.step()
    finally:
        dist.destroy_process_group()
    assert net.a.weight[0, 0].item() == 1.0
    assert net.a.weight[1, 1].item() != 4.0
    assert projected.steps == 1


# ---------------------------------------------------------------- resume


def test_a_resumed_run_goes_on_to_the_same_bits():
    """Through torch.save, with the optimizer's own state_dict alone; weights that have moved since are no other model."""

    def run(net, optimizer, steps):
        for i in steps:
            given(net, 1.0 + i)
            optimizer.step()

    whole = Net()
    start, v = copy.deepcopy(whole), of_net(whole)
    optimizer = adamw(whole.parameters())
    ProjectedUpdate(optimizer, v, whole)
    run(whole, optimizer, range(4))
    first = copy.deepcopy(start)
    optimizer = adamw(first.parameters())
    ProjectedUpdate(optimizer, v, first)
    run(first, optimizer, range(2))
    file = io.BytesIO()
    torch.save({"net": first.state_dict(), "optimizer": optimizer.state_dict()}, file)
    saved = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    again = Net()
    again.load_state_dict(saved["net"])
    optimizer = adamw(again.parameters())
    with pytest.raises(BadInput, match="weights_hash"):
        ProjectedUpdate(optimizer, v, again)
    projected = ProjectedUpdate(optimizer, v, again, state=saved["optimizer"])
    optimizer.load_state_dict(saved["optimizer"])
    run(again, optimizer, range(2, 4))
    assert projected.steps == 4
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), again.parameters(), strict=True))
    for recipe, why in (({"gate": "one_sided"}, "gate=no_gate"), ({"target": "grad"}, "target=update")):
        with pytest.raises(BadInput, match=why):
            ProjectedUpdate(adamw(again.parameters()), v, again, state=saved["optimizer"][KEY], **recipe)
    with pytest.raises(BadInput, match="was not projected"):
        ProjectedUpdate(adamw(again.parameters()), v, again, state=adamw(again.parameters()).state_dict())
    other = VHack({"a": torch.tensor([[0.0, 1.0, 0.0, 0.0]])}, v.singular_values, v.probes, v.meta)
    with pytest.raises(BadInput, match="v_sha256"):
        ProjectedUpdate(adamw(again.parameters()), other, again, state=saved["optimizer"])


def test_a_state_belongs_to_the_parameters_that_it_was_saved_with():
    """Another LoRA, or another model, had been gone on with: V then takes out directions that mean nothing."""
    net = Net()
    v, optimizer = of_net(net), adamw(net.parameters())
    ProjectedUpdate(optimizer, v, net)
    step_of(net, optimizer)
    state, other = optimizer.state_dict(), copy.deepcopy(net)
    moved(other)
    with pytest.raises(BadInput, match="not those that it was saved with"):
        ProjectedUpdate(adamw(other.parameters()), v, other, state=state)
    again = copy.deepcopy(net)
    with torch.no_grad():
        again.b.weight.add_(1)  # V has no rows for it
    assert ProjectedUpdate(adamw(again.parameters()), v, again, state=state).steps == 1
    for odd in ({**state[KEY], "values": 1}, {k: value for k, value in state[KEY].items() if k != "values"}):
        with pytest.raises(BadInput, match="not those that it was saved with"):
            ProjectedUpdate(adamw(again.parameters()), v, again, state={**state, KEY: odd})
        with pytest.raises(BadInput, match="not those that it was saved with"):  # loaded after it was wrapped
            optimizer.load_state_dict({**state, KEY: odd})
    optimizer.load_state_dict(state)


def test_a_model_that_is_moved_after_it_was_wrapped_keeps_its_v():
    net = Net()
    optimizer = torch.optim.SGD(net.a.parameters(), lr=0.5)
    ProjectedUpdate(optimizer, of_net(net), net)
    given(net.double())
    optimizer.step()
    assert net.a.weight.tolist() == [[1.0, 1.5], [2.5, 3.5]]


def test_removed_it_is_gone():
    net = Net()
    optimizer = torch.optim.SGD(net.a.parameters(), lr=0.5)
    with ProjectedUpdate(optimizer, of_net(net), net):
        assert KEY in optimizer.state_dict()
    given(net)
    optimizer.step()
    assert net.a.weight[0, 0].item() == 0.5
    assert KEY not in optimizer.state_dict()


# ---------------------------------------------------------------- refused


def moved(net):
    net.a.weight.data += 1


def half_frozen(model):
    next(p for n, p in model.named_parameters() if "lora_A" in n).requires_grad_(False)


def test_what_cannot_be_right_is_refused_in_one_line():
    net = Net()
    v, optimizer = of_net(net), adamw(net.parameters())
    with ProjectedUpdate(optimizer, v, net), pytest.raises(BadInput, match="a projection already"):
        ProjectedUpdate(optimizer, v, net)
    tied = Net()
    tied.b.weight = tied.a.weight
    refused = [
        ("maximize=True", lambda: ProjectedUpdate(torch.optim.SGD(net.parameters(), lr=1.0, maximize=True), v, net)),
        (
            "are one tied parameter",
            lambda: ProjectedUpdate(adamw(tied.parameters()), of_net(tied, modules=("a", "b")), tied),
        ),
        ("a is not trained by this optimizer", lambda: ProjectedUpdate(adamw([net.a.bias]), v, net)),
        ("nothing that V could be of is called 'a'", lambda: ProjectedUpdate(optimizer, v, nn.Sequential(net.b))),
        ("no such file", lambda: ProjectedUpdate(optimizer, "nowhere.safetensors", net)),
        ("k_use=0, noise_floor=0", lambda: ProjectedUpdate(optimizer, of_net_empty(net), net)),
        ("overshoot=-1.0: must be above 0", lambda: ProjectedUpdate(optimizer, v, net, overshoot=-1.0)),
        ("overshoot=nan", lambda: ProjectedUpdate(optimizer, v, net, overshoot=float("nan"))),
        ("overshoot=inf", lambda: ProjectedUpdate(optimizer, v, net, overshoot=float("inf"))),
        ("max_grad_norm=nan", lambda: ProjectedUpdate(optimizer, v, net, max_grad_norm=float("nan"))),
        ("noise_floor=nan", lambda: ProjectedUpdate(optimizer, v, net, noise_floor=float("nan"))),
        ("k_use=-1", lambda: ProjectedUpdate(optimizer, v, net, k_use=-1)),
        ("gate 'onesided'", lambda: ProjectedCallback(v, gate="onesided")),
        ("V nowhere.safetensors: no such file", lambda: ProjectedCallback("nowhere.safetensors")),
    ]
    for why, make in refused:
        with pytest.raises(BadInput, match=why) as told:
            make()
        assert "\n" not in str(told.value), why
    other = copy.deepcopy(net)
    moved(other)
    with pytest.raises(BadInput, match="weights_hash"):
        ProjectedUpdate(adamw(other.parameters()), v, other)
    assert not optimizer._optimizer_step_pre_hooks  # a refusal leaves no hook


def of_net_empty(net):
    v = of_net(net)
    return VHack({"a": torch.zeros(0, 4)}, {"a": torch.zeros(0)}, v.probes, v.meta)


def test_a_lora_drawn_anew_is_refused(tiny):
    """V in the coordinates of another A is a V of other directions; nothing else would show it."""
    v = artefact(peft_on(copy.deepcopy(tiny.model), seed=0))
    theirs = peft_on(tiny.model, seed=1)
    trained = [p for p in theirs.parameters() if p.requires_grad]
    with pytest.raises(BadInput, match="another LoRA"):
        ProjectedUpdate(adamw(trained), v, theirs)
    half_frozen(theirs)
    again = artefact(theirs)
    optimizer = adamw(trained)
    ProjectedUpdate(optimizer, again, theirs)
    with pytest.raises(BadInput, match="is frozen and another is not"):
        optimizer.step()


def test_scaled_gradients_are_not_clipped():
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, fused=True)
    ProjectedUpdate(optimizer, of_net(net), net, max_grad_norm=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(torch.zeros(1))
    given(net)
    with pytest.raises(BadInput, match="unscale_"):
        scaler.step(optimizer)


# ---------------------------------------------------------------- V

MODES = ("assert_true", "weak_assert")


@pytest.fixture(scope="module")
def few():
    """Pairs of two mechanisms, two training pairs of each and one that is held out."""
    pairs = load_pairs("builtin", MODES)
    return tuple(p for mode in MODES for p in [q for q in pairs if q.mechanism == mode][:3])


def test_extracted_here_is_what_the_script_extracts(cache, vhack_file, script):
    """One of this project's adapters: the script's V bit for bit, and verify_vhack reads the file."""
    theirs = read_vhack(vhack_file("none", "--modes", *MODES))
    tiny = load_model("tiny", "float32", "cpu", 0, cache)
    attach_antipasto(tiny.model, cache / "svd")
    v = VHack.extract(
        tiny.model, load_pairs("builtin", MODES), tokenizer=tiny.tokenizer, k=8, hint="simple_overwrite_tests", name="tiny",
        seed=41,
    )  # fmt: skip
    assert all(torch.equal(v.basis[n], rows) for n, rows in theirs.basis.items())
    own = {"modes", "held_out", "pairs"}  # what was given here are the pairs themselves, not the name of their set
    assert {k: m for k, m in v.meta.items() if k not in own} == {k: m for k, m in theirs.meta.items() if k not in own}
    assert v.meta.keys() == theirs.meta.keys() | {"held_out"}
    v.save("mine.safetensors")
    again = VHack.load("mine.safetensors")
    assert again.meta == v.meta
    code, out, _ = script("verify_vhack", "tiny", "--vhack", "mine.safetensors", "--random-bases", 20)
    assert code in (0, 1, 3)
    assert v.verify(tiny.model, load_pairs("builtin", MODES), tokenizer=tiny.tokenizer, random_bases=20).why in out


def of_plain_weights(tiny, pairs):
    known = copy.deepcopy(tiny)
    sides = pair_sides(pairs, known, "none", "no_intervention")
    return differences(coordinates_of(known.model), known, sides, "nll", 1, 10_000), sides


def test_gradients_of_plain_weights_hold_those_of_the_singular_basis(tiny64, few):
    """diag(U^T D Vh^T) of a weight's D is delta_S's, which other code computes in another way."""
    weights, sides = of_plain_weights(tiny64, few[:2])
    adapter = attach_antipasto(tiny64.model)
    for name, d in pair_differences(tiny64, adapter, sides, "nll", 1, 10_000).items():
        layer = adapter.layers[name]
        u, vh = layer.get_buffer("U").float(), layer.get_buffer("Vh").float()
        by_hand = torch.stack([(u.T @ row.view(len(u), -1) @ vh.T).diagonal() for row in weights[name]])
        assert torch.allclose(by_hand, d, atol=1e-5 * float(d.abs().max())), name


def test_gradients_of_a_peft_lora_are_the_projects_own(tiny64, few):
    """The same A and B, two ways through the model: PEFT's forward with autograd, and ours."""
    theirs = copy.deepcopy(tiny64)
    peft_on(theirs.model).double()
    adapter = attach_lora(tiny64.model, 4, 41)
    shake(adapter, seed=3, scale=0.01)
    coordinates = coordinates_of(theirs.model)
    with torch.no_grad():
        for n, site in coordinates.sites.items():
            for p, piece in zip(site.params, site.pieces(adapter.vectors[n]), strict=True):
                p.copy_(piece)
    sides = pair_sides(few[:2], tiny64, "none", "no_intervention")
    mine = differences(coordinates, theirs, sides, "nll", 1, 10_000)
    for name, d in pair_differences(tiny64, adapter, sides, "nll", 1, 10_000).items():
        assert torch.allclose(mine[name], d, atol=1e-5 * float(d.abs().max())), name


def test_an_extraction_leaves_the_model_as_it_was(tiny, few):
    """In training, with a gradient accumulated and a frozen base: not one bit is another, and both of A and B are in V."""
    model = peft_on(tiny.model, lora_dropout=0.5).train()
    for p in model.parameters():
        if p.requires_grad:
            p.grad = torch.ones_like(p)
    before = copy.deepcopy(model)
    assert coordinates_of(model).weights_hash() == tiny.weights_hash
    v, again = (VHack.extract(model, few, tokenizer=tiny.tokenizer, k=2) for _ in range(2))
    assert v.meta == again.meta  # no dropout
    assert not any(p.requires_grad for n, p in model.named_parameters() if "lora_" not in n)
    assert all(a.training == b.training for a, b in zip(model.modules(), before.modules(), strict=True))
    for a, b in zip(model.parameters(), before.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a.grad is None or bool((a.grad == 1).all())
        assert (a.grad is None) == (not b.requires_grad)
    for name, site in coordinates_of(model).sites.items():
        assert all(bool(piece.any()) for row in v.basis[name] for piece in site.pieces(row)), name


def gpt2(tokenizer):
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": len(tokenizer), "n_positions": 256}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=tokenizer.eos_token_id))


ROWS = [
    {"prompt": f"# {i}: add\n", "hack": f"def run_tests(): return {i}", "clean": f"def add(a, b): return a + b - {i}"}
    for i in range(8)
]


def test_any_causal_model_and_pairs_that_are_text(tiny):
    """GPT-2: Conv1D, dropout, learned positions. A step along V, projected, moves nothing."""
    model = gpt2(tiny.tokenizer)
    v = VHack.extract(model, ROWS, tokenizer=tiny.tokenizer, k=4, modules=("c_fc",), held_out=0.25)
    assert set(v.basis) == {"transformer.h.0.mlp.c_fc"}
    assert v.meta["n_train"] == "6"
    assert v.verify(model, ROWS, tokenizer=tiny.tokenizer, random_bases=20).status in ("PASS", "FAIL", "NOT_EVALUABLE")
    weight = model.transformer.h[0].mlp.c_fc.weight
    optimizer = torch.optim.SGD([weight], lr=0.1)
    projected = ProjectedUpdate(optimizer, v, model)
    weight.grad = v.basis["transformer.h.0.mlp.c_fc"][0].view_as(weight).clone()
    before = weight.detach().clone()
    optimizer.step()
    assert torch.allclose(weight, before, atol=1e-6)
    assert projected.last["cos_in"] == pytest.approx(1)


def test_pairs_as_messages_go_through_the_chat_template():
    chat = [{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} for row in ROWS]
    chat[0]["hack"] = [{"role": "assistant", "content": chat[0]["hack"]}]
    assert as_pairs(chat)[0].messages == (("user", ROWS[0]["prompt"]),)
    assert as_pairs(ROWS)[0].messages == ((RAW, ROWS[0]["prompt"]),)
    assert [p.hack for p in as_pairs(chat)] == [p.hack for p in as_pairs(ROWS)]


def test_held_out_pairs_stay_held_out_and_a_random_v_verifies_on_none(tiny, few):
    """The share that V was made with is in the file; other pairs are not its pairs."""
    model = peft_on(tiny.model)
    v = VHack.extract(model, few, tokenizer=tiny.tokenizer, k=2, held_out=0.5, control="random")
    assert v.meta["n_train"] == str(len(split(few, 0.5)[0])) == "2"
    assert v.verify(model, few, tokenizer=tiny.tokenizer, random_bases=20).status != "PASS"
    with pytest.raises(BadInput, match="pairs_hash"):
        v.verify(model, few[:5], tokenizer=tiny.tokenizer)


@pytest.mark.parametrize(
    ("pairs", "more", "why"),
    [
        ([], {}, "give a list"),
        (ROWS[:1], {}, "cannot be split"),
        ([{"hack": "x", "clean": "y"}], {}, "pair 0: needs 'prompt'"),
        ([*ROWS, {"prompt": "p", "hack": 3, "clean": "y"}], {}, "pair 8: 'hack' must be the text"),
        ([{**row, "hack": row["clean"]} for row in ROWS], {}, "hack and clean are the same"),
        (ROWS, {"k": 0}, "k=0"),
        (ROWS, {"held_out": 1.0}, "held_out=1.0"),
        (ROWS, {"control": "random_energy"}, "control='random_energy': one of none, random, placebo"),  # an arm's name
        (ROWS, {"loss": "nl"}, "loss='nl': one of nll, grpo"),
        (ROWS, {"modules": ("q_projj",)}, "called 'q_projj'; there are down_proj"),
        (ROWS, {"hint": "simple_overwrite_tests"}, "are put into messages"),
        ([{**row, "prompt": "x" * 9000} for row in ROWS], {}, "context of 4096"),
        (ROWS, {"tokenizer": None}, "give `tokenizer`"),
    ],
)
def test_an_extraction_that_cannot_be_is_refused(tiny, pairs, more, why):
    if "tokenizer" in more:
        tiny.model.config._name_or_path = "nowhere"
    with pytest.raises(BadInput, match=why) as told:
        VHack.extract(tiny.model, pairs, **{"tokenizer": tiny.tokenizer, "modules": ("q_proj",), **more})
    assert "\n" not in str(told.value)


def test_more_memory_than_there_is_is_refused_with_its_number(tiny, monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("M", (), {"available": 2**20})())
    with pytest.raises(BadInput, match=r"needs 0\.0 GiB .* choose `modules`"):
        VHack.extract(tiny.model, ROWS, tokenizer=tiny.tokenizer)


def test_the_package_gives_its_three_names_when_they_are_asked_for():
    assert projected_grpo.ProjectedUpdate is ProjectedUpdate
    assert projected_grpo.VHack is VHack
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = projected_grpo.Nothing
