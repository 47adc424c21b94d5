"""A replica that a test paces: scripts/train.py, which waits for leave before it starts and before each step.

Beside the group's folder: `stop_K` keeps replica K from starting, `steps_K` holds how many steps it may take. What
each brings to a round is kept in `local_K_R.pt`: the test averages it by itself."""

import sys
import time
from pathlib import Path

import torch
import train
from parallel_scenarios import rewarding_tokens

from projected_grpo.replicas.rounds import Rounds
from projected_grpo.run import cli
from projected_grpo.run.sources import GroupSource

LOOK_S = 0.05
number = sys.argv[sys.argv.index("--replica") + 1]
home = Path(sys.argv[len(sys.argv) - 1 - sys.argv[::-1].index("--out") + 1]).parent.parent


def main():
    groups, hold = GroupSource.groups, Rounds.hold

    def paced(self, step):
        while int((home / f"steps_{number}").read_text()) <= step:
            time.sleep(LOOK_S)
        return groups(self, step)

    def kept(self, *, brings):
        before = {"origin": self.origin.detach().clone(), "local": self.local()}
        hold(self, brings=brings)
        torch.save({**before, "after": self.origin.detach()}, home / f"local_{number}_{self.round}.pt")

    GroupSource.groups, Rounds.hold = paced, kept
    while (home / f"stop_{number}").exists():
        time.sleep(LOOK_S)
    with rewarding_tokens():  # random weights write no code: all would be paid alike, and nothing be learned
        return train.main()


if __name__ == "__main__":
    cli.run(main, on_interrupt=cli.RESUMABLE)
