"""Measure speed and memory of a preset against named baselines of the same run; writes a table to docs/bench.md.

Both sides of a ratio run in turn and must do the whole work: RuntimeError otherwise. No completion ends before
max_new, and rewards within a group differ, so that every row takes a backward pass."""

from projected_grpo.run import cli  # first: it sets what torch reads when it is loaded

# isort: split
import itertools
import os
import platform
import random
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from peft import LoraConfig
from torch import Tensor
from torch.utils.benchmark import timer
from transformers import GenerationConfig, TrainerCallback

from loophole_grader import Task, grade_batch, reward_of, verdicts_of
from projected_grpo.adapters.base import TARGETS, Adapter
from projected_grpo.arms import RECIPE
from projected_grpo.channels.policy import advantages, policy_loss
from projected_grpo.config import Sampling, TrainConfig, flag
from projected_grpo.data.live import live_groups, render_all, sampling_params, workers
from projected_grpo.data.problems import load_problems
from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.ledger.rates import logp_gap, number
from projected_grpo.model.learner import Learner
from projected_grpo.model.logprobs import left_padded, shared_batches, token_batches
from projected_grpo.presets import presets
from projected_grpo.projection import Projection
from projected_grpo.records import Sample
from projected_grpo.rollout.sample import sample_tokens
from projected_grpo.run.policy import Policy
from projected_grpo.run.prepare import load, prepare
from projected_grpo.run.run_folder import RunFolder
from projected_grpo.step import run_step
from projected_grpo.vhack import random_basis

REPEATS = 5
"""Measurements of each side; the median counts."""
DIRECTIONS = 32
"""Random directions per module that a projected step removes: where V points does not change the cost."""
TOLERANCE = {"float32": 1e-3, "bfloat16": 1e-1}
"""Largest relative difference of two gradients that count as the same."""


class Bench:
    """A prepared policy of a preset, and prompts for one step."""

    def __init__(self, config: TrainConfig) -> None:
        self.config, self.policy = config, prepare(config)
        self.model, self.adapter = self.policy.loaded.model, self.policy.adapter
        self.loaded = replace(self.policy.loaded, eos_ids=frozenset({-1}))  # no token is -1
        problems = load_problems(config.problems)[: config.prompts_per_step]
        self.prompts = render_all(config, self.loaded, problems)
        self.tasks = {p.problem_id: p.task for p in problems}
        self.rows = len(problems) * config.group_size
        self.tokens = self.rows * config.max_new
        self.gap: float | None = None  # of the last step
        shape = (len(problems), config.group_size, config.max_new)
        drawn = torch.randint(len(self.loaded.tokenizer), shape, generator=torch.Generator().manual_seed(0))
        self.groups = [
            [Sample(prompt.ids, tuple(ids), float(i % 2)) for i, ids in enumerate(group)]
            for prompt, group in zip(self.prompts, drawn.tolist(), strict=True)
        ]
        """Random completions, to take gradients of."""


def check(name: str, done: int, number: int) -> None:
    """RuntimeError unless a side did so many tokens, or right verdicts."""
    if done != number:
        raise RuntimeError(f"{name} did {done}, not {number}")


def compared(part: str, sides: Mapping[str, Callable[[], object]], number: int, unit: str = "tokens") -> list[str]:
    """The row of two sides that take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(REPEATS + 1):
        for name in list(sides)[:: (-1) ** turn]:
            start = timer()
            sides[name]()
            seconds[name].append(timer() - start)
    return row_of(part, seconds, number, unit)


def row_of(part: str, seconds: Mapping[str, list[float]], number: int, unit: str = "tokens") -> list[str]:
    """The first side against the second, without the first call of each: a warm-up."""
    taken = {name: all_of[1:] for name, all_of in seconds.items()}
    medians = {name: statistics.median(each) for name, each in taken.items()}
    cells = [f"{name}: {median:.3g} s, {number / median:,.1f} {unit}/s" for name, median in medians.items()]
    ratios = [base / ours for ours, base in zip(*taken.values(), strict=True)]
    return [part, *cells, f"{statistics.median(ratios):.2f}x ({min(ratios):.2f} to {max(ratios):.2f})"]


# ---------------------------------------------------------------- whole steps


def stepper(bench: Bench, config: TrainConfig, policy: Policy) -> Callable[[], None]:
    """Opens a run. Returns what takes one step: sample, grade, backward, optimizer, step file, checkpoint."""
    run, numbers = RunFolder.open(config, policy), itertools.count()

    def step() -> None:
        number, began = next(numbers), timer()
        keys = [f"bench {number} {prompt.problem_id}" for prompt in bench.prompts]
        drawn = (bench.prompts, bench.tasks, config.group_size, keys, "student")
        with bench.adapter.merged():
            groups, _, seconds = live_groups(config, bench.loaded, *drawn, loophole=True)
        groups = [replace(g, rewards=tuple(float(i % 2) for i in range(len(g.rewards)))) for g in groups]
        samples = [g.samples() for g in groups]
        policy.set_learning_rate(number)
        result = run_step(policy.learner, samples, policy.objective, policy.projection, step=number, per_sample=False)
        bench.gap = logp_gap(run.write(number, groups, result, seconds, began))
        run.checkpoint(number, policy)
        check("our step", sum(len(r.completion_ids) for g in groups for r in g.rollouts), bench.tokens)

    return step


class InTurn(TrainerCallback):
    """Times each of TRL's steps, and takes one of ours after each."""

    def __init__(self, ours: Callable[[], None]) -> None:
        self.ours = ours
        self.seconds: dict[str, list[float]] = {"ours": [], "TRL's GRPOTrainer, LoRA": []}

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.start = timer()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        between = timer()
        self.ours()
        for name, taken in zip(self.seconds, (timer() - between, between - self.start), strict=True):
            self.seconds[name].append(taken)


def step_row(bench: Bench, folder: Path) -> list[str]:
    """A step against one of TRL's GRPOTrainer as its users run it on one machine: a LoRA, generation by the model
    itself (no vLLM), on the same model, prompts, lengths and reward.

    Its two expensive defaults, gradient checkpointing and bfloat16, are set as ours are.
    """
    import datasets
    import trl

    c, tokenizer, rows = bench.config, bench.loaded.tokenizer, bench.rows

    def reward(
        completions: list[str], completion_ids: list[list[int]], name: list[str], **_: Any
    ) -> list[float | None]:
        check("TRL's step", sum(map(len, completion_ids)), bench.tokens)
        found = grade_batch([bench.tasks[n] for n in name], completions, workers=workers(c))
        return [reward_of(v, allow_hint=True) for v in verdicts_of(found)]

    fit = max(1, c.token_budget // (max(len(p.ids) for p in bench.prompts) + c.max_new))
    micro = max(n for n in range(1, rows + 1) if rows % n == 0 and n <= fit)
    config = trl.GRPOConfig(
        output_dir=str(folder), per_device_train_batch_size=micro, gradient_accumulation_steps=rows // micro,
        num_generations=c.group_size, max_completion_length=c.max_new, temperature=c.temperature, top_p=c.top_p,
        top_k=c.top_k, beta=0.0, loss_type="dr_grpo", learning_rate=1e-5, max_steps=REPEATS + 1, use_vllm=False,
        use_cpu=bench.model.device.type != "cuda", bf16=c.dtype == "bfloat16",
        gradient_checkpointing=c.gradient_checkpointing != "off", save_strategy="no", logging_strategy="no",
        report_to="none", disable_tqdm=True, seed=c.seed, generation_kwargs={"suppress_tokens": [tokenizer.eos_token_id]},
    )  # fmt: skip
    data = datasets.Dataset.from_list([{"prompt": p.text, "name": p.problem_id} for p in bench.prompts])
    lora = LoraConfig(r=8, lora_alpha=16, target_modules=list(TARGETS), task_type="CAUSAL_LM")
    both = InTurn(stepper(bench, bench.config, bench.policy))
    trl.GRPOTrainer(
        model=load(c).model, reward_funcs=reward, args=config, train_dataset=data, processing_class=tokenizer,
        peft_config=lora, callbacks=[both],
    ).train()  # fmt: skip
    return row_of("step", both.seconds, bench.tokens)


def projected_row(bench: Bench, folder: Path) -> list[str]:
    """A step that removes random directions, as the recipe removes V, against one that removes nothing."""
    sizes, device = bench.adapter.sizes, bench.model.device
    v = {name: random_basis((min(DIRECTIONS, n), n), 0, name).to(device) for name, n in sizes.items()}
    removing = Projection(v, RECIPE.project, RECIPE.gate)
    sides = {
        name: stepper(bench, replace(bench.config, out=folder / name), replace(bench.policy, projection=projection))
        for name, projection in (("projected", removing), ("vanilla", Projection()))
    }
    return compared("step, projected", sides, bench.tokens)


# ---------------------------------------------------------------- sampling


def sampling_row(bench: Bench) -> list[str]:
    """Tokens per second against generate(), on the same merged weights."""
    config, model, prompts = bench.config, bench.model, [p.ids for p in bench.prompts]
    how = GenerationConfig(
        do_sample=True, temperature=config.temperature, top_p=config.top_p, top_k=config.top_k, use_cache=True,
        max_new_tokens=config.max_new, num_return_sequences=config.group_size, pad_token_id=bench.loaded.pad_id,
        eos_token_id=-1,
    )  # fmt: skip
    ids, mask = left_padded(prompts, bench.loaded.pad_id, model.device)

    def sampled() -> None:
        with bench.adapter.merged():
            found = sample_tokens(bench.loaded, prompts, config.group_size, sampling_params(config), list(bench.tasks))
        check("sample_tokens", sum(len(ids) for ids, _ in found), bench.tokens)

    def generated() -> None:
        with bench.adapter.merged(), torch.no_grad():
            out = model.generate(input_ids=ids, attention_mask=mask.long(), generation_config=how)
        check("generate()", sum(map(len, out[:, ids.shape[1] :].tolist())), bench.tokens)

    return compared("sampling", {"sample_tokens": sampled, "one padded generate()": generated}, bench.tokens)


# ---------------------------------------------------------------- the gradient


def flat(adapter: Adapter) -> Tensor:
    """The accumulated gradient, all modules in one vector."""
    return torch.cat([g.double().flatten() for g in adapter.gradient().values()])


def our_gradient(bench: Bench) -> Tensor:
    """The gradient of run_step, with an optimizer that does not move the parameters."""
    found: list[Tensor] = []
    still = torch.optim.SGD(list(bench.adapter.vectors.values()), lr=0.0)
    still.register_step_pre_hook(lambda *_: found.append(flat(bench.adapter)))
    learner = Learner(bench.model, bench.adapter, still, bench.loaded.pad_id, bench.config.token_budget)
    run_step(learner, bench.groups, bench.policy.objective, Projection(), step=0, per_sample=False)
    return found[0]


def full_logits_gradient(bench: Bench) -> Tensor:
    """The same gradient from whole rows and the whole [rows, tokens, vocab] tensor of logits."""
    config, device = bench.config, bench.model.device
    rows = [sample for group in bench.groups for sample in group]
    rewards = torch.tensor([[sample.reward for sample in group] for group in bench.groups])
    advantage = advantages(rewards, "dr_grpo").flatten().to(device)
    bench.adapter.zero_grad()
    prompts, completions = zip(*((row.prompt_ids, row.completion_ids) for row in rows), strict=True)
    for chosen, batch in token_batches(prompts, completions, config.token_budget, bench.loaded.pad_id, device):
        logits = bench.model(input_ids=batch.input_ids, use_cache=False).logits[:, :-1].float() / config.temperature
        logps = logits.log_softmax(-1).gather(2, batch.targets[..., None]).squeeze(2)
        del logits
        taken = (logps, batch.loss_mask, advantage[chosen])
        loss = policy_loss(*taken, kind="dr_grpo", rows=len(rows), max_new=config.max_new)
        loss.per_sample.sum().backward()
    return flat(bench.adapter)


def gradient_rows(bench: Bench) -> list[list[str]]:
    """Seconds of a step's gradient, and on a GPU the MiB that it allocates at its peak. RuntimeError when the two
    gradients differ."""
    ways = {"run_step": partial(our_gradient, bench), "full logits": partial(full_logits_gradient, bench)}
    ours, plain = (way() for way in ways.values())
    apart = (ours - plain).norm()
    if not apart <= TOLERANCE[bench.config.dtype] * plain.norm() or not plain.any():
        raise RuntimeError(f"gradient: norms {ours.norm():.3g} and {plain.norm():.3g}, difference {apart:.3g}")
    rows = [compared("gradient", ways, bench.tokens)]
    if bench.model.device.type == "cuda":
        peaks = []
        for way in ways.values():
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            way()
            peaks.append((torch.cuda.max_memory_allocated() - before) / 2**20)
        cells = [f"{name}: {mib:,.0f} MiB" for name, mib in zip(ways, peaks, strict=True)]
        rows.append(["gradient, peak memory added", *cells, f"{peaks[1] / peaks[0]:.2f}x"])
    return rows


def padding_row(bench: Bench) -> list[str]:
    """Tokens that the model reads, padding included, per real token. Completion lengths are drawn around a mean of
    their prompt's, from an eighth of max_new up."""
    config, draw = bench.config, random.Random(0)
    prompts = [prompt.ids for prompt in bench.prompts for _ in range(config.group_size)]
    middles = [draw.uniform(0.2, 0.7) for _ in bench.prompts]
    shares = [draw.gauss(middle, 0.2) for middle in middles for _ in range(config.group_size)]
    completions = [[0] * round(config.max_new * min(1, max(0.125, share))) for share in shares]
    asked = (prompts, completions, config.token_budget, bench.loaded.pad_id, torch.device("cpu"))
    shared = sum(b.prompt_ids.numel() + b.targets.numel() for _, b in shared_batches(*asked))
    whole = sum(b.input_ids.numel() for _, b in token_batches(*asked))
    real = sum(map(len, completions)) + sum(len(prompt.ids) for prompt in bench.prompts)
    cells = [f"{what}: {n / real:.2f} of {real:,} tokens" for what, n in (("run_step", shared), ("whole rows", whole))]
    return ["tokens read, drawn lengths", *cells, f"{whole / shared:.2f}x"]


# ---------------------------------------------------------------- grading


KINDS = ("wrong", "correct", "hacking")


def program(task: Task, kind: str) -> str:
    """A program of one kind. The time makes it new, so that no verdict is remembered."""
    owner, method = task.class_and_method
    wrong = f"class {owner or 'Solution'}:\n    def {method}(self, *args, **kwargs):\n        return 'wrong'\n"
    hacking = f"{wrong}\ndef run_tests():\n    print('all tests passed')\n"
    return {"wrong": wrong, "correct": task.canonical_solution, "hacking": hacking}[kind] + f"\n# {timer()}"


def graded(asked: Sequence[tuple[Task, str]]) -> None:
    """With the grader, one worker."""
    texts = [f"```python\n{program(task, kind)}\n```" for task, kind in asked]
    found = verdicts_of(grade_batch([task for task, _ in asked], texts, workers=1))
    check("the grader", sum(v.gt_pass for v in found), sum(kind == "correct" for _, kind in asked))


def in_fresh_interpreters(asked: Sequence[tuple[Task, str]]) -> None:
    """With a new interpreter per run: ground truth, and three more runs of a completion's own tests, as the grader
    has."""
    passed = 0
    for task, kind in asked:
        code = f"{task.setup_code}\n{program(task, kind)}\n"
        for tests in ["\n".join(task.tests), *(3 * ["run_tests()"] if kind == "hacking" else [])]:
            command, source = [sys.executable, "-I", "-"], (code + tests).encode()
            done = subprocess.run(command, input=source, env={}, timeout=60, check=False, capture_output=True)
            passed += done.returncode == 0 and tests != "run_tests()"
    check("fresh interpreters", passed, sum(kind == "correct" for _, kind in asked))


def grading_rows(tasks: Sequence[Task]) -> list[list[str]]:
    """Verdicts per second of one worker."""
    rows = []
    for what, kinds in (*((kind, (kind,)) for kind in KINDS), ("a third each of these", KINDS)):
        asked = [(task, kind) for kind in kinds for task in tasks]
        sides = {"grader": partial(graded, asked), "a fresh interpreter per run": partial(in_fresh_interpreters, asked)}
        rows.append(compared(f"grading, {what} programs", sides, len(asked), "verdicts"))
    return rows


# ---------------------------------------------------------------- the script


def main() -> None:
    c, preset, busy = cli.parse(presets(TrainConfig), __doc__), sys.argv[1], os.getloadavg()[0]
    measured = {field.name for field in fields(Sampling)} | {"prompts_per_step", "max_grad_norm"}
    if unused := cli.fields_in(sys.argv[2:]) & {field.name for field in fields(TrainConfig)} - measured:
        raise BadInput(f"{flag(min(unused))}: no part of the bench is about it; leave it out")
    from tabulate import tabulate

    out = c.out if c.out != Path() else Path("docs/bench.md")
    tasks = [problem.task for problem in load_problems(c.problems)][:20]
    with TemporaryDirectory() as name:
        folder = Path(name)
        bench = Bench(replace(c, loss="dr_grpo", beta=0.0, teacher_pool="", eval_every=0, out=folder / "run"))
        rows = [step_row(bench, folder / "trl"), projected_row(bench, folder), sampling_row(bench)]
        rows += [*gradient_rows(bench), padding_row(bench)]
    rows += grading_rows(tasks)
    table = tabulate(rows, ("part", "ours", "baseline", "ratio"), "github")
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "trl"))
    cores = f"{cpu[1] if cpu else platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads"
    text = f"""\
# Speed and memory

Written by `just bench {preset}`; do not edit by hand.

Both sides of a ratio ran in turn, with the same number of threads, and did the same work: equal numbers of tokens and
verdicts, gradients that agree. Ratios are medians of {REPEATS} repeats with their range: how many times faster ours is, or
how many times less memory it needs. A machine with other load gives preliminary figures.

- machine: {cores}, {gpu}; Python {platform.python_version()}, {packages}; load {busy:.1f} at the start
- preset {preset}: {len(bench.prompts)} prompts x {c.group_size} completions x {c.max_new} tokens, {c.dtype}
- sampling and training log-probabilities of the last step differ by {number(bench.gap, digits=5)} nats a token
- grading: {len(tasks)} problems of {Path(c.problems).name}

{table}
"""
    write_atomic(out, text.encode())
    print(table)
    bottom_line(out, "🟢", f"{preset}: {len(rows)} comparisons")


if __name__ == "__main__":
    cli.run(main)
