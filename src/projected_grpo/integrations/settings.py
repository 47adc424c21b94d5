"""What scripts/in_trl.py asks for. No torch here: --help stays fast."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from projected_grpo.config import TrainConfig


@dataclass(frozen=True)
class InTRLConfig:
    """in_trl: independent replicates in TRL's GRPOTrainer, each without the callback and with it."""

    world: Literal["toy", "tiny"] = "toy"
    """The preset whose model, problems, pairs and sizes are used; tiny is the mechanics alone."""
    replicates: tuple[int, ...] = (41, 42, 43)
    """Seeds. Each replicate has its base, its draw of the pairs and its V."""
    steps: int = 300
    """Optimizer steps of every run."""
    save_every: int = 25
    """Steps between two checkpoints; a run that was cut goes on from its last one."""
    cache: Path = Path("out/cache")
    """Where built models and singular value decompositions are kept."""
    out: Path = Path("out/in-trl")
    """Folder of runs; those that are finished are left as they are."""


def rate_over(lines: list[dict[str, float]], name: str, last: int = 10) -> float:
    """Mean of a rate over the last steps of a run's log."""
    known = [line[f"loophole/{name}"] for line in lines[-last:]]
    return sum(known) / len(known)


def sizes_of(config: TrainConfig) -> dict[str, float | int | str | bool]:
    """GRPOConfig's words for a training config of this project. Not the same: TRL's warm-up begins at a rate of 0, and its
    sampling is Hugging Face's."""
    return {
        "per_device_train_batch_size": config.prompts_per_step * config.group_size,
        "num_generations": config.group_size,
        "max_completion_length": config.max_new,
        "temperature": config.temperature,
        "top_p": config.top_p,
        "top_k": config.top_k,
        "beta": config.beta,
        "loss_type": config.loss,
        "epsilon": config.clip_low,
        "epsilon_high": config.clip_high,
        "learning_rate": config.lr,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": config.warmup,
        "weight_decay": config.weight_decay,
        "adam_beta2": 0.95,
        "max_grad_norm": config.max_grad_norm,
        "bf16": False,
        "gradient_checkpointing": False,
    }
