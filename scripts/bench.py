"""Measure speed and memory of a preset against named baselines of the same run; writes a table to docs/bench.md.

Both sides of a ratio run in turn and must do the same work: exit code 1 otherwise. No completion ends before max_new, and
rewards within a group differ, so that every row takes a backward pass.
"""

from projected_grpo.run import cli  # first: it sets what torch reads when it is loaded

# isort: split
import contextlib
import functools
import io
import itertools
import os
import platform
import re
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple
from unittest import mock

import torch
import tyro
from loguru import logger
from peft import LoraConfig
from torch import Tensor
from torch.utils.benchmark import timer
from transformers import GenerationConfig, PrinterCallback, TrainerCallback

from loophole_grader import Task, grade_batch, reward_of, verdicts_of
from projected_grpo.adapters.base import TARGETS
from projected_grpo.arms import RECIPE
from projected_grpo.channels.policy import advantages, policy_loss
from projected_grpo.config import TrainConfig, at_least
from projected_grpo.data.live import live_groups, render_all, sampling_params, workers
from projected_grpo.data.problems import load_problems
from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.errors import EXIT_FAILED
from projected_grpo.ledger.files import write_atomic
from projected_grpo.model.learner import Learner
from projected_grpo.model.logprobs import left_padded, token_batches
from projected_grpo.presets import PresetName, presets
from projected_grpo.projection import Projection
from projected_grpo.records import Sample
from projected_grpo.rollout.sample import sample_tokens
from projected_grpo.run.prepare import load, prepare
from projected_grpo.step import run_step
from projected_grpo.vhack import random_basis

Work = Mapping[str, int]
"""What one call did: equal on both sides."""
Call = Callable[[], Work]
Grads = Mapping[str, Tensor]
TOLERANCE = {"float32": 1e-3, "bfloat16": 1e-1}
"""Largest relative difference of two gradients that count as the same."""
DIRECTIONS = 32
"""Random directions per module that a projected step removes: where V points does not change the cost."""
OWN_TESTS = "\ndef run_tests():\n    print('all tests passed')\n"


class UnequalWork(RuntimeError):  # noqa: N818
    """The two sides of a ratio did different work, so the ratio would mean nothing."""


class Row(NamedTuple):
    """One line of the table. `ratio`: how many times faster ours is, or how many times less memory it needs."""

    part: str
    ours: str
    baseline: str
    ratio: str


class Bench:
    """A prepared session of a preset, and prompts for one step."""

    def __init__(self, config: TrainConfig) -> None:
        self.session = prepare(config)
        self.model, self.adapter = self.session.loaded.model, self.session.adapter
        self.loaded = replace(self.session.loaded, eos_ids=frozenset({-1}))  # no token is -1
        problems = load_problems(config.problems)[: config.prompts_per_step]
        self.config = replace(config, prompts_per_step=len(problems))
        self.prompts = render_all(config, self.loaded, problems)
        self.tasks = {p.problem_id: p.task for p in problems}
        self.rows = len(problems) * config.group_size

    def keys(self, step: int) -> list[str]:
        """One key per prompt, which decides the draws."""
        return [f"bench {step} {place}" for place in range(len(self.prompts))]


Seconds = dict[str, list[float]]
Works = Sequence[tuple[str, Work]]


def timed(sides: Mapping[str, Call], repeats: int) -> tuple[Seconds, Works]:
    """The seconds of each side, and what each call did. All take turns, after a warm-up whose seconds do not count."""
    names, works = list(sides), []
    seconds: Seconds = {name: [] for name in names}
    for turn in range(repeats + 1):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            start = timer()
            works.append((name, sides[name]()))
            seconds[name].append(timer() - start)
    return {name: taken[1:] for name, taken in seconds.items()}, works


def row_of(part: str, seconds: Seconds, works: Works, unit: str = "tokens") -> Row:
    """The first side against the second. UnequalWork unless every call did the same, and something."""
    first, expected = works[0]
    for name, work in works:
        if work != expected or not work[unit]:
            raise UnequalWork(f"{part}: {first} did {expected}, {name} did {work}")
    cells = []
    for name, taken in seconds.items():
        median = statistics.median(taken)
        cells.append(f"{name}: {median:.3g} s, {expected[unit] / median:,.1f} {unit}/s")
    ratios = [b / o for o, b in zip(*seconds.values(), strict=True)]
    return Row(part, *cells, f"{statistics.median(ratios):.2f}x ({min(ratios):.2f} to {max(ratios):.2f})")


# ---------------------------------------------------------------- whole steps


def stepper(bench: Bench, out: Path, projection: Projection | None = None) -> Call:
    """Open a session in an empty folder. Returns what takes one step: sample, grade, backward, optimizer, step file."""
    config, optimizer = bench.config, torch.optim.AdamW(list(bench.adapter.vectors.values()), lr=1e-5)
    session = replace(bench.session, run=out, optimizer=optimizer, projection=projection or Projection())
    session.start()
    numbers = itertools.count()

    def step() -> Work:
        number = next(numbers)
        drawn = (bench.prompts, bench.tasks, config.group_size, bench.keys(number), "student")
        with bench.adapter.folded():
            groups, _, timing = live_groups(config, bench.loaded, *drawn, loophole=True)
        groups = [replace(g, rewards=tuple(float(i % 2) for i in range(len(g.rewards)))) for g in groups]
        session.take(number, groups, timing, per_sample=False)
        return work_of([r.completion_ids for g in groups for r in g.rollouts])

    return step


def work_of(completions: Sequence[Sequence[int]]) -> Work:
    """Numbers of completions and of their tokens."""
    return {"completions": len(completions), "tokens": sum(map(len, completions))}


class InTurn(TrainerCallback):
    """Times each of TRL's steps, and takes one of ours after each."""

    def __init__(self, ours: Call) -> None:
        self.ours, self.works = ours, []
        self.seconds: dict[str, list[float]] = {"ours": [], "TRL's GRPOTrainer, LoRA": []}

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.start = timer()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        between = timer()
        self.works.append(("ours", self.ours()))
        for name, taken in zip(self.seconds, (timer() - between, between - self.start), strict=True):
            self.seconds[name].append(taken)


def trainer_for(bench: Bench, reward: Any, steps: int, out: Path) -> Any:
    """TRL's GRPOTrainer as its users run it on one machine: a LoRA, generation by the model itself (no vLLM).

    Its two expensive defaults, gradient checkpointing and bfloat16, are set as ours are.
    """
    import datasets
    import trl

    c, tokenizer, rows = bench.config, bench.loaded.tokenizer, bench.rows
    fit = max(1, c.token_budget // (max(len(p.ids) for p in bench.prompts) + c.max_new))
    micro = max(n for n in range(1, rows + 1) if rows % n == 0 and n <= fit)
    config = trl.GRPOConfig(
        output_dir=str(out), per_device_train_batch_size=micro, gradient_accumulation_steps=rows // micro,
        num_generations=c.group_size, max_completion_length=c.max_new, temperature=c.temperature, top_p=c.top_p,
        top_k=c.top_k, beta=0.0, loss_type="dr_grpo", learning_rate=1e-5, max_steps=steps, use_vllm=False,
        use_cpu=bench.model.device.type != "cuda", bf16=c.dtype == "bfloat16",
        gradient_checkpointing=c.gradient_checkpointing != "off", save_strategy="no", logging_strategy="no",
        report_to="none", disable_tqdm=True, seed=c.seed, generation_kwargs={"suppress_tokens": [tokenizer.eos_token_id]},
    )  # fmt: skip
    data = datasets.Dataset.from_list([{"prompt": p.text, "name": p.problem_id} for p in bench.prompts])
    lora = LoraConfig(r=8, lora_alpha=16, target_modules=list(TARGETS), task_type="CAUSAL_LM")
    trainer = trl.GRPOTrainer(
        model=load(c).model, reward_funcs=reward, args=config, train_dataset=data, processing_class=tokenizer,
        peft_config=lora,
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    return trainer


def step_rows(bench: Bench, repeats: int, folder: Path) -> list[Row]:
    """A vanilla step against TRL's on the same model, prompts, lengths and reward; a projected step against vanilla."""
    config, works = bench.config, []

    def reward(completions: list[str], completion_ids: list[list[int]], name: list[str], **_: Any) -> list[float]:
        works.append(("TRL", work_of(completion_ids)))
        found = grade_batch([bench.tasks[n] for n in name], completions, workers=workers(config))
        return [reward_of(v, allow_hint=True) for v in verdicts_of(found)]

    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # names that transformers 5 has renamed
        trainer = trainer_for(bench, reward, repeats + 1, folder / "trl")
        both = InTurn(stepper(bench, folder / "ours"))
        trainer.add_callback(both)
        trainer.train()
    seconds = {name: taken[1:] for name, taken in both.seconds.items()}
    against_trl, device = row_of("step", seconds, [*both.works, *works]), bench.model.device
    v = {n: random_basis((min(DIRECTIONS, size), size), 0, n).to(device) for n, size in bench.adapter.sizes.items()}
    sides = {
        "projected": stepper(bench, folder / "projected", Projection(v, RECIPE.project, RECIPE.gate)),
        "vanilla": stepper(bench, folder / "vanilla"),
    }
    return [against_trl, row_of("step, projected", *timed(sides, repeats))]


# ---------------------------------------------------------------- sampling


def sampled(bench: Bench) -> Work:
    """By sample_tokens, on folded weights: one prefill per prompt, all rows together."""
    config, prompts = bench.config, [p.ids for p in bench.prompts]
    with bench.adapter.folded():
        found = sample_tokens(bench.loaded, prompts, config.group_size, sampling_params(config), bench.keys(0))
    return work_of([ids for ids, _ in found])


def generated(bench: Bench) -> Work:
    """By Hugging Face generate(), on the same weights, all prompts left-padded in one call."""
    config, model, pad_id = bench.config, bench.model, bench.loaded.pad_id
    how = GenerationConfig(
        do_sample=True, temperature=config.temperature, top_p=config.top_p, top_k=config.top_k, use_cache=True,
        max_new_tokens=config.max_new, num_return_sequences=config.group_size, pad_token_id=pad_id,
    )  # fmt: skip
    never_ends = mock.patch.object(model.generation_config, "eos_token_id", None)
    ids, mask = left_padded([p.ids for p in bench.prompts], pad_id, model.device)
    with bench.adapter.folded(), torch.no_grad(), never_ends:
        out = model.generate(input_ids=ids, attention_mask=mask.long(), generation_config=how)
    return work_of(out[:, ids.shape[1] :].tolist())


def sampling_row(bench: Bench, repeats: int) -> Row:
    """Tokens per second against generate()."""
    sides = {"sample_tokens": lambda: sampled(bench), "one padded generate()": lambda: generated(bench)}
    return row_of("sampling", *timed(sides, repeats))


# ---------------------------------------------------------------- the gradient


def random_groups(bench: Bench) -> list[list[Sample]]:
    """A group of random completions per prompt."""
    config, draw = bench.config, torch.Generator().manual_seed(0)
    shape = (len(bench.prompts), config.group_size, config.max_new)
    drawn = torch.randint(len(bench.loaded.tokenizer), shape, generator=draw).tolist()
    return [
        [Sample(prompt.ids, tuple(ids), float(i % 2)) for i, ids in enumerate(group)]
        for prompt, group in zip(bench.prompts, drawn, strict=True)
    ]


def our_gradient(bench: Bench) -> Grads:
    """The gradient of run_step, with an optimizer that does not move the parameters."""
    adapter, found = bench.adapter, {}
    still = torch.optim.SGD(list(adapter.vectors.values()), lr=0.0)
    still.register_step_pre_hook(lambda *_: found.update(adapter.gradient()))
    learner = Learner(bench.model, adapter, still, bench.loaded.pad_id, bench.config.token_budget)
    run_step(learner, random_groups(bench), bench.session.objective, Projection(), step=0, per_sample=False)
    return found


def full_logits_gradient(bench: Bench) -> Grads:
    """The same gradient from whole rows and the whole [rows, tokens, vocab] tensor of logits."""
    config, groups, device = bench.config, random_groups(bench), bench.model.device
    rows = [sample for group in groups for sample in group]
    rewards = torch.tensor([[sample.reward for sample in group] for group in groups])
    advantage = advantages(rewards, "dr_grpo").flatten().to(device)
    bench.adapter.zero_grad()
    prompts, completions = [s.prompt_ids for s in rows], [s.completion_ids for s in rows]
    for chosen, batch in token_batches(prompts, completions, config.token_budget, bench.loaded.pad_id, device):
        logits = bench.model(input_ids=batch.input_ids, use_cache=False).logits[:, :-1].float() / config.temperature
        logps = logits.log_softmax(-1).gather(2, batch.targets[..., None]).squeeze(2)
        del logits
        taken = (logps, batch.loss_mask, advantage[chosen])
        loss = policy_loss(*taken, kind="dr_grpo", rows=len(rows), max_new=config.max_new)
        loss.per_sample.sum().backward()
    found = bench.adapter.gradient()
    bench.adapter.zero_grad()
    return found


def gradient_rows(bench: Bench, repeats: int) -> list[Row]:
    """Seconds of a step's gradient, and on a GPU its peak memory. UnequalWork when the two gradients differ."""
    ways = {"run_step": our_gradient, "full logits": full_logits_gradient}
    ours, plain = (torch.cat([g.double().flatten() for g in way(bench).values()]) for way in ways.values())
    if not (ours - plain).norm() <= TOLERANCE[bench.config.dtype] * plain.norm() or not plain.any():
        raise UnequalWork(
            f"gradient: norms {ours.norm():.3g} and {plain.norm():.3g}, difference {(ours - plain).norm():.3g}"
        )
    work = {"tokens": bench.rows * bench.config.max_new}
    sides = {name: lambda way=way: (way(bench), work)[1] for name, way in ways.items()}
    rows = [row_of("gradient", *timed(sides, repeats))]
    if bench.model.device.type == "cuda":
        added = {name: added_mib(side) for name, side in sides.items()}
        cells = (f"{name}: {mib:,.0f} MiB" for name, mib in added.items())
        rows.append(Row("gradient, peak memory added", *cells, f"{added['full logits'] / added['run_step']:.2f}x"))
    return rows


def added_mib(call: Call) -> float:
    """Returns the MiB that a call allocates on the GPU at its peak."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


# ---------------------------------------------------------------- grading


KINDS = ("wrong", "correct", "hacking")


def program(task: Task, kind: str, number: int) -> str:
    """A program of one kind. The number makes it new, so that no verdict is remembered."""
    owner, _, method = task.func_name.rpartition(".")
    name = owner.partition("(")[0] or "Solution"
    wrong = f"class {name}:\n    def {method}(self, *args, **kwargs):\n        return 'wrong'\n"
    return {"wrong": wrong, "correct": task.canonical_solution, "hacking": wrong + OWN_TESTS}[kind] + f"\n# {number}"


def graded(tasks: Sequence[Task], programs: Sequence[str]) -> Work:
    """With the grader, one worker."""
    found = verdicts_of(grade_batch(tasks, [f"```python\n{code}\n```" for code in programs], workers=1))
    return {"verdicts": len(found), "right": sum(v.gt_pass for v in found)}


def fresh_interpreters(tasks: Sequence[Task], programs: Sequence[str]) -> Work:
    """With a new interpreter per run: ground truth, and three more runs of a completion's own tests, as the grader has."""
    right = 0
    for task, code in zip(tasks, programs, strict=True):
        for tests in ["\n".join(task.tests)] + 3 * ["run_tests()"] * ("def run_tests" in code):
            source, command = f"{task.setup_code}\n{code}\n{tests}", [sys.executable, "-I", "-"]
            done = subprocess.run(command, input=source.encode(), env={}, timeout=60, check=False, capture_output=True)
            right += done.returncode == 0 and tests != "run_tests()"
    return {"verdicts": len(tasks), "right": right}


def grading_rows(tasks: Sequence[Task], repeats: int) -> list[Row]:
    """Verdicts per second of one worker, for each kind of program and for all three together."""
    numbers, rows = itertools.count(), []
    judges = {"grader": graded, "a fresh interpreter per run": fresh_interpreters}
    together: Seconds = {name: [0.0] * repeats for name in judges}

    def judged(judge: Callable[..., Work], kind: str) -> Work:
        number = next(numbers)
        return judge(tasks, [program(task, kind, number) for task in tasks])

    for kind in KINDS:
        sides = {name: functools.partial(judged, judge, kind) for name, judge in judges.items()}
        seconds, works = timed(sides, repeats)
        rows.append(row_of(f"grading, {kind} programs", seconds, works, "verdicts"))
        for name, taken in seconds.items():
            together[name] = [a + b for a, b in zip(together[name], taken, strict=True)]
    works = [(name, {"verdicts": len(KINDS) * len(tasks)}) for name in judges]
    return [*rows, row_of("grading, a third each of these programs", together, works, "verdicts")]


# ---------------------------------------------------------------- the script

HEAD = """\
# Speed and memory

Written by `just bench {preset}`; do not edit by hand.

Both sides of a ratio ran in turn, with the same number of threads, and did the same work: equal numbers of tokens and
verdicts, gradients that agree. Ratios are medians of {repeats} repeats with their range: how many times faster ours is, or
how many times less memory it needs. A machine with other load gives preliminary figures.

- machine: {cpu}, {cores} cores, {threads} threads, {gpu}; Python {python}, {versions}; load {load:.1f} at the start
- preset {preset}: {prompts} prompts x {group} completions x {max_new} tokens, {dtype}
- grading: {tasks} problems of {problems}

"""


@dataclass(frozen=True)
class BenchConfig:
    """bench: a step against TRL's, sampling against generate(), the gradient against full logits, grading, memory."""

    preset: Annotated[PresetName, tyro.conf.Positional]
    """Whose model and sizes are measured."""
    repeats: int = 5
    """Measurements of each side; the median counts."""
    problems: str = ""
    """Problems that are graded, at most 20: a built-in set or a JSON-lines file. Empty: the preset's."""
    cache: Path = Path("out/cache")
    """Where built models and singular value decompositions are kept."""
    out: Path = Path("docs/bench.md")
    """Markdown file to write; replaced if it exists."""


def main() -> int:
    asked = cli.parse_plain(BenchConfig, __doc__)
    at_least(asked, "repeats", 1)
    busy = os.getloadavg()[0]
    preset = presets(TrainConfig)[asked.preset]
    config = replace(preset, loss="dr_grpo", beta=0.0, teacher_pool="", eval_every=0, cache=asked.cache)
    problems = asked.problems or config.problems
    tasks = [problem.task for problem in load_problems(problems)][:20]
    logger.info(f"measuring {asked.preset}, {asked.repeats} repeats")
    logger.disable("projected_grpo")  # a line per step
    n = asked.repeats
    try:
        with TemporaryDirectory() as name:
            bench = Bench(replace(config, out=Path(name) / "run"))
            rows = [*step_rows(bench, n, Path(name)), sampling_row(bench, n), *gradient_rows(bench, n)]
        rows += grading_rows(tasks, n)
    except UnequalWork as e:
        cli.fail(str(e), EXIT_FAILED)
    finally:
        logger.enable("projected_grpo")
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    head = HEAD.format(
        preset=asked.preset, repeats=asked.repeats, cpu=cpu[1] if cpu else platform.machine(), cores=os.cpu_count(),
        threads=torch.get_num_threads(), gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU",
        python=platform.python_version(), load=busy, prompts=config.prompts_per_step, group=config.group_size,
        versions=", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "trl")),
        max_new=config.max_new, dtype=config.dtype, tasks=len(tasks), problems=Path(problems).name,
    )  # fmt: skip
    from tabulate import tabulate

    table = tabulate(rows, Row._fields, "github")
    write_atomic(asked.out, f"{head}{table}\n".encode())
    print(table)
    bottom_line(asked.out, "🟢", f"{asked.preset}: {len(rows)} comparisons")
    return 0


if __name__ == "__main__":
    cli.run(main)
