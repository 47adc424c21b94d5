"""Options of `just train-diloco`: how many replicas, how often they meet, and those of a single run. No torch here."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import read_jsonl
from projected_grpo.ledger.folder import check_new
from projected_grpo.presets import presets
from projected_grpo.run import cli

USAGE = "train_diloco.py N PRESET H=STEPS [what train.py takes]"
OUTER = """N replicas, H steps between two rounds. Of train.py's options these are the outer step's:
  --outer-lr 0.7          rate of the outer Nesterov step
  --outer-momentum 0.9    its momentum
  --patience 60           seconds for which a replica that is ready waits for the others"""
HERE = "torchft://localhost:1"
"""A meeting place to parse with; the real one is known when the lighthouse stands."""

ROUNDS = "rounds.jsonl"
"""In a replica's run directory: a line per outer round that it took part in."""


def read_rounds(directory: Path) -> list[dict[str, Any]]:
    """Returns a replica's outer rounds; an empty list where it has recorded none."""
    path = directory / ROUNDS
    return read_jsonl(path) if path.exists() else []


@dataclass(frozen=True)
class DilocoConfig:
    """A group of replicas on this machine."""

    train: TrainConfig
    """As replica 0 takes it, --out aside."""
    args: tuple[str, ...]
    """train.py's arguments that all replicas are started with."""
    script: Path = Path(__file__).parents[3] / "scripts" / "train.py"
    """What a replica runs."""

    def run(self, number: int) -> Path:
        """A replica's run directory."""
        return self.train.out / f"replica_{number}"

    @property
    def rounds(self) -> int:
        """Outer rounds in all."""
        return self.train.steps // self.train.outer_every


def parsed(argv: Sequence[str], description: str) -> DilocoConfig:
    """Of `N PRESET H=STEPS ...`. BadInput for words that are none of it, and as train.py's."""
    if cli.HELP & set(argv):
        print(f"{description}\n\n{USAGE}\n\n{OUTER}\n\n`train.py PRESET --help` lists all that train.py takes.")
        raise SystemExit(0)
    n, *words = argv or [""]
    every = next((word.removeprefix("H=") for word in words if word.startswith("H=")), "")
    # Each replica goes on by itself from what it has.
    args = [word for word in words if not word.startswith("H=") and word != "--resume"]
    if not (n.isdigit() and every.isdigit() and args):
        raise BadInput(f"{' '.join(argv) or 'no arguments'}: expected {USAGE}, N and STEPS whole numbers")
    given = [*args, "--meet", HERE, "--replicas", n, "--outer-every", every]
    train = cli.parse(presets(TrainConfig), description, given)
    if train.out == Path():
        raise BadInput("--out: name the group's folder; each replica is a run in it")
    if "--resume" not in argv:
        check_new(train.out)
    return DilocoConfig(train, tuple(args))
