"""Where queued chains stand: state, duration and last log line of every link."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from projected_grpo.chains.pueue import Pueue
from projected_grpo.chains.queueing import Backend, QueuedLink
from projected_grpo.chains.slurm import Slurm
from projected_grpo.chains.status import CUES, standings, took
from projected_grpo.ledger.errors import BadInput
from projected_grpo.run import cli

DEFAULT = Path("out")


@dataclass(frozen=True)
class StatusConfig:
    """queue_status: one table per chain."""

    chains: tuple[Path, ...] = ()
    """Folders of chains; empty = every one in out and in out/queue."""


def jobs_of(home: Path) -> tuple[Mapping[str, QueuedLink] | None, str]:
    """What the chain's queue knows of it, and a remark where it cannot be asked."""
    path = home / "queue.json"
    if not path.exists():
        return {}, ""
    named = json.loads(path.read_text("utf-8"))["backend"]
    backend: Backend = Slurm(0) if named == "slurm" else Pueue("", 1)
    try:
        backend.check()
    except BadInput as e:
        return None, f"(from its files alone: {e})"
    return backend.jobs(home), ""


def main() -> int:
    args = [a if a.startswith("-") else str(Path(a)) for a in sys.argv[1:]]
    flags = ["--chains", *args] if args and not args[0].startswith("-") else args
    config = cli.parse_plain(StatusConfig, __doc__, flags)
    from tabulate import tabulate

    found = sorted(p.parent for at in ("*", "queue/*") for p in DEFAULT.glob(f"{at}/chain.json"))
    homes = config.chains or tuple(found)
    if not homes:
        raise BadInput(f"{DEFAULT}: no chain there; queue one with `just queue-probe` or `just queue-full`")
    for home in homes:
        jobs, remark = jobs_of(home)
        found = standings(home, jobs)
        rows = [[CUES[s.state], s.link.name, s.state, s.note, took(s.seconds), s.last_line[:70]] for s in found]
        done = sum(s.state == "done" for s in found)
        print(f"{home}: {done} of {len(found)} links done {remark}".rstrip())
        print(tabulate(rows, ["", "link", "state", "", "took", "last line of its log"], disable_numparse=True))
        print()
    return 0


if __name__ == "__main__":
    cli.run(main)
