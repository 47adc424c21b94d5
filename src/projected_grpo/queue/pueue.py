"""pueue as the queue of a chain: one machine, any number of GPUs. https://github.com/Nukesor/pueue (4.x)."""

import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loguru import logger

from projected_grpo.ledger.errors import BadInput
from projected_grpo.queue.backend import LINK_COMMAND, QueuedLink, call
from projected_grpo.queue.links import Link

INSTALL = "cargo install --locked pueue"


def _status(what: str) -> dict:
    return json.loads(call("pueue", "status", "--json"))[what]


@dataclass(frozen=True)
class Pueue:
    """A pueue daemon. Links go into a separate group, with a separate parallelism."""

    group: str
    parallel: int
    """Links at once in a group that is new."""
    keep: bool = True
    """Leave the parallelism of a group that exists as it is: somebody may have set it."""

    def check(self) -> None:
        """Raises BadInput when pueue is not installed or its daemon does not answer."""
        if not shutil.which("pueue") or not shutil.which("pueued"):
            raise BadInput(f"pueue: not installed; `{INSTALL}`, or run the chain in this terminal with backend=local")
        try:
            _status("groups")
        except BadInput as e:
            raise BadInput("pueue: its daemon does not answer; start it with `pueued -d`") from e

    def open(self) -> None:
        """Makes the group, and starts one that stands still, as pueue leaves it after a crash."""
        found = _status("groups").get(self.group)
        if found is None:
            call("pueue", "group", "add", self.group, "--parallel", str(self.parallel))
        elif not self.keep and found["parallel_tasks"] != self.parallel:
            call("pueue", "parallel", str(self.parallel), "--group", self.group)
        if found and found["status"] == "Paused":
            call("pueue", "start", "--group", self.group)
            logger.info(f"group {self.group} was paused (pueue pauses after a crash): started it")

    def jobs(self, home: Path) -> Mapping[str, QueuedLink]:
        """Returns the jobs of the chain in `home` that wait or run, by the name of their link."""
        out = {}
        for found in _status("tasks").values():
            words = shlex.split(found["original_command"])
            state = next(iter(found["status"])) if isinstance(found["status"], dict) else found["status"]
            ours = tuple(words[:-2]) == LINK_COMMAND and (Path(found["path"]) / words[-2]).resolve() == home.resolve()
            if ours and state != "Done":
                out[words[-1]] = QueuedLink(str(found["id"]), running=state in ("Running", "Paused"))
        return out

    def add(self, link: Link, home: Path, after: Sequence[str]) -> str:
        """Adds a link that runs after the jobs `after`. Returns its job id."""
        waits = ["--after", *after] if after else []
        command = shlex.join((*LINK_COMMAND, str(home), link.name))
        return call("pueue", "add", "--print-task-id", "--group", self.group, *waits, "--label", link.label, "--",
                    command).strip()  # fmt: skip

    def remove(self, job_ids: Sequence[str]) -> None:
        """Removes waiting jobs: all at once, since pueue keeps a job that another one still waits for."""
        call("pueue", "remove", *job_ids)
