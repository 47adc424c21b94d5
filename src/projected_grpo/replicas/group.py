"""Several replicas as processes of this machine, and their lighthouse; a replica that dies is started again. No torch
here.

out/replica_0, replica_1, ... are their runs; what each prints is in out/logs/.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loguru import logger

from projected_grpo.config import TrainConfig, flag
from projected_grpo.ledger.errors import EXIT_BAD_INPUT, EXIT_OK, BadInput
from projected_grpo.ledger.files import read_jsonl
from projected_grpo.ledger.folder import check_new
from projected_grpo.ledger.processes import die_with_parent, end
from projected_grpo.presets import presets
from projected_grpo.queue.links import one_gpu, resumed
from projected_grpo.replicas.lighthouse import lighthouse
from projected_grpo.run import cli

SCRIPT = Path(__file__).parents[3] / "scripts" / "train.py"
"""What a replica runs."""
USAGE = "train_diloco.py N PRESET H=STEPS [what train.py takes]"
RESTARTS = 3
"""How often a replica that dies is started again."""
POLL_S, GRACE_S = 0.2, 30.0
"""Between two checks of the processes; for which a process may take to stop."""
ROUNDS = "rounds.jsonl"
"""In a replica's run directory: a line per outer round that it took part in."""


def read_rounds(directory: Path) -> list[dict[str, Any]]:
    """Returns a replica's outer rounds; an empty list where it has recorded none."""
    path = directory / ROUNDS
    return read_jsonl(path) if path.exists() else []


def parsed(argv: Sequence[str], description: str) -> tuple[TrainConfig, list[str]]:
    """Returns the config of `N PRESET H=STEPS ...` and the arguments of train.py that all replicas are started with.
    BadInput for words that are none of it, and as train.py's."""
    if cli.HELP & set(argv):
        print(f"{description}\n\nusage: {USAGE}\nSTEPS between two rounds; `train.py PRESET --help` lists the rest.")
        raise SystemExit(EXIT_OK)
    n, *words = argv or [""]
    every = next((word.removeprefix("H=") for word in words if word.startswith("H=")), "")
    # Each replica goes on by itself from what it has.
    args = [word for word in words if not word.startswith("H=") and word != "--resume"]
    if not (n.isdigit() and every.isdigit() and args):
        raise BadInput(f"{' '.join(argv) or 'no arguments'}: expected {USAGE}, N and STEPS whole numbers")
    if given := cli.fields_in(args) & {"replicas", "replica", "outer_every", "meet"}:
        raise BadInput(f"{flag(min(given))}: N and H= set it for every replica; leave it out")
    args += ["--replicas", n, "--outer-every", every]
    train = cli.parse(presets(TrainConfig), description, [*args, "--meet", "torchft://localhost:0"])
    if train.out == Path():
        raise BadInput("--out: name the group's folder; each replica is a run in it")
    if "--resume" not in argv:
        check_new(train.out)
    return train, args


class Replica:
    """One replica's process. It has its share of the cores, and of several GPUs one in turn. The held-out problems
    are the first one's: after a round all replicas hold the same."""

    def __init__(self, number: int, train: TrainConfig, command: Sequence[str]) -> None:
        self.number, self.run, self.starts = number, train.out / f"replica_{number}", 0
        self.log = train.out / "logs" / f"replica_{number}.txt"
        self.command = (*command, "--replica", str(number), "--out", str(self.run),
                        *(["--eval-every", "0", "--no-eval-plain"] if number else []))  # fmt: skip
        cores = max(1, (os.cpu_count() or 1) // train.replicas)
        self.env = {"OMP_NUM_THREADS": str(cores), **os.environ, **one_gpu(number)}
        self.start()

    def start(self) -> None:
        """Starts the process, which goes on where it was cut."""
        self.starts += 1
        command = resumed(self.command, self.run) or (*self.command, "--resume")
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=self.env,
                preexec_fn=die_with_parent,
            )  # fmt: skip

    @property
    def last(self) -> Mapping[str, Any]:
        """The latest round that it has recorded."""
        return next(reversed(read_rounds(self.run)), {"round": 0, "step": 0, "sha256": ""})


def run_group(train: TrainConfig, args: Sequence[str], script: Path = SCRIPT) -> list[Replica]:
    """Runs all replicas until each has ended or was given up. BadInput when one refuses its arguments."""
    (train.out / "logs").mkdir(parents=True, exist_ok=True)
    with lighthouse("localhost", 0, train.patience) as meet:
        command = (sys.executable, str(script), *args, "--meet", meet)
        replicas = [Replica(number, train, command) for number in range(train.replicas)]
        try:
            watch(replicas, train.steps // train.outer_every)
        finally:
            for replica in replicas:
                end(replica.process, GRACE_S)
    return replicas


def watch(replicas: Sequence[Replica], rounds: int) -> None:
    """Starts again what dies, and stops who is left behind when the group has held its last round."""
    held = 0
    while any(r.process.poll() is None for r in replicas):
        time.sleep(POLL_S)
        if (latest := max(r.last["round"] for r in replicas)) > held:
            held = latest
            logger.info(f"round {held} of {rounds}")
        over = any(r.process.poll() == EXIT_OK for r in replicas)
        for r in replicas:
            code = r.process.poll()
            if code is None and over and r.last["round"] < rounds:
                logger.warning(f"replica {r.number}: the others have held the last round without it; stopped")
                end(r.process, GRACE_S)
            elif code == EXIT_BAD_INPUT:
                raise BadInput(f"replica {r.number} refuses ({r.log.read_text(errors='replace').splitlines()[-1]})")
            elif code and not over and r.starts <= RESTARTS:
                how = f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
                logger.warning(f"replica {r.number}: {how}; started again, the others go on")
                r.start()
