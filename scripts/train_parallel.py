"""train.py on N GPUs (or processes) of this machine, to the numbers of one (docs/queue.md): its arguments are read
once, before N processes read them, and then torchrun takes this process's place."""

import os
import sys
from pathlib import Path

from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.presets import presets
from projected_grpo.run import cli


def main() -> None:
    n, *rest = sys.argv[1:] or ["no arguments"]
    if n in cli.HELP:
        print(f"{__doc__}\n\ntrain_parallel.py N PRESET [what train.py takes]; `train.py PRESET --help` lists that.")
        return
    if not n.isdigit() or int(n) < 1:
        raise BadInput(f"{n}: expected train_parallel.py N PRESET [what train.py takes], N the number of processes")
    cli.parse(presets(TrainConfig), __doc__ or "", rest)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", n]
    os.execv(sys.executable, [*torchrun, str(Path(__file__).with_name("train.py")), *rest])


if __name__ == "__main__":
    cli.run(main)
