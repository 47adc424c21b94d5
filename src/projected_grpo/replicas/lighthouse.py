"""The lighthouse of a group of replicas; on the next port, the key-value store at which they wait at the start.

    python -m projected_grpo.replicas.lighthouse HOST PORT PATIENCE

Runs until it is ended. HOST: by which the replicas reach this machine. PATIENCE in seconds, as the replicas' --patience.
"""

import signal
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta

from projected_grpo.ledger.errors import BadInput
from projected_grpo.run import cli

HEARTBEAT_MS = 5000
"""A replica that is silent for so long counts as gone; each sends ten heartbeats a second, from a separate thread."""


@contextmanager
def lighthouse(host: str, port: int, patience: float) -> Generator[str]:
    """Runs a lighthouse for as long as the context lasts; its address, as --meet names it."""
    from torch.distributed import TCPStore
    from torchft.coordination import LighthouseServer

    store = TCPStore(host, port + 1, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=30))
    server = LighthouseServer(
        bind=f"{host}:{port}", min_replicas=1, join_timeout_ms=round(1000 * patience), quorum_tick_ms=100,
        heartbeat_timeout_ms=HEARTBEAT_MS,
    )  # fmt: skip
    try:
        yield f"torchft://{host}:{store.port - 1}"
    finally:
        server.shutdown()


def two_free_ports() -> int:
    """Returns the first of two neighbouring ports of this machine that nobody listens on."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("localhost", 0))
            port = one.getsockname()[1]
            try:
                other.bind(("localhost", port + 1))
            except (OSError, OverflowError):
                continue
            return port


def main() -> int:
    if len(sys.argv) != 4:
        raise BadInput(f"{' '.join(sys.argv[1:]) or 'no arguments'}: give host, port and the seconds of patience")
    with lighthouse(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])) as address:
        print(f"lighthouse: --meet {address}", flush=True)
        signal.pause()
    return 0


if __name__ == "__main__":
    cli.run(main)
