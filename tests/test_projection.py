"""Projection against upstream's numbers and by its properties; principal angles by hand, and `compare` of V files:
two names for one V are red."""

import math
from types import SimpleNamespace

import pytest
import torch
from harness import FEW, measure, tensor

from projected_grpo import vhack
from projected_grpo.arms import GATES
from projected_grpo.channels.policy import nll
from projected_grpo.projection import (
    SAME,
    Projection,
    compared,
    null_cosine,
    one_subspace,
    project_vector,
)
from projected_grpo.vhack import random_basis, read_vhack


def test_equals_upstream(golden):
    cases = golden["adapter"]["projection"]["cases"]
    assert len(cases) == 24
    for case in cases:
        g, v = tensor(case["inputs"]["g"]), tensor(case["inputs"]["V_hack"])
        p, e = case["params"], case["expected"]
        kept, removed = project_vector(g, v, p["gate"], p["overshoot"], p["preserve_magnitude"])
        near = {"rtol": 1e-9, "atol": 1e-12 * max(1.0, float(g.norm()))}
        torch.testing.assert_close(removed, tensor(e["removed"]), **near)
        torch.testing.assert_close(kept, tensor(e["g_proj"]), **near)
        for vector, which in ((g, "cos_in"), (kept, "cos_out")):
            found = measure({"m": vector}, {"m": v})
            assert (found.cos or 0.0) == pytest.approx(e[which], rel=1e-9, abs=1e-9)
            assert (found.cos_signed or 0.0) == pytest.approx(e[f"{which}_sum_signed"], rel=1e-9, abs=1e-9)


def test_modules_without_directions_or_a_gradient_are_left_alone_and_left_out():
    g, v = torch.randn(12, generator=torch.Generator().manual_seed(3)), random_basis((4, 12), 3, "v")
    for gate in GATES:
        kept, removed = project_vector(g, v[:0], gate)
        assert torch.equal(kept, g)
        assert not removed.any()
    grads = {"a": g, "b": g, "c": -v[0]}
    kept, fired = Projection({"a": v, "b": v[:0], "c": v[:1]}, "grad", "one_sided").apply(grads)
    assert fired == pytest.approx(1 / 3)  # b has no V; c points away
    assert torch.equal(kept["c"], grads["c"])
    grads = {"a": v[0], "b": v[0], "zero": torch.zeros(12), "none": g}
    basis = {"a": v[:1], "b": v[1:2], "zero": v, "none": v[:0]}
    assert measure(grads, basis).cos == pytest.approx(0.5)  # 1 and 0


def test_null_cosine_is_what_random_directions_show():
    """Monte Carlo over Haar bases: E ||V g||^2 / ||g||^2 = k / n."""
    g = {"m": torch.randn(40, generator=torch.Generator().manual_seed(0))}
    energies = [measure(g, {"m": random_basis((10, 40), seed, "m")}).energy for seed in range(300)]
    assert sum(energies) / 300 == pytest.approx(null_cosine({"m": torch.zeros(10, 40)}) ** 2, rel=0.05)


def test_of_a_share_the_first_rows_are_removed_that_hold_it_and_the_last_of_them_in_part():
    """g = (3, 4, 12): the rows hold 9, 16 and 144 of 169. Of .1 the first is removed whole, and of the second 7.9 of
    16. Rows that hold less than the share are all removed. one_sided counts what it removes alone."""
    g, v = {"m": torch.tensor([3.0, 4.0, 12.0])}, {"m": torch.eye(3)}
    projection = Projection(v, "update", shares={"m": 0.1})
    kept, _ = projection.apply(g)
    assert kept["m"][0] == 0
    assert kept["m"][1] == pytest.approx((16 - 7.9) ** 0.5, rel=1e-6)
    assert kept["m"][2] == 12
    assert projection.removed_share(g, kept) == (pytest.approx(1), 1)
    few, _ = Projection({"m": v["m"][:1]}, "update", shares={"m": 0.5}).apply(g)
    assert few["m"].tolist() == [0, 4, 12]
    turned = {"m": torch.tensor([-3.0, 4.0, 12.0])}
    kept, _ = Projection(v, "update", "one_sided", shares={"m": 16 / 169}).apply(turned)
    torch.testing.assert_close(kept["m"], torch.tensor([-3.0, 0.0, 12.0]), atol=1e-2, rtol=0)


def test_half_space_stops_at_the_start_and_lets_what_was_gained_be_lost_again():
    """V = e0, theta = (2, 0): two ahead of the start on the clean side. An update by -1 stays, one by -3 ends at 0. At
    the start it is one_sided."""
    projection, theta = Projection({"m": torch.eye(2)[:1]}, "update", "half_space"), {"m": torch.tensor([2.0, 0.0])}
    for g, kept in (([1.0, 5.0], [1.0, 5.0]), ([3.0, 5.0], [2.0, 5.0]), ([-1.0, 5.0], [-1.0, 5.0])):
        found, _ = projection.apply_to("update", {"m": torch.tensor(g)}, theta)
        assert found["m"].tolist() == kept
        assert projection.removed_share({"m": torch.tensor(g)}, found, theta)[0] in (None, 1.0)
    start = {"m": torch.zeros(2)}
    for c in (-2.0, 2.0):
        g = {"m": torch.tensor([c, 1.0])}
        one_sided, _ = Projection({"m": torch.eye(2)[:1]}, "update", "one_sided").apply(g)
        assert torch.equal(projection.apply(g, start)[0]["m"], one_sided["m"])


# ---------------------------------------------------------------- two V against each other


def test_angles_by_hand():
    # the planes spanned by (x, y) and by (x, y turned by 30 degrees towards z) share x
    a = torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0]])
    b = torch.tensor([[1.0, 0, 0, 0], [0, math.cos(math.pi / 6), math.sin(math.pi / 6), 0]])
    (module,) = compared({"m": a}, {"m": b})
    assert module.angles == pytest.approx([0.0, math.pi / 6], abs=1e-7)
    assert module.overlap == pytest.approx((1 + 0.75) / 2)  # cos^2 of 0 and of 30 degrees
    assert module.null == pytest.approx(2 / 4)
    (apart,) = compared({"m": a}, {"m": torch.tensor([[0.0, 0, 1, 0], [0, 0, 0, 1]])})
    assert apart.angles == pytest.approx([math.pi / 2] * 2)


SAME_V = {
    "signs": lambda v: v * torch.where(torch.arange(len(v)) % 2 == 0, -1.0, 1.0)[:, None],
    "order of rows": lambda v: v.flip(0),
    "turned in its span": lambda v: random_basis((len(v), len(v)), 0, "q") @ v,
    "rounded to bfloat16": lambda v: v.to(torch.bfloat16).float(),
}


@pytest.mark.parametrize("change", SAME_V.values(), ids=SAME_V)
def test_one_subspace_is_known_whatever_its_rows_look_like(change):
    v = {f"layer.{i}.q_proj": random_basis((6, 64), i, "v") for i in range(3)}
    assert one_subspace(compared(v, {n: change(rows) for n, rows in v.items()}))


def test_two_subspaces_are_two_and_a_module_that_is_spanned_whole_says_nothing():
    v, w = random_basis((6, 64), 1, "v"), random_basis((6, 64), 2, "w")
    assert not one_subspace(compared({"a": v, "b": v}, {"a": v, "b": w}))
    six = {str(i): random_basis((6, 64), i, "v") for i in range(6)}
    one_turned = {**six, "0": torch.cat([v[:5], v[5:] + 0.02 * w[:1]])}
    assert one_subspace(compared(six, {**six, "0": one_turned["0"]}))  # one module by hand makes no second V
    whole = torch.eye(6)
    assert not one_subspace(compared({"a": whole}, {"a": whole}))
    assert one_subspace(compared({"a": whole, "b": v}, {"a": whole, "b": v}))
    near = torch.cat([v[:5], (v[5:] + 3 * SAME * w[:1])])
    assert not one_subspace(compared({"a": v}, {"a": near}))


# ---------------------------------------------------------------- the script


@pytest.mark.slow
def test_both_losses_give_two_v_of_the_tiny_model(script, vhack_file, tmp_path):
    code, out, err = script("compare", vhack_file(), vhack_file("none", "--loss", "grpo"), "--out", "angles.txt")
    assert code == 0, err
    assert "two bases" in out
    for what in ("kind of module", "q_proj", "down_proj", "max °", "loss", "nll", "grpo"):
        assert what in out, what
    assert "q_proj" in (tmp_path / "angles.txt").read_text()


@pytest.mark.slow
def test_an_extraction_that_takes_the_nll_for_grpo_is_seen(script, vhack_file, monkeypatch, tmp_path):
    """The bug itself, injected into the extraction: --loss grpo that computes the NLL."""

    def as_nll(logps, mask, advantage, **_):
        return SimpleNamespace(per_sample=nll(logps, mask) * advantage)

    monkeypatch.setattr(vhack, "policy_loss", as_nll)
    assert script("extract_vhack_grad", "tiny", *FEW, "--loss", "grpo", "--out", "bug")[0] == 0
    assert read_vhack(tmp_path / "bug/vhack.safetensors").meta["loss"] == "grpo"
    code, out, _ = script("compare", vhack_file("none"), "bug/vhack.safetensors")
    assert code == 1, out
