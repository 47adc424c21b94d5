"""Several replicas of a training run on this machine, that average what they have learned every H steps (docs/queue.md)."""

import sys

from projected_grpo.replicas.group import parsed, run_group
from projected_grpo.run import cli


def main() -> int:
    config = parsed(sys.argv[1:], __doc__ or "")
    from projected_grpo.ledger.console import bottom_line
    from projected_grpo.ledger.errors import EXIT_FAILED, EXIT_OK

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
        [["replica", "steps", "round", "starts"], *([r.number, r.last["step"], r.rounds, r.starts] for r in replicas)],
    )
    return EXIT_OK if good else EXIT_FAILED


if __name__ == "__main__":
    cli.run(main, on_interrupt=cli.RESUMABLE)
