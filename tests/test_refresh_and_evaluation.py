"""V extracted anew during training, and held-out evaluation beside it: through the real script on the tiny model."""

import dataclasses
import re

import pytest
import torch
from conftest import shake
from torch.nn import functional as F

from projected_grpo.adapters.lora_adapter import LoRALinear
from projected_grpo.config import TrainConfig
from projected_grpo.data.problems import load_problems
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import update_manifest
from projected_grpo.ledger.step_file import read_run, read_step
from projected_grpo.presets import presets
from projected_grpo.projection import overlap
from projected_grpo.run import session as session_module
from projected_grpo.run.checkpoint import save_checkpoint
from projected_grpo.run.prepare import prepare
from projected_grpo.run.refresh import Refresher
from projected_grpo.run.vhack_file import read_vhack
from projected_grpo.step import Objective
from projected_grpo.vhack import random_basis
from projected_grpo.worlds.models import load_model
from projected_grpo.worlds.tiny import built_model

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


LORA = ("--adapter", "lora", "--lora-rank", "4")
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
        session = prepare(config, "train", Objective("dr_grpo", config.max_new))
        refresher = Refresher(config, session)
        refresher.sides = refresher.sides if whole else refresher.sides[: 2 * PAIRS]
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
    """D from one plain forward and autograd pass per completion, y = x W^T + (x A^T) B^T written out; its SVD in float64."""
    model, layers = session.loaded.model, session.adapter.layers
    grads = []
    for layer in layers.values():
        layer.forward = lambda x, own=layer: (
            F.linear(x, own.weight) + x @ own.split(own.theta)[0].T @ own.split(own.theta)[1].T
        )
    for side in sides:
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


@pytest.mark.slow
def test_a_loras_v_is_refreshed_at_the_b_that_is_trained(lora_run):
    session, refresher = lora_run()
    adapter, seen = session.adapter, []
    for scale in (0.02, 0.3):
        set_b(adapter, scale)
        before = {n: p.detach().clone() for n, p in adapter.vectors.items()}
        refresher.refresh()
        assert all(torch.equal(p, before[n]) for n, p in adapter.vectors.items())
        assert session.projection.basis is session.v.basis
        seen.append(session.v.basis)
        for name, (v, votes) in v_by_hand(session, refresher.sides, PAIRS).items():
            mine = session.v.basis[name].double()
            assert len(mine) == PAIRS
            torch.testing.assert_close(mine.T @ mine, v.T @ v, rtol=0, atol=2e-3)
            along = (mine * v).sum(1)
            for i in range(
                PAIRS
            ):  # orientation, where neither a tie of votes nor a turn within the span leaves it free
                if votes[i] and abs(along[i]) > 0.99:
                    assert along[i] * votes[i] > 0
    assert overlap(*seen) < 0.95


@pytest.mark.slow
def test_a_warm_point_that_overwrites_b_gives_the_same_v_whatever_was_trained(lora_run, monkeypatch):
    """The test above, seen red."""

    @torch.no_grad()
    def overwrite(layer, warm=LoRALinear.warm):
        layer.split(layer.theta)[1].zero_()
        warm(layer)

    monkeypatch.setattr(LoRALinear, "warm", overwrite)
    session, refresher = lora_run()
    seen = []
    for scale in (0.02, 0.3):
        with torch.no_grad():
            for layer in session.adapter.layers.values():
                layer.split(layer.theta)[1].normal_(0, scale, generator=torch.Generator().manual_seed(5))
        refresher.refresh()
        seen.append(session.v.basis)
    assert all(torch.equal(seen[0][n], seen[1][n]) for n in seen[0])


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_unit_refreshes_from_its_own_draw_of_the_pairs(lora_run, vhack_file):
    """At the untrained policy it gives the V that it began with; all the pairs give another one."""
    session, refresher = lora_run(vhack=vhack_file("none", *LORA, "--pairs-draw", "3"), whole=True)
    before = session.v.basis
    refresher.refresh()
    assert overlap(session.v.basis, before) > 0.999


@pytest.mark.slow
def test_a_cut_run_resumes_with_its_refreshed_v(script, vhack_file, tmp_path, monkeypatch):
    """Cut between two refreshes: the V in use is in no file but the checkpoint."""
    args = ("train", "tiny", "--arm", "projected", "--vhack", vhack_file(), "--refresh-every", 2, *POOLED)
    assert script(*args, "--steps", 6, "--out", "whole")[0] == 0
    with monkeypatch.context() as m:  # what a kill in step 5 leaves: step 4 is on disk and no checkpoint is behind it
        m.setattr(
            session_module, "save_checkpoint", lambda run, step, *rest: step < 5 and save_checkpoint(run, step, *rest)
        )
        assert script(*args, "--steps", 6, "--out", "again", "--checkpoint-every", 4)[0] == 0
    update_manifest(tmp_path / "again", finished=False)
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
    told = [
        re.search(r"evaluates (\d+) rollouts of (\d+) problems after (\d+) steps", line) for line in out.splitlines()
    ]
    problems = len(load_problems("builtin"))
    assert [tuple(map(int, m.groups())) for m in told if m] == [(2 * problems, problems, n) for n in (0, 2, 3)]
    assert out.index("--eval-every 0 leaves evaluations out") < out.index("held out, after 0 steps")
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
