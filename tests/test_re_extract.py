"""V extracted again from a trained adapter: a LoRA whose basis moved is seen, on the tiny model."""

import pytest
import torch
from harness import shake

from projected_grpo.adapters import attach_lora
from projected_grpo.data.pairs import load_pairs
from projected_grpo.ledger.step_file import read_run
from projected_grpo.run.refresh import record
from projected_grpo.verdicts.re_extracted import read_re_extracted
from projected_grpo.vhack import VBasis, basis_of, pair_differences, pair_sides


def set_b(adapter, scale=0.05):
    shake(adapter, scale=1e-2)
    with torch.no_grad():
        for i, layer in enumerate(adapter.layers.values()):
            b = layer.split(layer.theta)[1]
            b.copy_(torch.randn(b.shape, generator=torch.Generator().manual_seed(i)) * scale)


def turn(adapter):
    """A -> P A, B -> B P^T for a shift P of the rank's axes: the same function of x, bit for bit but for the order of a sum,
    in coordinates that moved."""
    with torch.no_grad():
        for layer in adapter.layers.values():
            a, b = layer.split(layer.theta.detach().clone())
            layer.split(layer.theta)[0].copy_(a.roll(1, 0))
            layer.split(layer.theta)[1].copy_(b.roll(1, 1))


@pytest.mark.slow
def test_a_v_of_the_trained_point_is_still_v_and_one_under_which_the_basis_moved_is_not(tiny):
    adapter = attach_lora(tiny.model, 4, 0)
    set_b(adapter)
    sides = pair_sides(load_pairs("builtin", ("assert_true",)), tiny, "simple_overwrite_tests", "no_intervention")

    def differences():
        return pair_differences(tiny, adapter, sides, "nll", 1, 8192)

    v = VBasis({n: basis_of(rows, 4)[0] for n, rows in differences().items()}, {}, {}, {"loss": "nll"})
    same = record(adapter, v, differences(), 7, "no_gate")
    assert same.overlap == pytest.approx(1.0, abs=1e-3)
    assert same.left < 0.01
    assert (same.steps, same.theta_norm) == (7, pytest.approx(adapter.norm()))
    turn(adapter)
    moved = record(adapter, v, differences(), 7, "no_gate")
    assert moved.standing < 0.2
    assert moved.left > 0.8
    assert moved.theta_norm == pytest.approx(same.theta_norm)
    assert moved.cos_in == pytest.approx(same.cos_in, rel=0.05)  # the function, and so the hack direction, is the same


@pytest.mark.slow
def test_the_script_measures_the_adapters_that_a_run_kept(script, vhack_file, tmp_path):
    lora = ("--adapter", "lora", "--lora-rank", "4")
    v = vhack_file("none", *lora)
    args = ("--arm", "projected", "--teacher-pool", "pairs", "--max-new", 8, "--steps", 3, "--vhack", v, *lora)
    code, _, err = script("train", "tiny", *args, "--out", "run", "--keep-adapter-every", 2)
    assert code == 0, err
    code, out, err = script("re_extract", "run")
    assert code == 0, err
    found = read_re_extracted(tmp_path / "run")
    assert [r.steps for r in found.records] == [2, 3]
    norms = [rows[0]["delta_S_norm"] for rows in read_run(tmp_path / "run")]
    assert [r.theta_norm for r in found.records] == pytest.approx(norms[1:], rel=1e-4)
    assert all(r.null < r.overlap <= 1 for r in found.records)
    assert "of the way from unrelated" in out
    other = vhack_file("none", *lora, "--pairs-draw", "3")
    code, _, err = script("re_extract", "run", "--vhack", other)
    assert code == 2
    assert "name the V that it used" in err
