"""Several replicas as processes of this machine, and their lighthouse; a replica that dies is started again.

run_group(config) -> replicas     out/replica_0, replica_1, ...; what each prints is in out/logs/
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loguru import logger

from projected_grpo.ledger.errors import EXIT_BAD_INPUT, EXIT_OK, BadInput
from projected_grpo.ledger.processes import die_with_parent, end
from projected_grpo.ledger.rates import rates
from projected_grpo.ledger.step_file import read_step, step_path
from projected_grpo.parallel import cores
from projected_grpo.queue.links import one_gpu, resumed
from projected_grpo.replicas.lighthouse import lighthouse, two_free_ports
from projected_grpo.replicas.settings import DilocoConfig, read_rounds

RESTARTS = 3
"""How often a replica that dies is started again."""
POLL_S, GRACE_S = 0.2, 30.0
"""Between two looks at the processes; for which a process may take to stop."""


@dataclass
class Replica:
    """One replica's process."""

    number: int
    run: Path
    log: Path
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


def run_group(config: DilocoConfig) -> list[Replica]:
    """Runs all replicas until each has ended or was given up. BadInput when one refuses its arguments."""
    (config.train.out / "logs").mkdir(parents=True, exist_ok=True)
    with lighthouse("localhost", two_free_ports(), config.train.patience) as meet:
        replicas = [start(config, meet, number) for number in range(config.train.replicas)]
        try:
            watch(config, meet, replicas)
        finally:
            for replica in replicas:
                end(replica.process, GRACE_S)
    return replicas


def start(config: DilocoConfig, meet: str, number: int) -> Replica:
    """Starts a replica's process, which goes on where it was cut. It has its share of the cores, and of several GPUs one in
    turn. The held-out problems are the first one's: after a round all replicas hold the same."""
    n, run, log = config.train.replicas, config.run(number), config.train.out / "logs" / f"replica_{number}.txt"
    argv = (sys.executable, str(config.script), *config.args, "--meet", meet, "--replicas", str(n), "--outer-every",
            str(config.train.outer_every), "--replica", str(number), "--out", str(run),
            *(["--eval-every", "0", "--no-eval-plain"] if number else []))  # fmt: skip
    env = {"OMP_NUM_THREADS": str(max(1, cores() // n)), **os.environ, **one_gpu(number)}
    with log.open("ab") as out:
        process = subprocess.Popen(
            resumed(argv, run), stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env,
            preexec_fn=die_with_parent,
        )  # fmt: skip
    return Replica(number, run, log, process)


def watch(config: DilocoConfig, meet: str, replicas: Sequence[Replica]) -> None:
    """Starts again what dies, and stops who is left behind when the group has held its last round."""
    held = 0
    while any(r.process.poll() is None for r in replicas):
        time.sleep(POLL_S)
        if (latest := max(r.rounds for r in replicas)) > held:
            held = latest
            logger.info(f"round {held} of {config.rounds}")
        over = any(r.process.poll() == EXIT_OK for r in replicas)
        for r in replicas:
            code = r.process.poll()
            if code is None and over and r.rounds < config.rounds:
                logger.warning(f"replica {r.number}: the others have held the last round without it; stopped")
                end(r.process, GRACE_S)
            elif code == EXIT_BAD_INPUT:
                raise BadInput(f"replica {r.number} refuses ({r.log.read_text(errors='replace').splitlines()[-1]})")
            elif code and not over and r.starts <= RESTARTS:
                how = f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
                logger.warning(f"replica {r.number}: {how} after round {r.rounds}; started again, the others go on")
                r.process, r.starts = start(config, meet, r.number).process, r.starts + 1


HEADER = ["replica", "steps", "round", "starts", "hack", "gt_pass", "compiles"]


def row_of(replica: Replica, steps: int) -> list[Any]:
    """Returns a replica's line: rates over its last `steps` steps, those of its last round."""
    done = replica.last["step"]
    found = rates([row for s in range(max(0, done - steps), done) for row in read_step(step_path(replica.run, s))])
    return [replica.number, done, replica.rounds, replica.starts, found["hack"], found["gt"], found["form"]]
