"""V: orientation, controls, held-out numbers, and artefacts that refuse the wrong model."""

from dataclasses import replace

import pytest
import torch
from harness import attached, tensor
from safetensors.torch import load_file, save_file

from projected_grpo import vhack
from projected_grpo.adapters.lora_adapter import attach_lora
from projected_grpo.data.pairs import split
from projected_grpo.ledger.errors import BadInput, NonFinite
from projected_grpo.vhack import Extraction, basis_of, cut, pair_sides, random_basis
from projected_grpo.worlds.builtin import builtin_pairs
from projected_grpo.worlds.models import load_model


def test_basis_by_hand():
    # Three pairs along -e1 (norms 3, 2, 1) and one along e0 with norm 5: right singular vectors e0 (5) and e1 (sqrt
    # 14).
    d = torch.tensor([[0.0, -3.0, 0.0], [0.0, -2.0, 0.0], [0.0, -1.0, 0.0], [5.0, 0.0, 0.0]])
    v, s = basis_of(d, 2)
    torch.testing.assert_close(v, torch.tensor([[1.0, 0.0, 0.0], [0.0, -1.0, 0.0]]))  # most pairs project positively
    torch.testing.assert_close(s, torch.tensor([5.0, 14.0**0.5]))
    v, _ = basis_of(torch.tensor([[1.0, 0.0], [1.0, 0.0], [-50.0, 0.0]]), 1)
    assert v[0, 0] > 0  # one huge pair the other way does not turn the direction
    assert len(basis_of(torch.zeros(3, 5), 2)[0]) == 0
    assert len(basis_of(torch.ones(3, 5), 3)[0]) == 1  # rank 1


def test_a_printed_v_is_one_line():
    v = vhack.VBasis({"m": torch.eye(3)}, {"m": torch.ones(3)}, {}, {"model": "tiny", "loss": "nll", "control": "none"})
    assert repr(v) == "VBasis(model='tiny', adapter=None, loss='nll', control='none', 1 modules, 3 directions)"


def differences(loaded, adapter, n=3, loss="nll", **kwargs):
    pairs = split(builtin_pairs())[0][:n]
    sides = pair_sides(pairs, loaded, "simple_overwrite_tests", "no_intervention", **kwargs)
    return Extraction(loss, max_new=64).differences(loaded, adapter, sides, 4096), sides


def test_nll_and_grpo_differ_by_length_normalisation(tiny, antipasto):
    """T7's sneaky fail is that the two tensors are the same. grpo sums over tokens over the constant 2 x max_new."""
    nll, sides = differences(tiny, antipasto, 2)
    grpo, _ = differences(tiny, antipasto, 2, "grpo")
    name = next(iter(nll))
    assert not torch.allclose(nll[name], grpo[name] * 2 * 64, rtol=0.01)
    n = min(len(s.completion_ids) for s in sides[0])
    same_length = [tuple(replace(s, completion_ids=s.completion_ids[:n]) for s in sides[0])]
    a, b = (
        Extraction(loss, max_new=64).differences(tiny, antipasto, same_length, 4096)[name] for loss in ("nll", "grpo")
    )
    torch.testing.assert_close(a * n / (2 * 64), b, rtol=1e-3, atol=1e-6)  # at equal lengths only the constant differs


def test_placebo_contrasts_two_clean_completions(tiny):
    pairs = builtin_pairs()[:1]
    ((first, second),) = pair_sides(pairs, tiny, "none", "no_intervention", "placebo")
    decoded = [tiny.tokenizer.decode(s.completion_ids, skip_special_tokens=True) for s in (first, second)]
    assert decoded == [pairs[0].clean, pairs[0].clean_alt]


def test_clean_is_the_gradient_of_the_clean_completion_itself(tiny, antipasto):
    d, sides = differences(tiny, antipasto, 2, control="clean")
    assert [len(row) for row in sides] == [1, 1]
    hack_minus_clean, both = differences(tiny, antipasto, 2)
    hacks = Extraction().differences(tiny, antipasto, [row[:1] for row in both], 4096)
    for name in d:
        torch.testing.assert_close(hacks[name] - d[name], hack_minus_clean[name], rtol=1e-3, atol=1e-6)


def test_energy_shares_and_the_random_rank_of_the_same_energy_by_hand():
    """V = the first of four axes; gradients (3, 4, 0, 0) and (0, 5, 0, 0): 9 of 50 of the energy. Of 100 coordinates
    that is what 18 random directions hold."""
    shares = vhack.energy_shares({"m": torch.eye(4)[:1]}, {"m": torch.tensor([[3.0, 4, 0, 0], [0, 5, 0, 0]])})
    assert shares["m"] == pytest.approx(9 / 50)
    assert vhack.rank_of_share(shares["m"], 100) == 18
    assert vhack.rank_of_share(1e-9, 100) == 1
    gradients = torch.randn(400, 100, generator=torch.Generator().manual_seed(0))
    held = vhack.energy_shares({"m": random_basis((18, 100), 1, "m")}, {"m": gradients})["m"]
    assert held == pytest.approx(0.18, abs=0.01)


@pytest.mark.slow
def test_replicates_draw_their_own_pairs_and_controls(vhack_file):
    """V of two bootstrap samples differ, and an artefact says what it is."""
    files = vhack_file(), vhack_file("none", "--pairs-draw", "3"), vhack_file("random_energy")
    v, drawn, more = (vhack.read_vhack(path).meta for path in files)
    assert (v["pairs_draw"], drawn["pairs_draw"]) == ("0", "3")
    assert v["v_sha256"] != drawn["v_sha256"]
    assert v["pairs_hash"] == drawn["pairs_hash"]
    assert int(more["directions"]) > int(v["directions"])  # V holds more than k random directions do


def test_lora_extraction_reaches_a(tiny):
    adapter = attach_lora(tiny.model, 4, 41)
    d, _ = differences(tiny, adapter)
    name, layer = next(iter(adapter.layers.items()))
    a, b = layer.split(d[name][0])
    assert a.any()
    assert b.any()
    assert not layer.split(layer.theta)[1].any()  # and B is zero again


def test_a_nan_gradient_names_module_and_pair(tiny, antipasto):
    next(iter(antipasto.layers.values())).Vh[0, 0] = float("nan")
    with pytest.raises(NonFinite, match=r"pair 0 is not finite in model\.layers"):
        differences(tiny, antipasto, 1)


def test_noise_floor_is_global_and_k_use_is_per_module():
    """A dose of 96 that is one of 2 in truth is refused, and a part of random directions that were drawn to match an
    energy; a module that has fewer rows than the others (keys, values) is no error."""
    values = {"a": torch.tensor([4.0, 3.0]), "b": torch.tensor([2.0])}
    v = vhack.VBasis({name: torch.eye(3)[: len(s)] for name, s in values.items()}, values, {}, {"control": "none"})
    rows = [tuple(map(len, cut(v, *how).basis.values())) for how in ((), (2,), (1,), (0, 0.5))]
    assert rows == [(2, 1), (2, 1), (1, 1), (2, 0)]
    with pytest.raises(BadInput, match="--k-use 96: no module of this V has more than 2 directions"):
        cut(v, 96)
    drawn = replace(v, meta={"control": "random_energy"})
    assert cut(drawn).directions == 3
    for how in ((1,), (0, 0.5)):
        with pytest.raises(BadInput, match=r"random_energy.* --k of the V"):
            cut(drawn, *how)


def test_held_out_numbers_by_hand():
    # one module, n = 4, V = e0: d = (3, 4, 0, 0) has energy 9/25, null 1/4, cosine 3/5; its mirror has cosine -3/5.
    d = {"m": torch.tensor([[3.0, 4.0, 0.0, 0.0], [-3.0, 4.0, 0.0, 0.0]])}
    seen = vhack.held_out_numbers({"m": torch.eye(4)[:1]}, d, 0, 200)
    assert seen.energy == pytest.approx([9 / 25, 9 / 25])
    assert seen.null == pytest.approx([0.25, 0.25])
    assert seen.cosine == pytest.approx([0.6, -0.6])
    assert sum(seen.random_energy) / 200 == pytest.approx(0.25, abs=0.03)
    assert abs(sum(seen.random_cosine) / 200) < 0.05


@pytest.mark.slow
def test_saved_rows_are_orthonormal_and_controls_have_the_same_shape(vhack_file):
    real, random, placebo = (load_file(vhack_file(c)) for c in ("none", "random", "placebo"))
    for name in (n for n in real if n.startswith("V/")):
        for v in (real[name], random[name], placebo[name]):
            assert v.shape == real[name].shape
            torch.testing.assert_close(v @ v.T, torch.eye(len(v)), rtol=1e-3, atol=1e-4)
        assert not torch.allclose(real[name], random[name], atol=0.1)
        assert not torch.allclose(real[name], placebo[name], atol=0.1)
        assert torch.equal(real["S" + name[1:]], random["S" + name[1:]])


def loaded_with(cache, seed=0, kind="antipasto"):
    loaded = load_model("tiny", "float32", "cpu", seed, cache)
    return loaded, attached(kind, loaded, cache / "svd")


@pytest.mark.parametrize(
    ("seed", "kind", "control", "why"),
    [
        (42, "antipasto", "none", r"weights_hash=\w+, but this run has weights_hash="),
        (0, "lora", "none", "adapter=antipasto, but this run has adapter=lora"),
        (0, "antipasto", "random", "control=none, but this run has control=random"),
    ],
)
def test_v_of_something_else_is_refused_naming_both_sides(vhack_file, cache, seed, kind, control, why):
    with pytest.raises(BadInput, match=why):
        vhack.load_vhack(vhack_file(), *loaded_with(cache, seed, kind), control)


def test_v_in_another_singular_basis_is_refused(vhack_file, cache, tmp_path):
    """An SVD leaves signs free: a V from a machine that chose otherwise would point the wrong way in silence."""
    v = vhack.read_vhack(vhack_file())
    name, path = next(iter(v.probes)), tmp_path / "v.safetensors"
    vhack.save_vhack(path, v)
    loaded = loaded_with(cache)
    assert {len(rows) for rows in vhack.load_vhack(path, *loaded, "none", k_use=3).basis.values()} == {3}
    vhack.save_vhack(path, replace(v, probes={**v.probes, name: -v.probes[name]}))
    with pytest.raises(BadInput, match="another singular basis"):
        vhack.load_vhack(path, *loaded, "none")


def test_missing_and_foreign_files_are_refused(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        vhack.read_vhack(tmp_path / "none.safetensors")
    save_file({"x": tensor([1.0])}, tmp_path / "other.safetensors")
    with pytest.raises(BadInput, match="not written by extract_vhack_grad"):
        vhack.read_vhack(tmp_path / "other.safetensors")


def test_a_v_that_held_out_another_share_is_refused(vhack_file, tmp_path):
    """An older one: it would be verified on pairs that it was made of."""
    v, path = vhack.read_vhack(vhack_file()), tmp_path / "v.safetensors"
    vhack.save_vhack(path, replace(v, meta={**v.meta, "held_out": "0.2"}))
    assert vhack.read_vhack(path).meta["v_sha256"] == v.meta["v_sha256"]
    vhack.save_vhack(path, replace(v, meta={**v.meta, "held_out": "0.05"}))
    with pytest.raises(BadInput, match=r"held_out=0\.05, which is always 0\.2 here"):
        vhack.read_vhack(path)


def test_a_pair_run_as_one_shared_prompt_gives_the_row_of_two_separate_backward_passes(tiny, adapter, monkeypatch):
    """Either loss, either adapter; a pair twice, as a bootstrap draws it, is two rows and is run once."""
    run = []
    true_batch = vhack.shared_batch
    monkeypatch.setattr(vhack, "shared_batch", lambda p, *rest, **kw: run.append(len(p)) or true_batch(p, *rest, **kw))
    pairs = split(builtin_pairs())[0][:2]
    sides = pair_sides((*pairs, pairs[0]), tiny, "simple_overwrite_tests", "no_intervention")
    how = Extraction("nll" if adapter.kind == "antipasto" else "grpo", max_new=64)
    shared = how.differences(tiny, adapter, sides, 4096)
    assert sum(run) == 2 * len(pairs)
    apart = how.differences(tiny, adapter, [(side,) for row in sides[:2] for side in row], 1)
    for name, rows in shared.items():
        expected = (apart[name][0::2] + apart[name][1::2])[[0, 1, 0]]  # signs are in the losses
        torch.testing.assert_close(rows, expected, rtol=1e-3, atol=1e-5 * float(expected.abs().max()))
        assert torch.equal(rows[0], rows[2])


def test_removing_v_leaves_what_a_second_reading_of_the_pairs_tells():
    """A sneaky fail: the pairs differ along two directions, and V of one row takes one of them."""
    draw = torch.Generator().manual_seed(0)
    noise = 0.05 * torch.randn(60, 12, generator=draw)

    one = torch.ones(60, 1) * torch.eye(12)[0] + noise
    (before, *after), chance = vhack.separability({"m": one}, 1)
    assert before == 1.0
    assert abs(after[0] - 0.5) < 3 * chance
    assert vhack.separability({"m": torch.ones(60, 1) * torch.eye(12)[0]}, 1)[0] == [1.0]  # nothing is left
    two = torch.cat([torch.eye(12)[:1].expand(30, 12), torch.eye(12)[1:2].expand(30, 12)]) + noise
    two = two[torch.randperm(60, generator=draw)]
    assert vhack.separability({"m": two}, 1)[0][1] > 0.9
