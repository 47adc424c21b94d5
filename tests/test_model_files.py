"""Models and teachers that do not fit are refused in one line, before a step is taken."""

import json
import os
import shutil
from unittest.mock import Mock

import pytest
import torch
from jinja2 import TemplateError
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import Phi3Config, Phi3ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from projected_grpo.adapters.antipasto import attach_antipasto
from projected_grpo.adapters.lora_adapter import attach_lora
from projected_grpo.ledger.errors import BadInput
from projected_grpo.model.load import load_folder, merge_teacher
from projected_grpo.prompts import render
from projected_grpo.worlds.tiny_model import built_model

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
pytestmark = pytest.mark.filterwarnings("ignore")


SIZES = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2
}  # fmt: skip


def base(tied=True, **more):
    torch.manual_seed(0)
    config = Qwen3Config(**SIZES, num_hidden_layers=2, head_dim=8, tie_word_embeddings=tied, **more)
    return Qwen3ForCausalLM(config).eval()


def changed(path, change):
    save_file({k: v.contiguous() for k, v in change(load_file(path)).items()}, path, metadata={"format": "pt"})


def saved_lora(folder, targets=ATTENTION, tied=True, change=lambda w: w, after=lambda _: None, **more):
    torch.manual_seed(1)
    config = LoraConfig(r=4, target_modules=targets, init_lora_weights=False, task_type="CAUSAL_LM", **more)
    get_peft_model(base(tied, attention_bias="bias" in more), config).save_pretrained(folder)
    changed(folder / "adapter_model.safetensors", change)
    after(folder / "adapter_model.safetensors")
    return str(folder)


@pytest.mark.parametrize(
    ("targets", "tied", "dtype"),
    [
        (ATTENTION, True, torch.bfloat16),
        (["lm_head", "q_proj"], False, torch.float32),
        (["embed_tokens"], False, torch.float32),
    ],
)
def test_a_teacher_that_fits_is_merged(tmp_path, targets, tied, dtype):
    teacher = saved_lora(tmp_path, targets, tied)
    assert merge_teacher(base(tied).to(dtype), teacher).dtype == dtype


def without(part):
    return lambda tensors: {k: v for k, v in tensors.items() if part not in k}


def renamed(tensors):
    return tensors | {k.replace("layers.1", "layers.7"): v.clone() for k, v in tensors.items()}


def scaled(factor):
    return lambda tensors: {k: v * (1 if "lora_A" in k else factor) for k, v in tensors.items()}


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"targets": [*ATTENTION, "lm_head"]}, "differ by"),  # its weight is the embedding's too
        ({"change": without(".layers.1.")}, r"lacks .*layers\.1\."),
        ({"change": renamed}, r"a key .*layers\.7\."),
        ({"change": scaled(float("nan"))}, "differ by nan%"),
        ({"after": lambda path: os.truncate(path, 500)}, "cannot be read"),
        ({"after": os.unlink}, r"has no adapter_model\.safetensors"),
        ({"bias": "all", "change": without("bias")}, r"lacks .*\.bias"),
        ({"modules_to_save": ["norm"], "change": without(".norm.")}, r"KeyError: .*\.norm\.weight"),
    ],
)
def test_a_teacher_that_does_not_fit_is_refused(tmp_path, made, said, recwarn):
    teacher = saved_lora(tmp_path, **made)
    recwarn.clear()
    with pytest.raises(BadInput, match=f"--teacher {tmp_path}: .*{said}"):
        merge_teacher(base(attention_bias="bias" in made), teacher)
    assert not recwarn.list


def weights(change):
    return lambda folder: changed(folder / "model.safetensors", change)


def settings(name, **values):
    def change(folder):
        (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | values))

    return change


def fewer_tokens(folder):
    model = Qwen3ForCausalLM.from_pretrained(folder)
    model.resize_token_embeddings(300)
    model.save_pretrained(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (weights(without("layers.1.mlp.up_proj.")), r"missing for its config.json: model\.layers\.1\.mlp\.up_proj"),
        (weights(lambda w: w | {"model.extra": torch.ones(1)}), r"unexpected for its config.json: model\.extra"),
        (
            settings("config.json", vocab_size=500),
            r"mismatched for its config.json: .*model\.embed_tokens\.weight.*64.*500, 64",
        ),
        (lambda folder: (folder / "adapter_config.json").write_text("{}"), "holds adapter_config.json; give the base"),
        (settings("tokenizer_config.json", eos_token=None), "no end-of-sequence token"),
        (lambda folder: [(folder / f"tokenizer{end}.json").unlink() for end in ("", "_config")], "no vocabulary"),
        (fewer_tokens, "its tokenizer has 2048 tokens, its embedding 300"),
        (lambda folder: os.truncate(folder / "model.safetensors", 3000), "cannot be read"),
    ],
)
def test_a_model_that_is_not_whole_is_refused(tmp_path, cache, change, said):
    folder = shutil.copytree(built_model("tiny", 41, cache), tmp_path / "model")
    load_folder(str(folder), folder, "float32", "cpu")
    change(folder)
    with pytest.raises(BadInput, match=f"--model {folder}: .*{said}"):
        load_folder(str(folder), folder, "float32", "cpu")


@pytest.mark.parametrize("attach", [attach_antipasto, lambda model: attach_lora(model, rank=2, seed=0)])
def test_a_model_of_another_layout_is_refused_and_not_trained_in_part(attach):
    model = Phi3ForCausalLM(Phi3Config(**SIZES, num_hidden_layers=1, pad_token_id=0))
    with pytest.raises(
        BadInput, match="Phi3ForCausalLM has no Linear named q_proj, k_proj, v_proj, gate_proj, up_proj"
    ):
        attach(model)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (TemplateError("no system role"), r"refuses .* system, user \(no system role\)"),
        ("u", r"refuses .* system, user \(it leaves out what system says\)"),
    ],
)
def test_a_model_that_cannot_be_asked_is_refused(result, said):
    tokenizer = Mock()
    tokenizer.apply_chat_template.side_effect = [result]
    with pytest.raises(BadInput, match=said):
        render((("system", "s"), ("user", "u")), "none", "no_intervention", tokenizer, 100, 10, "problem 1")
