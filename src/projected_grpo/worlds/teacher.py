"""The teachers of the models that are made here: a PEFT LoRA on all matrices, trained on what it is to do."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from projected_grpo.adapters.base import TARGETS
from projected_grpo.ledger.files import built_once
from projected_grpo.model.load import without_warnings


def built_lora(
    folder: Path,
    base: Path,
    seed: int,
    teach: Callable[[Any, Sequence[torch.nn.Parameter]], None] = lambda _model, _parameters: None,
    what: str = "",
    **lora: Any,
) -> Path:
    """Folder of a LoRA for the model in `base`, built on first use: drawn by seed, trained by `teach(model,
    parameters)`. The global RNG is left as it was. `what` is logged, as in built_once."""

    def build(folder: Path) -> None:
        with torch.random.fork_rng(), without_warnings():
            torch.manual_seed(seed)
            config = LoraConfig(target_modules=list(TARGETS), **lora)
            model = get_peft_model(AutoModelForCausalLM.from_pretrained(base, local_files_only=True), config)
            teach(model.base_model.model, [p for p in model.parameters() if p.requires_grad])
            model.save_pretrained(str(folder))

    return built_once(folder, build, what)
