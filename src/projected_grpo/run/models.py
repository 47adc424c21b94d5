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
from projected_grpo.run.tiny_model import SHAPES as TINY_SHAPES
from projected_grpo.run.tiny_model import built_model, built_teacher
from projected_grpo.toy.pretrain import built_base as built_toy
from projected_grpo.toy.pretrain import built_teacher as built_toy_teacher
from projected_grpo.toy.settings import SHAPES as TOY_SHAPES


@dataclass(frozen=True)
class BuiltModel:
    """How a model of this name is made, on first use. Folders in the cache."""

    base: Callable[[str, int, Path], Path]
    """(name, seed, cache)."""
    teacher: Callable[[str, int, Path, Path], Path]
    """(name, seed, base folder, cache) -> a LoRA's folder."""


_TINY = BuiltModel(built_model, built_teacher)
_TOY = BuiltModel(built_toy, built_toy_teacher)
BUILT: Mapping[str, BuiltModel] = {
    **dict.fromkeys(TINY_SHAPES, _TINY),
    **dict.fromkeys(TOY_SHAPES, _TOY),
}


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
    folder = BUILT[name].base(name, seed, cache)
    lora = BUILT[teacher].teacher(teacher, seed, folder, cache) if teacher and teacher in BUILT else teacher
    return load_folder(name, folder, dtype, device, lora)
