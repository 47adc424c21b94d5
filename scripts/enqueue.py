"""Run a chain of scripts: in a queue (pueue, Slurm), or in this terminal.

Links that are done are skipped, those that wait or run are left alone, the rest is added. Run it again at any time:
after a failure, a killed daemon or a reboot it adds what is missing, and cut runs are resumed."""

import os
import shlex
import sys
from pathlib import Path

from loguru import logger

from projected_grpo.config import TrainConfig
from projected_grpo.data.problems import check_problems
from projected_grpo.ledger.console import bottom_line
from projected_grpo.ledger.rates import known_mean
from projected_grpo.ledger.step_file import read_step
from projected_grpo.presets import PRESETS, presets
from projected_grpo.queue.backends import Pueue, Slurm, enqueue
from projected_grpo.queue.chains import chain_of
from projected_grpo.queue.links import run_chain, visible_gpus
from projected_grpo.queue.settings import QueueConfig
from projected_grpo.run import cli

LISTS = ("seeds", "bases", "arms")
"""Words that take several values, with commas or spaces between them."""


def share_removed(run: Path) -> float | None:
    """Returns the share of the update that a run has removed so far, where that is known."""
    steps = sorted(run.glob("step_*.jsonl.gz"))
    return known_mean(read_step(path)[0]["update_removed"] for path in steps[:: len(steps) // 10 or 1]) or None


def main() -> int:
    config = cli.parse_plain(QueueConfig, __doc__, cli.flags_of(sys.argv[1:], LISTS))
    links, preset = chain_of(config), PRESETS[config.preset]
    if config.problems:  # a link would refuse them hours later
        own = presets(TrainConfig)[config.preset]
        check_problems("--problems", config.problems, own.hint, own.prompt_setup)
    elif presets(TrainConfig)[config.preset].problems == "builtin" and not preset.threads:
        logger.warning(
            f"no problems=FILE: preset {config.preset} takes the 12 built-in problems, to train and to evaluate on; `just "
            "download-model` fetches the benchmark's"
        )
    if config.dry:
        for link in links:
            removes = "" if (share := share_removed(link.out)) is None else f"  [removes {share:.0%} of the update]"
            print(f"{link.minutes / 60:8.2f} h  {link.name:28} {shlex.join(('python', *link.argv))}{removes}")
        where = "one core" if preset.threads else "one H100"
        print(f"{sum(link.minutes for link in links) / 60:8.2f} h  on {where}, {len(links)} links")
        return 0
    if config.backend == "local":
        code = run_chain(links, config.home)
        bottom_line(config.home, "🟢" if code == 0 else "🔴", f"chain of {len(links)} links: exit code {code}")
        return code
    at_once = (os.cpu_count() or 1) // preset.threads if preset.threads else len(visible_gpus())
    pueue = Pueue(f"projected_grpo-{'cpu' if preset.threads else 'gpu'}", max(1, at_once))
    backend = Slurm(tuple(shlex.split(config.slurm))) if config.backend == "slurm" else pueue
    for name, action, job_id, after in enqueue(links, config.home, backend):
        waits = f" after {' '.join(after)}" if after else ""
        print(f"{job_id or '-':>6}  {action:13} {name}{waits}")
    bottom_line(config.home, "🟢", f"chain of {len(links)} links, in {config.backend}")
    return 0


if __name__ == "__main__":
    cli.run(main, on_interrupt=cli.AGAIN)
