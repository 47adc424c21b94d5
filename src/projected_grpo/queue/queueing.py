"""Put a chain into a queue: what is done is skipped, what waits or runs is left alone, the rest is added after its needs.

`enqueue` is the same for every back end; a back end knows how to list, add and remove jobs (pueue.py, slurm.py).
"""

import contextlib
import fcntl
import re
import shlex
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from projected_grpo.queue.links import Link, by_name, write_chain
from projected_grpo.queue.run_link import is_done

JobState = Literal["waiting", "running"]
Action = Literal["done already", "runs already", "waits already", "added"]
_PLACE = re.compile(r"ID_(\w+)")
IN_QUEUE = ("runs already", "waits already")


@dataclass(frozen=True)
class QueuedLink:
    """A link that is in a queue and not over."""

    job_id: str
    state: JobState


@runtime_checkable
class Backend(Protocol):
    """What `enqueue` needs of a queue."""

    def check(self) -> None:
        """BadInput, with the mend, when the queue is not installed or does not answer."""

    def open(self) -> None:
        """Make what jobs are added to."""

    def start(self) -> None:
        """See to it that what was added will run."""

    def jobs(self, home: Path) -> Mapping[str, QueuedLink]:
        """Jobs of the chain in `home` that wait or run, by the name of their link."""

    def command(self, link: Link, home: Path, after: Sequence[str]) -> list[str]:
        """The command that adds a link, to be run after the jobs `after`."""

    def add(self, link: Link, home: Path, after: Sequence[str]) -> str:
        """Add it; its job id."""

    def remove(self, job_ids: Sequence[str]) -> None:
        """Take waiting jobs out of the queue."""


@dataclass(frozen=True)
class Entry:
    """What became of one link."""

    link: Link
    action: Action
    job_id: str = ""
    after: tuple[str, ...] = ()
    """Jobs that it waits for."""


def link_command(home: Path, name: str) -> tuple[str, ...]:
    """What a queue runs for a link."""
    return ("just", "link", str(home), name)


def is_link(words: Sequence[str]) -> bool:
    """Whether a queued command runs a link; its folder and name are the last two words."""
    return tuple(words[:2]) == link_command(Path(), "")[:2] and len(words) == len(link_command(Path(), ""))


@contextlib.contextmanager
def _alone(home: Path) -> Generator[None]:
    """Two recipes at once would add everything twice."""
    with (home / "queue.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def enqueue(links: Sequence[Link], home: Path, backend: Backend) -> list[Entry]:
    """Add every link that is neither done nor in the queue, needs first. BadInput as in Backend.check and write_chain."""
    backend.check()
    links = write_chain(home, links)
    with _alone(home):
        backend.open()
        jobs = backend.jobs(home)
        actions = decide(links, home, jobs)
        if stale := [jobs[name].job_id for name, action in actions.items() if action == "added" and name in jobs]:
            backend.remove(stale)
        ids = {name: jobs[name].job_id for name, action in actions.items() if action in IN_QUEUE}
        entries = []
        for link in links:
            after = tuple(ids[need] for need in link.needs if need in ids)
            if actions[link.name] == "added":
                ids[link.name] = backend.add(link, home, after)
            entries.append(Entry(link, actions[link.name], ids.get(link.name, ""), after))
        backend.start()
    return entries


def decide(links: Sequence[Link], home: Path, jobs: Mapping[str, QueuedLink]) -> dict[str, Action]:
    """What to do with every link. A waiting job is kept only if none of its needs has to be added anew: it would wait for
    a job that is over."""
    chain = by_name(links)
    out: dict[str, Action] = {}
    for link in links:
        job = jobs.get(link.name)
        if is_done(link, home, chain):
            out[link.name] = "done already"
        elif job and job.state == "running":
            out[link.name] = "runs already"
        elif job and all(out[need] != "added" for need in link.needs):
            out[link.name] = "waits already"
        else:
            out[link.name] = "added"
    return out


def dry(links: Sequence[Link], home: Path, backend: Backend) -> list[str]:
    """Returns the commands for an empty queue, as lines of a shell script: `$name` is the id of that link's job."""
    left = [t.name for t in links if not is_done(t, home, by_name(links))]
    lines = []
    for link in links:
        if link.name not in left:
            lines.append(f"# done already: {link.name}")
            continue
        waits = [f"ID_{need}" for need in link.needs if need in left]
        words = _PLACE.sub(r"$\1", shlex.join(backend.command(link, home, waits)))
        lines.append(f"{link.name}=$({words})")
    return lines
