"""Slurm as the queue of a chain: sbatch with --dependency=afterok. Written against 22.05; needs no accounting database."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from projected_grpo.ledger.errors import BadInput
from projected_grpo.queue.links import Link
from projected_grpo.queue.queueing import QueuedLink, link_command

RUNS = ("RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING")
NEVER = "DependencyNeverSatisfied"


def call(*args: str) -> str:
    """Output of a Slurm command. BadInput when Slurm refuses, with its own words."""
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BadInput(f"{args[0]}: {' '.join((done.stderr or done.stdout).split())}")
    return done.stdout


@dataclass(frozen=True)
class Slurm:
    """A Slurm cluster, from a node on which sbatch works and the project's folder is the one that the jobs see."""

    gpus: int
    """GPUs of a link."""
    extra: tuple[str, ...] = ()
    """More arguments of sbatch: partition, time, account."""

    def check(self) -> None:
        """BadInput when Slurm is not installed or its controller does not answer."""
        if not shutil.which("sbatch") or not shutil.which("squeue"):
            raise BadInput("sbatch: not found; backend=slurm needs a machine that can submit to a Slurm cluster")
        try:
            call("squeue", "--noheader")
        except BadInput as e:
            raise BadInput(f"Slurm: its controller does not answer ({e})") from e

    def open(self) -> None:
        """Nothing to be made: partitions are the cluster's."""

    def start(self) -> None:
        """Nothing to be started: Slurm runs what it has."""

    def jobs(self, home: Path) -> Mapping[str, QueuedLink]:
        """Jobs of the chain in `home` that wait or run."""
        out = {}
        listed = call("squeue", "--noheader", f"--user={os.getuid()}", "--format=%i|%T|%r|%j|%Z")
        for line in listed.splitlines():
            job_id, state, reason, job, folder = line.split("|", 4)
            place, _, name = job.rpartition("/")
            if (Path(folder) / place).resolve() == home.resolve() and NEVER not in reason:
                out[name] = QueuedLink(job_id, "running" if state in RUNS else "waiting")
        return out

    def command(self, link: Link, home: Path, after: Sequence[str]) -> list[str]:
        """`sbatch` for a link. A dependant of a failed link ends at once instead of waiting for ever; a link whose node
        died is queued again and resumes."""
        waits = [f"--dependency=afterok:{':'.join(after)}", "--kill-on-invalid-dep=yes"] if after else []
        needs = [f"--cpus-per-task={link.threads}"] if link.threads else []
        gpus = [f"--gres=gpu:{self.gpus}"] if self.gpus and link.gpu else []
        log = home / "logs" / f"{link.name}.slurm.txt"
        return ["sbatch", "--parsable", f"--job-name={home / link.name}", f"--comment={link.label}", f"--output={log}",
                "--open-mode=append", "--requeue", *waits, *needs, *gpus, *self.extra,
                f"--wrap=exec {shlex.join(link_command(home, link.name))}"]  # fmt: skip

    def add(self, link: Link, home: Path, after: Sequence[str]) -> str:
        """Submit a link; its job id."""
        (home / "logs").mkdir(parents=True, exist_ok=True)
        return call(*self.command(link, home, after)).strip().partition(";")[0]

    def remove(self, job_ids: Sequence[str]) -> None:
        """Take waiting jobs out."""
        call("scancel", *job_ids)
