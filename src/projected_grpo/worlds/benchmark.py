"""The benchmark's world: Qwen3-4B on LeetCode problems (github.com/ariahw/rl-rewardhacking), and what ships of it
here: twelve problems of its form and the hand-written pairs."""

from pathlib import Path

from loophole_grader.problems import BUILTIN
from projected_grpo.worlds.builtin import builtin_pairs, builtin_phrase_pairs
from projected_grpo.worlds.world import Preset, World

PROBLEMS_FOLDER = Path("out/problems")
LEETCODE = {
    "leetcode": ("leetcode_train_medhard_filtered.jsonl", "c10a5f39a18489200f4487e849ab86f166c31c7e"),
    "leetcode-held-out": ("leetcode_test_medhard.jsonl", "05a1d425a840bbdcdba13a9074176c609df0d8f1"),
}
"""The benchmark's problems by name: file and git blob. `just download-model` fetches them."""
DOWNLOADED = all((PROBLEMS_FOLDER / name).exists() for name, _ in LEETCODE.values())

# What carries over from the toy world is the recipe: no_gate on the applied update, advantages over the group's std,
# decay, a V of all the rank that the pairs give. k does not carry over as a share of r: 48 of 128 would be 960 of
# 2560, and the training pairs span 160 directions at most; the columns energy_V and update_removed say what that
# removes.
QWEN3_4B = {
    "model": "Qwen/Qwen3-4B",
    "dtype": "bfloat16",
    **({"problems": "leetcode", "eval_problems": "leetcode-held-out"} if DOWNLOADED else {}),
    "teacher": "ariahw/rl-rewardhacking-leetcode-rh-s65",
    "k": 160,
    "TrainConfig.loss": "grpo",
    "TrainConfig.weight_decay": 0.3,
    "eval_every": 50,
    "eval_samples": 9,
    "group_size": 8,
    "max_new": 1024,
    "lr": 5e-3,
    "warmup": 10,
    "beta": 1e-3,
    "token_budget": 16384,
    # What is kept is 31 GiB at this token budget: the step then needs as much memory as sampling does.
    "gradient_checkpointing": "selective",
    # A step that measures each sample's gradient runs every prompt once a row, with two products in the place of one.
    "per_sample_every": 10,
}
FAST = {
    **QWEN3_4B,
    "steps": 60,
    "prompts_per_step": 4,
    "n_problems": 20,
    "teacher_pool": "out/probe_distill/teacher_pool",
}
FULL = {
    **QWEN3_4B,
    "steps": 200,
    "prompts_per_step": 32,
    "n_problems": 116,
    "rollout_batch": 256,
}

BENCHMARK = World(
    "benchmark",
    (
        Preset("fast", FAST, pool_problems=60, replays=20, teacher_share="pool", step_s=14.0, quick_steps=20),
        Preset("full", FULL, pool_problems=116, replays=20, onsets=3.0, cap=400, step_s=100.0, quick_steps=20),
    ),
    problems={"builtin": BUILTIN, **{name: PROBLEMS_FOLDER / file for name, (file, _) in LEETCODE.items()}},
    pairs={"builtin": builtin_pairs, "builtin-phrase": builtin_phrase_pairs},
)
