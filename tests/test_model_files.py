"""Models and teachers that do not fit are refused in one line, before a step is taken."""

from pathlib import Path

import pytest
import torch
from jinja2 import TemplateError
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

from projected_grpo.ledger.errors import BadInput
from projected_grpo.model.load import merge_teacher
from projected_grpo.prompts import render

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
pytestmark = pytest.mark.filterwarnings("ignore")


def base(tied=True):
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 8}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": tied}
    return Qwen3ForCausalLM(Qwen3Config(**sizes, **heads)).eval()


def saved_lora(folder, targets, tied=True, change=lambda tensors: tensors):
    torch.manual_seed(1)
    config = LoraConfig(r=4, target_modules=targets, init_lora_weights=False, task_type="CAUSAL_LM")
    get_peft_model(base(tied), config).save_pretrained(folder)
    path = Path(folder) / "adapter_model.safetensors"
    save_file(change(load_file(path)), path)
    return str(folder)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("targets", "tied"), [(ATTENTION, True), (["lm_head"], False), (["lm_head", "q_proj"], False)])
def test_a_teacher_that_fits_is_merged(tmp_path, targets, tied, dtype):
    teacher = saved_lora(tmp_path, targets, tied)
    assert merge_teacher(base(tied).to(dtype), teacher).dtype == dtype


@pytest.mark.parametrize(
    ("targets", "change", "said"),
    [
        ([*ATTENTION, "lm_head"], dict, "lm_head shares its weight with model.embed_tokens"),
        (["embed_tokens", "q_proj"], dict, "model.embed_tokens shares its weight with lm_head"),
        (ATTENTION, lambda w: {k: v for k, v in w.items() if ".layers.1." not in k}, r"lacks .*layers\.1\."),
        (
            ATTENTION,
            lambda w: w | {k.replace("layers.1", "layers.7"): v.clone() for k, v in w.items()},
            r"a key .*layers\.7\.",
        ),
        (
            ATTENTION,
            lambda w: {k: v[:, :16].contiguous() if "lora_A" in k else v for k, v in w.items()},
            "size mismatch",
        ),
    ],
)
def test_a_teacher_that_does_not_fit_is_refused(tmp_path, targets, change, said):
    with pytest.raises(BadInput, match=said):
        merge_teacher(base(), saved_lora(tmp_path, targets, change=change))


def test_a_truncated_teacher_is_refused(tmp_path):
    teacher = saved_lora(tmp_path, ATTENTION)
    path = tmp_path / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(BadInput, match="cannot be read"):
        merge_teacher(base(), teacher)


def test_a_merge_that_is_not_the_adapters_function_is_refused(tmp_path, monkeypatch):
    teacher = saved_lora(tmp_path, ATTENTION)
    logits = iter([torch.ones(1, 2), torch.tensor([[1.0, 1.2]])])
    monkeypatch.setattr("projected_grpo.model.load.probe_logits", lambda _: next(logits))
    with pytest.raises(BadInput, match=r"its logits differ by 14\.1%"):
        merge_teacher(base(), teacher)


class Tokenizer:
    """A tokenizer whose template is missing, or takes no system message."""

    def __init__(self, chat_template):
        self.chat_template = chat_template

    def apply_chat_template(self, *_, **__):
        raise TemplateError("System role not supported")


@pytest.mark.parametrize(
    ("template", "said"),
    [(None, "no chat template .* instruct version"), ("{{ x }}", "refuses messages of system, user")],
)
def test_a_model_that_cannot_be_asked_is_refused(template, said):
    messages = (("system", "s"), ("user", "u"))
    with pytest.raises(BadInput, match=said):
        render(messages, "none", "no_intervention", Tokenizer(template), 100, 10, "problem 1")
