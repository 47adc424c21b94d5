"""Puts a chain into a queue: what is done is skipped, what waits or runs is left, the rest is added after its needs."""

import fcntl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from projected_grpo.queue.backends import Pueue, QueuedLink, Slurm
from projected_grpo.queue.links import Chain, Link, is_done, write_chain

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
