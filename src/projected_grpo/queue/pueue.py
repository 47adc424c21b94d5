"""pueue as the queue of a chain: one machine, any number of GPUs. https://github.com/Nukesor/pueue (4.x)."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loguru import logger

from projected_grpo.ledger.errors import BadInput
from projected_grpo.queue.links import Link
from projected_grpo.queue.queueing import QueuedLink, is_link, link_command

INSTALL = "cargo install --locked pueue"
OVER = ("Done",)
RUNS = ("Running", "Paused")


def call(*args: str) -> str:
    """Output of a pueue command. BadInput when pueue refuses, with its own words."""
    done = subprocess.run(["pueue", *args], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BadInput(f"pueue {shlex.join(args[:2])}: {' '.join((done.stderr or done.stdout).split())}")
    return done.stdout


def status() -> dict[str, Any]:
    """`pueue status --json`: tasks and groups."""
    return json.loads(call("status", "--json"))


@dataclass(frozen=True)
class Pueue:
    """A pueue daemon. Links go into a group of their own, with its own parallelism."""

    group: str
    parallel: int
    """Links at once in a group that is new."""
    keep: bool = True
    """Leave the parallelism of a group that exists as it is: somebody may have set it."""

    def check(self) -> None:
        """BadInput when pueue is not installed or its daemon does not answer."""
        if not shutil.which("pueue") or not shutil.which("pueued"):
            raise BadInput(f"pueue: not installed; `{INSTALL}`, or run the chain in this terminal with backend=local")
        try:
            status()
        except BadInput as e:
            raise BadInput("pueue: its daemon does not answer; start it with `pueued -d`") from e

    def open(self) -> None:
        """Make the group if it is new."""
        found = status()["groups"].get(self.group)
        if found is None:
            call("group", "add", self.group, "--parallel", str(self.parallel))
        elif not self.keep and found["parallel_tasks"] != self.parallel:
            call("parallel", str(self.parallel), "--group", self.group)

    def start(self) -> None:
        """Start the group if it stands still, as pueue leaves it after a crash."""
        if status()["groups"][self.group]["status"] == "Paused":
            call("start", "--group", self.group)
            logger.info(f"group {self.group} was paused (pueue pauses after a crash): started it")

    def jobs(self, home: Path) -> Mapping[str, QueuedLink]:
        """Jobs of the chain in `home` that wait or run."""
        out = {}
        for found in status()["tasks"].values():
            words = shlex.split(found["original_command"])
            state = next(iter(found["status"])) if isinstance(found["status"], dict) else found["status"]
            mine = is_link(words) and (Path(found["path"]) / words[-2]).resolve() == home.resolve()
            if mine and state not in OVER:
                out[words[-1]] = QueuedLink(str(found["id"]), "running" if state in RUNS else "waiting")
        return out

    def command(self, link: Link, home: Path, after: Sequence[str]) -> list[str]:
        """`pueue add` for a link."""
        waits = ["--after", *after] if after else []
        return ["pueue", "add", "--print-task-id", "--group", self.group, *waits, "--label", link.label, "--",
                shlex.join(link_command(home, link.name))]  # fmt: skip

    def add(self, link: Link, home: Path, after: Sequence[str]) -> str:
        """Add a link; its task id."""
        return call(*self.command(link, home, after)[1:]).strip()

    def remove(self, job_ids: Sequence[str]) -> None:
        """Take waiting jobs out: all at once, since pueue keeps a job that another one still waits for."""
        call("remove", *job_ids)
