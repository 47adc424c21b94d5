"""Every world by name, and their problems, pairs, models and presets by name. Torch-free."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from projected_grpo.worlds.benchmark import BENCHMARK
from projected_grpo.worlds.small import SMALL
from projected_grpo.worlds.tiny import TINY
from projected_grpo.worlds.toy import TOY, TOY_NAMES
from projected_grpo.worlds.world import Preset, World

T = TypeVar("T")
WORLDS: Mapping[str, World] = {
    world.name: world
    for world in (
        TINY,
        TOY,
        TOY_NAMES,
        SMALL,
        BENCHMARK,
    )
}
PRESETS: Mapping[str, Preset] = {preset.name: preset for world in WORLDS.values() for preset in world.presets}


def _by_name(what: Callable[[World], Mapping[str, T]]) -> Mapping[str, T]:
    """Everything of one kind; ValueError where two worlds have one name."""
    out: dict[str, T] = {}
    for world in WORLDS.values():
        if both := out.keys() & what(world).keys():
            raise ValueError(f"world {world.name}: {min(both)!r} is another world's; give it a name of its own")
        out |= what(world)
    return out


PROBLEMS = _by_name(lambda world: world.problems)
PAIRS = _by_name(lambda world: world.pairs)
MODELS = _by_name(lambda world: world.models)


def world_of_model(model: str) -> World:
    """Returns the world of a --model; of a folder or a hub id the benchmark."""
    return next((world for world in WORLDS.values() if model in world.models), BENCHMARK)


def world_of_preset(preset: str) -> World:
    """Returns the world of a preset."""
    return next(world for world in WORLDS.values() if any(preset == own.name for own in world.presets))
