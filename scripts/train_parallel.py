"""train.py on N GPUs (or processes) of this machine, to the numbers of one (docs/queue.md): its arguments are read once,
before N processes read them, and then torchrun has the word."""

import os
import sys
from pathlib import Path

from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.presets import presets
from projected_grpo.run import cli

USAGE = "train_parallel.py N PRESET [what train.py takes]"


def main() -> int | None:
    """0 for --help; else nothing, since torchrun takes this process's place."""
    n, *rest = sys.argv[1:] or [""]
    if cli.HELP & set(sys.argv[1:]):
        print(f"{__doc__}\n\n{USAGE}\n\n`train.py PRESET --help` lists what train.py takes.")
        return 0
    if not n.isdigit() or int(n) < 1:
        raise BadInput(f"{n or 'no arguments'}: expected {USAGE}, N the number of processes, 1 or more")
    cli.parse(presets(TrainConfig), __doc__ or "", rest).validate()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", n]
    return os.execv(sys.executable, [*torchrun, str(Path(__file__).with_name("train.py")), *rest])


if __name__ == "__main__":
    cli.run(main)
