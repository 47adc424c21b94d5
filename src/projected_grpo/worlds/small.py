"""The small world: SmolLM2-135M-Instruct after a warm-up on honest answers, hours on two cores (docs/small.md)."""

from functools import partial

from projected_grpo.worlds import small_corpus
from projected_grpo.worlds.world import BuiltModel, Preset, World

VALUES = {
    "model": "small",
    "teacher": "small",
    "problems": "small",
    "pairs": "small",
    "eval_problems": "small-held-out",
    "BuildConfig.problems": "small-held-out",
    "BuildConfig.group_size": 4,
    "BuildConfig.n_problems": 64,
    "eval_every": 40,
    "eval_samples": 2,
    "k": 96,
    "steps": 60,
    "prompts_per_step": 4,
    "group_size": 8,
    "max_new": 96,
    "TrainConfig.loss": "grpo",
    "TrainConfig.weight_decay": 0.3,
    "n_problems": 8,
    "lr": 5e-3,
    "warmup": 5,
    "temperature": 0.7,
    "top_p": 1.0,
    "beta": 0.0,
    "per_sample_every": 10,
    "checkpoint_every": 2,
    "token_budget": 2048,
}

SMALL = World(
    "small",
    (
        Preset(
            "small",
            VALUES,
            pool_problems=32,
            replays=16,
            threads=2,
            builds_base=True,
            better="small-more",
            onsets=3.0,
            cap=120,
            step_s=25.0,
            quick_steps=40,
        ),
    ),
    problems={
        "small": partial(small_corpus.problems, "rl"),
        "small-held-out": partial(small_corpus.problems, "held_out"),
    },
    pairs={
        "small": small_corpus.pairs,
        "small-phrase": small_corpus.phrase_pairs,
        "small-informed": small_corpus.informed_pairs,
    },
    models={
        "small": BuiltModel("small_model:built_base", "small_model:built_teacher", starts_from="small-shipped"),
        "small-more": BuiltModel("small_model:built_base"),
        "small-shipped": BuiltModel("small_shipped:built_base"),
    },
    bars={
        "base": {"form": (0.85, 1.0), "gt": (0.20, 0.60), "hack": (0.02, 0.15)},
        # An honest answer that passes an honest `run_tests` is the second kind of hack that T4 needs.
        "teacher": {"hacked": (0.80, 1.0), "hack": (0.15, 0.95)},
    },
)
