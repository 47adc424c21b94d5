"""Every world by name, and their problems, pairs, models and presets by name. Torch-free."""

from collections.abc import Mapping

from projected_grpo.worlds.benchmark import BENCHMARK
from projected_grpo.worlds.small import SMALL
from projected_grpo.worlds.tiny import TINY
from projected_grpo.worlds.toy import TOY
from projected_grpo.worlds.world import BuiltModel, Preset, World

WORLDS: Mapping[str, World] = {
    world.name: world
    for world in (
        TINY,
        TOY,
        SMALL,
        BENCHMARK,
    )
}
PRESETS: Mapping[str, Preset] = {preset.name: preset for world in WORLDS.values() for preset in world.presets}
PROBLEMS = {name: made for world in WORLDS.values() for name, made in world.problems.items()}
PAIRS = {name: made for world in WORLDS.values() for name, made in world.pairs.items()}
MODELS: Mapping[str, BuiltModel] = {name: model for world in WORLDS.values() for name, model in world.models.items()}


def world_of_model(model: str) -> World:
    """Returns the world of a --model; of a folder or a hub id the benchmark."""
    return next((world for world in WORLDS.values() if model in world.models), BENCHMARK)


def world_of_preset(preset: str) -> World:
    """Returns the world of a preset."""
    return next(world for world in WORLDS.values() if any(preset == own.name for own in world.presets))
