"""The whole science on a laptop: build the toy world, then every arm and control, then the results.

Can be stopped at any point and started again: what is finished is skipped, what was cut is resumed.
"""

import os
import sys
from pathlib import Path

from projected_grpo import cli
from projected_grpo.chain import ToyPlan, toy_chain
from projected_grpo.errors import BadInput
from projected_grpo.toy.settings import ToyConfig


def main() -> int:
    config = cli.parse_plain(ToyConfig, __doc__)
    config.validate()
    from loguru import logger

    from projected_grpo.chain_runner import run_chain
    from projected_grpo.runs import bottom_line

    if not Path("scripts/train.py").exists():
        raise BadInput("scripts/train.py: not here; run from the project's folder")
    plan = ToyPlan(config.out, config.model, config.seeds, config.arms, config.steps)
    tasks = toy_chain(plan, config.study)
    if config.dry:
        for task in tasks:
            logger.info(f"{task.name:24} after {', '.join(task.needs) or '-'}: {task.command}")
        return 0
    code = run_chain(tasks, config.out, config.threads or os.cpu_count() or 1)
    for name in ("uat", "results"):
        log = config.out / "logs" / f"{name}.txt"
        if log.exists():
            print(f"\n── {name} ──\n{log.read_text('utf-8').rpartition('$ python')[2].partition(chr(10))[2]}")
    bottom_line(config.out, "🟢" if code == 0 else "🔴", f"toy chain of {len(tasks)} tasks: exit code {code}")
    sys.stdout.flush()
    return code


if __name__ == "__main__":
    cli.run(main)
