"""V extracted again, during training and at trained adapters, and held-out evaluation: on the tiny model."""

import dataclasses
import re

import pytest
import torch
from harness import LORA, POOLED, refused, shake, theta_of
from torch.nn import functional as F

from projected_grpo.adapters.lora_adapter import attach_lora
from projected_grpo.config import TrainConfig
from projected_grpo.data.pairs import load_pairs
from projected_grpo.data.problems import load_problems
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import update_manifest
from projected_grpo.ledger.re_extracted import read_re_extracted
from projected_grpo.ledger.step_file import read_run, read_step
from projected_grpo.presets import presets
from projected_grpo.projection import norm_of, overlap
from projected_grpo.run.prepare import prepare
from projected_grpo.run.refresh import Refresher, record
from projected_grpo.run.run_folder import RunFolder
from projected_grpo.vhack import Extraction, VBasis, basis_of, pair_sides, read_vhack
from projected_grpo.worlds.models import load_model
from projected_grpo.worlds.tiny_model import built_model

pytestmark = pytest.mark.slow
SAVE = RunFolder.checkpoint
EVALUATED = ("--eval-every", 2, "--eval-problems", "builtin", "--eval-samples", 2)


def test_v_is_refreshed_when_due_the_overlap_is_logged_and_a_cut_run_resumes_with_it(
    done, made, vhack_file, tmp_path, monkeypatch
):
    """Cut between two refreshes: the V in use is in no file but the checkpoint."""
    args = ("--arm", "projected", "--vhack", vhack_file(), "--lr", 0.1, *POOLED)
    refreshed = ("--steps", 5, "--refresh-every", 2)
    run = made("train", *args, *refreshed)
    log = (run / "log.txt").read_text("utf-8")
    overlaps = [float(x) for x in re.findall(r"V extracted again: overlap with the one before ([\d.]+)", log)]
    assert len(overlaps) == 2
    assert all(0.05 < x < 1.0 for x in overlaps)  # the model has moved, but not to another one
    again = ("train", "tiny", *args, *refreshed, "--out", "again")
    with monkeypatch.context() as m:  # what a kill in step 4 leaves: step 3 is on disk and no checkpoint is behind it
        m.setattr(RunFolder, "checkpoint", lambda self, step, policy: step < 4 and SAVE(self, step, policy))
        done(*again, "--checkpoint-every", 3)
    update_manifest(tmp_path / "again", finished=False)
    done(*again, "--resume")
    done("compare", run, "again", "--exact")


PAIRS = 6
"""Enough for a V of six directions: extraction by hand takes a backward pass per completion."""


@pytest.fixture
def lora_run(vhack_file, cache, tmp_path):
    """A session of the tiny preset with a LoRA, ready to refresh its V from the first pairs, or from all of them."""

    def make(whole=False, **changes):
        config = dataclasses.replace(
            presets(TrainConfig)["tiny"], adapter="lora", lora_rank=4, arm="projected", cache=cache, out=tmp_path / "run",
            refresh_every=2, **{"vhack": vhack_file("none", *LORA), **changes},
        )  # fmt: skip
        session = prepare(config)
        refresher = Refresher(config, session)
        refresher.sides = refresher.sides if whole else refresher.sides[:PAIRS]
        return session, refresher

    return make


def set_b(adapter, scale):
    """B of this size: a policy that has been trained. A has moved as well."""
    shake(adapter, scale=1e-2)
    with torch.no_grad():
        for layer in adapter.layers.values():
            b = layer.split(layer.theta)[1]
            b.copy_(torch.randn(b.shape, generator=torch.Generator().manual_seed(5)) * scale)


def v_by_hand(session, sides, k):
    """D from one plain forward and autograd pass per completion, y = x W^T + (x A^T) B^T written out; its SVD in
    float64."""
    model, layers = session.loaded.model, session.adapter.layers
    grads = []
    for layer in layers.values():
        layer.forward = lambda x, own=layer: (
            F.linear(x, own.weight) + x @ own.split(own.theta)[0].T @ own.split(own.theta)[1].T
        )
    for side in (side for row in sides for side in row):
        ids = torch.tensor([[*side.prompt_ids, *side.completion_ids]])
        logps = model(input_ids=ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])
        mean_nll = -logps[-len(side.completion_ids) :].mean()
        grads.append(torch.autograd.grad(mean_nll, [layer.theta for layer in layers.values()]))
    for layer in layers.values():
        del layer.forward
    found = {}
    for i, name in enumerate(layers):
        d = torch.stack([(hack[i] - clean[i]).double() for hack, clean in zip(grads[::2], grads[1::2], strict=True)])
        v = torch.linalg.svd(d, full_matrices=False)[2][:k]
        votes = torch.sign(d @ v.T).sum(0)
        found[name] = (v, votes)
    return found


def test_a_loras_v_is_refreshed_at_the_b_that_is_trained(lora_run):
    session, refresher = lora_run()
    adapter, seen = session.adapter, []
    for scale in (0.02, 0.3):
        set_b(adapter, scale)
        before = theta_of(adapter)
        refresher.refresh_if_due(refresher.config.refresh_every)
        assert all(torch.equal(p, before[n]) for n, p in adapter.vectors.items())
        assert session.projection.basis is session.v.basis
        seen.append(session.v.basis)
        for name, (v, votes) in v_by_hand(session, refresher.sides, PAIRS).items():
            mine = session.v.basis[name].double()
            assert len(mine) == PAIRS
            torch.testing.assert_close(mine.T @ mine, v.T @ v, rtol=0, atol=2e-3)
            along = (mine * v).sum(1)
            # Orientation, where neither a tie of votes nor a turn within the span leaves it free.
            free = (votes == 0) | (along.abs() <= 0.99)
            assert bool((along * votes > 0)[~free].all())
    assert overlap(*seen) < 0.95


def test_one_v_serves_a_lora_run_of_every_seed_and_of_no_other_lora_seed(lora_run, vhack_file, cache):
    """From a folder: the weights of a model that is built here hang on --seed themselves."""
    load_model("tiny", "float32", "cpu", 41, cache)
    folder = built_model("tiny", 41, cache)
    v = vhack_file("none", *LORA, "--model", str(folder), "--seed", "40")
    assert read_vhack(v).meta["lora_seed"] == "0"
    runs = [lora_run(model=str(folder), vhack=v, seed=seed)[0] for seed in (41, 42)]
    one, other = (run.adapter.vectors for run in runs)
    assert all(torch.equal(one[n], other[n]) for n in one)
    with pytest.raises(BadInput, match="made for lora_seed=0, but this run has lora_seed=1"):
        lora_run(model=str(folder), vhack=v, lora_seed=1)
    again = vhack_file("none", *LORA, "--model", str(folder), "--lora-seed", "1")
    session, _ = lora_run(model=str(folder), vhack=again, lora_seed=1)
    assert not any(torch.equal(one[n], p) for n, p in session.adapter.vectors.items())


def test_a_replicate_refreshes_from_its_own_draw_of_the_pairs(lora_run, vhack_file):
    """At the untrained policy it gives the V that it began with; all the pairs give another one."""
    session, refresher = lora_run(vhack=vhack_file("none", *LORA, "--pairs-draw", "3"), whole=True)
    before = session.v.basis
    refresher.refresh_if_due(refresher.config.refresh_every)
    assert overlap(session.v.basis, before) > 0.999


# ---------------------------------------------------------------- at trained adapters


def turn(adapter):
    """A -> P A, B -> B P^T for a shift P of the rank's axes: the same function of x, bit for bit but for the order of
    a sum, in coordinates that moved."""
    with torch.no_grad():
        for layer in adapter.layers.values():
            a, b = layer.split(layer.theta.detach().clone())
            layer.split(layer.theta)[0].copy_(a.roll(1, 0))
            layer.split(layer.theta)[1].copy_(b.roll(1, 1))


@pytest.fixture
def trained(tiny):
    """A LoRA with a trained B, the V of that point, and D of the adapter as it is when asked."""
    adapter = attach_lora(tiny.model, 4, 0)
    set_b(adapter, 0.05)
    sides = pair_sides(load_pairs("builtin", ("assert_true",)), tiny, "simple_overwrite_tests", "no_intervention")

    def differences():
        return Extraction().differences(tiny, adapter, sides, 8192)

    basis = {n: basis_of(rows, 4)[0] for n, rows in differences().items()}
    return adapter, VBasis(basis, {}, {}, {"loss": "nll"}), differences


def test_a_v_of_the_trained_point_is_still_v_and_one_under_which_the_basis_moved_is_not(trained):
    adapter, v, differences = trained
    same = record(adapter, v, differences(), 7, "no_gate")
    assert same.overlap == pytest.approx(1.0, abs=1e-3)
    assert same.left < 0.01
    assert (same.steps, same.theta_norm) == (7, pytest.approx(norm_of(adapter.values())))
    turn(adapter)
    moved = record(adapter, v, differences(), 7, "no_gate")
    assert moved.standing < 0.2
    assert moved.left > 0.8
    assert moved.theta_norm == pytest.approx(same.theta_norm)
    assert moved.cos_in == pytest.approx(same.cos_in, rel=0.05)  # the function, and so the hack direction, is the same


def test_the_script_measures_the_adapters_that_a_run_kept(script, done, vhack_file, tmp_path):
    args = ("--arm", "projected", "--steps", 3, "--vhack", vhack_file("none", *LORA), *LORA, *POOLED)
    done("train", "tiny", *args, "--out", "run", "--keep-adapter-every", 2)
    out = done("re_extract", "run")
    found = read_re_extracted(tmp_path / "run")
    assert [r.steps for r in found] == [2, 3]
    norms = [rows[0]["delta_S_norm"] for rows in read_run(tmp_path / "run")]
    assert [r.theta_norm for r in found] == pytest.approx(norms[1:], rel=1e-4)
    assert all(r.null < r.overlap <= 1 for r in found)
    assert "of the way from unrelated" in out
    other = vhack_file("none", *LORA, "--pairs-draw", "3")
    refused(script("re_extract", "run", "--vhack", other), "name that V")


# ---------------------------------------------------------------- evaluation


def test_evaluation_is_written_apart_changes_no_training_number_and_is_the_same_every_time(done, made, tmp_path):
    args = ("--steps", 3, "--max-new", 8)
    plain, run = made("train", *args), made("train", *args, *EVALUATED)
    out = done("train", "tiny", *args, *EVALUATED, "--out", "again")
    assert out.count("held out, after") == 3  # before step 0, after 2, and after the last
    done("compare", run, "again", "--exact")
    evaluated = sorted(p.name for p in (run / "eval").iterdir())
    assert evaluated == [f"step_{n:03d}.jsonl.gz" for n in (0, 2, 3)]
    rows, same = (read_step(place / "eval/step_003.jsonl.gz") for place in (run, tmp_path / "again"))
    assert [r["completion_ids"] for r in rows] == [r["completion_ids"] for r in same]
    assert {r["step"] for r in rows} == {3}
    assert len(rows) == 2 * len(load_problems("builtin"))
    assert all(r["loss"] is None and r["reward"] is not None for r in rows)
    for one, other in zip(read_run(plain), read_run(run), strict=True):
        assert [{**r, "timing": 0} for r in one] == [{**r, "timing": 0} for r in other]


def test_other_pairs_are_refused_before_anything_is_written(script, vhack_file, tmp_path):
    args = ("train", "tiny", "--vhack", vhack_file(), "--refresh-every", 2, "--out", "run")
    refused(script(*args, "--pairs", "toy"), "--pairs toy")
    refused(script("train", "tiny", "--refresh-every", 2, "--out", "run"), "--refresh-every 2")
    assert not (tmp_path / "run").exists()
