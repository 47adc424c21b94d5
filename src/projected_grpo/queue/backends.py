"""The two queues that a chain can go into: pueue (one machine, any number of GPUs) and Slurm. A job runs `just link`.

What is done is skipped, what waits or runs is left, the rest is added after its needs (`enqueue`).
https://github.com/Nukesor/pueue (4.x); Slurm is written against 22.05 and needs no accounting database.
"""

import fcntl
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from loguru import logger

from projected_grpo.ledger.errors import BadInput
from projected_grpo.queue.links import Chain, Link, is_done, write_chain

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


# ---------------------------------------------------------------- pueue


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
            raise BadInput(
                "pueue: not installed; `cargo install --locked pueue`, or run the chain in this terminal with backend=local"
            )
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
            if not found["original_command"].startswith(f"{shlex.join(LINK_COMMAND)} "):
                continue  # somebody else's, which need not be a command that shlex reads
            words = shlex.split(found["original_command"])
            state = next(iter(found["status"])) if isinstance(found["status"], dict) else found["status"]
            ours = (Path(found["path"]) / words[-2]).resolve() == home.resolve()
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


# ---------------------------------------------------------------- Slurm


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
            if (Path(folder) / place).resolve() == home.resolve() and "DependencyNeverSatisfied" not in reason:
                runs = state in ("RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING")
                out[name] = QueuedLink(job_id, runs)
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


# ---------------------------------------------------------------- a chain into a queue

Action = Literal["done already", "runs already", "waits already", "added"]


@dataclass(frozen=True)
class Entry:
    """What became of one link."""

    link: Link
    action: Action
    job_id: str = ""
    after: tuple[str, ...] = ()
    """Jobs that it waits for."""


def enqueue(links: Sequence[Link], home: Path, backend: Pueue | Slurm) -> list[Entry]:
    """Adds every link that is neither done nor in the queue, needs first. BadInput as in `check` of the back end and
    write_chain."""
    backend.check()
    chain = write_chain(home, links)
    with (home / "queue.lock").open("ab") as lock:  # two recipes at once would add everything twice
        fcntl.flock(lock, fcntl.LOCK_EX)
        backend.open()
        jobs = backend.jobs(home)
        actions = decide(links, home, chain, jobs)
        if stale := [jobs[name].job_id for name, action in actions.items() if action == "added" and name in jobs]:
            backend.remove(stale)
        ids = {name: job.job_id for name, job in jobs.items() if actions.get(name) in ("runs already", "waits already")}
        entries = []
        for link in links:
            after = tuple(ids[need] for need in link.needs if need in ids)
            if actions[link.name] == "added":
                ids[link.name] = backend.add(link, home, after)
            entries.append(Entry(link, actions[link.name], ids.get(link.name, ""), after))
    return entries


def decide(links: Sequence[Link], home: Path, chain: Chain, jobs: Mapping[str, QueuedLink]) -> dict[str, Action]:
    """Returns what to do with every link. A waiting job is kept only if none of its needs is added again: it would wait for
    a job that is over."""
    out: dict[str, Action] = {}
    for link in links:
        job = jobs.get(link.name)
        if is_done(link, home, chain):
            out[link.name] = "done already"
        elif job and job.running:
            out[link.name] = "runs already"
        elif job and all(out[need] != "added" for need in link.needs):
            out[link.name] = "waits already"
        else:
            out[link.name] = "added"
    return out
