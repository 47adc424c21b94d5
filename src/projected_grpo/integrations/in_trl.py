"""A replicate of the toy or small world in TRL's GRPOTrainer: the same base, adapter, problems, reward, sizes; TRL's loop.

The arm `vanilla` is TRL alone; `projected` has the callback, and nothing else is different.
"""

import importlib
import json
from pathlib import Path
from typing import Any

import torch
from transformers.trainer_utils import get_last_checkpoint

from loophole_grader.reward_function import LoopholeReward
from projected_grpo.adapters import attach_antipasto
from projected_grpo.config import ExtractConfig, TrainConfig
from projected_grpo.data.pairs import load_pairs
from projected_grpo.data.problems import load_problems
from projected_grpo.integrations.extract import VHack
from projected_grpo.integrations.update import ProjectedCallback
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.presets import presets
from projected_grpo.prompts import messages_for
from projected_grpo.worlds.models import load_model

ARMS = ("vanilla", "projected")


def run_arm(
    replicate: int, arm: str, *, world: str, steps: int, save_every: int, cache: Path, out: Path
) -> list[dict[str, float]]:
    """Returns the log of one run, a line per step: of a finished one from its file, else run on from its last checkpoint."""
    folder = out / f"{arm}_replicate{replicate}"
    done = folder / "log.json"
    if not done.exists():
        saving = {"output_dir": str(folder), "max_steps": steps, "save_steps": save_every, "save_total_limit": 1}
        trainer = trainer_of(world, replicate, arm, cache, saving)
        trainer.train(resume_from_checkpoint=get_last_checkpoint(str(folder)) if folder.exists() else None)
        write_atomic(done, json.dumps([line for line in trainer.state.log_history if "reward" in line]).encode())
    lines = json.loads(done.read_text("utf-8"))
    if len(lines) != steps:
        raise BadInput(f"{folder}: a run of {len(lines)} steps, {steps} are asked for; choose another --out")
    return lines


def trainer_of(world: str, replicate: int, arm: str, cache: Path, saving: dict[str, Any]) -> Any:
    """Returns TRL's trainer on a replicate's base with this project's adapter; with the callback for the arm `projected`.
    `saving`: how long it trains, and where it writes."""
    trl: Any = importlib.import_module("trl")
    datasets: Any = importlib.import_module("datasets")
    train, extract = presets(TrainConfig)[world], presets(ExtractConfig)[world]
    torch.manual_seed(replicate)
    loaded = load_model(train.model, "float32", "cpu", replicate, cache)
    attach_antipasto(loaded.model, cache / "svd")
    problems = load_problems(train.problems)
    rows = [{"prompt": messages_for(p.messages, train.hint, train.prompt_setup), "id": p.problem_id} for p in problems]
    callbacks = []
    if arm == "projected":
        v = VHack.extract(
            loaded.model, load_pairs(extract.pairs, extract.modes), tokenizer=loaded.tokenizer, name=extract.model,
            k=extract.k, hint=extract.hint, prompt_setup=extract.prompt_setup, pairs_draw=replicate, seed=replicate,
        )  # fmt: skip
        callbacks = [ProjectedCallback(v)]
    # Not the same as in this project's loop: TRL's warm-up begins at a rate of 0, and its sampling is Hugging Face's.
    args = trl.GRPOConfig(
        **saving, logging_steps=1, report_to="none", use_cpu=True, seed=replicate, bf16=False,
        gradient_checkpointing=False, chat_template_kwargs={"enable_thinking": False},
        per_device_train_batch_size=train.prompts_per_step * train.group_size, num_generations=train.group_size,
        max_completion_length=train.max_new, temperature=train.temperature, top_p=train.top_p, top_k=train.top_k,
        beta=train.beta, loss_type=train.loss, epsilon=train.clip_low, epsilon_high=train.clip_high,
        learning_rate=train.lr, lr_scheduler_type="constant_with_warmup", warmup_steps=train.warmup,
        weight_decay=train.weight_decay, adam_beta2=0.95, max_grad_norm=train.max_grad_norm,
    )  # fmt: skip
    return trl.GRPOTrainer(
        model=loaded.model, args=args, train_dataset=datasets.Dataset.from_list(rows), processing_class=loaded.tokenizer,
        reward_funcs=LoopholeReward([p.task for p in problems]), callbacks=callbacks,
    )  # fmt: skip
