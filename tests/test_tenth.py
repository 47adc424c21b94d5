"""V of a tenth of the modules: chosen from pairs alone, empty elsewhere, and named so."""

import pytest
import torch
from test_chain import flag, toy_plan

from projected_grpo.chains.studies import chain_of
from projected_grpo.ledger.module_file import read_modules
from projected_grpo.run.vhack_file import read_vhack
from projected_grpo.vhack import share_of, times_chance


def test_times_chance_by_hand():
    """Four pairs a module of four coordinates, k = 1, chance 1/4. `same`: all along one axis, 4 times chance. `apart`: the
    half that V is made from lies along other axes than the half that it is held against: 0."""
    same = torch.tensor([[1.0, 0, 0, 0]] * 4)
    apart = torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0], [1.0, 0, 0, 0], [0, 1.0, 0, 0]])
    names = ["a", "b", "c", "d"]  # halves a, c and b, d
    found = times_chance({"same": same, "apart": apart, "none": torch.zeros(4, 4)}, names, 1)
    assert found == pytest.approx({"same": 4.0, "apart": 0.0, "none": 0.0})


def test_copies_of_a_pair_are_no_unseen_ones():
    """A bootstrap sample repeats pairs: noise that is the same in two rows is no direction that other pairs share. Split by
    place, V of rows 0 and 2 would hold all of rows 1 and 3."""
    d = {"m": torch.tensor([[1.0, 0, 0, 0], [1.0, 0, 0, 0], [0, 0, 1.0, 0], [0, 0, 1.0, 0]])}
    assert times_chance(d, ["a", "a", "b", "b"], 1)["m"] == 0.0
    assert times_chance(d, ["a", "b", "c", "d"], 1)["m"] > 0.9


def test_a_tenth_is_the_best_or_as_many_drawn():
    scores = {f"m{i}": float(i) for i in range(28)}
    assert share_of(scores, 0.1, "energy", 1) == ["m27", "m26", "m25"]
    drawn = [share_of(scores, 0.1, "random", seed) for seed in (1, 1, 2)]
    assert len(drawn[0]) == 3
    assert drawn[0] == drawn[1] != drawn[2]
    assert share_of({**scores, "m0": 99.0}, 0.1, "random", 1) == drawn[0]  # whatever they hold
    assert len(share_of(scores, 0.01, "energy", 1)) == 1
    assert len(share_of({f"m{i}": 0.0 for i in range(30)}, 0.1, "energy", 1)) == 3  # .1 * 30 is 3.0000000000000004


def test_v_is_empty_elsewhere_and_projection_leaves_it_alone_there(script, vhack_file, tmp_path):
    path = vhack_file("none", "--modules", "0.1")
    v, whole = read_vhack(path), read_vhack(vhack_file())
    kept = [name for name, rows in v.basis.items() if len(rows)]
    assert len(kept) == 2  # of 14
    assert all(torch.equal(v.basis[name], whole.basis[name]) for name in kept)
    assert v.meta["modules"] == "0.1 by energy"
    assert "modules" not in whole.meta
    code, _, err = script("train", "tiny", "--arm", "projected", "--vhack", path, "--steps", 1, "--teacher-pool", "pairs",
                            "--out", "run")  # fmt: skip
    assert code == 0, err
    side = read_modules(tmp_path / "run")
    removed = dict(zip(side.names, side.steps[0]["removed"], strict=True))
    assert all((removed[name] > 1e-6) == (name in kept) for name in side.names)


@pytest.mark.parametrize("share", ["0", "1.5"])
def test_a_share_that_is_none_is_refused(script, share):
    code, out, err = script("extract_vhack_grad", "tiny", "--modules", share)
    assert code == 2
    assert f"--modules {float(share)}: must be above 0 and at most 1" in out + err


def test_the_study_of_variants_runs_the_best_tenth_and_as_many_at_random():
    links = {link.name: link for link in chain_of(toy_plan(seeds=(1, 2)), "variants")}
    for name, how in (
        ("top_tenth", ("--modules", ".1")),
        ("random_tenth", ("--modules", ".1", "--modules-by", "random")),
    ):
        made, run = links[f"extract_{name}_1"], links[f"train_{name}_1"]
        assert " ".join(how) in " ".join(made.argv)
        assert flag(run, "--vhack") == str(made.out / "vhack.safetensors")
        assert flag(run, "--arm") == "projected"
        assert {made.name, "verify_none_1", "train_vanilla_1"} <= set(run.needs)
