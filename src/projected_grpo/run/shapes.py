"""The shape of a model by its name, without its weights: its transformers config, and its tokenizer where it is at hand."""

from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer, LlamaConfig, Qwen3Config

from projected_grpo.ledger.errors import BadInput
from projected_grpo.run.tiny_model import SHAPES as TINY_SHAPES
from projected_grpo.run.tiny_model import random_model, train_tokenizer
from projected_grpo.toy.pretrain import config_of, tokenizer_of
from projected_grpo.toy.settings import SHAPES as TOY_SHAPES

WRITTEN: dict[str, Any] = {
    # huggingface.co/Qwen/Qwen3-4B, config.json
    "Qwen/Qwen3-4B": Qwen3Config(
        vocab_size=151936, hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32,
        num_key_value_heads=8, head_dim=128, tie_word_embeddings=True, max_position_embeddings=40960,
    ),
    # huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct, config.json
    "small": LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, tie_word_embeddings=True, max_position_embeddings=8192,
    ),
}  # fmt: skip
"""Configs of models that a machine without a hub has not: what decides shapes, as published."""
WRITTEN["small-shipped"] = WRITTEN["small-more"] = WRITTEN["small"]


def chat_of() -> Any:
    """A tokenizer that renders chats as Qwen3 does, and cuts them otherwise."""
    return train_tokenizer(TINY_SHAPES["tiny"]["vocab_size"])


def shape_of(name: str) -> tuple[Any, Any]:
    """(config, tokenizer or None) of a built model, one of WRITTEN, or a folder. BadInput for any other name."""
    if name in TINY_SHAPES:
        tokenizer = train_tokenizer(TINY_SHAPES[name]["vocab_size"])
        return random_model(name, 0, tokenizer).config, tokenizer
    if name in TOY_SHAPES:
        return config_of(name), tokenizer_of(name)
    if name in WRITTEN:
        return WRITTEN[name], None
    if not (Path(name) / "config.json").is_file():
        known = ", ".join((*TINY_SHAPES, *TOY_SHAPES, *WRITTEN))
        raise BadInput(f"--model {name}: no folder with a config.json, and no shape that is written down ({known})")
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=True)
    except (OSError, ValueError):
        tokenizer = None
    return AutoConfig.from_pretrained(name, local_files_only=True), tokenizer
