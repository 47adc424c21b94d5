"""Models by name: those that are built here (registry.MODELS), and everything else, which is a folder or a hub id.

What is built here is saved once, in Hugging Face format, under a hash of all that made it, and then loaded by the
same code as any other model."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from projected_grpo.ledger.errors import BadInput
from projected_grpo.model.load import LoadedModel, load_folder
from projected_grpo.worlds.registry import MODELS


def builder(name: str) -> Callable[..., Any]:
    """Returns the function that a BuiltModel names."""
    module, _, function = name.partition(":")
    return getattr(import_module(f"projected_grpo.worlds.{module}"), function)


def folder_of(model: str, seed: int, cache: Path) -> Path:
    """Returns the folder of a model's files, which is built on first use for one of MODELS. BadInput when there is
    none."""
    if model in MODELS:
        return builder(MODELS[model].base)(model, seed, cache)
    if not (Path(model) / "config.json").is_file():
        raise BadInput(f"{model}: neither a folder of a model nor one of {', '.join(MODELS)}")
    return Path(model)


def load_model(
    name: str, dtype: Literal["float32", "bfloat16"], device: str, seed: int, cache: Path, teacher: str | None = None
) -> LoadedModel:
    """Load `name` (one of MODELS, a folder or a cached hub id), frozen and in eval mode; with `teacher`, merge that
    LoRA.

    BadInput as in load_folder, or for the teacher of another built model.
    """
    if teacher in MODELS and teacher != name:
        raise BadInput(f"--teacher {teacher}: made for --model {teacher}, not {name}")
    if name not in MODELS:
        return load_folder(name, name, dtype, device, teacher)
    folder = folder_of(name, seed, cache)
    if teacher != name:
        return load_folder(name, folder, dtype, device, teacher)
    if not MODELS[name].teacher:
        raise BadInput(f"--teacher {teacher}: this model has no teacher; use that of the model that was made from it")
    return load_folder(name, folder, dtype, device, builder(MODELS[name].teacher)(name, seed, folder, cache))
