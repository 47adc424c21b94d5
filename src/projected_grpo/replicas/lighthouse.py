"""Where replicas find each other: a key-value store at --meet, and torchft's lighthouse, whose address is in it.

    python -m projected_grpo.replicas.lighthouse HOST PORT PATIENCE

Runs until it is ended. HOST: by which the replicas reach this machine. PATIENCE in seconds, as the replicas'
--patience."""

import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager

from projected_grpo.ledger.errors import BadInput
from projected_grpo.run import cli

HEARTBEAT_MS = 5000
"""A replica that is silent for so long counts as gone; each sends ten heartbeats a second, from a separate thread."""


@contextmanager
def lighthouse(host: str, port: int, patience: float) -> Generator[str]:
    """Runs a lighthouse for as long as the context lasts; its address, as --meet names it. port: 0 = a free one."""
    from torch.distributed import TCPStore
    from torchft.coordination import LighthouseServer

    store = TCPStore(host, port, is_master=True, wait_for_workers=False)
    server = LighthouseServer(
        bind=f"{host}:0", min_replicas=1, join_timeout_ms=round(1000 * patience), quorum_tick_ms=100,
        heartbeat_timeout_ms=HEARTBEAT_MS,
    )  # fmt: skip
    store.set("lighthouse", f"http://{host}:{server.address().rpartition(':')[2]}")
    try:
        yield f"torchft://{host}:{store.port}"
    finally:
        server.shutdown()


def main() -> int:
    if len(sys.argv) != 4:
        raise BadInput(f"{' '.join(sys.argv[1:]) or 'no arguments'}: give host, port and the seconds of patience")
    with lighthouse(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])) as address:
        print(f"lighthouse: --meet {address}", flush=True)
        signal.pause()
    return 0


if __name__ == "__main__":
    cli.run(main)
