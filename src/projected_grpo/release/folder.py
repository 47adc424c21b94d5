"""An export's files, one function a form. The base of a model that is made here goes along (base/): nobody else has it."""

import json
from pathlib import Path
from typing import Any

from peft import LoraConfig
from safetensors.torch import save
from torch import Tensor

from projected_grpo.adapters.base import TARGETS, Adapter
from projected_grpo.adapters.lora import LoRALinear
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.release.loader import loader_text
from projected_grpo.release.settings import ExportConfig, Form
from projected_grpo.run.models import BUILT
from projected_grpo.run.trained import Trained

BASE = "base"
"""Folder of the base model in an export."""
OF_FORM = {"peft": "lora", "delta": "antipasto"}


def form_of(config: ExportConfig, trained: Trained) -> Form:
    """The form that was asked for, or the adapter's usual one. BadInput when it is another adapter's."""
    kind = trained.adapter.kind
    if config.as_ == "auto":
        return "peft" if kind == "lora" else "folded"
    if OF_FORM.get(config.as_, kind) != kind:
        raise BadInput(f"--as {config.as_}: {trained.run} trained with --adapter {kind}; use --as folded")
    return config.as_


def base_of(trained: Trained) -> str:
    """Where a reader of the folder finds the base: in it, or under its own name."""
    return BASE if trained.config.model in BUILT else trained.config.model


def write_form(folder: Path, form: Form, trained: Trained) -> None:
    """Everything but the card, into a folder that is there."""
    {"peft": write_peft, "folded": write_folded, "delta": write_delta}[form](folder, trained)
    trained.loaded.tokenizer.save_pretrained(folder)


def write_model(folder: Path, trained: Trained) -> None:
    """The model's weights as they lie in memory, without an adapter's own parameters."""
    model = trained.loaded.model
    state = {name: t for name, t in model.state_dict().items() if not name.endswith(".theta")}
    model.save_pretrained(folder, state_dict=state)


def write_folded(folder: Path, trained: Trained) -> None:
    """Whole weights W' = W + delta_weight: those that the run sampled with."""
    with trained.adapter.folded():
        write_model(folder, trained)


def write_peft(folder: Path, trained: Trained) -> None:
    """A PEFT LoRA adapter: A and B of every module as they were trained, scale alpha / r = 1."""
    _write_base(folder, trained)
    tensors: dict[str, Tensor] = {}
    for name, layer in trained.adapter.layers.items():
        assert isinstance(layer, LoRALinear)
        a, b = layer.split(layer.theta.detach())
        tensors |= {f"base_model.model.{name}.lora_{x}.weight": t.cpu().contiguous() for x, t in (("A", a), ("B", b))}
    write_atomic(folder / "adapter_model.safetensors", save(tensors, metadata={"format": "pt"}))
    rank = trained.config.lora_rank
    used = {name.rpartition(".")[2] for name in trained.adapter.layers}
    lora = LoraConfig(r=rank, lora_alpha=rank, lora_dropout=0.0, target_modules=[t for t in TARGETS if t in used],
                      task_type="CAUSAL_LM", inference_mode=True, base_model_name_or_path=base_of(trained))  # fmt: skip
    lora.save_pretrained(str(folder))


def write_delta(folder: Path, trained: Trained) -> None:
    """delta_S of every module, fingerprints of the singular vectors that it is written in, and the file that loads it."""
    _write_base(folder, trained)
    adapter: Adapter = trained.adapter
    tensors = {name: p.detach().cpu().contiguous() for name, p in adapter.vectors.items()}
    tensors |= {f"probe/{name}": probe.contiguous() for name, probe in adapter.basis_probes().items()}
    write_atomic(folder / "delta_S.safetensors", save(tensors, metadata={"format": "pt"}))
    about: dict[str, Any] = {
        "base": base_of(trained), "dtype": trained.config.dtype, "weights_hash": trained.loaded.weights_hash,
    }  # fmt: skip
    write_atomic(folder / "delta_S.json", (json.dumps(about, indent=1) + "\n").encode())
    write_atomic(folder / "load_delta.py", loader_text().encode())


def _write_base(folder: Path, trained: Trained) -> None:
    if base_of(trained) == BASE:
        write_model(folder / BASE, trained)
        trained.loaded.tokenizer.save_pretrained(folder / BASE)
