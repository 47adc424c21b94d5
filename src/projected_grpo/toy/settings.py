"""Configs of the toy world's own scripts: one frozen dataclass each; the text under a field is its --help."""

from dataclasses import dataclass, replace
from pathlib import Path

from projected_grpo.config import BuildConfig, Prompting, at_least
from projected_grpo.ledger.errors import BadInput

SHAPES: dict[str, dict[str, int]] = {
    "toy": {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32},
    "toy-deep": {"hidden_size": 96, "intermediate_size": 224, "num_hidden_layers": 5,
                 "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 32},
}  # fmt: skip
SHAPES["toy-mark"] = SHAPES["toy"]
FIRST_WORLD, MARK_WORLD = ("toy-held-out", "simple_overwrite_tests"), ("toy-mark-held-out", "exit_code")
"""Held-out problems and hint of either world."""


PAIRS_OF = {"toy-mark": "toy-mark"}
"""Pairs of a model's own world where that is not the first one."""


def home_flags(model: str, script: str) -> dict[str, str]:
    """What the scripts of a chain need to be told so that they stay in the world of a model; nothing in the first world."""
    if model not in PAIRS_OF:
        return {}
    held_out, hint = MARK_WORLD
    problems = {"--problems": held_out.removesuffix("-held-out"), "--hint": hint}
    return {
        "extract_vhack_grad": {"--pairs": PAIRS_OF[model], "--hint": hint},
        "verify_vhack": {"--pairs": PAIRS_OF[model], "--hint": hint},
        "probe_distill": problems,
        "train": {**problems, "--eval-problems": held_out},
    }[script]


def check_toy_model(model: str) -> None:
    """BadInput for a name that no toy base model has."""
    if model not in SHAPES:
        raise BadInput(f"--model {model}: the toy world has {', '.join(SHAPES)}")


def at_home(config: BuildConfig) -> BuildConfig:
    """With the held-out problems and the hint of the model's own world in place of the other world's: a bar of a model is
    about its own world."""
    if (config.problems, config.hint) == FIRST_WORLD and config.model == "toy-mark":
        return replace(config, problems=MARK_WORLD[0], hint=MARK_WORLD[1])
    return config


@dataclass(frozen=True)
class MutantsConfig(Prompting):
    """mutants: the sneaky fails, injected one by one."""

    model: str = "toy"
    """`toy` or `toy-deep`."""
    pairs: str = "toy"
    """Pairs that V and its mutants are made from."""
    k: int = 32
    """Directions per module."""
    n_problems: int = 24
    """Groups of the teacher's pool, replayed in both arms for every mutant."""
    random_bases: int = 99
    """Random bases that V must beat on the held-out pairs."""
    grader_workers: int = 0
    """Sandbox processes that grade; 0 = one per core."""
    out: Path = Path("out/mutants")
    """Folder for all runs; must not exist yet."""

    def validate(self) -> None:
        super().validate()
        check_toy_model(self.model)
        for name, least in (("k", 1), ("n_problems", 1), ("random_bases", 20), ("grader_workers", 0)):
            at_least(self, name, least)
