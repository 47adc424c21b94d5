"""A whole vanilla step against TRL's GRPOTrainer: the same model, prompts, group, lengths, reward and number of tokens.

TRL runs as its users run it on one small machine: a LoRA (rank 8, the same Linears), generation by the model itself
(use_vllm=False), one optimizer step per generated batch. Its two expensive defaults are switched off, so that it is no straw
man: gradient checkpointing (unless we checkpoint too) and bfloat16 on a float32 model. No KL term on either side.
"""

import contextlib
import importlib
import importlib.util
import io
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from peft import LoraConfig
from transformers import PrinterCallback, TrainerCallback

from loophole_grader import grade_batch, reward_of
from projected_grpo.adapters.base import TARGETS
from projected_grpo.bench.measure import Bar, Figure, NotHere, Timed, UnequalWork, Work, check_same_work, ratio
from projected_grpo.bench.steps import quiet_sessions, stepper, train_config
from projected_grpo.bench.world import TEMPERATURE, TOP_P, World, prompt_lengths, random_qwen3
from projected_grpo.groups.live import workers
from projected_grpo.projection import Projection

BAR = Bar(3.0)
MISSING = "TRL not installed: uv sync --group bench"


class Rewards:
    """TRL's reward function: our grader on its completions. It also counts what TRL has sampled."""

    __name__ = "graded"

    def __init__(self, world: World) -> None:
        self.world, self.config = world, train_config(world, Path())
        self.works: list[Work] = []

    def __call__(self, completions: Sequence[str], completion_ids: Sequence[Sequence[int]], name: Sequence[str],
                 **_: Any) -> list[float]:  # fmt: skip
        self.works.append({"completions": len(completions), "tokens": sum(map(len, completion_ids))})
        tasks = [self.world.tasks[n] for n in name]
        return [reward_of(v, allow_hint=True) for v in grade_batch(tasks, completions, workers=workers(self.config))]


class InTurn(TrainerCallback):
    """Times each of TRL's steps, and takes one of ours between two of them."""

    def __init__(self, ours: Callable[[], Work], synchronize: Callable[[], None]) -> None:
        self.ours, self.synchronize = ours, synchronize
        self.trl_seconds: list[float] = []
        self.our_seconds: list[float] = []
        self.works: list[Work] = []
        self.start = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.synchronize()
        self.start = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.synchronize()
        now = time.perf_counter()
        self.trl_seconds.append(now - self.start)
        self.works.append(self.ours())
        self.synchronize()
        self.our_seconds.append(time.perf_counter() - now)


def micro_batch(world: World) -> int:
    """Rows of TRL's forward and backward pass: as many as fit the token budget, of those that divide the step."""
    s = world.sizes
    fit = max(1, s.token_budget // (max(prompt_lengths(world.prompts)) + s.max_new))
    return max(n for n in range(1, s.rows + 1) if s.rows % n == 0 and n <= fit)


def trainer_for(world: World, rewards: Rewards, steps: int, out: Path) -> Any:
    """A GRPOTrainer on a fresh copy of the model. NotHere without TRL."""
    if importlib.util.find_spec("trl") is None:
        raise NotHere(MISSING)
    trl: Any = importlib.import_module("trl")
    datasets: Any = importlib.import_module("datasets")
    s, tokenizer, cuda = world.sizes, world.loaded.tokenizer, world.device.type == "cuda"
    micro = micro_batch(world)
    config = trl.GRPOConfig(
        output_dir=str(out), per_device_train_batch_size=micro, gradient_accumulation_steps=s.rows // micro,
        num_generations=s.group,
        max_completion_length=s.max_new, temperature=TEMPERATURE, top_p=TOP_P, top_k=0, beta=0.0, loss_type="dr_grpo",
        learning_rate=1e-5, max_steps=steps, use_vllm=False, use_cpu=not cuda, bf16=s.dtype == "bfloat16",
        gradient_checkpointing=s.checkpointing, save_strategy="no", logging_strategy="no", report_to="none",
        disable_tqdm=True, seed=world.seed, generation_kwargs={"suppress_tokens": [tokenizer.eos_token_id]},
    )  # fmt: skip
    data = datasets.Dataset.from_list([{"prompt": p.text, "name": p.problem_id} for p in world.prompts])
    lora = LoraConfig(r=8, lora_alpha=16, target_modules=list(TARGETS), task_type="CAUSAL_LM")
    model = random_qwen3(s, world.device, world.seed)
    trainer = trl.GRPOTrainer(
        model=model, reward_funcs=rewards, args=config, train_dataset=data, processing_class=tokenizer, peft_config=lora
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def measure_trl(world: World, repeats: int, warmup: int) -> list[Figure]:
    """Steps of both in turn. NotHere without TRL; UnequalWork when completions or tokens differ."""
    if any(world.loaded.text_ids(p.text) != p.ids for p in world.prompts):
        raise NotHere("TRL cuts prompts from their text, which would give other tokens than ours")
    rewards = Rewards(world)
    with quiet_sessions() as folder, TemporaryDirectory() as out, contextlib.redirect_stdout(io.StringIO()):
        trainer = trainer_for(world, rewards, warmup + repeats, Path(out))
        ours = stepper(world, folder / "ours", Projection())
        both = InTurn(lambda: ours.step(per_sample=False), world.synchronize)
        trainer.add_callback(both)
        trainer.train()
    if len(rewards.works) != len(both.trl_seconds):
        raise UnequalWork(
            f"TRL sampled {len(rewards.works)} batches in {len(both.trl_seconds)} steps: one each is meant"
        )
    check_same_work([*(("ours", w) for w in both.works), *(("TRL", w) for w in rewards.works)])
    mine = Timed(both.our_seconds[warmup:], both.works[0])
    theirs = Timed(both.trl_seconds[warmup:], rewards.works[0])
    version = importlib.import_module("trl").__version__
    return [ratio("step", "whole vanilla step", ("ours", mine), (f"TRL {version}, LoRA", theirs), BAR)]
