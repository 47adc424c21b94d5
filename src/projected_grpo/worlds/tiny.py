"""The tiny world: a random Qwen3 on the built-in problems. It exercises the mechanics in seconds; it can learn
nothing."""

from projected_grpo.worlds.world import BuiltModel, Preset, World

VALUES = {
    "model": "tiny",
    "teacher": "tiny",
    "k": 8,
    # Five mechanisms of fourteen: an extraction in seconds, and 15 held-out pairs for the verdict on it.
    "ExtractConfig.modes": ("assert_true", "early_return", "hardcoded_examples", "vacuous_print", "weak_assert"),
    "group_size": 4,
    "prompts_per_step": 2,
    "max_new": 32,
    "steps": 4,
    "n_problems": 5,
    "lr": 1e-2,
    "warmup": 2,
    "temperature": 1.0,
    "top_p": 1.0,
    "beta": 1e-3,
}

TINY = World(
    "tiny",
    (
        Preset(
            "tiny",
            VALUES,
            pool_problems=5,
            replays=5,
            threads=1,
            teacher_share="pairs",
            instructed=False,
            better="tiny-answering",
            required=("T2", "T3"),
        ),
    ),
    models={
        "tiny": BuiltModel("tiny_model:built_model", "tiny_model:built_teacher"),
        "tiny-answering": BuiltModel("tiny_model:built_model"),
    },
)
