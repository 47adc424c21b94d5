"""The projection in somebody else's loop: the same step as the project's own, or refused in one line."""

import copy

import pytest
import torch
from harness import FEW, shake
from peft import LoraConfig, get_peft_model
from steps_of import DR, GROUPS
from torch import nn
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

import projected_grpo.step as step_module
from projected_grpo.adapters.antipasto import attach_antipasto
from projected_grpo.adapters.base import TARGETS
from projected_grpo.adapters.lora_adapter import attach_lora
from projected_grpo.data.pairs import load_pairs
from projected_grpo.integrations.coordinates import coordinates_of, flat
from projected_grpo.integrations.extract import VHack, differences
from projected_grpo.integrations.update import ProjectedUpdate
from projected_grpo.ledger.errors import BadInput, NonFinite
from projected_grpo.model.learner import Learner
from projected_grpo.model.load import without_warnings
from projected_grpo.projection import Projection
from projected_grpo.step import run_step
from projected_grpo.vhack import Extraction, pair_sides, random_basis, read_vhack
from projected_grpo.worlds.models import load_model

SAID = ("cos_in", "cos_out", "cos_update", "update_removed", "removed_share", "frac_fired")


def artefact(model, k=2):
    """A random V that fits the model."""
    c = coordinates_of(model)
    basis = {n: random_basis((k, size), 7, n) for n, size in c.sizes.items()}
    meta = {**c.metadata, "weights_hash": c.weights_hash(), "control": "random"}
    return VHack(basis, {n: torch.ones(k) for n in basis}, c.probes, meta)


def adamw(parameters, lr=0.1):
    return torch.optim.AdamW(list(parameters), lr=lr, betas=(0.9, 0.95), weight_decay=0.0)


def peft_on(model):
    torch.manual_seed(0)
    with without_warnings():
        return get_peft_model(model, LoraConfig(r=4, lora_alpha=4, target_modules=list(TARGETS)))


def test_v_is_of_one_active_lora(tiny):
    """A second one would train unprojected, and no number would say so."""
    model = peft_on(copy.deepcopy(tiny.model))
    with without_warnings():
        model.add_adapter("second", LoraConfig(r=4, target_modules=["v_proj"]))
        model.base_model.set_adapter(["default", "second"])
    with pytest.raises(BadInput, match="activate exactly one adapter"):
        coordinates_of(model)


# ---------------------------------------------------------------- the same step as the project's own


@pytest.mark.parametrize("kind", ["peft", *(pytest.param(k, marks=pytest.mark.slow) for k in ("antipasto", "lora"))])
@pytest.mark.parametrize(("target", "gate"), [("update", "no_gate"), ("grad", "one_sided"), ("none", "no_gate")])
def test_three_steps_are_the_projects_own_bit_for_bit(tiny, cache, monkeypatch, kind, target, gate):
    """With the same coordinates, gradients and V: parameters and optimizer equal in every bit, the columns to
    rounding. Of PEFT's LoRA A and B are flattened per module."""
    clip = 0.0 if kind == "peft" else 1e-3  # its norm is summed over A and B: clipped, the last bits are others
    plain = copy.deepcopy(tiny.model)
    adapter = attach_antipasto(tiny.model, cache / "svd") if kind == "antipasto" else attach_lora(tiny.model, 4, 41)
    theirs = peft_on(plain) if kind == "peft" else copy.deepcopy(tiny.model)
    shake(adapter, seed=3, scale=0.01)
    coordinates = coordinates_of(theirs)
    assert coordinates.sizes == adapter.sizes
    coordinates.set_values(adapter.vectors)
    v = artefact(theirs)
    seen = []  # what the project's optimizer is about to be handed
    monkeypatch.setattr(step_module, "check_gradient", lambda _, adapter, **__: seen.append(adapter.gradient()))
    learner = Learner(tiny.model, adapter, adamw(adapter.vectors.values(), 1e-3), tiny.pad_id, 10_000, clip)
    own = [run_step(learner, GROUPS, DR, Projection(v.basis, target, gate), step=i).step for i in range(3)]
    optimizer = adamw((p for ps in coordinates.parameters.values() for p in ps), 1e-3)
    projected = ProjectedUpdate(optimizer, v, theirs, target=target, gate=gate, max_grad_norm=clip)
    for i in range(3):
        coordinates.set_gradient(seen[i])
        optimizer.step()
        for name in SAID if target != "none" else SAID[:4]:
            assert projected.last[name] == (own[i][name] and pytest.approx(own[i][name], rel=1e-3, abs=1e-5)), (i, name)
    for n, value in coordinates.values().items():
        assert torch.equal(value, adapter.vectors[n]), n
        moments = flat([optimizer.state[p]["exp_avg"] for p in coordinates.parameters[n]])
        assert torch.equal(moments, learner.optimizer.state[adapter.vectors[n]]["exp_avg"])
    assert projected.covered == 1


# ---------------------------------------------------------------- on any optimizer


def small(**lora):
    """Two matrices with a LoRA on both, and a V in it."""
    torch.manual_seed(1)
    net = nn.ModuleDict({"a": nn.Linear(3, 4), "b": nn.Linear(4, 2, bias=False)})
    model = get_peft_model(net, LoraConfig(r=2, lora_alpha=2, target_modules=["a", "b"], **lora))
    return model, artefact(model, k=1)


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]


def steps(model, optimizer, which):
    for i in which:
        for n, p in enumerate(trained(model)):
            p.grad = torch.linspace(-1, 1 + i + n, p.numel()).view_as(p)
        optimizer.step()


def along(v, before, model):
    """Largest change along a row of V."""
    after = coordinates_of(model).values()
    return max(float((v.basis[n] @ (after[n] - before[n])).abs().max()) for n in before)


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW, torch.optim.Adagrad])
def test_no_step_of_any_optimizer_moves_along_v(make):
    model, v = small()
    optimizer, before = make(trained(model), lr=0.1), coordinates_of(model).values()
    projected = ProjectedUpdate(optimizer, v, model)
    steps(model, optimizer, range(3))
    assert along(v, before, model) < 1e-6
    assert all(float((coordinates_of(model).values()[n] - before[n]).norm()) > 1e-2 for n in before)
    assert projected.last["update_removed"] > 1e-4
    assert (projected.steps, projected.covered) == (3, 1.0)


def test_an_infinite_gradient_steps_nothing():
    model, v = small()
    optimizer = adamw(trained(model))
    ProjectedUpdate(optimizer, v, model)
    before = coordinates_of(model).values()
    for p in trained(model):
        p.grad = torch.full_like(p, torch.nan)
    with pytest.raises(NonFinite, match="gradient of a is not finite"):
        optimizer.step()
    assert all(torch.equal(before[n], x) for n, x in coordinates_of(model).values().items())


@pytest.mark.parametrize("fused", [False, True])
def test_a_scaler_changes_no_step_and_skips_the_infinite_one(fused):
    ends = []
    for scale in (1.0, 1024.0):
        model, v = small()
        optimizer, scaler = torch.optim.AdamW(trained(model), fused=fused), torch.amp.GradScaler("cpu", scale)
        projected = ProjectedUpdate(optimizer, v, model, max_grad_norm=0.5)
        for size in (scale, torch.inf, 2 * scale):
            scaler.scale(sum(size * (p + 1).square().sum() / scale for p in trained(model))).backward()
            scaler.step(optimizer)
            scaler.update(scale)
            optimizer.zero_grad()
        assert projected.steps == 2
        ends.append(torch.cat([p.detach().flatten() for p in trained(model)]))
    assert torch.equal(*ends)


@pytest.mark.parametrize("method", ["eval", "fused_backward"])
def test_an_optimizer_with_another_method_that_moves_the_weights_is_refused(method):
    model, v = small()
    optimizer = type("Free", (torch.optim.SGD,), {method: lambda _: None})(trained(model))
    with pytest.raises(BadInput, match=rf"Free: its {method}\(\) moves the weights too; use one whose step"):
        ProjectedUpdate(optimizer, v, model)


class Ascent(torch.optim.SGD):
    """A wrapper that steps another optimizer, as SAM does."""

    def second_step(self):
        self.base_optimizer.step()


def test_an_optimizer_inside_a_wrapper_is_projected():
    model, v = small()
    before, wrapper = coordinates_of(model).values(), Ascent(trained(model))
    wrapper.base_optimizer = torch.optim.SGD(trained(model))
    ProjectedUpdate(wrapper, v, model)
    for p in trained(model):
        p.grad = torch.ones_like(p)
    wrapper.second_step()
    assert along(v, before, model) < 1e-6


def test_a_group_that_is_added_later_is_counted_and_clipped():
    model, v = small()
    optimizer, more = torch.optim.SGD(trained(model), lr=1.0), nn.Parameter(torch.zeros(27))
    projected = ProjectedUpdate(optimizer, v, model, max_grad_norm=1.0)
    optimizer.add_param_group({"params": [more]})
    more.grad = torch.full_like(more, 9.0)
    steps(model, optimizer, range(1))
    assert projected.covered == sum(v.basis[n].shape[1] for n in "ab") / sum(p.numel() for p in [*trained(model), more])
    assert 0.5 < float(more.detach().norm()) <= 1


@pytest.mark.parametrize("bias", ["lora_only", "all"])
def test_a_run_that_trains_biases_goes_on(bias):
    model, v = small(bias=bias)
    optimizer = torch.optim.SGD(trained(model), lr=0.1)
    ProjectedUpdate(optimizer, v, model).remove()
    steps(model, optimizer, range(1))
    assert ProjectedUpdate(optimizer, v, model, step=1).covered < 1


@pytest.mark.slow
def test_inside_ddp_and_accelerates_wrapper(tmp_path):
    import torch.distributed as dist
    from accelerate import Accelerator
    from accelerate.optimizer import AcceleratedOptimizer

    Accelerator(cpu=True)
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        model, v = small()
        compiled = torch.compile(nn.parallel.DistributedDataParallel(model))
        assert coordinates_of(compiled).model is model.get_base_model()
        optimizer = AcceleratedOptimizer(torch.optim.SGD(trained(model), lr=0.5), device_placement=False)
        before = coordinates_of(model).values()
        ProjectedUpdate(optimizer, v, nn.parallel.DistributedDataParallel(model))
        steps(model, optimizer, range(2))
    finally:
        dist.destroy_process_group()
    assert along(v, before, model) < 1e-6


def test_a_resumed_run_goes_on_to_the_same_bits(tmp_path):
    """Through torch.save; a LoRA that has moved since is no other one."""
    whole, v = small()
    optimizer = adamw(trained(whole))
    ProjectedUpdate(optimizer, v, whole)
    steps(whole, optimizer, range(4))
    first, _ = small()
    optimizer = adamw(trained(first))
    ProjectedUpdate(optimizer, v, first)
    steps(first, optimizer, range(2))
    torch.save({"net": first.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "saved.pt")
    saved = torch.load(tmp_path / "saved.pt", weights_only=True)
    again, _ = small()
    again.load_state_dict(saved["net"])
    optimizer = adamw(trained(again))
    with pytest.raises(BadInput, match="another LoRA, or a trained one"):
        ProjectedUpdate(optimizer, v, again)
    projected = ProjectedUpdate(optimizer, v, again, step=2)
    optimizer.load_state_dict(saved["optimizer"])
    steps(again, optimizer, range(2, 4))
    assert projected.steps == 4
    for p, q in zip(trained(whole), trained(again), strict=True):
        assert torch.equal(p, q)


# ---------------------------------------------------------------- V

_, *MODES = FEW


@pytest.mark.slow
def test_extracted_here_is_what_the_script_extracts(cache, vhack_file, script):
    """One of this project's adapters: the script's V bit for bit, and verify_vhack reads the file."""
    theirs = read_vhack(vhack_file())
    tiny = load_model("tiny", "float32", "cpu", 0, cache)
    attach_antipasto(tiny.model, cache / "svd")
    v = VHack.extract(
        tiny.model, load_pairs("builtin", MODES), tokenizer=tiny.tokenizer, k=8, hint="simple_overwrite_tests", name="tiny"
    )  # fmt: skip
    assert all(torch.equal(v.basis[n], rows) for n, rows in theirs.basis.items())
    own = {
        "modes",
        "pairs",
        "seed",
    }  # the pairs themselves were given, not the name of their set; the seed draws nothing
    assert {k: m for k, m in v.meta.items() if k not in own} == {k: m for k, m in theirs.meta.items() if k not in own}
    assert v.meta.keys() == theirs.meta.keys()
    v.save("mine.safetensors")
    again = VHack.load("mine.safetensors")
    assert again.meta == v.meta
    code, out, _ = script("verify_vhack", "tiny", "--vhack", "mine.safetensors")
    assert code in (0, 1, 3)
    assert v.verify(tiny.model, load_pairs("builtin", MODES), tokenizer=tiny.tokenizer).why in out


def test_gradients_of_a_peft_lora_are_the_projects_own(tiny64):
    """The same A and B, two ways through the model: PEFT's forward with autograd, and ours."""
    theirs = copy.deepcopy(tiny64)
    peft_on(theirs.model).double()
    adapter = attach_lora(tiny64.model, 4, 41)
    shake(adapter, seed=3, scale=0.01)
    coordinates = coordinates_of(theirs.model)
    coordinates.set_values(adapter.vectors)
    sides = pair_sides(load_pairs("builtin", MODES)[:2], tiny64, "none", "no_intervention")
    mine = differences(coordinates, theirs, sides, Extraction(), 10_000)
    for name, d in Extraction().differences(tiny64, adapter, sides, 10_000).items():
        assert torch.allclose(mine[name], d, atol=1e-5 * float(d.abs().max())), name


ROWS = [
    {"prompt": f"# {i}: add\n", "hack": f"def run_tests(): return {i}", "clean": f"def add(a, b): return a + b - {i}"}
    for i in range(8)
]


@pytest.mark.parametrize("control", ["none", "random"])
def test_pairs_that_are_text_make_a_v_which_those_that_it_never_saw_verify(tiny, control):
    model, tokenizer = peft_on(tiny.model), tiny.tokenizer
    v = VHack.extract(model, ROWS, tokenizer=tokenizer, k=4, control=control)
    assert v.basis.keys() == coordinates_of(model).parameters.keys()
    assert v.meta["n_train"] == "6"
    found = v.verify(model, ROWS, tokenizer=tokenizer).status
    assert found in ("PASS", "FAIL", "NOT_EVALUABLE")
    assert (control, found) != ("random", "PASS")
    with pytest.raises(BadInput, match="pairs_hash"):
        v.verify(model, ROWS[:5], tokenizer=tokenizer)


def test_a_lora_whose_a_is_frozen_has_a_v_of_b(tiny):
    """LoRA-FA."""
    model = peft_on(tiny.model)
    for name, p in model.named_parameters():
        p.requires_grad_("lora_B" in name)
    v = VHack.extract(model, ROWS, tokenizer=tiny.tokenizer, k=4)
    projected = ProjectedUpdate(adamw(trained(model)), v, model)
    assert projected.covered == 1
    assert v.meta["adapter"] == "peft-lora-fa"


def test_loras_on_experts_have_a_v(tiny):
    sizes = {"hidden_size": 16, "moe_intermediate_size": 8, "num_hidden_layers": 1, "num_experts": 4, "head_dim": 8}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 1, "num_experts_per_tok": 2}
    config = Qwen3MoeConfig(**sizes, vocab_size=len(tiny.tokenizer))
    targets = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
    with without_warnings():
        model = get_peft_model(Qwen3MoeForCausalLM(config), LoraConfig(r=2, target_parameters=targets))
    v = VHack.extract(model, ROWS, tokenizer=tiny.tokenizer, k=3)
    assert [len(rows) for rows in v.basis.values()] == [3, 3]
    assert ProjectedUpdate(adamw(trained(model)), v, model).covered == 1


def test_verify_draws_new_toy_pairs_as_the_script_does(tiny):
    """The held-out pairs that a V of toy pairs has are too few."""
    model, pairs = peft_on(tiny.model), load_pairs("toy")[:4]
    v = VHack.extract(model, pairs, tokenizer=tiny.tokenizer, k=1)
    assert v.verify(model, pairs, tokenizer=tiny.tokenizer).status != "NOT_EVALUABLE"


def test_groups_frozen_modules_and_missing_gradients():
    model, v = small()
    for name, p in model.named_parameters():
        p.requires_grad_("lora_" in name and ".a." in name)
    first, second = trained(model)
    optimizer = torch.optim.SGD([{"params": [first], "lr": 0.5}, {"params": [second], "lr": 0.1}], lr=1.0)
    projected, before = ProjectedUpdate(optimizer, v, model), coordinates_of(model).values()
    assert list(projected.coordinates.parameters) == ["a"]
    steps(model, optimizer, range(1))
    optimizer.zero_grad()
    optimizer.step()
    assert along(v, before, model) < 1e-6
    assert projected.last["cos_in"] is None
    assert projected.steps == 2
