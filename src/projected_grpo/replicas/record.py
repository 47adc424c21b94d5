"""The record of a replica's outer rounds: a line each, in its run directory. No torch here."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from projected_grpo.ledger.evidence import ROUNDS
from projected_grpo.ledger.files import write_atomic

FIELDS: Mapping[str, str] = {
    "round": "which outer round of the group, from 1",
    "replica": "which replica wrote the line",
    "replicas": "of how many",
    "step": "its own steps that count so far",
    "brought": "the replicas whose steps since the round before are in the average",
    "absent": "the others",
    "behind": "rounds that had gone on without it just before; what it had learned meanwhile counts in this one",
    "seconds": "for which it waited for the others and for the numbers",
    "outer_norm": "norm of the outer step: how far the coordinates moved from the round before",
    "sha256": "of the coordinates after the round; the same on every replica",
}


def write_rounds(run: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Write the whole record anew."""
    write_atomic(run / ROUNDS, "".join(json.dumps(line) + "\n" for line in lines).encode())
