"""Whole training steps as the product takes them: generate, grade, backward, optimizer, step file, checkpoint; projected
against vanilla, and vanilla against TRL's GRPOTrainer on the same model, prompts, group, lengths, reward and tokens.

TRL runs as its users run it on one small machine: a LoRA (rank 8, the same Linears), generation by the model itself
(use_vllm=False), one optimizer step per generated batch. Its two expensive defaults are switched off, so that it is no straw
man: gradient checkpointing (unless we checkpoint too) and bfloat16 on a float32 model. No KL term on either side.
"""

import contextlib
import functools
import importlib
import importlib.util
import io
import itertools
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from loguru import logger
from peft import LoraConfig
from torch.utils.benchmark import timer
from transformers import PrinterCallback, TrainerCallback

from loophole_grader import grade_batch, reward_of, verdicts_of
from projected_grpo.adapters.base import TARGETS
from projected_grpo.arms import RECIPE
from projected_grpo.bench import measure
from projected_grpo.bench.settings import SEED, WARMUP
from projected_grpo.bench.setup import HINT, TEMPERATURE, TOP_P, Bench, model_flops, random_qwen3
from projected_grpo.config import TrainConfig
from projected_grpo.groups.live import live_groups, workers
from projected_grpo.presets import presets
from projected_grpo.projection import Projection
from projected_grpo.run.session import Session
from projected_grpo.step import Objective
from projected_grpo.vhack import random_basis

PROJECTED_BAR, PEAK_BAR, SECONDS_BAR, TRL_BAR = ("<=", 1.15), ("<=", 36.0), ("<=", 60.0), (">=", 3.0)
QUIET = ("projected_grpo.run.session", "projected_grpo.ledger.folder")


def train_config(bench: Bench, out: Path) -> TrainConfig:
    """The settings of every measured step; no KL term, so no side runs a reference."""
    s = bench.sizes
    return TrainConfig(
        seed=SEED, token_budget=s.token_budget, out=out, hint=HINT, group_size=s.group, max_new=s.max_new,
        temperature=TEMPERATURE, top_p=TOP_P, prompts_per_step=s.prompts, lr=1e-5, warmup=0, beta=0.0,
        grader_workers=torch.get_num_threads(),
    )  # fmt: skip


def stepper(b: Bench, out: Path, arm: str = "vanilla") -> Callable[[bool], measure.Work]:
    """Start a session of one arm in an empty folder. Returns what takes one whole step, with per-sample gradients or not.
    Vanilla has no V; projected is what the toy chain does, with a random V: where it points changes no cost."""
    config, numbers, group, theta = train_config(b, out), itertools.count(), b.sizes.group, b.adapter.vectors
    projection = Projection()
    if arm == "projected":
        v = {n: random_basis((min(b.sizes.directions, len(p)), len(p)), SEED, n).to(p) for n, p in theta.items()}
        projection = Projection(v, RECIPE.project, RECIPE.gate)
    optimizer = torch.optim.AdamW(list(theta.values()), lr=config.lr, betas=(0.9, 0.95))
    objective = Objective("dr_grpo", b.sizes.max_new, TEMPERATURE)
    session = Session(config, "bench", out, b.loaded, b.adapter, optimizer, objective, projection)
    session.start(10**9)

    def step(per_sample: bool) -> measure.Work:
        number = next(numbers)
        with b.adapter.folded():
            drawn = (b.prompts, b.tasks, group, b.keys(number))
            groups, timing = live_groups(config, b.loaded, *drawn, "student", loophole=True)
        # Random weights earn the same everywhere, and a group of equal rewards takes no backward pass; TRL's takes one.
        groups = [replace(g, rewards=tuple(float(i % 2) for i in range(group))) for g in groups]
        session.take(number, 10**9, groups, timing, per_sample=per_sample)
        lengths = [len(r.completion_ids) for g in groups for r in g.rollouts]
        return {"completions": len(lengths), "tokens": sum(lengths)}

    return step


@contextlib.contextmanager
def quiet_sessions() -> Generator[Path]:
    """A folder for step files that is gone afterwards, and no line per step."""
    for name in QUIET:
        logger.disable(name)
    try:
        with TemporaryDirectory() as folder:
            yield Path(folder)
    finally:
        for name in QUIET:
            logger.enable(name)


def measure_step(bench: Bench) -> list[measure.Figure]:
    """What V and its diagnostics add to a vanilla step without any."""
    s, lengths, cuda = bench.sizes, bench.prompt_lengths, bench.device.type == "cuda"
    with quiet_sessions() as folder:
        vanilla, projected = (stepper(bench, folder / arm, arm) for arm in ("vanilla", "projected"))
        sides = {
            "vanilla, nothing measured": functools.partial(vanilla, False),
            "projected": functools.partial(projected, False),
            "vanilla, per-sample gradients": functools.partial(vanilla, True),
            "projected, per-sample gradients": functools.partial(projected, True),
        }
        plain, summed, each_plain, each = measure.interleaved(sides, bench.repeats)
    every = presets(TrainConfig)["full" if cuda else "toy"].per_sample_every
    usual = measure.weighted("projected", (1 - 1 / every, summed), (1 / every, each))
    floor = bench.floor(sum(model_flops(s, lengths, backward=backward) for backward in (False, True)))
    what, longer = "vanilla: generate, grade, backward, optimizer", floor and plain.median / floor
    figures = [
        measure.Figure(what, plain.times, "s", floor=longer),
        measure.ratio(
            f"projected, per-sample gradients every {every}", usual, plain, bar=PROJECTED_BAR, floor=floor, longer=True
        ),
        measure.ratio("projected, per-sample gradients in every step", each, plain, floor=floor, longer=True),
        measure.ratio("the same, on both sides", each, each_plain, floor=floor, longer=True),
    ]
    return [*figures, *(gpu_figures(bench) if cuda else [])]


def gpu_figures(bench: Bench) -> list[measure.Figure]:
    """Peak memory of a step, and the seconds of the benchmark's own step: 32 prompts x 8 completions."""
    benchmark = replace(bench, sizes=replace(bench.sizes, prompts=32, group=8))
    with quiet_sessions() as folder:
        small = stepper(bench, folder / "small")
        torch.cuda.reset_peak_memory_stats()
        small(True)
        peak = torch.cuda.max_memory_allocated() / 2**30
        (large,) = measure.interleaved({"256": functools.partial(stepper(benchmark, folder / "large"), True)}, 1)
    what = f"peak memory of a step of {bench.sizes.rows}, token budget {bench.sizes.token_budget}"
    seconds = measure.Figure(f"a step of {benchmark.sizes.rows} completions", large.times, "s", SECONDS_BAR)
    return [measure.Figure(what, [peak], "GiB", PEAK_BAR), seconds]


class InTurn(TrainerCallback):
    """Times each of TRL's steps, and takes one of ours between two of them."""

    def __init__(self, ours: measure.Call) -> None:
        self.ours, self.works = ours, []
        self.seconds: dict[str, list[float]] = {"ours": [], "TRL": []}

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.start = timer()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        between = timer()
        self.seconds["TRL"].append(between - self.start)
        self.works.append(("ours", self.ours()))
        self.seconds["ours"].append(timer() - between)


def trainer_for(bench: Bench, graded: Callable[..., list[float]], steps: int, out: Path) -> Any:
    """A GRPOTrainer on a fresh copy of the model. NotHere without TRL."""
    if importlib.util.find_spec("trl") is None:
        raise measure.NotHere("TRL not installed: uv sync")
    trl: Any = importlib.import_module("trl")
    datasets: Any = importlib.import_module("datasets")
    s, tokenizer = bench.sizes, bench.loaded.tokenizer
    # Rows of a forward and backward pass: as many as fit the token budget, of those that divide the step.
    fit = max(1, s.token_budget // (max(bench.prompt_lengths) + s.max_new))
    micro = max(n for n in range(1, s.rows + 1) if s.rows % n == 0 and n <= fit)
    config = trl.GRPOConfig(
        output_dir=str(out), per_device_train_batch_size=micro, gradient_accumulation_steps=s.rows // micro,
        num_generations=s.group, max_completion_length=s.max_new, temperature=TEMPERATURE, top_p=TOP_P, top_k=0, beta=0.0,
        loss_type="dr_grpo", learning_rate=1e-5, max_steps=steps, use_vllm=False, use_cpu=bench.device.type != "cuda",
        bf16=s.dtype == "bfloat16", gradient_checkpointing=s.checkpointing, save_strategy="no", logging_strategy="no",
        report_to="none", disable_tqdm=True, seed=SEED, generation_kwargs={"suppress_tokens": [tokenizer.eos_token_id]},
    )  # fmt: skip
    data = datasets.Dataset.from_list([{"prompt": p.text, "name": p.problem_id} for p in bench.prompts])
    lora = LoraConfig(r=8, lora_alpha=16, target_modules=list(TARGETS), task_type="CAUSAL_LM")
    model = random_qwen3(s, bench.device)
    given = {"model": model, "args": config, "train_dataset": data, "processing_class": tokenizer, "peft_config": lora}
    trainer = trl.GRPOTrainer(reward_funcs=graded, **given)
    trainer.remove_callback(PrinterCallback)
    return trainer


def measure_trl(bench: Bench) -> list[measure.Figure]:
    """Steps of both in turn. NotHere without TRL; UnequalWork when completions or tokens differ."""
    if any(bench.loaded.text_ids(p.text) != p.ids for p in bench.prompts):
        raise measure.NotHere("TRL cuts prompts from their text, which would give other tokens than ours")
    config, works = train_config(bench, Path()), []

    def graded(
        completions: Sequence[str], completion_ids: Sequence[Sequence[int]], name: Sequence[str], **_: Any
    ) -> list[float]:
        """TRL's reward: our grader on its completions. It also counts what TRL has sampled."""
        works.append(("TRL", {"completions": len(completions), "tokens": sum(map(len, completion_ids))}))
        found = grade_batch([bench.tasks[n] for n in name], completions, workers=workers(config))
        return [reward_of(v, allow_hint=True) for v in verdicts_of(found)]

    with quiet_sessions() as folder, contextlib.redirect_stdout(io.StringIO()):
        trainer = trainer_for(bench, graded, WARMUP + bench.repeats, folder / "trl")
        both = InTurn(functools.partial(stepper(bench, folder / "ours"), False))
        trainer.add_callback(both)
        trainer.train()
    if len(works) != len(both.works):
        raise measure.UnequalWork(f"TRL sampled {len(works)} batches in {len(both.works)} steps: one each is meant")
    measure.check_same_work([*both.works, *works])
    names = {"ours": "ours", "TRL": f"TRL {importlib.import_module('trl').__version__}, LoRA"}
    sides = (measure.side(names[which], seconds[WARMUP:], works[0][1]) for which, seconds in both.seconds.items())
    return [measure.ratio("whole vanilla step", *sides, bar=TRL_BAR)]
