"""A whole vanilla step against TRL's GRPOTrainer: the same model, prompts, group, lengths, reward and number of tokens.

TRL runs as its users run it on one small machine: a LoRA (rank 8, the same Linears), generation by the model itself
(use_vllm=False), one optimizer step per generated batch. Its two expensive defaults are switched off, so that it is no straw
man: gradient checkpointing (unless we checkpoint too) and bfloat16 on a float32 model. No KL term on either side.
"""

import contextlib
import functools
import importlib
import importlib.util
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from peft import LoraConfig
from torch.utils.benchmark import timer
from transformers import PrinterCallback, TrainerCallback

from loophole_grader import grade_batch, reward_of
from projected_grpo.adapters.base import TARGETS
from projected_grpo.bench.measure import Call, Figure, NotHere, UnequalWork, Work, check_same_work, ratio, side
from projected_grpo.bench.setup import TEMPERATURE, TOP_P, Bench, random_qwen3
from projected_grpo.bench.steps import quiet_sessions, stepper, train_config
from projected_grpo.groups.live import workers

BAR = (">=", 3.0)
MISSING = "TRL not installed: uv sync --group bench"


class InTurn(TrainerCallback):
    """Times each of TRL's steps, and takes one of ours between two of them."""

    def __init__(self, ours: Call) -> None:
        self.ours = ours
        self.trl_seconds: list[float] = []
        self.our_seconds: list[float] = []
        self.our_works: list[Work] = []
        self.trl_works: list[Work] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.start = timer()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        between = timer()
        self.trl_seconds.append(between - self.start)
        self.our_works.append(self.ours())
        self.our_seconds.append(timer() - between)


def trainer_for(bench: Bench, graded: Callable[..., list[float]], steps: int, out: Path) -> Any:
    """A GRPOTrainer on a fresh copy of the model. NotHere without TRL."""
    if importlib.util.find_spec("trl") is None:
        raise NotHere(MISSING)
    trl: Any = importlib.import_module("trl")
    datasets: Any = importlib.import_module("datasets")
    s, tokenizer, seed = bench.sizes, bench.loaded.tokenizer, bench.config.seed
    # Rows of a forward and backward pass: as many as fit the token budget, of those that divide the step.
    fit = max(1, s.token_budget // (max(bench.prompt_lengths) + s.max_new))
    micro = max(n for n in range(1, s.rows + 1) if s.rows % n == 0 and n <= fit)
    config = trl.GRPOConfig(
        output_dir=str(out), per_device_train_batch_size=micro, gradient_accumulation_steps=s.rows // micro,
        num_generations=s.group, max_completion_length=s.max_new, temperature=TEMPERATURE, top_p=TOP_P, top_k=0, beta=0.0,
        loss_type="dr_grpo", learning_rate=1e-5, max_steps=steps, use_vllm=False, use_cpu=bench.device.type != "cuda",
        bf16=s.dtype == "bfloat16", gradient_checkpointing=s.checkpointing, save_strategy="no", logging_strategy="no",
        report_to="none", disable_tqdm=True, seed=seed, generation_kwargs={"suppress_tokens": [tokenizer.eos_token_id]},
    )  # fmt: skip
    data = datasets.Dataset.from_list([{"prompt": p.text, "name": p.problem_id} for p in bench.prompts])
    lora = LoraConfig(r=8, lora_alpha=16, target_modules=list(TARGETS), task_type="CAUSAL_LM")
    model = random_qwen3(s, bench.device, seed)
    given = {"model": model, "args": config, "train_dataset": data, "processing_class": tokenizer, "peft_config": lora}
    trainer = trl.GRPOTrainer(reward_funcs=graded, **given)
    trainer.remove_callback(PrinterCallback)
    return trainer


def measure_trl(bench: Bench) -> list[Figure]:
    """Steps of both in turn. NotHere without TRL; UnequalWork when completions or tokens differ."""
    if any(bench.loaded.text_ids(p.text) != p.ids for p in bench.prompts):
        raise NotHere("TRL cuts prompts from their text, which would give other tokens than ours")
    config, warmup, works = train_config(bench, Path()), bench.config.warmup, []

    def graded(
        completions: Sequence[str], completion_ids: Sequence[Sequence[int]], name: Sequence[str], **_: Any
    ) -> list[float]:
        """TRL's reward: our grader on its completions. It also counts what TRL has sampled."""
        works.append({"completions": len(completions), "tokens": sum(map(len, completion_ids))})
        verdicts = grade_batch([bench.tasks[n] for n in name], completions, workers=workers(config))
        return [reward_of(v, allow_hint=True) for v in verdicts]

    with quiet_sessions() as folder, TemporaryDirectory() as out, contextlib.redirect_stdout(io.StringIO()):
        trainer = trainer_for(bench, graded, warmup + bench.repeats, Path(out))
        both = InTurn(functools.partial(stepper(bench, folder / "ours"), False))
        trainer.add_callback(both)
        trainer.train()
    steps = len(both.trl_seconds)
    if len(works) != steps:
        raise UnequalWork(f"TRL sampled {len(works)} batches in {steps} steps: one each is meant")
    check_same_work([*(("ours", work) for work in both.our_works), *(("TRL", work) for work in works)])
    name = f"TRL {importlib.import_module('trl').__version__}, LoRA"
    ours, theirs = side("ours", both.our_seconds[warmup:], {}), side(name, both.trl_seconds[warmup:], {})
    return [ratio("whole vanilla step", ours, theirs, BAR)]
