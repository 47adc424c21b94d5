"""The two queues that a chain can go into: pueue (one machine, any number of GPUs) and Slurm. A job runs `just link`.

What is done is skipped, what waits or runs is left, the rest is added after its needs (`enqueue`).
https://github.com/Nukesor/pueue (4.x); Slurm is written against 22.05 and needs no accounting database.
"""

import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from loguru import logger

from projected_grpo.ledger.errors import BadInput
from projected_grpo.queue.links import Link, is_done, write_chain

MEND = {
    "pueue": "get it by `cargo install --locked pueue`, start it by `pueued -d`, or run the chain here with backend=local",
    "squeue": "backend=slurm needs a machine that can submit to a running Slurm cluster",
}
Jobs = dict[str, tuple[str, bool]]
"""What waits or runs, by its command: the job's id, and whether it runs."""


def call(*args: str) -> str:
    """Returns what a queue's client prints. BadInput when it is not installed or fails, with its message."""
    try:
        return subprocess.run(args, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        why = "not installed"
    except subprocess.CalledProcessError as e:
        why = " ".join(e.stderr.split())
    raise BadInput(f"{args[0]}: {why:.200}; {MEND.get(args[0], f'called as {shlex.join(args)}')}")


def command_of(link: Link, home: Path) -> str:
    """Returns what a job runs, by which a queue knows it again."""
    return shlex.join(("just", "link", str(home.resolve()), link.name))


@dataclass(frozen=True)
class Pueue:
    """A pueue daemon. Links go into a separate group, with a separate parallelism."""

    group: str
    parallel: int
    """Links at once in a group that is new."""

    def jobs(self) -> Jobs:
        """Makes the group, and starts one that stands still, as pueue leaves it after a crash."""
        status = json.loads(call("pueue", "status", "--json"))
        if (found := status["groups"].get(self.group)) is None:
            call("pueue", "group", "add", self.group, "--parallel", str(self.parallel))
        elif found["status"] == "Paused":
            call("pueue", "start", "--group", self.group)
            logger.info(f"group {self.group} was paused (pueue pauses after a crash): started it")
        out = {}
        for task in status["tasks"].values():
            state = next(iter(task["status"])) if isinstance(task["status"], dict) else task["status"]
            if state != "Done":
                out[task["original_command"]] = (str(task["id"]), state in ("Running", "Paused"))
        return out

    def add(self, link: Link, home: Path, after: Sequence[str]) -> str:
        """Adds a link that runs after the jobs `after`. Returns its job id."""
        waits = ["--after", *after] if after else []
        return call("pueue", "add", "--print-task-id", "--group", self.group, *waits, "--label", link.label, "--",
                    command_of(link, home)).strip()  # fmt: skip

    def remove(self, job_ids: Sequence[str]) -> None:
        """Removes waiting jobs: all at once, since pueue keeps a job that another one still waits for."""
        call("pueue", "remove", *job_ids)


@dataclass(frozen=True)
class Slurm:
    """A Slurm cluster, from a node on which sbatch works and the project's folder is the one that the jobs see."""

    extra: tuple[str, ...] = ()
    """More arguments of sbatch: partition, time, account."""

    def jobs(self) -> Jobs:
        """A job's command is its name too."""
        out = {}
        for line in call("squeue", "--noheader", f"--user={os.getuid()}", "--format=%i|%T|%r|%j").splitlines():
            job_id, state, reason, command = line.split("|", 3)
            if "DependencyNeverSatisfied" not in reason:
                out[command] = (job_id, state in ("RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING"))
        return out

    def add(self, link: Link, home: Path, after: Sequence[str]) -> str:
        """Submits a link that runs after the jobs `after`. Returns its job id. If one of those fails it ends at once
        instead of waiting for ever; if its node dies it is queued again and resumes."""
        command = command_of(link, home)
        waits = [f"--dependency=afterok:{':'.join(after)}", "--kill-on-invalid-dep=yes"] if after else []
        threads = [f"--cpus-per-task={link.threads}"] if link.threads else []
        gpus = ["--gres=gpu:1"] if link.gpu else []
        return call("sbatch", "--parsable", f"--job-name={command}", f"--comment={link.label}",
                    f"--output={home / 'logs' / link.name}.txt", "--open-mode=append", "--requeue", *waits, *threads,
                    *gpus, *self.extra, f"--wrap=exec {command}").strip().partition(";")[0]  # fmt: skip

    def remove(self, job_ids: Sequence[str]) -> None:
        call("scancel", *job_ids)


def enqueue(links: Sequence[Link], home: Path, backend: Pueue | Slurm) -> list[tuple[str, str, str, list[str]]]:
    """Adds every link that is neither done nor in the queue, needs first. A waiting job is kept only if none of its
    needs is added again: it would wait for a job that is over. Returns name, what was done, job id and the jobs it
    waits for of each link. BadInput as in write_chain, and when there is no queue or it does not answer."""
    write_chain(home, links)
    entries, ids, added, stale = [], dict[str, str](), set[str](), list[str]()
    with FileLock(home / "queue.lock"):  # two recipes at once would add everything twice
        queued = backend.jobs()
        for link in links:
            job_id, runs = queued.get(command_of(link, home), ("", False))
            after = [ids[need] for need in link.needs if need in ids]
            again = added.intersection(link.needs)
            if is_done(link, home) and not (link.check and again):
                action = "done already"
            elif job_id and (runs or not again):
                action, ids[link.name] = "runs already" if runs else "waits already", job_id
            else:
                action, ids[link.name] = "added", backend.add(link, home, after)
                added.add(link.name)
                stale += [job_id] if job_id else []
            entries.append((link.name, action, ids.get(link.name, ""), after))
        if stale:
            backend.remove(stale)
    return entries
