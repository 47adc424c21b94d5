"""Several replicas of a training run on this machine, that average what they have learned every H steps (docs/queue.md)."""

import sys
from typing import TYPE_CHECKING, Any

from projected_grpo.replicas.settings import parsed
from projected_grpo.run import cli

if TYPE_CHECKING:
    from projected_grpo.replicas.group import Replica


HEADER = ["replica", "steps", "round", "starts", "hack", "gt_pass", "compiles"]


def row_of(replica: "Replica", steps: int) -> list[Any]:
    """A replica's line: rates over its last `steps` steps, those of its last round."""
    from projected_grpo.ledger.rates import rates
    from projected_grpo.ledger.step_file import read_step, step_path

    done = replica.last["step"]
    found = rates([row for s in range(max(0, done - steps), done) for row in read_step(step_path(replica.run, s))])
    return [replica.number, done, replica.rounds, replica.starts, found["hack"], found["gt"], found["form"]]


def main() -> int:
    config = parsed(sys.argv[1:], __doc__ or "")
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.errors import EXIT_FAILED, EXIT_OK
    from projected_grpo.replicas.group import run_group

    replicas = run_group(config)
    there = [r for r in replicas if r.rounds == config.rounds]
    hashes = {r.last["sha256"] for r in there}
    good = bool(there) and len(hashes) == 1
    said = f"{config.rounds} rounds; {len(there)} of {len(replicas)} replicas hold the last one, "
    said += f"the same bits ({hashes.pop()[:8]})" if len(hashes) == 1 else f"{len(hashes)} different sets of bits"
    bottom_line(
        config.train.out,
        "🟢" if good else "🔴",
        said,
        [HEADER, *(row_of(r, config.train.outer_every) for r in replicas)],
    )
    return EXIT_OK if good else EXIT_FAILED


if __name__ == "__main__":
    cli.run(main, on_interrupt=cli.RESUMABLE)
