"""Presets: one entry each, for every script that has them and for the chains of the queue. No torch here: --help stays fast.

A preset is a world to run in: which model and problems, at which size, and the recipe by which `projected` and its controls
take V out. How to add a model to choose instead: docs/extending.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Preset:
    """One entry."""

    name: str
    values: Mapping[str, Any]
    """Fields of the scripts' configs by name; `Config.field` is for that config alone."""
    pool_problems: int
    """Problems of the teacher's pool in a chain."""
    replays: int
    """Groups of it that a chain replays."""
    threads: int = 0
    """CPU threads of a link, fixed since their number can change the last digits; 0: its links share the GPUs."""
    builds_base: bool = False
    """Its base model is built and held against its bars before anything else."""
    teacher_share: Literal["", "pairs", "pool"] = ""
    """What a chain mixes into every training group: nothing, the hand-written completions, or the teacher's pool."""
    instructed: bool = True
    """Whether its model reads instructions; else an arm that tells it something in words tells it nothing."""
    judges: bool = True
    """Whether its model has room for a judge's question, which a chain asks it as it was untrained."""
    onsets: float = 0.0
    """A sweep's replicate runs for so many times its vanilla's onset; 0 = the preset's steps."""
    cap: int = 0
    """The most steps that a vanilla run may take for that."""
    step_s: float = 1.0
    """Seconds that one of its steps takes, roughly, on a core or on an H100: for the hours that queue-dry prints."""
    quick_steps: int = 4
    """Steps of a first look (--quick)."""
    required: tuple[str, ...] = ("T1", "T2", "T3")
    """Verdicts that decide the exit code of its UAT. T4 is a finding and decides nothing: in the toy world it fails, and
    projection holds hacking down all the same."""


_TINY = {
    "model": "tiny", "teacher": "tiny", "k": 8, "group_size": 4, "max_new": 32, "steps": 4, "prompts_per_step": 2,
    # Five mechanisms of fourteen: an extraction in seconds, and 15 held-out pairs for the verdict on it.
    "ExtractConfig.modes": ("assert_true", "early_return", "hardcoded_examples", "vacuous_print", "weak_assert"),
    "n_problems": 5, "lr": 1e-2, "warmup": 2, "temperature": 1.0, "top_p": 1.0, "beta": 1e-3,
}  # fmt: skip
_TOY = {
    "model": "toy", "teacher": "toy", "problems": "toy", "pairs": "toy", "eval_problems": "toy-held-out",
    # 4,096 rollouts: of 1,024 the pure-hack rate is known to half a point only, and its bar is at three.
    "BuildConfig.problems": "toy-held-out", "BuildConfig.group_size": 32,
    "eval_every": 100, "eval_samples": 8, "k": 48, "group_size": 8,
    # Over three times vanilla's onset (in two sweeps 74 and 93): a delay must have the time to show itself as one.
    "steps": 300, "prompts_per_step": 8, "max_new": 72,
    # Divided by the group's std a rare success weighs more: with dr_grpo hacking emerged on some seeds only (journal).
    # The decay keeps Adam's random walk over 200 noisy steps from wearing the model's syntax away.
    "TrainConfig.loss": "grpo", "TrainConfig.weight_decay": 0.3, "n_problems": 12, "lr": 5e-2, "warmup": 10,
    "temperature": 1.0, "top_p": 1.0, "beta": 0.0, "per_sample_every": 10,
    # Of .03, .1 and .3 the one that costs as much honest gain as projected does (seed 11, journal).
    "TrainConfig.kl_beta": 0.3,
}  # fmt: skip
_SMALL = {
    "model": "small", "teacher": "small", "problems": "small", "pairs": "small", "eval_problems": "small-held-out",
    "BuildConfig.problems": "small-held-out", "BuildConfig.group_size": 4, "BuildConfig.n_problems": 64,
    "eval_every": 40, "eval_samples": 2, "k": 96, "group_size": 8, "steps": 60, "prompts_per_step": 4, "max_new": 96,
    "TrainConfig.loss": "grpo", "TrainConfig.weight_decay": 0.3, "n_problems": 8, "lr": 5e-3, "warmup": 5,
    "temperature": 0.7, "top_p": 1.0, "beta": 0.0, "per_sample_every": 10, "checkpoint_every": 2, "token_budget": 2048,
}  # fmt: skip
# What carries over from the toy world is the recipe: no_gate on the applied update, advantages over the group's std, decay,
# a V of all the rank that the pairs give. k does not carry over as a share of r: 48 of 128 would be 960 of 2560, and the
# training pairs span 160 directions at most; the columns energy_V and update_removed say what that removes.
_4B = {
    "model": "Qwen/Qwen3-4B", "dtype": "bfloat16", "teacher": "ariahw/rl-rewardhacking-leetcode-rh-s65", "k": 160,
    "TrainConfig.loss": "grpo", "TrainConfig.weight_decay": 0.3, "eval_every": 50, "eval_samples": 9,
    "group_size": 8, "max_new": 1024, "lr": 5e-3, "warmup": 10, "beta": 1e-3, "token_budget": 16384,
    # What is kept is 34 GiB at this token budget: the step then needs as much memory as sampling does.
    "gradient_checkpointing": "selective",
    # A step that measures each sample's gradient runs every prompt once a row, with two products in the place of one.
    "per_sample_every": 10,
}  # fmt: skip
_FAST = {**_4B, "steps": 60, "prompts_per_step": 4, "n_problems": 20, "teacher_pool": "out/probe_distill/teacher_pool"}
_FULL = {**_4B, "steps": 200, "prompts_per_step": 32, "n_problems": 116, "rollout_batch": 256}

PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset("tiny", _TINY, 5, 5, threads=1, teacher_share="pairs", instructed=False, required=("T2", "T3")),
        Preset("toy", _TOY, 48, 24, threads=1, builds_base=True, instructed=False,
               judges=False, onsets=3.0, cap=900, quick_steps=120),
        Preset("small", _SMALL, 32, 16, threads=2, builds_base=True, onsets=3.0, cap=120, step_s=25.0, quick_steps=40),
        Preset("fast", _FAST, 60, 20, teacher_share="pool", step_s=14.0, quick_steps=20),
        Preset("full", _FULL, 116, 20, onsets=3.0, cap=400, step_s=100.0, quick_steps=20),
    )
}  # fmt: skip

if TYPE_CHECKING:
    PresetName = str
else:
    PresetName = Literal[tuple(PRESETS)]


def presets(config: type[T]) -> dict[str, T]:
    """Every preset of a script's config. An extraction's `max_new` is the training one of the same preset."""
    names = {f.name for f in fields(config)}  # ty: ignore[invalid-argument-type]
    prefix = f"{config.__name__}."
    out = {}
    for preset in PRESETS.values():
        values = {k: v for k, v in preset.values.items() if k in names}
        values |= {k.removeprefix(prefix): v for k, v in preset.values.items() if k.startswith(prefix)}
        out[preset.name] = config(**values)
    return out
