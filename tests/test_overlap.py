"""Principal angles by hand, and `compare` of V files: two names for one V are red."""

import math

import pytest
import torch
from harness import FEW

from projected_grpo.projection import SAME, compared, one_subspace, principal_angles
from projected_grpo.vhack import random_basis, read_vhack


def test_angles_by_hand():
    # the planes spanned by (x, y) and by (x, y turned by 30 degrees towards z) share x
    a = torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0]])
    b = torch.tensor([[1.0, 0, 0, 0], [0, math.cos(math.pi / 6), math.sin(math.pi / 6), 0]])
    assert principal_angles(a, b) == pytest.approx([0.0, math.pi / 6], abs=1e-7)
    (module,) = compared({"m": a}, {"m": b})
    assert module.overlap == pytest.approx((1 + 0.75) / 2)  # cos^2 of 0 and of 30 degrees
    assert module.null == pytest.approx(2 / 4)
    assert principal_angles(a, torch.tensor([[0.0, 0, 1, 0], [0, 0, 0, 1]])) == pytest.approx([math.pi / 2] * 2)


def test_unrelated_subspaces_show_the_null():
    found = [
        compared({"m": random_basis((4, 400), i, "a")}, {"m": random_basis((8, 400), i, "b")})[0] for i in range(100)
    ]
    assert sum(m.overlap for m in found) / 100 == pytest.approx(found[0].null, rel=0.15)
    assert found[0].null == pytest.approx(8 / 400)


def turned(v, name):
    q = torch.linalg.qr(torch.randn(len(v), len(v), generator=torch.Generator().manual_seed(len(name))))[0]
    return q @ v


SAME_V = {
    "the same bytes": lambda v, _: v,
    "signs": lambda v, _: v * torch.where(torch.arange(len(v)) % 2 == 0, -1.0, 1.0)[:, None],
    "order of rows": lambda v, _: v.flip(0),
    "turned in its span": turned,
    "rounded to bfloat16": lambda v, _: v.to(torch.bfloat16).float(),
}


@pytest.mark.parametrize("change", SAME_V.values(), ids=SAME_V)
def test_one_subspace_is_known_whatever_its_rows_look_like(change):
    v = {f"layer.{i}.q_proj": random_basis((6, 64), i, "v") for i in range(3)}
    assert one_subspace(compared(v, {n: change(rows, n) for n, rows in v.items()}))


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


@pytest.fixture
def both(vhack_file):
    return vhack_file("none"), vhack_file("none", "--loss", "grpo")


@pytest.mark.slow
def test_both_losses_give_two_v_of_the_tiny_model(script, both, tmp_path):
    code, out, err = script("compare", *both, "--out", "angles.txt")
    assert code == 0, err
    assert "two bases" in out
    for what in ("kind of module", "q_proj", "down_proj", "max °", "loss", "nll", "grpo"):
        assert what in out, what
    assert "q_proj" in (tmp_path / "angles.txt").read_text()


@pytest.mark.slow
def test_an_extraction_that_takes_the_nll_for_grpo_is_seen(script, vhack_file, monkeypatch, tmp_path):
    """The bug itself, injected into the extraction: --loss grpo that computes the NLL."""
    from projected_grpo import vhack
    from projected_grpo.channels.policy import nll

    class Terms:
        def __init__(self, per_sample):
            self.per_sample = per_sample

    def as_nll(logps, mask, advantage, **_):
        return Terms(nll(logps, mask) * advantage)

    monkeypatch.setattr(vhack, "policy_loss", as_nll)
    assert script("extract_vhack_grad", "tiny", *FEW, "--loss", "grpo", "--out", "bug")[0] == 0
    assert read_vhack(tmp_path / "bug/vhack.safetensors").meta["loss"] == "grpo"
    code, out, _ = script("compare", vhack_file("none"), "bug/vhack.safetensors")
    assert code == 1, out
