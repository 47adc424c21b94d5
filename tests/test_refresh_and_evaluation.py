"""V extracted anew during training, and held-out evaluation beside it: through the real script on the tiny model."""

import re
import shutil

import pytest
import torch

from projected_grpo.ledger.step_file import read_run, read_step, step_path
from projected_grpo.run.refresh import overlap
from projected_grpo.vhack import random_basis

POOLED = ("--teacher-pool", "pairs", "--max-new", "8")
EVALUATED = ("--eval-every", 2, "--eval-problems", "builtin", "--eval-samples", 2)


def test_overlap_is_one_for_the_same_subspace_and_k_over_r_for_unrelated_ones():
    v = random_basis((4, 400), 1, "a")
    turned = torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(0)))[0] @ v
    assert overlap({"m": turned}, {"m": v}) == pytest.approx(1.0, abs=1e-5)
    draws = [overlap({"m": random_basis((4, 400), i, "b")}, {"m": v}) for i in range(200)]
    assert sum(draws) / len(draws) == pytest.approx(4 / 400, rel=0.15)
    assert overlap({"m": v, "empty": v[:0]}, {"m": v, "empty": v[:0]}) == pytest.approx(1.0)
    assert overlap({"m": v[:0]}, {"m": v}) == 0.0


def columns(run, name):
    return [rows[0][name] for rows in read_run(run)]


@pytest.mark.slow
def test_v_is_refreshed_when_due_and_the_overlap_is_logged(script, vhack_file, tmp_path):
    args = ("train", "tiny", "--arm", "projected", "--vhack", vhack_file(), "--steps", 5, "--lr", 0.1, *POOLED)
    assert script(*args, "--out", "frozen")[0] == 0
    code, out, err = script(*args, "--out", "run", "--refresh-every", 2)
    assert code == 0, err
    assert out.count("V extracted anew") == 2
    seen = columns(tmp_path / "run", "v_overlap")
    assert [o is not None for o in seen] == [False, False, True, False, True]
    assert all(0.05 < o < 1.0 for o in seen if o is not None)  # the model has moved, but not to another one
    assert columns(tmp_path / "frozen", "v_overlap") == [None] * 5
    frozen, run = (columns(tmp_path / name, "cos_in") for name in ("frozen", "run"))
    assert frozen[:2] == run[:2]
    assert frozen[2:] != run[2:]


@pytest.mark.slow
def test_a_cut_run_resumes_with_its_refreshed_v(script, vhack_file, tmp_path):
    """Cut between two refreshes: the V in use is in no file but the checkpoint."""
    args = ("train", "tiny", "--arm", "projected", "--vhack", vhack_file(), "--refresh-every", 2, *POOLED)
    assert script(*args, "--steps", 6, "--out", "whole")[0] == 0
    assert script(*args, "--steps", 6, "--out", "cut", "--checkpoint-every", 4)[0] == 0
    # what a kill after step 3's checkpoint leaves: steps 4 and 5 are taken again
    shutil.copytree(tmp_path / "cut", tmp_path / "again")
    late = [step_path(tmp_path / "again", s) for s in (4, 5)]
    assert script(*args, "--steps", 4, "--out", "short")[0] == 0
    shutil.copy(tmp_path / "short/checkpoint.pt", tmp_path / "again/checkpoint.pt")
    for path in late:
        path.unlink()
    code, _, err = script(*args, "--steps", 6, "--out", "again", "--resume")
    assert code == 0, err
    assert script("diff_runs", "whole", "again")[0] == 0


@pytest.mark.slow
def test_other_pairs_are_refused_before_anything_is_written(script, vhack_file, tmp_path):
    args = ("train", "tiny", "--vhack", vhack_file(), "--refresh-every", 2, "--out", "run")
    code, _, err = script(*args, "--pairs", "toy")
    assert (code, err.count("\n")) == (2, 1)
    assert "--pairs toy" in err
    assert not (tmp_path / "run").exists()
    code, _, err = script("train", "tiny", "--refresh-every", 2, "--out", "run")
    assert code == 2
    assert "--refresh-every 2" in err


@pytest.mark.slow
def test_evaluation_is_written_apart_and_changes_no_training_number(script, tmp_path):
    args = ("train", "tiny", "--steps", 3, "--max-new", 8)
    assert script(*args, "--out", "plain")[0] == 0
    code, out, err = script(*args, "--out", "run", *EVALUATED)
    assert code == 0, err
    assert out.count("held out, after") == 3  # before step 0, after 2, and after the last
    assert re.search(r"held-out evaluation took \d+ s, \d+% of the time", out)
    assert "held-out evaluation" not in script(*args, "--out", "again")[1]
    evaluated = sorted(p.name for p in (tmp_path / "run/eval").iterdir())
    assert evaluated == [f"step_{n:03d}.jsonl.gz" for n in (0, 2, 3)]
    rows = read_step(tmp_path / "run/eval/step_003.jsonl.gz")
    assert {r["step"] for r in rows} == {3}
    assert all(r["loss"] is None and r["reward"] is not None for r in rows)
    for one, other in zip(read_run(tmp_path / "plain"), read_run(tmp_path / "run"), strict=True):
        assert [{**r, "timing": 0} for r in one] == [{**r, "timing": 0} for r in other]


@pytest.mark.slow
def test_evaluation_is_the_same_every_time(script, tmp_path):
    for name in ("a", "b"):
        assert script("train", "tiny", "--steps", 2, "--max-new", 8, "--out", name, *EVALUATED)[0] == 0
    one, other = (read_step(tmp_path / name / "eval/step_002.jsonl.gz") for name in ("a", "b"))
    assert [r["completion_ids"] for r in one] == [r["completion_ids"] for r in other]
