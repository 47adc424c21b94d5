"""Put a chain into a queue: links that are done are skipped, those that wait or run are left alone, the rest is added.

Run it again at any time: after a failure, a killed daemon or a reboot it adds what is missing, and cut runs are resumed.
"""

import sys

from projected_grpo.chains import queueing
from projected_grpo.chains.pueue import Pueue
from projected_grpo.chains.run_link import visible_gpus
from projected_grpo.chains.settings import QueueConfig
from projected_grpo.chains.slurm import Slurm
from projected_grpo.chains.studies import chain_of
from projected_grpo.config import TrainConfig
from projected_grpo.data.problems import check_problems
from projected_grpo.parallel import cores
from projected_grpo.presets import presets
from projected_grpo.run import cli


def backend_of(config: QueueConfig, on_cpu: bool) -> queueing.Backend:
    """The queue that was asked for."""
    import os
    import shlex

    if config.backend == "slurm":
        return Slurm(gpus=0 if on_cpu else 1, extra=tuple(shlex.split(config.slurm)))
    workers = cores() if on_cpu else max(1, len(visible_gpus(os.environ)))
    group = f"projected_grpo-{'cpu' if on_cpu else 'gpu'}"
    return Pueue(group, config.parallel or workers, keep=config.parallel == 0)


def show(entries: list[queueing.Entry]) -> None:
    from tabulate import tabulate

    rows = [[e.job_id or "-", e.link.name, e.action, " ".join(e.after) or "-", e.link.label] for e in entries]
    print(tabulate(rows, ["id", "link", "", "after", "label"], disable_numparse=True, maxcolwidths=[None] * 4 + [70]))


def main() -> int:
    config = cli.parse_plain(QueueConfig, __doc__, cli.words_as_flags(sys.argv[1:], lists=("seeds", "bases", "arms")))
    config.validate()
    from projected_grpo.ledger.console import bottom_line

    if config.problems:  # a link would refuse them hours later
        own = presets(TrainConfig)[config.preset]
        check_problems("--problems", config.problems, own.hint, own.prompt_setup)

    plan = config.plan()
    links = chain_of(plan, config.chain)
    if config.backend == "here":
        return run_here(config, links)
    backend = backend_of(config, plan.preset.on_cpu)
    if config.dry:
        print("\n".join(queueing.dry(links, plan.out, backend)))
        return 0
    entries = queueing.enqueue(links, plan.out, backend)
    show(entries)
    counts = {a: sum(e.action == a for e in entries) for a in dict.fromkeys(e.action for e in entries)}
    bottom_line(plan.out, "🟢", ", ".join(f"{n} {action}" for action, n in counts.items())
                + f"; `just queue-status {plan.out}` shows where it stands")  # fmt: skip
    return 0


def run_here(config: QueueConfig, links: list) -> int:
    """The same chain in this terminal."""
    from projected_grpo.chains.here import run_chain, show_ends
    from projected_grpo.ledger.console import bottom_line

    if config.dry:
        print("\n".join(t.command for t in links))
        return 0
    code = run_chain(links, config.home, config.parallel or cores())
    show_ends(config.home)
    bottom_line(config.home, "🟢" if code == 0 else "🔴", f"chain of {len(links)} links: exit code {code}")
    return code


if __name__ == "__main__":
    cli.run(main, on_interrupt=cli.AGAIN)
