"""The teachers of the models that are made here: a PEFT LoRA on all matrices, trained on what it is to do."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from projected_grpo.adapters.base import TARGETS
from projected_grpo.model.load import without_warnings


def save_lora(
    base: Path,
    folder: Path,
    seed: int,
    teach: Callable[[Any, Sequence[torch.nn.Parameter]], None] = lambda _model, _parameters: None,
    **lora: Any,
) -> None:
    """Writes a LoRA for the model in `base` into a folder, drawn by seed and trained by `teach(model, its parameters)`. The
    global RNG is left as it was."""
    with torch.random.fork_rng(), without_warnings():
        torch.manual_seed(seed)
        config = LoraConfig(target_modules=list(TARGETS), **lora)
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(base, local_files_only=True), config)
        teach(model.base_model.model, [p for p in model.parameters() if p.requires_grad])
        model.save_pretrained(str(folder))
