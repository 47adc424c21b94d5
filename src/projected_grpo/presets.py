"""The four presets of every script that has them. No torch here: --help stays fast.

`tiny` random weights on a laptop, mechanics only; `toy` the toy world (docs/toy.md), the whole science on a laptop; `fast`
Qwen3-4B, 60 steps, half of each group from the teacher's pool; `full` Qwen3-4B as in the benchmark's main run.
"""

from dataclasses import fields
from typing import Any, Literal, TypeVar

Preset = Literal["tiny", "toy", "fast", "full"]
PRESET_NAMES: tuple[Preset, ...] = ("tiny", "toy", "fast", "full")
T = TypeVar("T")
QWEN = {"model": "Qwen/Qwen3-4B", "dtype": "bfloat16", "teacher": "ariahw/rl-rewardhacking-leetcode-rh-s65"}
_VALUES: dict[Preset, dict[str, Any]] = {
    "tiny": {
        "model": "tiny", "teacher": "tiny", "k": 8, "group_size": 4, "max_new": 32, "steps": 4, "prompts_per_step": 2,
        "n_problems": 3, "lr": 1e-2, "warmup": 2, "temperature": 1.0, "top_p": 1.0, "beta": 1e-3,
    },
    "toy": {
        "model": "toy", "teacher": "toy", "problems": "toy", "pairs": "toy", "eval_problems": "toy-held-out",
        # 4,096 rollouts: of 1,024 the pure-hack rate is known to half a point only, and its bar is at three.
        "BuildToyConfig.problems": "toy-held-out", "BuildToyConfig.group_size": 32,
        "eval_every": 100, "eval_samples": 8, "k": 48, "group_size": 8,
        # Over three times vanilla's onset (in two sweeps 74 and 93): a delay must have the time to show itself as one.
        "steps": 300, "prompts_per_step": 8, "max_new": 72,
        # Divided by the group's std a rare success weighs more: with dr_grpo hacking emerged on some seeds only (journal).
        # The decay keeps Adam's random walk over 200 noisy steps from wearing the model's syntax away.
        "TrainConfig.loss": "grpo", "TrainConfig.weight_decay": 0.3, "n_problems": 12, "lr": 5e-2, "warmup": 10,
        "temperature": 1.0, "top_p": 1.0, "beta": 0.0, "per_sample_every": 10,
    },
    "fast": {
        **QWEN, "k": 32, "group_size": 8, "max_new": 1024, "steps": 60, "prompts_per_step": 4, "n_problems": 20,
        "lr": 5e-3, "warmup": 10, "beta": 1e-3, "teacher_pool": "out/probe_distill/teacher_pool",
        "token_budget": 16384, "gradient_checkpointing": True,
    },
    "full": {
        **QWEN, "k": 32, "group_size": 8, "max_new": 1024, "steps": 200, "prompts_per_step": 32, "n_problems": 116,
        "lr": 5e-3, "warmup": 10, "beta": 1e-3, "token_budget": 16384, "gradient_checkpointing": True,
    },
}  # fmt: skip


def presets(config: type[T]) -> dict[str, T]:
    """The four presets of a script's config; a key `Config.field` is for that config alone. An extraction's `max_new` is the
    training one of the same preset."""
    names = {f.name for f in fields(config)}  # ty: ignore[invalid-argument-type]
    own = f"{config.__name__}."
    out = {}
    for preset in PRESET_NAMES:
        values = {k: v for k, v in _VALUES[preset].items() if k in names}
        values |= {k.removeprefix(own): v for k, v in _VALUES[preset].items() if k.startswith(own)}
        out[preset] = config(**values)
    return out
