"""Slurm as the queue of a chain: sbatch with --dependency=afterok. Written against 22.05; needs no accounting database."""

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from projected_grpo.ledger.errors import BadInput
from projected_grpo.queue.backend import LINK_COMMAND, QueuedLink, call
from projected_grpo.queue.links import Link

RUNS = ("RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING")
NEVER = "DependencyNeverSatisfied"


@dataclass(frozen=True)
class Slurm:
    """A Slurm cluster, from a node on which sbatch works and the project's folder is the one that the jobs see."""

    gpus: int
    """GPUs of a link."""
    extra: tuple[str, ...] = ()
    """More arguments of sbatch: partition, time, account."""

    def check(self) -> None:
        """Raises BadInput when Slurm is not installed or its controller does not answer."""
        if not shutil.which("sbatch") or not shutil.which("squeue"):
            raise BadInput("sbatch: not found; backend=slurm needs a machine that can submit to a Slurm cluster")
        try:
            call("squeue", "--noheader")
        except BadInput as e:
            raise BadInput(f"Slurm: its controller does not answer ({e})") from e

    def open(self) -> None:
        """Does nothing: partitions are the cluster's, and Slurm runs what it has."""

    def jobs(self, home: Path) -> Mapping[str, QueuedLink]:
        """Returns the jobs of the chain in `home` that wait or run, by the name of their link."""
        out = {}
        listed = call("squeue", "--noheader", f"--user={os.getuid()}", "--format=%i|%T|%r|%j|%Z")
        for line in listed.splitlines():
            job_id, state, reason, job, folder = line.split("|", 4)
            place, _, name = job.rpartition("/")
            if (Path(folder) / place).resolve() == home.resolve() and NEVER not in reason:
                out[name] = QueuedLink(job_id, running=state in RUNS)
        return out

    def command(self, link: Link, home: Path, after: Sequence[str]) -> list[str]:
        """Returns `sbatch` for a link. A dependant of a failed link ends at once instead of waiting for ever; a link whose
        node died is queued again and resumes."""
        waits = [f"--dependency=afterok:{':'.join(after)}", "--kill-on-invalid-dep=yes"] if after else []
        needs = [f"--cpus-per-task={link.threads}"] if link.threads else []
        gpus = [f"--gres=gpu:{self.gpus}"] if self.gpus and link.gpu else []
        return ["sbatch", "--parsable", f"--job-name={home / link.name}", f"--comment={link.label}",
                f"--output={home / 'logs' / link.name}.txt", "--open-mode=append", "--requeue", *waits, *needs, *gpus,
                *self.extra, f"--wrap=exec {shlex.join((*LINK_COMMAND, str(home), link.name))}"]  # fmt: skip

    def add(self, link: Link, home: Path, after: Sequence[str]) -> str:
        """Submits a link that runs after the jobs `after`. Returns its job id."""
        return call(*self.command(link, home, after)).strip().partition(";")[0]

    def remove(self, job_ids: Sequence[str]) -> None:
        """Removes waiting jobs."""
        call("scancel", *job_ids)
