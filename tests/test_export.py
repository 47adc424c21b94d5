"""`just export`: what is loaded from the folder is the run's own policy, bit for bit; an unfinished run is refused."""

import shutil
from pathlib import Path

import pytest
import torch
from export import write_weights
from harness import POOLED, attached, shake
from test_scripts import refused
from transformers import AutoModelForCausalLM

from projected_grpo.config import TrainConfig
from projected_grpo.ledger.folder import update_manifest
from projected_grpo.model.logprobs import completion_logps, token_batch
from projected_grpo.run.trained import Trained, load_trained
from projected_grpo.worlds.models import load_model

BATCH = token_batch([[5, 6, 7], [8, 9]], [list(range(10, 40)), list(range(50, 90))], 0, "cpu")


def logps(model):
    with torch.no_grad():
        return completion_logps(model, BATCH)


def logps_from(folder, dtype=torch.float32):
    """As the card says."""
    return logps(AutoModelForCausalLM.from_pretrained(folder, dtype=dtype))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "dtype"), [("antipasto", "float32"), ("antipasto", "bfloat16"), ("lora", "bfloat16")])
def test_what_is_loaded_is_the_policy_bit_for_bit(cache, tmp_path, kind, dtype):
    loaded = load_model("tiny", dtype, "cpu", 41, cache)
    adapter = attached(kind, loaded, cache / "svd")
    shake(adapter)
    write_weights(tmp_path, Trained(Path("run"), TrainConfig(), {}, loaded, adapter, 3))
    found = logps_from(tmp_path, getattr(torch, dtype))
    with adapter.folded():
        assert torch.equal(found, logps(loaded.model))
    with adapter.disabled():  # the sneaky fail: the base, which any loader would give
        assert not torch.equal(found, logps(loaded.model))


@pytest.mark.slow
def test_a_run_is_exported_whole_and_an_unfinished_one_is_refused(script, made, tmp_path):
    kept = made("train", "--steps", 3, "--keep-adapter-every", 2, *POOLED)
    run = Path(shutil.copytree(kept, tmp_path / "run"))
    for step in (2, 0):
        out = tmp_path / f"released_{step}"
        code, _, err = script("export", run, "--step", step, "--out", out)
        assert (code, err) == (0, "")
        own = load_trained(run, step)
        with own.adapter.folded():
            assert torch.equal(logps_from(out), logps(own.loaded.model))
        text = (out / "README.md").read_text("utf-8")
        assert "may have learned to hack" in text
        assert f"# tiny after {step or 3} steps of GRPO, arm `vanilla`" in text
    refused(script("export", run, "--out", out), "never overwritten")
    update_manifest(run, finished=False)
    refused(script("export", run, "--out", "released"), "not finished")
