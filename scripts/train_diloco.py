"""Several replicas of a training run on this machine, that average what they have learned every H steps
(docs/queue.md)."""

import sys

from projected_grpo.replicas.group import parsed, run_group
from projected_grpo.run import cli


def main() -> int:
    train, args = parsed(sys.argv[1:], __doc__ or "")
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.errors import EXIT_FAILED, EXIT_OK

    replicas, rounds = run_group(train, args), train.steps // train.outer_every
    hashes = [r.last["sha256"] for r in replicas if r.last["round"] == rounds]
    good = len(set(hashes)) == 1
    said = f"{rounds} rounds; {len(hashes)} of {len(replicas)} replicas hold the last one, "
    said += f"the same bits ({hashes[0][:8]})" if good else f"{len(set(hashes))} different sets of bits"
    rows = [[r.number, r.last["step"], r.last["round"], r.starts] for r in replicas]
    bottom_line(train.out, "🟢" if good else "🔴", said, [["replica", "steps", "round", "starts"], *rows])
    return EXIT_OK if good else EXIT_FAILED


if __name__ == "__main__":
    cli.run(main, on_interrupt=cli.RESUMABLE)
