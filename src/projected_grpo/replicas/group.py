"""Several replicas as processes of this machine, and what they meet at; one that dies is started again.

    run_group(config) -> replicas     out/replica_0, replica_1, ...; what each printed in out/logs/

Each is `scripts/train.py` with its number; nothing else is known of it here than its process and its rounds.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loguru import logger

from projected_grpo.ledger.errors import EXIT_BAD_INPUT, EXIT_OK, BadInput, BrokenWorld
from projected_grpo.ledger.folder import read_rounds
from projected_grpo.ledger.processes import die_with_parent, end
from projected_grpo.parallel import cores
from projected_grpo.queue.run_link import visible_gpus
from projected_grpo.replicas.settings import DilocoConfig

LOOK_S, GRACE_S = 0.2, 30.0
"""Between two looks at the processes; for which a process that is told to stop may take its leave."""


@dataclass
class Replica:
    """One replica's process."""

    number: int
    run: Path
    process: subprocess.Popen[bytes]
    starts: int = 1

    @property
    def last(self) -> Mapping[str, Any]:
        """The latest round that it has recorded."""
        return next(reversed(read_rounds(self.run)), {"round": 0, "step": 0, "sha256": ""})

    @property
    def rounds(self) -> int:
        """Its number."""
        return self.last["round"]


def command(config: DilocoConfig, meet: str, number: int) -> list[str]:
    """Of one replica. The held-out problems are the first one's: after a round all hold the same."""
    quiet = [] if number == 0 else ["--eval-every", "0", "--no-eval-plain"]
    own = ["--replica", str(number), "--out", str(config.run(number)), *quiet]
    group = ["--meet", meet, "--replicas", str(config.train.replicas), "--outer-every", str(config.train.outer_every)]
    return [sys.executable, str(config.script), *config.args, *group, *own]


def again(argv: Sequence[str], run: Path) -> list[str]:
    """To go on from the last round; anew where there was none."""
    if (run / "checkpoint.pt").exists():
        return [*argv, "--resume"]
    if run.exists():
        shutil.rmtree(run)  # cut before its first round: nothing to go on from
    return list(argv)


def run_group(config: DilocoConfig) -> list[Replica]:
    """All replicas, until each has ended or was given up. BadInput when one refuses its arguments, BrokenWorld when their
    lighthouse is gone: they would wait for it."""
    (config.train.out / "logs").mkdir(parents=True, exist_ok=True)
    with own_lighthouse(config) as (meet, lighthouse):
        replicas = [start(config, meet, number) for number in range(config.train.replicas)]
        try:
            watch(config, meet, replicas, lighthouse)
        finally:
            for replica in replicas:
                end(replica.process, GRACE_S)
    return replicas


def start(config: DilocoConfig, meet: str, number: int) -> Replica:
    """A replica's process; it goes on where it was cut."""
    run = config.run(number)
    argv, env = again(command(config, meet, number), run), environment(number, config.train.replicas, os.environ)
    return Replica(number, run, launched(argv, log_of(config, number), env))


def environment(number: int, replicas: int, base: Mapping[str, str]) -> dict[str, str]:
    """A replica's environment: its share of the cores, and of several GPUs one in turn."""
    out = {"OMP_NUM_THREADS": str(max(1, cores() // replicas)), **base}
    if len(gpus := visible_gpus(base)) > 1:
        out["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]
    return out


def log_of(config: DilocoConfig, number: int) -> Path:
    """All that a replica printed, over all its starts."""
    return config.train.out / "logs" / f"replica_{number}.txt"


def launched(argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """A process that ends with this one and writes to a log."""
    with log.open("ab") as out:
        return subprocess.Popen(
            argv, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env, preexec_fn=die_with_parent
        )


def watch(config: DilocoConfig, meet: str, replicas: Sequence[Replica], lighthouse: subprocess.Popen[bytes]) -> None:
    """Start again what dies, say what happens, and stop who is left behind when the group has held its last round."""
    last = config.rounds
    read = {r.number: log_of(config, r.number).stat().st_size for r in replicas}
    while any(r.process.poll() is None for r in replicas):
        time.sleep(LOOK_S)
        if lighthouse.poll() is not None:
            raise BrokenWorld(
                f"the lighthouse has ended ({last_line(config.train.out / 'logs' / 'lighthouse.txt')}); all rounds that "
                "were held are on disk, continue with --resume"
            )
        for r in replicas:
            read[r.number] = told(r.number, log_of(config, r.number), read[r.number])
        over = any(r.process.poll() == EXIT_OK for r in replicas)
        for r in replicas:
            code = r.process.poll()
            if code is None and over and r.rounds < last:
                logger.warning(f"replica {r.number}: the others have held the last round without it; stopped")
                end(r.process, GRACE_S)
            elif code == EXIT_BAD_INPUT:
                raise BadInput(f"replica {r.number} refuses ({last_line(log_of(config, r.number))})")
            elif code and not over and r.starts <= config.restarts:
                how = f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
                logger.warning(f"replica {r.number}: {how} after round {r.rounds}; started again, the others go on")
                starts = r.starts + 1
                r.process, r.starts = start(config, meet, r.number).process, starts
    for r in replicas:
        told(r.number, log_of(config, r.number), read[r.number])


def told(number: int, log: Path, read: int) -> int:
    """Repeat what a replica says of its rounds, and its warnings and errors, after the first `read` bytes. Bytes by now."""
    new = log.read_bytes()[read:]
    for line in new.decode(errors="replace").splitlines():
        if line.startswith(("W ", "E ", "error:", "I round", "I replica")):
            logger.info(f"replica {number}: {line}")
    return read + len(new)


def last_line(log: Path) -> str:
    """The last that was printed."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return next(reversed(text.strip().splitlines()), "nothing was printed")


@contextlib.contextmanager
def own_lighthouse(config: DilocoConfig) -> Generator[tuple[str, subprocess.Popen[bytes]]]:
    """A lighthouse while the replicas run: its address, as --meet names it, and its process."""
    port = two_free_ports()
    where = ["localhost", str(port), str(config.train.patience)]
    argv = [sys.executable, "-m", "projected_grpo.replicas.lighthouse", *where]
    lighthouse = launched(argv, config.train.out / "logs" / "lighthouse.txt")
    try:
        yield f"torchft://localhost:{port}", lighthouse
    finally:
        end(lighthouse, GRACE_S)


def two_free_ports() -> int:
    """The first of two neighbouring ports of this machine that nobody listens on."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("localhost", 0))
            port = one.getsockname()[1]
            try:
                other.bind(("localhost", port + 1))
            except (OSError, OverflowError):
                continue
            return port
