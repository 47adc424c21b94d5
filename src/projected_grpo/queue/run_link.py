"""Runs one link of a chain: `python -m projected_grpo.queue.run_link HOME NAME`, which is what every queue starts; or all of
them in this terminal, one after the other, without a queue.

So both skip what is done, resume what was cut, and never run one link twice at a time.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from loguru import logger

from projected_grpo.ledger.console import progress
from projected_grpo.ledger.errors import EXIT_FAILED, EXIT_OK
from projected_grpo.ledger.files import write_atomic
from projected_grpo.ledger.folder import read_manifest
from projected_grpo.ledger.processes import die_with_parent
from projected_grpo.queue.links import Chain, Link, is_done, passed_file, read_chain, write_chain
from projected_grpo.run import cli

RESUMABLE = ("teacher_pool", "multi_turn", "teachers")
"""Kinds of runs that go on from what they have written; any other goes on from its checkpoint."""
ANSWERS = ("uat", "answers", "trace_pairs", "results", "results_controls", "channels", "rivals", "compare")
"""Links whose output answers the chain's question; printed at its end in a terminal."""


def resumed(argv: tuple[str, ...], out: Path) -> tuple[str, ...]:
    """Returns the command that goes on with the run in `out`, or begins it anew where it was cut before there was anything
    to go on from."""
    manifest = out / "manifest.json"
    if (out / "checkpoint.pt").exists() or (manifest.exists() and read_manifest(out)["kind"] in RESUMABLE):
        return (*argv, "--resume")
    if out.exists():
        shutil.rmtree(out)
    return argv


def environment(link: Link, base: Mapping[str, str]) -> dict[str, str]:
    """Returns a link's environment: its threads, and one GPU where pueue runs several links at once (a group
    numbers its workers from 0)."""
    out = {**base, "PYTHONUNBUFFERED": "1"}
    if link.threads:
        out["OMP_NUM_THREADS"] = str(link.threads)
    worker = base.get("PUEUE_WORKER_ID", "")
    if worker.isdigit() and len(gpus := visible_gpus(base)) > 1:
        out["CUDA_VISIBLE_DEVICES"] = gpus[int(worker) % len(gpus)]
    return out


def visible_gpus(base: Mapping[str, str], devices: Path = Path("/dev")) -> list[str]:
    """Returns the GPUs that a run may use: those of CUDA_VISIBLE_DEVICES, else every device file of the NVIDIA driver."""
    if (named := base.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [g for g in named.split(",") if g]
    numbers = sorted(int(n) for p in devices.glob("nvidia*") if (n := p.name.removeprefix("nvidia")).isdigit())
    return [str(n) for n in numbers]


def run_link(link: Link, home: Path, chain: Chain, log: IO[bytes] | None = None) -> int:
    """Runs a link unless it is done, and returns its exit code; 0 for a verdict that it accepts.

    Its script ends with this process, so a killed link leaves nothing behind that writes. One that still runs elsewhere (its
    daemon was killed) is waited for. log: where the script prints; None = to this process's output.
    """
    with (home / "logs" / f"{link.name}.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_done(link, home, chain):
            print(f"{link.name}: done already", flush=True)
            return EXIT_OK
        argv = link.argv if link.check else resumed(link.argv, link.out)
        done = subprocess.run(
            [sys.executable, *argv],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log and subprocess.STDOUT,
            env=environment(link, os.environ),
            preexec_fn=die_with_parent,
            check=False,
        )
        if done.returncode and not (done.returncode in link.accept and link.out.exists()):
            return done.returncode
        write_atomic(passed_file(link, home), b"")
        return EXIT_OK


def run_chain(links: Sequence[Link], home: Path) -> int:
    """Runs a chain's links in this terminal. Returns 0 when all are done, 1 when one failed. BadInput as in write_chain."""
    chain, failed = write_chain(home, links), set[str]()
    for link in progress(links, "chain"):
        if blocked := failed & set(link.needs):
            failed.add(link.name)
            logger.warning(f"skipped {link.name}: needs {', '.join(sorted(blocked))}")
        elif not is_done(link, home, chain):
            path = home / "logs" / f"{link.name}.txt"
            logger.info(f"{link.name}: {link.why} (log: {path})")
            with path.open("wb") as log:
                code = run_link(link, home, chain, log)
            if code:
                failed.add(link.name)
                tail = path.read_text("utf-8", "replace").splitlines()[-4:]
                logger.error(f"{link.name}: exit code {code}; the end of its log:\n    " + "\n    ".join(tail))
    for link in links:
        path = home / "logs" / f"{link.name}.txt"
        if link.name in ANSWERS and path.exists():
            print(f"\n── {link.name} ──\n{path.read_text('utf-8')}")
    return EXIT_FAILED if failed else EXIT_OK


def main() -> int:
    home, name = Path(sys.argv[1]), sys.argv[2]
    chain = read_chain(home)
    return run_link(chain[name], home, chain)


if __name__ == "__main__":
    cli.run(main)
