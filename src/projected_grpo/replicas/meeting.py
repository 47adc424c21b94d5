"""Where replicas meet: what a round needs, whichever way the numbers travel (by_torchft.py, by_store.py)."""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from projected_grpo.ledger.errors import BadInput
from projected_grpo.replicas.outer import Flat, Nesterov

START_PATIENCES = 10
"""At the start others load a model and may build a cache: so many times the patience of a round is waited for them."""


@dataclass
class Outer:
    """What a replica holds between rounds."""

    flat: Flat
    optimizer: Nesterov
    origin: Tensor
    """[n + replicas], after the last round."""
    round: int = 0
    """Rounds that its coordinates hold."""
    behind: int = 0
    """How many rounds it had missed when it last met the others."""
    rounds: int | None = None
    """How many the group holds in all; None: no end is known."""

    @property
    def over(self) -> bool:
        """Whether the group has held its last round."""
        return self.rounds is not None and self.round >= self.rounds


class Meeting(Protocol):
    """One replica's place among the others."""

    def begin(self, facts: Mapping[str, Any]) -> bool:
        """Wait for the others at the start. Whether they had begun before. BadInput when they run something else."""
        ...

    def hold(self, *, brings: bool) -> None:
        """A round, or with `brings` False only what it takes to stand where the others are. `outer.flat` holds the local
        coordinates before, those of the group after; what this replica had learned beside a round that it missed is carried
        over to the new origin and brought to the next one. BrokenWorld when the others cannot be met any more, or (in a
        store, which is still there then) when they have held their last round without this one."""
        ...

    def close(self) -> None:
        """Leave."""
        ...


def check_facts(facts: Mapping[str, Any], theirs: bytes, place: str) -> None:
    """BadInput, naming both sides, when this replica was started with something else than the first one was; naming the
    `place` of what the first one left, when that cannot be read: anybody can write there."""
    first = None
    with contextlib.suppress(ValueError):  # no JSON, or no UTF-8
        first = json.loads(theirs)
    if not isinstance(first, dict):
        raise BadInput(
            f"{place} does not say what the first of the group runs ({theirs!r:.80}); take it away and start again, or "
            "meet elsewhere"
        )
    for name, value in json.loads(json.dumps(facts)).items():
        if first.get(name) != value:
            raise BadInput(
                f"this replica has {name}={value!r:.80}, the first of its group {first.get(name)!r:.80}: start all with the "
                "same arguments, files and versions, or meet elsewhere"
            )
