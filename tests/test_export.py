"""`just export`: what is loaded from the folder is the run's own policy, bit for bit; an unfinished run is
refused."""

import shutil
from pathlib import Path

import pytest
import torch
from export import card, write_folded, write_peft
from harness import POOLED, refused, shake
from peft import PeftModel
from transformers import AutoModelForCausalLM

from projected_grpo.adapters.antipasto import attach_antipasto
from projected_grpo.adapters.lora_adapter import attach_lora
from projected_grpo.config import TrainConfig
from projected_grpo.ledger.folder import update_manifest
from projected_grpo.model.load import without_warnings
from projected_grpo.model.logprobs import completion_logps, token_batch
from projected_grpo.run.trained import Trained, load_trained
from projected_grpo.worlds.models import load_model

BATCH = token_batch([[5, 6, 7], [8, 9]], [list(range(10, 40)), list(range(50, 90))], 0, "cpu")


def logps(model):
    with torch.no_grad():
        return completion_logps(model, BATCH)


def loaded_from(folder, dtype):
    """As the card says."""
    if not (folder / "base").exists():
        return AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    base = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=getattr(torch, dtype))
    with without_warnings():
        return PeftModel.from_pretrained(base, folder).merge_and_unload()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "write", "dtype"),
    [
        ("antipasto", write_folded, "float32"),
        ("antipasto", write_folded, "bfloat16"),
        ("lora", write_peft, "float32"),
        ("lora", write_folded, "bfloat16"),
    ],
)
def test_what_is_loaded_is_the_policy_bit_for_bit(cache, tmp_path, kind, write, dtype):
    loaded = load_model("tiny", dtype, "cpu", 41, cache)
    adapter = attach_lora(loaded.model, 4, 41) if kind == "lora" else attach_antipasto(loaded.model, cache / "svd")
    shake(adapter)
    config = TrainConfig(model="tiny", adapter=kind, lora_rank=4, dtype=dtype)
    write(tmp_path, Trained(Path("run"), config, {}, loaded, adapter, 3))
    found = logps(loaded_from(tmp_path, dtype))
    with adapter.merged():
        assert torch.equal(found, logps(loaded.model))
    with adapter.disabled():  # the sneaky fail: the base, which any loader would give
        assert not torch.equal(found, logps(loaded.model))


@pytest.mark.slow
def test_a_run_is_exported_whole_and_an_unfinished_one_is_refused(script, made, tmp_path):
    kept = made("train", "--steps", 3, "--keep-adapter-every", 2, *POOLED)
    run = Path(shutil.copytree(kept, tmp_path / "run"))
    for step in (2, 0):
        out = tmp_path / f"released_{step}"
        code, told, err = script("export", run, "--step", step, "--out", out)
        assert (code, err) == (0, "")
        assert f"run after {step or 3} steps, as merged" in told
        own = load_trained(run, step)
        with own.adapter.merged():
            assert torch.equal(logps(loaded_from(out, "float32")), logps(own.loaded.model))
        text = (out / "README.md").read_text("utf-8")
        assert "may have learned to hack" in text
        assert f"# tiny after {step or 3} steps of GRPO, arm `vanilla`" in text
        assert text == card(out, own)
    refused(script("export", run, "--out", out), "never overwritten")
    update_manifest(run, finished=False)
    refused(script("export", run, "--out", "released"), "not finished")
