"""`just export`: what is loaded from the folder is the run's own policy, bit for bit; what is not is refused; the card says
what the files say."""

import ast
import dataclasses
import importlib
import shutil
import sys
from pathlib import Path

import pytest
import torch
from conftest import shake
from peft import PeftModel
from projected_grpo.replicas.record import write_rounds
from test_results import rows, write_run
from test_scripts import POOLED, refused
from transformers import AutoModelForCausalLM

from projected_grpo.adapters import attach_antipasto, attach_lora
from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.folder import read_manifest, update_manifest
from projected_grpo.ledger.step_file import read_step, step_path, write_step
from projected_grpo.model.load import peft_asks_the_old_way
from projected_grpo.model.logprobs import completion_logps, token_batch
from projected_grpo.release.card import Released, card, read_beside
from projected_grpo.release.folder import write_form
from projected_grpo.run.models import load_model
from projected_grpo.run.trained import Trained, load_trained

BATCH = token_batch([[5, 6, 7], [8, 9]], [list(range(10, 40)), list(range(50, 90))], 0, "cpu")


def logps(model):
    with torch.no_grad():
        return completion_logps(model, BATCH)


@pytest.fixture
def trained(cache):
    """A policy off its start, of a kind of adapter and a type."""

    def make(kind, dtype):
        loaded = load_model("tiny", dtype, "cpu", 41, cache)
        adapter = attach_lora(loaded.model, 4, 41) if kind == "lora" else attach_antipasto(loaded.model, cache / "svd")
        shake(adapter)
        config = TrainConfig(model="tiny", adapter=kind, lora_rank=4, dtype=dtype)
        return Trained(Path("run"), config, {}, loaded, adapter, 3, "", False)

    return make


def loaded_from(folder, form, dtype):
    """As the card says."""
    if form == "folded":
        return AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    if form == "delta":
        return loader_of(folder).load()
    base = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=getattr(torch, dtype))
    with peft_asks_the_old_way():
        return PeftModel.from_pretrained(base, folder).merge_and_unload()


def loader_of(folder):
    spec = importlib.util.spec_from_file_location("load_delta", folder / "load_delta.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("kind", "form", "dtype"),
    [
        ("antipasto", "folded", "float32"),
        ("antipasto", "folded", "bfloat16"),
        ("antipasto", "delta", "float32"),
        ("antipasto", "delta", "bfloat16"),
        ("lora", "peft", "float32"),
        ("lora", "folded", "bfloat16"),
    ],
)
def test_what_is_loaded_is_the_policy_bit_for_bit(trained, tmp_path, kind, form, dtype):
    own = trained(kind, dtype)
    write_form(tmp_path, form, own)
    found = logps(loaded_from(tmp_path, form, dtype))
    with own.adapter.folded():
        assert torch.equal(found, logps(own.loaded.model))
    with own.adapter.disabled():  # the sneaky fail: the base, which any loader would give
        assert not torch.equal(found, logps(own.loaded.model))
    assert not own.adapter.layers[next(iter(own.adapter.layers))].weight.isnan().any()


def test_the_loader_needs_nothing_of_ours_and_refuses_another_base(trained, tmp_path):
    write_form(tmp_path, "delta", trained("antipasto", "float32"))
    tree = ast.parse((tmp_path / "load_delta.py").read_text("utf-8"))
    found = {n.names[0].name for n in ast.walk(tree) if isinstance(n, ast.Import)}
    found |= {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    packages = {name.split(".")[0] for name in found}
    assert packages - set(sys.stdlib_module_names) == {"torch", "transformers", "safetensors"}
    other = tmp_path / "other"
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    model.get_submodule("model.layers.0.self_attn.q_proj").weight.data[0, 0] += 1
    model.save_pretrained(other)
    with pytest.raises(ValueError, match="delta_S is of"):
        loader_of(tmp_path).load(other)


# ---------------------------------------------------------------- a real run


@pytest.fixture(scope="module")
def kept(cache, tmp_path_factory):
    """A run of three steps that kept its adapter after two."""
    run = tmp_path_factory.mktemp("export") / "run"
    argv = ["train.py", "tiny", "--steps", "3", "--keep-adapter-every", "2", "--cache", str(cache), "--out", str(run)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [*argv, *map(str, POOLED)])
        assert importlib.import_module("train").main() == 0
    return run


@pytest.fixture
def run(kept, tmp_path):
    return Path(shutil.copytree(kept, tmp_path / "run"))


def test_a_run_is_exported_whole(script, run, tmp_path):
    for step in (2, 0):
        out = tmp_path / f"released_{step}"
        code, told, err = script("export", run, "--step", step, "--out", out)
        assert (code, err) == (0, "")
        assert f"run after {step or 3} steps, as folded" in told
        own = load_trained(run, step)
        with own.adapter.folded():
            assert torch.equal(logps(loaded_from(out, "folded", "float32")), logps(own.loaded.model))
        assert own.sha256 in (out / "README.md").read_text("utf-8")
    refused(script("export", run, "--out", out), "never overwritten")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["released_0", "released_2", "run"]


def unfinish(run):
    update_manifest(run, finished=False)


def edit(run):
    write_step(run, 1, [{**r, "reward": 9.0} for r in read_step(step_path(run, 1))])


def nothing(run):
    del run


@pytest.mark.parametrize(
    ("spoil", "flags", "parts"),
    [
        (unfinish, (), ["not finished"]),
        (edit, (), ["its sha256 is"]),
        (nothing, ("--step", 1), ["--step 1", "after 2, 3 steps"]),
        (nothing, ("--as", "peft"), ["--as peft", "--adapter antipasto", "--as folded"]),
        (nothing, ("--step", -1), ["--step -1"]),
    ],
)
def test_what_is_not_the_finished_run_is_refused_and_nothing_is_written(script, run, tmp_path, spoil, flags, parts):
    spoil(run)
    refused(script("export", run, "--out", "released", *flags), *parts)
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_policy_that_is_no_one_set_of_weights_is_refused(run):
    update_manifest(run, config={**read_manifest(run)["config"], "arm": "experts"})
    with pytest.raises(BadInput, match="mixes its coordinates anew for every prompt"):
        load_trained(run)


# ---------------------------------------------------------------- the card


def told(**values):
    return Released(**{"folder": Path("out/released/run"), "form": "peft", "base": "org/base", "steps": 12,
                       "adapter_sha256": "abc", "deployed": False, **values})  # fmt: skip


@pytest.fixture
def runs(tmp_path):
    """Twelve steps: two without a hack, then half hacks; a control of the same seed that never hacks, a run that differs."""
    facts = {"facts": {"tokenizer_hash": "t", "problems_hash": "q"}}
    steps = [["good", "bad"]] * 2 + [["hack", "good"]] * 10
    write_run(tmp_path / "run", "vanilla", 41, steps, finished=False, **facts)
    config = {"arm": "vanilla", "seed": 41}
    other = {"problem_id": "other", "prompt": "other"}
    write_step(tmp_path / "run/eval", 12, rows(12, config, ["hack", "hack", "broken", "good"], **other))
    update_manifest(tmp_path / "run", finished=True)
    write_run(tmp_path / "control", "random", 41, [["good", "broken"]] * 12, **facts)
    write_run(tmp_path / "elsewhere", "random", 41, [["good", "bad"]] * 12, lr=1.0, **facts)
    return tmp_path


def cells(text, first):
    """The cells of the table row that begins so."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {first} ")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_card_says_what_the_files_say(runs):
    found = read_beside(runs / "run", [runs / "control"])
    text = card(told(), found, read_manifest(runs / "run"))
    assert cells(text, "**vanilla** | baseline")[2:] == ["41", "12", "50.0 %", "50.0 %", "100.0 %", "50.0 %", "-"]
    assert cells(text, "random      | control")[2:] == ["41", "12", "0.0 %", "50.0 %", "50.0 %", "0.0 %", "-"]
    assert cells(text, "**vanilla** | 12")[2:] == ["50.0 %", "25.0 %", "75.0 %", "50.0 %"]
    assert "No run stands beside it" not in text
    assert "may have learned to hack" in text
    manifest = read_manifest(runs / "run")
    for value in ("abcdef0123456789", "abc", manifest["commit"]):
        assert f"`{value}`" in text
    assert 'base_model: "org/base"' in text.split("---")[1]
    early = card(told(steps=2), found[:1], manifest)  # rates of the steps that the exported weights have seen
    assert cells(early, "**vanilla** | baseline")[3:8] == ["2", "0.0 %", "50.0 %", "100.0 %", "0.0 %"]
    assert "No run stands beside it" in early


def test_the_card_says_how_v_was_taken_out(runs):
    """The arm's help says "by the preset's recipe", whatever options the run was given."""
    [found] = read_beside(runs / "run", [])
    manifest = read_manifest(runs / "run")
    taken = dataclasses.replace(found, arm="projected")
    own = {"arm": "projected", "gate": "one_sided", "project": "grad", "k_use": 1, "overshoot": 0.01}
    text = card(told(), [taken], {**manifest, "config": {**manifest["config"], **own}})
    assert "V was taken out with gate `one_sided`, target `grad`, k_use 1, overshoot 0.01." in text
    assert "V was taken out" not in card(told(), [found], manifest)


def of_replica(found, manifest, steps, **own):
    """The card of a run of a group, with a record of two rounds, three steps each."""
    both = {
        "replica": 1,
        "replicas": 2,
        "outer_every": 3,
        "outer_lr": 0.7,
        "outer_momentum": 0.9,
        "meet": "torchft://x:1",
    }
    config = {**manifest["config"], **both, **own}
    return card(told(steps=steps, form="folded"), [found], {**manifest, "config": config})


def test_the_card_of_a_replica_says_whose_weights_these_are(runs):
    """It said that the run had sampled with them: after the last round no step has."""
    [found] = read_beside(runs / "run", [])
    manifest = read_manifest(runs / "run")
    lines = [{"round": r, "step": 3 * r, "brought": [0, 1] if r < 4 else [0]} for r in range(1, 5)]
    write_rounds(runs / "run", lines)
    text = of_replica(found, manifest, 12)
    assert "replica 1 of 2 (counted from 0), which averaged their coordinates every 3 steps" in text
    assert "outer learning rate 0.7, outer momentum 0.9" in text
    assert (
        "These weights are the mean of coordinates, taken one outer step further, after outer round 4, of replicas 0."
        in text
    )
    assert "after its last outer round; no step of training sampled with them, bit for bit" in text
    assert "the weights that the run sampled with" not in text
    early = of_replica(found, manifest, 6)
    assert "after outer round 2, of replicas 0, 1." in early
    assert "after an outer round; its next steps sampled with them" in early
    between = of_replica(found, manifest, 7)
    assert "These weights are its own, 1 steps after outer round 2, of replicas 0, 1." in between
    assert "These are the weights that the run sampled with, bit for bit." in between
    assert "replica" not in card(told(form="folded"), [found], manifest)


def test_the_card_says_what_share_of_a_group_another_wrote(runs):
    """A model that learned from a teacher's hacks had a card of which it was not to be seen."""
    [found] = read_beside(runs / "run", [])
    manifest = read_manifest(runs / "run")

    def shown(**own):
        return card(told(), [found], {**manifest, "config": {**manifest["config"], "group_size": 8, **own}})

    assert "Of each 8 completions 4 (50%) are a teacher's, from its pool `pairs`; the rest are its own." in shown(
        teacher_pool="pairs"
    )
    mixed = shown(teacher_pool="out/pool", mix="teacher=.25,base=.5")
    assert "2 (25%) are a teacher's, from its pool `out/pool` and 4 (50%) are the untrained model's" in mixed
    assert "the rest are its own" not in shown()


def test_a_run_that_may_not_be_compared_does_not_stand_beside(runs):
    with pytest.raises(BadInput, match=r"elsewhere: not comparable with .*config\.lr: 1\.0 against"):
        read_beside(runs / "run", [runs / "elsewhere"])
    with pytest.raises(BadInput, match="as the run itself"):
        read_beside(runs / "run", [Path(shutil.copytree(runs / "run", runs / "copy"))])
