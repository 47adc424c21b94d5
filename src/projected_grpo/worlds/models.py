"""Models by name: those that are made here, and everything else, which is a folder or a hub id.

What is made here is saved once, in Hugging Face format, under a hash of all that made it, and then loaded by the same code
as any other model. A new one is an entry in BUILT.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from projected_grpo.ledger.errors import BadInput
from projected_grpo.model.load import LoadedModel, load_folder
from projected_grpo.worlds.small_model import built_base as built_small
from projected_grpo.worlds.small_model import built_teacher as built_small_teacher
from projected_grpo.worlds.small_shipped import shipped_model
from projected_grpo.worlds.tiny import built_model, built_teacher
from projected_grpo.worlds.toy_model import built_base as built_toy
from projected_grpo.worlds.toy_model import built_teacher as built_toy_teacher
from projected_grpo.worlds.toy_tasks import SHAPES


@dataclass(frozen=True)
class BuiltModel:
    """How a model of this name is made, on first use. Folders in the cache."""

    base: Callable[[str, int, Path], Path]
    """(name, seed, cache)."""
    teacher: Callable[[str, int, Path, Path], Path] | None
    """(name, seed, base folder, cache) -> a LoRA's folder."""
    world: str
    """The preset whose bars it is held against, where there are any."""
    before: str = ""
    """The model that it was made from, by its name here."""


BUILT: Mapping[str, BuiltModel] = {
    "tiny": BuiltModel(built_model, built_teacher, "tiny"),
    "tiny-answering": BuiltModel(built_model, None, ""),
    **dict.fromkeys(SHAPES, BuiltModel(built_toy, built_toy_teacher, "toy")),
    "small": BuiltModel(built_small, built_small_teacher, "small", "small-shipped"),
    "small-more": BuiltModel(built_small, None, ""),
    "small-shipped": BuiltModel(lambda _name, _seed, cache: shipped_model(cache), None, ""),
}


def folder_of(model: str, seed: int, cache: Path) -> Path:
    """Of a model's files: one of BUILT, made on first use, or the folder that it names. BadInput on neither."""
    if model in BUILT:
        return BUILT[model].base(model, seed, cache)
    if not (Path(model) / "config.json").is_file():
        raise BadInput(f"{model}: neither a folder of a model nor one of {', '.join(BUILT)}")
    return Path(model)


def load_model(
    name: str, dtype: Literal["float32", "bfloat16"], device: str, seed: int, cache: Path, teacher: str | None = None
) -> LoadedModel:
    """Load `name` (one of BUILT, a folder or a cached hub id), frozen and in eval mode; with `teacher`, merge that LoRA.

    BadInput as in load_folder, or for the teacher of another built model.
    """
    if teacher in BUILT and teacher != name:
        raise BadInput(f"--teacher {teacher}: made for --model {teacher}, not {name}")
    if name not in BUILT:
        return load_folder(name, name, dtype, device, teacher)
    built, folder = BUILT[name], folder_of(name, seed, cache)
    if teacher != name:
        return load_folder(name, folder, dtype, device, teacher)
    if built.teacher is None:
        raise BadInput(f"--teacher {teacher}: this model has no teacher; use that of the model that was made from it")
    return load_folder(name, folder, dtype, device, built.teacher(name, seed, folder, cache))
