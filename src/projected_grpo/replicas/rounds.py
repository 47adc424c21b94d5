"""An ordinary run as one of several replicas: every H steps it meets the others, and each round is recorded.

    with rounds_of(config, session) as rounds:     the run is open; one without --meet is alone, and nothing happens
        ... session.take(step, ...)
        rounds.after(step)

`rounds.jsonl` in the run's directory has a line per round that this replica took part in (record.py). The run's checkpoint
is written after each round and at no other time: a replica that was killed goes on from its last round.
"""

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from loguru import logger

from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput, BrokenWorld
from projected_grpo.ledger.evidence import read_rounds
from projected_grpo.ledger.folder import FREE_TO_CHANGE, plain, read_manifest
from projected_grpo.replicas.by_store import ByStore
from projected_grpo.replicas.by_torchft import SCHEME, ByTorchft
from projected_grpo.replicas.meeting import Meeting, Outer
from projected_grpo.replicas.outer import Flat, Nesterov
from projected_grpo.replicas.record import FIELDS, write_rounds
from projected_grpo.run.session import Session
from projected_grpo.run.vhack_file import content_of

OWN = FREE_TO_CHANGE | {"replica", "eval_every", "eval_plain", "eval_samples", "eval_problems"}
"""What replicas of one group may have otherwise."""


class Rounds:
    """The rounds of one run: `join` before its first step, `after` every one."""

    def __init__(self, config: TrainConfig, session: Session) -> None:
        self.config, self.session = config, session
        self.flat = flat = Flat(session.adapter.vectors, config.replica, config.replicas)
        optimizer = Nesterov(flat, config.outer_lr, config.outer_momentum)
        self.outer = Outer(flat, optimizer, flat.flat.detach().clone(), rounds=config.steps // config.outer_every)
        if session.outer:
            self.outer.round = int(session.outer["round"])
            self.outer.optimizer.momentum = session.outer["momentum"]
        self.last = session.next_step
        """Own steps at the last round."""
        self.lines = [line for line in read_rounds(session.run) if line["round"] <= self.outer.round]
        write_rounds(session.run, self.lines)
        self.meeting: Meeting = place_of(config)(self.outer, config.meet, config.patience)
        session.replica = f"{config.replica} of {config.replicas}"
        session.checkpoint_every = 0

    def join(self) -> None:
        """Meet the others; one that comes back, or comes when they have begun, then stands where they stand."""
        begun = self.meeting.begin(self._facts())
        if begun or self.last:
            told = f"replica {self.session.replica}: joins the others at their next round"
            logger.info(f"{told}; its own last one was {self.outer.round}")
            self._hold(brings=False)
        if self.over and not self.last:
            raise BrokenWorld(
                f"--meet {self.config.meet}: all rounds have been held there, and this run has taken no step; meet elsewhere"
            )
        if self.over and self.last < self.config.steps:
            logger.warning(
                f"replica {self.session.replica}: all rounds have been held; it ends with the group's coordinates and "
                f"{self.last} steps of its own"
            )

    def _facts(self) -> dict[str, Any]:
        """What must be the same for all of a group."""
        config = {k: v for k, v in plain(self.config).items() if k not in OWN}
        manifest, v = read_manifest(self.session.run), self.session.v
        return {
            **config, "weights": self.session.loaded.weights_hash,
            # A file is known by what is in it: two machines have one path for two files. Each has its own share of problems.
            "v_sha256": content_of(v.basis) if v else None,
            **{name: manifest.get(name) for name in ("pool_hash", "pairs_sha256", "taid_teacher_hash")},
        }  # fmt: skip

    @property
    def over(self) -> bool:
        """Whether the group has held its last round."""
        return self.outer.over

    def after(self, step: int) -> None:
        """A step was taken: hold a round where one is due."""
        if step + 1 - self.last < self.config.outer_every:
            return
        self.last = step + 1
        self._hold(brings=True)
        self.session.outer = {"round": torch.tensor(self.outer.round), "momentum": self.outer.optimizer.momentum}
        self.session.checkpoint(step)

    def close(self) -> None:
        """Leave the others."""
        self.meeting.close()

    def _hold(self, *, brings: bool) -> None:
        clock, held, start = time.perf_counter(), self.outer.round, self.outer.origin
        self.meeting.hold(brings=brings)
        if self.outer.round > held:
            self._record(time.perf_counter() - clock, float((self.outer.origin - start).norm()))
        if self.outer.behind:
            logger.warning(f"round {self.outer.round}: {self.outer.behind} had gone on without this replica before it")

    def _record(self, seconds: float, moved: float) -> None:
        config, brought = self.config, self.outer.optimizer.brought
        absent = [i for i in range(config.replicas) if i not in brought]
        place = (self.outer.round, config.replica, config.replicas, self.last)
        values = (*place, list(brought), absent, self.outer.behind, round(seconds, 3), moved, self.flat.sha256())
        self.lines.append(dict(zip(FIELDS, values, strict=True)))
        write_rounds(self.session.run, self.lines)
        said = f"round {self.outer.round}: replicas {', '.join(map(str, brought))}"
        if absent:
            logger.warning(f"{said}; without {', '.join(map(str, absent))} (waited {seconds:.1f} s)")
        else:
            logger.info(f"{said}; coordinates {self.lines[-1]['sha256'][:8]}")


class Alone:
    """A run that meets nobody."""

    over = False

    def after(self, step: int) -> None:
        """No round is ever due."""


def place_of(config: TrainConfig) -> type[ByStore] | type[ByTorchft]:
    """How replicas meet at this address."""
    return ByTorchft if config.meet.startswith(SCHEME) else ByStore


def check_replica(config: TrainConfig, session: Session) -> None:
    """BadInput for what replicas cannot do, before anything is written."""
    if not config.meet:
        return
    if session.world.size > 1:
        raise BadInput(f"--meet {config.meet}: a replica is one process here; leave torchrun out")
    if session.hooks.page.trained:
        raise BadInput(f"--arm {config.arm}: trains parameters beside the adapter's, which replicas do not average")
    place_of(config).check(config.meet)


@contextmanager
def rounds_of(config: TrainConfig, session: Session) -> Generator[Rounds | Alone]:
    """The rounds of a run that is open."""
    if not config.meet:
        yield Alone()
        return
    rounds = Rounds(config, session)
    try:
        rounds.join()
        yield rounds
    finally:
        rounds.close()
