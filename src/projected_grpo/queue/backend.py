"""What the two queues share: how a client is called, and what a queued job runs."""

import shlex
import subprocess
from dataclasses import dataclass

from projected_grpo.ledger.errors import BadInput

LINK_COMMAND = ("just", "link")
"""Followed by the chain's folder and the link's name."""


@dataclass(frozen=True)
class QueuedLink:
    """A link that waits or runs in a queue."""

    job_id: str
    running: bool


def call(*args: str) -> str:
    """Returns what a queue's client prints. BadInput when it refuses, with its message."""
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BadInput(f"{shlex.join(args[:3])}: {' '.join((done.stderr or done.stdout).split())}")
    return done.stdout
