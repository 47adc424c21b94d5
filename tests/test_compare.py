"""`just compare` on written runs: matched steps, refusals by field, what goes into the files."""

import dataclasses
import shutil

import pytest
from written_runs import evaluate, ten, write_run

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import read_manifest, update_manifest
from projected_grpo.ledger.re_extracted import ReExtracted, write_re_extracted
from projected_grpo.report.compare import compare

V = {"control": "none", "k": "48", "pairs_hash": "h", "pairs_draw": "1", "loss": "nll", "v_sha256": "svd"}
LORA = {"adapter": "lora", "lora_rank": 32, "lr": 3e-4}
AGAIN = ReExtracted(10, 0.5, 0.6, 0.01, 0.9, 0.3)
HACKS = {"vanilla": (8, 8, 7), "projected": (0, 1, 0)}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Two arms at three seeds in either adapter, written once."""
    root = tmp_path_factory.mktemp("sides")
    for side, adapter, own in (("svd", "antipasto", {}), ("lora", "lora", LORA)):
        for arm, hacks in HACKS.items():
            for seed, n in zip((41, 42, 43), hacks, strict=True):
                v = {**V, "pairs_draw": str(seed), "v_sha256": f"{adapter} {seed}", "adapter": adapter}
                path = write_run(root / side / f"{arm}_{seed}", arm, seed, ten(n), vhack=v, **own)
                for step in (0, 10):
                    evaluate(path, step, arm, seed, ["good"] * 3 + ["bad"] * 7)
                if arm == "projected":
                    write_re_extracted(path, [AGAIN])
    return root


@pytest.fixture
def both(written, tmp_path):
    """Copies, to be harmed."""
    for side in ("svd", "lora"):
        shutil.copytree(written / side, tmp_path / side)
    return tmp_path / "svd", tmp_path / "lora"


@pytest.mark.slow
def test_both_sides_are_printed_at_matched_steps_and_t6_is_judged(both, script, tmp_path):
    code, out, err = script("compare", *both, "--out", "compare.txt")
    assert code == 0, (out, err)
    for what in ("T6: PASS", "hack % A", "cos_out B", "of the way from unrelated", "paired t"):
        assert what in out, what
    rates = [line.split() for line in out.partition("Rates:")[2].partition("Cosines:")[0].splitlines()[3:]]
    assert [row[1] for row in rates if row and row[0] == "vanilla"] == ["0", "2", "4", "5", "7", "9"]
    assert [row[3:5] for row in rates if row and row[1] == "9"] == [["3.3", "3.3"], ["76.7", "76.7"]]  # 1 / 30, 23 / 30
    assert "T6: PASS" in (tmp_path / "compare.txt").read_text()


def test_a_drifted_lora_is_exit_code_1(both, script):
    gone = dataclasses.replace(AGAIN, overlap=0.02, cos_out=0.88)
    for seed in (41, 42, 43):
        write_re_extracted(both[1] / f"projected_{seed}", [gone])
    code, out, _ = script("compare", *both)
    assert code == 1
    assert "V is still V fails" in out


def test_runs_that_do_not_match_are_refused_naming_the_fields(both, script):
    for run in both[1].iterdir():
        update_manifest(run, config={**read_manifest(run)["config"], "weight_decay": 0.3, "k_use": 8})
    code, _, err = script("compare", *both)
    assert code == 2
    assert "config.weight_decay: 0.0 against 0.3" in err
    assert "config.k_use: 0 against 8" in err


def test_two_runs_of_one_adapter_are_compared_but_for_what_their_arms_are_about(both):
    text, t6 = compare(both[0] / "vanilla_41", both[0] / "projected_41")
    assert "vanilla / projected" in text
    assert t6 == ()
    assert compare(both[0], shutil.copytree(both[0], both[0].parent / "again"))[1] == ()  # the same study twice
    other = both[0] / "projected_41"
    update_manifest(other, config={**read_manifest(other)["config"], "lr": 0.5})
    with pytest.raises(BadInput, match=r"cannot be compared.*config\.lr: 0\.001 against 0\.5"):
        compare(both[0] / "vanilla_41", other)
