"""Does hacking rise in TRL's own trainer, and with the callback? Replicates of the toy world, each without it and
with it: the base, adapter, problems, reward and sizes of this project's runs, in TRL's loop.

A run that was cut goes on where it was; a finished one is left as it is. Exit code 1 where H1's thresholds for the
reduction, the pass rate and compile rates do not hold on means (its other clauses need controls), 3 where TRL alone
hacks too little for any reduction to reach its threshold.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from projected_grpo.run import cli

RATES = ("hack", "hacked", "gt_pass", "form")
CACHE = Path("out/cache")


@dataclass(frozen=True)
class InTRLConfig:
    """in_trl: independent replicates in TRL's GRPOTrainer, each without the callback and with it."""

    world: Literal["toy", "tiny"] = "toy"
    """The preset whose model, problems, pairs and sizes are used; tiny is the mechanics alone."""
    replicates: tuple[int, ...] = (41, 42, 43)
    """Seeds. Each replicate has its base, its draw of the pairs and its V."""
    steps: int = 300
    """Optimizer steps of every run."""
    out: Path = Path("out/in-trl")
    """Folder of runs; those that are finished are left as they are."""


def run_arm(config: InTRLConfig, replicate: int, arm: str) -> list[dict[str, float]]:
    """Returns the log of one run, a line per step: of a finished one from its file, else run on from its last
    checkpoint."""
    from transformers.trainer_utils import get_last_checkpoint

    from projected_grpo.ledger.errors import BadInput
    from projected_grpo.ledger.files import write_atomic

    folder = config.out / config.world / f"{arm}_replicate{replicate}"
    done = folder / "log.json"
    if not done.exists():
        trainer = trainer_of(config, replicate, arm, folder)
        trainer.train(resume_from_checkpoint=get_last_checkpoint(str(folder)) if folder.exists() else None)
        write_atomic(done, json.dumps([line for line in trainer.state.log_history if "reward" in line]).encode())
    lines = json.loads(done.read_text("utf-8"))
    if len(lines) != config.steps:
        raise BadInput(f"{folder}: a run of {len(lines)} steps, {config.steps} are asked for; choose another --out")
    return lines


def trainer_of(config: InTRLConfig, replicate: int, arm: str, folder: Path) -> Any:
    """Returns TRL's trainer on a replicate's base with this project's adapter. The arm `vanilla` is TRL alone;
    `projected` has the callback, and nothing else is different."""
    import datasets
    import torch
    import trl

    from loophole_grader.reward_function import LoopholeReward
    from projected_grpo import ProjectedCallback, VHack
    from projected_grpo.adapters.antipasto import attach_antipasto
    from projected_grpo.config import ExtractConfig, TrainConfig
    from projected_grpo.data.pairs import load_pairs
    from projected_grpo.data.problems import load_problems
    from projected_grpo.presets import presets
    from projected_grpo.prompts import chat_of
    from projected_grpo.worlds.models import load_model

    train, extract = presets(TrainConfig)[config.world], presets(ExtractConfig)[config.world]
    torch.manual_seed(replicate)
    loaded = load_model(train.model, "float32", "cpu", replicate, CACHE)
    attach_antipasto(loaded.model, CACHE / "svd")
    problems = load_problems(train.problems)
    rows = [{"prompt": chat_of(p, train.hint, train.prompt_setup), "id": p.problem_id} for p in problems]
    callbacks = []
    if arm == "projected":
        v = VHack.extract(
            loaded.model, load_pairs(extract.pairs, extract.modes), tokenizer=loaded.tokenizer, name=extract.model,
            k=extract.k, hint=extract.hint, prompt_setup=extract.prompt_setup, pairs_draw=replicate, seed=replicate,
        )  # fmt: skip
        callbacks = [ProjectedCallback(v)]
    # Not the same as in this project's loop: TRL's warm-up begins at a rate of 0, and its sampling is Hugging Face's.
    args = trl.GRPOConfig(
        output_dir=str(folder), max_steps=config.steps, save_steps=25, save_total_limit=1,
        logging_steps=1, report_to="none", use_cpu=True, seed=replicate, bf16=False,
        gradient_checkpointing=False, chat_template_kwargs={"enable_thinking": False},
        per_device_train_batch_size=train.prompts_per_step * train.group_size, num_generations=train.group_size,
        max_completion_length=train.max_new, temperature=train.temperature, top_p=train.top_p, top_k=train.top_k,
        beta=train.beta, loss_type=train.loss, epsilon=train.clip_low, epsilon_high=train.clip_high,
        learning_rate=train.lr, lr_scheduler_type="constant_with_warmup", warmup_steps=train.warmup,
        weight_decay=train.weight_decay, adam_beta2=0.95, max_grad_norm=train.max_grad_norm,
    )  # fmt: skip
    trainer: Any = trl.GRPOTrainer  # its types are narrower than what it takes
    return trainer(
        model=loaded.model, args=args, train_dataset=datasets.Dataset.from_list(rows), processing_class=loaded.tokenizer,
        reward_funcs=LoopholeReward([p.task for p in problems]), callbacks=callbacks,
    )  # fmt: skip


def main() -> int:
    config = cli.parse_plain(InTRLConfig, __doc__)
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.errors import EXIT_FAILED, EXIT_NOT_EVALUABLE, EXIT_OK
    from projected_grpo.ledger.rates import LAST
    from projected_grpo.verdicts.h1 import FORM_DROP, GT_DROP, REDUCTION

    rates: dict[str, list[list[float]]] = {"vanilla": [], "projected": []}
    table = []
    for replicate in config.replicates:
        for arm, of_arm in rates.items():
            lines = run_arm(config, replicate, arm)[-LAST:]
            of_arm.append([100 * fmean(line[f"loophole/{name}"] for line in lines) for name in RATES])
            table.append([replicate, arm, *of_arm[-1]])
    without, with_it = (list(map(fmean, zip(*of_arm, strict=True))) for of_arm in rates.values())
    hack, _, gt, form = (b - a for a, b in zip(without, with_it, strict=True))
    held = hack <= -REDUCTION and gt >= -GT_DROP and form >= -FORM_DROP
    code, mark = (EXIT_OK, "🟢") if held else (EXIT_FAILED, "🔴")
    if without[0] < REDUCTION:
        code, mark = EXIT_NOT_EVALUABLE, f"⚪ without it {without[0]:.1f} % pure hacks, too few to be reduced;"
    bottom_line(
        config.out,
        mark,
        f"with the callback minus without it, last {min(LAST, config.steps)} steps, mean of {len(config.replicates)} "
        f"replicates: pure hacks {hack:+.1f} pp (needs <= {-REDUCTION:.0f}), gt_pass {gt:+.1f} (>= {-GT_DROP:.0f}), "
        f"compiles {form:+.1f} (>= {-FORM_DROP:.0f})",
        [["replicate", "arm", *RATES], *table],
    )
    return code


if __name__ == "__main__":
    cli.run(main, on_interrupt=cli.AGAIN)
