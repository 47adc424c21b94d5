"""Run one link of a chain, wherever it runs: `python -m projected_grpo.queue.run_link HOME NAME`.

Every back end starts links through here, so that all of them skip what is done, resume what was cut, and never run one
link twice at a time: a process that outlived its queue (a killed daemon) is waited for.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from projected_grpo.ledger.errors import EXIT_OK, BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.ledger.folder import can_resume, read_manifest
from projected_grpo.ledger.processes import die_with_parent, end
from projected_grpo.queue.links import Link, read_chain
from projected_grpo.run import cli

POLL_S = 0.1
GRACE_S = 20.0
"""How long a link that is told to stop may take before it is killed."""


def log_of(name: str, home: Path) -> Path:
    """Everything that a link printed, over all attempts."""
    return home / "logs" / f"{name}.txt"


def _passed(name: str, home: Path) -> Path:
    return home / "logs" / f"{name}.passed"


def _finished_at(link: Link, home: Path) -> float | None:
    """When a link was finished (seconds since the epoch), or None."""
    if link.kind == "check":
        mark = _passed(link.name, home)
        return mark.stat().st_mtime if mark.exists() else None
    mark = link.out / "manifest.json"
    finished = mark.exists() and read_manifest(link.out)["finished"] and note_of(link.name, home).get("code", 0) == 0
    return mark.stat().st_mtime if finished else None


def is_done(link: Link, home: Path, chain: Mapping[str, Link]) -> bool:
    """A run is done when its manifest says so and its script did not end in failure (a base model that missed its bars); a
    check, when it passed after everything that it needs was finished."""
    mine = _finished_at(link, home)
    if mine is None or link.kind != "check":
        return mine is not None
    needed = [_finished_at(chain[name], home) for name in link.needs if name in chain]
    return all(at is not None and at <= mine for at in needed)


def prepared(link: Link) -> tuple[str, ...]:
    """Arguments to start a link that is not done: resumed, or anew after a cut before anything could be."""
    if link.kind == "run" and can_resume(link.out):
        return (*link.argv, "--resume")
    if link.kind != "check" and link.out.exists():
        shutil.rmtree(link.out)  # cut before anything could be resumed from it
    return link.argv


def note_of(name: str, home: Path) -> dict[str, Any]:
    """What is noted of a link's latest attempt: started, ended, code, pid, host; empty before the first."""
    try:
        return json.loads((home / "logs" / f"{name}.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def _note(name: str, home: Path, **values: Any) -> None:
    write_atomic(home / "logs" / f"{name}.json", (json.dumps(values) + "\n").encode())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextlib.contextmanager
def _held(name: str, home: Path) -> Generator[None]:
    """Be the only process that runs this link; wait for one that already does."""
    (home / "logs").mkdir(parents=True, exist_ok=True)
    with (home / "logs" / f"{name}.lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = note_of(name, home)
            print(
                f"{name}: still runs as process {other.get('pid')} on {other.get('host')}; waiting for it", flush=True
            )
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def environment(link: Link, base: Mapping[str, str]) -> dict[str, str]:
    """The link's environment: its threads, and one GPU of its own where a queue runs several links at once (a pueue group
    numbers its workers from 0)."""
    out = {**base, "PYTHONUNBUFFERED": "1"}
    if link.threads:
        out["OMP_NUM_THREADS"] = str(link.threads)
    worker = base.get("PUEUE_WORKER_ID", "")
    if worker.isdigit() and len(gpus := visible_gpus(base)) > 1:
        out["CUDA_VISIBLE_DEVICES"] = gpus[int(worker) % len(gpus)]
    return out


def visible_gpus(base: Mapping[str, str], devices: Path = Path("/dev")) -> list[str]:
    """The GPUs that a run may use: those of CUDA_VISIBLE_DEVICES, else every device file of the NVIDIA driver."""
    if (named := base.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [g for g in named.split(",") if g]
    numbers = sorted(int(n) for p in devices.glob("nvidia*") if (n := p.name.removeprefix("nvidia")).isdigit())
    return [str(n) for n in numbers]


class _Stopped(Exception):  # noqa: N818 - a signal, not an error
    """The back end tells the link to stop."""


def _stop(number: int, _: object) -> None:
    raise _Stopped(number)


def run_link(home: Path, name: str) -> int:
    """Run a link unless it is done. Its exit code: 0 when it is done (an accepted verdict included), 128 + signal when
    stopped. BadInput as in read_chain, or when the chain has no such link."""
    chain = read_chain(home)
    if name not in chain:
        raise BadInput(f"{name}: {home} has no such link; it has {', '.join(chain)}")
    link = chain[name]
    for stop in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stop, _stop)
    try:
        with _held(name, home):
            if is_done(link, home, chain):
                print(f"{name}: done already", flush=True)
                return EXIT_OK
            return _run(link, home)
    except _Stopped as e:
        return 128 + int(e.args[0])


def _run(link: Link, home: Path) -> int:
    argv = prepared(link)
    (home / "logs").mkdir(parents=True, exist_ok=True)  # `prepared` may have removed it: an `out` may be `home` itself
    started = {"pid": os.getpid(), "host": socket.gethostname(), "started": _now()}
    _passed(link.name, home).unlink(missing_ok=True)
    _note(link.name, home, **started)
    with log_of(link.name, home).open("ab") as log:
        log.write(f"$ {link.command}\n".encode())
        log.flush()
        code = _watch(argv, link, log)
    accepted = code == EXIT_OK or (code in link.accept and link.out.exists())
    if accepted and link.kind == "check":
        write_atomic(_passed(link.name, home), b"")
    _note(link.name, home, **started, ended=_now(), code=EXIT_OK if accepted else code)
    if not accepted:
        print(f"{link.name}: FAILED with exit code {code}; log: {log_of(link.name, home)}", flush=True)
    return EXIT_OK if accepted else code


def _watch(argv: tuple[str, ...], link: Link, log: BinaryIO) -> int:
    """Start the script, copy what it writes to our own output, wait for it."""
    process = subprocess.Popen(
        [sys.executable, *argv],
        stdout=log,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env=environment(link, os.environ),
        preexec_fn=die_with_parent,
    )
    try:
        with Path(log.name).open("rb") as echo:
            echo.seek(log.tell())
            while process.poll() is None:
                time.sleep(POLL_S)
                _copy(echo)
            _copy(echo)
    finally:
        end(process, GRACE_S)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _copy(echo: BinaryIO) -> None:
    if text := echo.read():
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()


def main() -> int:
    if len(sys.argv) != 3:
        raise BadInput(f"{' '.join(sys.argv[1:]) or 'no arguments'}: give a chain's folder and a link's name")
    return run_link(Path(sys.argv[1]), sys.argv[2])


if __name__ == "__main__":
    cli.run(main)
