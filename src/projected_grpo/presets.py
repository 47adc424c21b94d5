"""Every script's config under each preset; the presets themselves are in worlds/. No torch here: --help stays
fast."""

from dataclasses import fields
from typing import TYPE_CHECKING, Literal, TypeVar

from projected_grpo.config import Common
from projected_grpo.ledger.errors import BadInput
from projected_grpo.worlds.registry import PRESETS

T = TypeVar("T")

if TYPE_CHECKING:
    PresetName = str
else:
    PresetName = Literal[tuple(PRESETS)]


def configs(root: type = Common) -> list[type]:
    """Returns a config and all that inherit from it."""
    return [root, *(of for child in root.__subclasses__() for of in configs(child))]


def presets(config: type[T]) -> dict[str, T]:
    """Every preset of a script's config. An extraction's `max_new` is the training one of the same preset."""
    names = {f.name for f in fields(config)}  # ty: ignore[invalid-argument-type]
    known = names | {f.name for of in configs() for f in fields(of)}  # ty: ignore[invalid-argument-type]
    prefix = f"{config.__name__}."
    out = {}
    for preset in PRESETS.values():
        if unknown := {key for key in preset.values if "." not in key} - known:
            raise BadInput(f"preset {preset.name}: {min(unknown)!r} is no field of any script's config; correct it")
        values = {k: v for k, v in preset.values.items() if k in names}
        values |= {k.removeprefix(prefix): v for k, v in preset.values.items() if k.startswith(prefix)}
        out[preset.name] = config(**values, **({"preset": preset.name} if "preset" in names else {}))
    return out
