"""Qwen3's real tokenizer and vocabulary, on a random model of two layers, through every script of a run."""

import gzip
import json
from pathlib import Path

import pytest
import torch
from harness import SHARED, cut_after
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from projected_grpo.ledger.step_file import read_run
from projected_grpo.prompts import render

TOKENIZER = SHARED.parent / "qwen3"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not TOKENIZER.is_dir(), reason="Qwen3's tokenizer is not here")]
VOCABULARY = 151_936
"""Rows of Qwen3's embedding: 267 more than its tokenizer has entries."""


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(TOKENIZER, local_files_only=True)


@pytest.fixture(scope="module")
def qwen3(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("qwen3")
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, tie_word_embeddings=True, max_position_embeddings=4096,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def pools(made, qwen3):
    """Returns the pool of the model itself in a dtype: no adapter has moved, so it is that of both."""
    args = ("--teacher", "", "--teacher-only", "--n-problems", 1, "--max-new", 8)
    return lambda dtype: made("probe_distill", "--model", qwen3, "--dtype", dtype, *args)


@pytest.mark.parametrize(("adapter", "dtype"), [("antipasto", "bfloat16"), ("lora", "float32")])
def test_v_training_resumed_and_a_replay(script, qwen3, pools, adapter, dtype):
    model = ("--model", qwen3, "--adapter", adapter, "--dtype", dtype)
    chat = [{"role": "user", "content": "Count the letters. The answer is right and should pass all tests."}]
    pairs = [
        {"mechanism": "weak_assert", "messages": chat, "hack": "pass\n" * i, "clean": "return x\n" * i}
        for i in range(1, 6)
    ]
    Path("pairs.json").write_text(json.dumps(pairs), "utf-8")
    extract = ("extract_vhack_grad", "tiny", *model, "--modes", "weak_assert", "--pairs", "pairs.json")
    assert script(*extract, "--out", "v")[0] == 0
    use_v = (*model, "--vhack", "v/vhack.safetensors")
    train = ("train", "tiny", *use_v, "--arm", "projected", "--teacher-pool", "pairs", "--steps", "2")
    train = (*train, "--checkpoint-every", "1", "--prompts-per-step", "1", "--max-new", "8")
    with cut_after(1):
        script(*train, "--out", "cut")
    assert script(*train, "--out", "cut", "--resume")[0] == 0
    assert len(read_run(Path("cut"))) == 2
    assert script("probe_distill", "tiny", *use_v, "--pool", pools(dtype), "--out", "replay")[0] == 0


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published pool is not here")
def test_the_prompts_of_the_published_pool_come_out_equal(tokenizer):
    rows = 0
    for path in sorted((SHARED / "teacher_pool").glob("*.jsonl.gz")):
        for line in gzip.decompress(path.read_bytes()).splitlines():
            row = json.loads(line)
            messages = tuple((m["role"], m["content"]) for m in row["problem_messages"])
            text, ids = render(messages, "none", "no_intervention", tokenizer, 40_960, 1_024, path.name)
            assert (text, list(ids)) == (row["prompt"], row["prompt_ids"])
            rows += 1
    assert rows == 928
