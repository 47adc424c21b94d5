"""Measure speed and memory of a preset against named baselines of the same run; writes a table to docs/bench.md.

Exit code 1 when the two sides of a ratio did different work.
"""

import os
import platform
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from projected_grpo.config import TrainConfig, at_least
from projected_grpo.ledger.errors import EXIT_FAILED
from projected_grpo.presets import PresetName, presets
from projected_grpo.run import cli

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
    import torch
    from loguru import logger
    from tabulate import tabulate

    from projected_grpo.bench import UnequalWork, measure
    from projected_grpo.data.problems import load_problems
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.files import write_atomic
    from projected_grpo.ledger.folder import versions

    load = os.getloadavg()[0]
    preset = presets(TrainConfig)[asked.preset]
    config = replace(preset, loss="dr_grpo", beta=0.0, teacher_pool="", eval_every=0, cache=asked.cache)
    problems = asked.problems or config.problems
    tasks = [problem.task for problem in load_problems(problems)][:20]
    logger.info(f"measuring {asked.preset}, {asked.repeats} repeats")
    logger.disable("projected_grpo")  # a line per step
    try:
        rows = measure(config, asked.repeats, tasks)
    except UnequalWork as e:
        cli.fail(str(e), EXIT_FAILED)
    finally:
        logger.enable("projected_grpo")
    cpu = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    head = HEAD.format(
        preset=asked.preset, repeats=asked.repeats, cpu=cpu[0] if cpu else platform.machine(), cores=os.cpu_count(),
        threads=torch.get_num_threads(), gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU",
        python=platform.python_version(), load=load, prompts=config.prompts_per_step, group=config.group_size,
        versions=", ".join(f"{name} {v}" for name, v in versions(("torch", "transformers", "trl")).items()),
        max_new=config.max_new, dtype=config.dtype, tasks=len(tasks), problems=Path(problems).name,
    )  # fmt: skip
    table = tabulate(
        [(r.part, r.ours, r.baseline, r.ratio) for r in rows], ["part", "ours", "baseline", "ratio"], "github"
    )
    write_atomic(asked.out, f"{head}{table}\n".encode())
    print(table)
    bottom_line(asked.out, "🟢", f"{asked.preset}: {len(rows)} comparisons")
    return 0


if __name__ == "__main__":
    cli.run(main)
