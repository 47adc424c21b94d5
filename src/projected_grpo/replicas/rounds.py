"""An ordinary run as one of several replicas: every H steps it meets the others, and each round is recorded.

    with rounds_of(config, session) as rounds:     the run is open; None without --meet
        ... session.take(step, ...)
        rounds.after(step)

`rounds.jsonl` in the run's directory has a line per round that this replica took part in. The run's checkpoint
is written after each round and at no other time: a replica that was killed goes on from its last round.
"""

import hashlib
import json
import time
from collections.abc import Generator
from contextlib import contextmanager

from loguru import logger

from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import write_atomic
from projected_grpo.ledger.folder import FREE_TO_CHANGE, plain
from projected_grpo.replicas.by_torchft import ByTorchft, host_and_port
from projected_grpo.replicas.settings import ROUNDS, read_rounds
from projected_grpo.run.session import Session

MAY_DIFFER = FREE_TO_CHANGE | {"replica", "eval_every", "eval_plain", "eval_samples", "eval_problems"}
"""What replicas of one group may have otherwise."""


class Rounds:
    """The rounds of one run: `join` before its first step, `after` every one."""

    def __init__(self, config: TrainConfig, session: Session) -> None:
        self.config, self.session = config, session
        self.last = session.next_step
        """This replica's steps at the last round."""
        self.meeting = ByTorchft(config, session.adapter.vectors, session.outer)
        self.lines = [line for line in read_rounds(session.run) if line["round"] <= self.meeting.round]
        self._write()
        session.checkpoint_every = 0

    def join(self) -> None:
        """Meet the others; one that comes back, or comes when they have begun, then stands where they stand."""
        v, name = self.session.v, f"replica {self.config.replica} of {self.config.replicas}"
        facts = {key: value for key, value in plain(self.config).items() if key not in MAY_DIFFER}
        facts |= {"weights": self.session.loaded.weights_hash, "v_sha256": v.meta["v_sha256"] if v else None}
        begun = self.meeting.begin(facts)
        if begun or self.last:
            logger.info(f"{name}: joins the others at their next round; its last one was {self.meeting.round}")
            self._hold(brings=False)
        if self.over and self.last < self.config.steps:
            logger.warning(
                f"{name}: all rounds have been held; it ends with the group's coordinates and {self.last} steps alone"
            )

    @property
    def over(self) -> bool:
        """Whether the group has held its last round."""
        return self.meeting.round >= self.config.steps // self.config.outer_every

    def after(self, step: int) -> None:
        """A step was taken: hold a round where one is due."""
        if step + 1 - self.last < self.config.outer_every:
            return
        self.last = step + 1
        self._hold(brings=True)
        self.session.outer = self.meeting.state()
        self.session.checkpoint(step)

    def _hold(self, *, brings: bool) -> None:
        clock, held, start = time.perf_counter(), self.meeting.round, self.meeting.origin.detach().clone()
        self.meeting.hold(brings=brings)
        if self.meeting.round > held:
            self._record(time.perf_counter() - clock, float((self.meeting.origin - start).norm()))
        if self.meeting.behind:
            logger.warning(
                f"round {self.meeting.round}: {self.meeting.behind} had gone on without this replica before it"
            )

    def _record(self, seconds: float, moved: float) -> None:
        brought = self.meeting.brought
        absent = [i for i in range(self.config.replicas) if i not in brought]
        coordinates = self.meeting.origin.detach().numpy().tobytes()
        line = {
            "round": self.meeting.round,
            "replica": self.config.replica,
            "step": self.last,  # this replica's steps that count so far
            "brought": list(brought),  # replicas whose steps since the round before are in the average
            "absent": absent,
            "behind": self.meeting.behind,  # rounds that had gone on without it just before
            "seconds": round(seconds, 3),  # for which it waited for the others
            "outer_norm": moved,  # how far the coordinates moved from the round before
            "sha256": hashlib.sha256(coordinates).hexdigest(),  # the same on every replica
        }
        self.lines.append(line)
        self._write()
        said = f"round {self.meeting.round}: replicas {', '.join(map(str, brought))}"
        if absent:
            logger.warning(f"{said}; without {', '.join(map(str, absent))} (waited {seconds:.1f} s)")
        else:
            logger.info(f"{said}; coordinates {line['sha256'][:8]}")

    def _write(self) -> None:
        """Write the whole record."""
        write_atomic(self.session.run / ROUNDS, "".join(json.dumps(line) + "\n" for line in self.lines).encode())


def check_replica(config: TrainConfig, session: Session) -> None:
    """BadInput for what replicas cannot do, before anything is written."""
    if not config.meet:
        return
    if session.world.size > 1:
        raise BadInput(f"--meet {config.meet}: a replica is one process here; leave torchrun out")
    if session.intervention.trained:
        raise BadInput(f"--arm {config.arm}: trains more parameters than the adapter's, which replicas do not average")
    host_and_port(config.meet)
    import torchft  # noqa: F401 - of the extra `diloco`


@contextmanager
def rounds_of(config: TrainConfig, session: Session) -> Generator[Rounds | None]:
    """The rounds of a run that is open; None for a run that is no replica."""
    if not config.meet:
        yield None
        return
    rounds = Rounds(config, session)
    try:
        rounds.join()
        yield rounds
    finally:
        rounds.meeting.manager.shutdown(wait=False)  # its heartbeat ends
