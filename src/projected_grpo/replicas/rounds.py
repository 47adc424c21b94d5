"""An ordinary run as one of several replicas: every H steps it meets the others and takes DiLoCo's outer step with
them.

    origin             coordinates after the last round, the same bits on every replica
    local              what a replica has made of them in its H steps
    pseudo-gradient    the mean of origin - local over the replicas that bring something; Nesterov's method steps on it

torchft's lighthouse knows by heartbeats who is alive, and gives each round's members: all that are ready, once every
living one is, or after `patience` (then more than half of the living). One that is behind gets origin, momentum and
round from another before it takes part (torchft calls that healing). Every replica takes the same step on the same
numbers.

Differences from torchft's DiLoCo, which hangs its rounds on the inner optimizer's step:
1. a round is held when the whole step is over: V is removed from the applied update after the optimizer's step;
2. the inner steps of a failed round are kept, and the round is held again;
3. one that has just come back has nothing to bring, and does not count as one that has learned nothing.

The run's checkpoint is written after each round and at no other time: a replica that was killed goes on from its last
round.

Source: Douillard et al. 2023 (arXiv:2311.08105), algorithm 1; the outer optimizer is that of torchft's example.
"""

import hashlib
import json
import re
import socket
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from datetime import timedelta
from typing import Any

import torch
from jaxtyping import Float
from loguru import logger
from torch import Tensor, nn
from torch.distributed import DistError, TCPStore

from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput, BrokenWorld
from projected_grpo.ledger.files import write_atomic
from projected_grpo.ledger.folder import free_fields, plain
from projected_grpo.replicas.group import ROUNDS, read_rounds
from projected_grpo.run.policy import Policy
from projected_grpo.run.run_folder import RunFolder

A_DAY = timedelta(days=1)
LEAST = timedelta(seconds=30)
"""However short the patience: for a message, on a busy machine."""
START_PATIENCES = 10
"""At the start the others load a model: so many times the patience of a round is waited for them."""
OF_EVALUATION = {"eval_every", "eval_plain", "eval_samples", "eval_problems"}
"""Settings that may differ between replicas, as one of them evaluates."""


class Rounds:
    """The rounds of one run: `join` before its first step, `after` every one."""

    def __init__(self, config: TrainConfig, policy: Policy, run: RunFolder) -> None:
        """Raises BrokenWorld when the lighthouse does not answer."""
        from torchft import Manager, ProcessGroupGloo

        self.config, self.policy, self.run, self.vectors = config, policy, run, policy.adapter.vectors
        self.last = run.next_step
        """This replica's steps at the last round."""
        self.origin = nn.Parameter(self.local())
        """[n]: the outer optimizer's one parameter."""
        momentum = config.outer_momentum
        self.optimizer = torch.optim.SGD([self.origin], lr=config.outer_lr, momentum=momentum, nesterov=momentum > 0)
        self.round = 0
        """How many rounds the origin holds."""
        self.behind = 0
        """How many rounds it had missed when it last met the others."""
        if run.outer:
            self.load(run.outer)
        self.lines = [line for line in read_rounds(run.path) if line["round"] <= self.round]
        self._write()
        host, _, port = config.meet.removeprefix("torchft://").partition(":")
        try:
            self.gate = TCPStore(host, int(port), is_master=False, timeout=LEAST, wait_for_workers=False)
            lighthouse = self.gate.get("lighthouse").decode()
        except (DistError, RuntimeError) as e:
            raise self._silent(e) from e
        name = "localhost" if host in ("localhost", "127.0.0.1") else socket.gethostname()
        wait = max(timedelta(seconds=config.patience), LEAST)
        self.store = TCPStore(name, 0, is_master=True, wait_for_workers=False)
        self.manager = Manager(
            pg=ProcessGroupGloo(timeout=wait), load_state_dict=self.load, state_dict=self.state, min_replica_size=1,
            use_async_quorum=False, timeout=wait, quorum_timeout=A_DAY, rank=0, world_size=1, store_addr=name,
            store_port=self.store.port, lighthouse_addr=lighthouse, hostname=name, replica_id=f"replica_{config.replica}",
            init_sync=False,
        )  # fmt: skip
        self.manager.load_state_dict({"step": self.round, "batches_committed": 0})

    def local(self) -> Float[Tensor, " n"]:
        """Returns a copy of the run's coordinates, on the CPU."""
        return torch.cat([p.detach().cpu() for p in self.vectors.values()])

    def state(self) -> dict[str, Any]:
        """Returns what another replica needs that is behind, and this one to go on."""
        return {"round": self.round, "origin": self.origin.detach(), "optimizer": self.optimizer.state_dict()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Loads the state of a round, this replica's or another's; `behind` becomes the rounds that it had missed."""
        self.behind, self.round = state["round"] - self.round, state["round"]
        self.origin.data.copy_(state["origin"])
        self.optimizer.load_state_dict(deepcopy(state["optimizer"]))  # another's arrives in memory that is read only

    @property
    def over(self) -> bool:
        """Whether the group has held its last round."""
        return self.round >= self.config.steps // self.config.outer_every

    def join(self) -> None:
        """Waits for the others at the start; one that comes back, or comes when they have begun, then stands where
        they stand. BadInput when they run something else."""
        c, v = self.config, self.policy.v
        may_differ = {*free_fields(c), *OF_EVALUATION, "replica"}
        facts = {key: value for key, value in plain(c).items() if key not in may_differ}
        facts |= {"weights": self.policy.loaded.weights_hash, "v_sha256": v.meta["v_sha256"] if v else None}
        check_facts(facts, json.loads(self.gate.compare_set("facts", "", json.dumps(facts))))
        begun = self.gate.check(["begun"])
        if not begun:
            everyone = [f"replica {i}" for i in range(c.replicas)]
            self.gate.set(everyone[c.replica], "here")
            try:
                self.gate.wait(everyone, START_PATIENCES * timedelta(seconds=c.patience))
            except (DistError, RuntimeError):
                missing = ", ".join(name for name in everyone if not self.gate.check([name]))
                logger.warning(f"{missing} did not come; the others begin")
            self.gate.set("begun", "yes")
        if begun or self.last:
            logger.info(f"replica {c.replica} joins the others at their next round; its last one was {self.round}")
            self.hold(brings=False)

    def after(self, step: int) -> None:
        """A step was taken: holds a round where one is due."""
        if step + 1 - self.last < self.config.outer_every:
            return
        self.last = step + 1
        self.hold(brings=True)
        self.run.checkpoint(step, self.policy, outer=self.state())

    def hold(self, *, brings: bool) -> None:
        """Holds a round, or with `brings` False only copies the group's state. The run's coordinates are the local
        ones before, the group's after. Raises BrokenWorld when the lighthouse does not answer, a number is not
        finite, or two replicas have the same number."""
        clock, before, replicas = time.perf_counter(), self.round, self.config.replicas
        self.behind = 0
        pseudo_gradient = self.origin.detach() - self.local()
        marks = pseudo_gradient.new_zeros(replicas)
        marks[self.config.replica] = float(brings)
        while True:
            mean = torch.cat([pseudo_gradient, marks])
            try:
                self.manager.start_quorum()  # calls `load` when this replica is behind
                self.manager.allreduce(mean).wait()  # over all who meet, in place
                if self.manager.should_commit():
                    break
            except (RuntimeError, TimeoutError) as e:
                raise self._silent(e) from e
            logger.warning(f"round {self.round + 1}: somebody went while it was held; it is held again")
        gradient, shares = mean.split([len(pseudo_gradient), replicas])
        # All replicas see the same numbers: all stop.
        if not mean.isfinite().all():
            raise BrokenWorld("a replica brought numbers that are not finite; its log says which step made them")
        if shares.max() * self.manager.num_participants() > 1.5:
            raise BrokenWorld("two replicas have the same number; give each its own --replica")
        brought = [i for i, share in enumerate(shares.tolist()) if share > 0]
        if brought:
            self.origin.grad = gradient / shares.sum()  # over those that bring something
            self.optimizer.step()
            self.round += 1
        parts = self.origin.detach().split(list(self.policy.adapter.sizes.values()))
        self.policy.adapter.set_values(dict(zip(self.vectors, parts, strict=True)))
        if self.round > before:
            self._record(brought, time.perf_counter() - clock)

    def _record(self, brought: list[int], seconds: float) -> None:
        sha256 = hashlib.sha256(self.origin.detach().numpy().tobytes()).hexdigest()
        self.lines.append({
            "round": self.round,
            "step": self.last,  # this replica's steps that count so far
            "brought": brought,  # replicas whose steps since the round before are in the average
            "behind": self.behind,  # rounds that had gone on without it just before
            "seconds": round(seconds, 3),  # for which it waited for the others
            "sha256": sha256,  # of the coordinates: the same on every replica
        })  # fmt: skip
        self._write()
        absent = ", ".join(str(i) for i in range(self.config.replicas) if i not in brought)
        without = f"; without {absent} (waited {seconds:.1f} s)" if absent else ""
        late = f"; {self.behind} had gone on without this replica before it" if self.behind else ""
        logger.log(
            "WARNING" if absent or late else "INFO",
            f"round {self.round}: replicas {', '.join(map(str, brought))}{without}{late}; coordinates {sha256[:8]}",
        )

    def _write(self) -> None:
        write_atomic(self.run.path / ROUNDS, "".join(json.dumps(line) + "\n" for line in self.lines).encode())

    def _silent(self, e: Exception) -> BrokenWorld:
        return BrokenWorld(
            f"the lighthouse at {self.config.meet} does not answer ({str(e).splitlines()[0]:.120}); start it and continue "
            "with --resume"
        )


def check_facts(facts: Mapping[str, Any], first: Mapping[str, Any]) -> None:
    """Raises BadInput when this replica was started with something else than the first one was."""
    for name, value in facts.items():
        if first.get(name) != value:
            other = f"the first of its group {first.get(name)!r:.80}"
            raise BadInput(f"this replica has {name}={value!r:.80}, {other}: give all the same arguments and files")


def check_replica(config: TrainConfig, policy: Policy) -> None:
    """BadInput for what replicas cannot do, before anything is written."""
    if not config.meet:
        return
    if policy.ranks.size > 1:
        raise BadInput(f"--meet {config.meet}: a replica is one process here; leave torchrun out")
    if policy.intervention.trained or policy.intervention.state():
        raise BadInput(f"--arm {config.arm}: trains more parameters than the adapter's, which replicas do not average")
    if not re.fullmatch(r"torchft://[^:/]+:\d+", config.meet):
        raise BadInput(f"--meet {config.meet}: must be torchft://HOST:PORT, the lighthouse's")
    import torchft  # noqa: F401 - of the extra `diloco`


class NoRounds:
    """Stands where a run is no replica."""

    over = False

    def after(self, step: int) -> None:
        """Does nothing."""


@contextmanager
def rounds_of(config: TrainConfig, policy: Policy, run: RunFolder) -> Generator[Rounds | NoRounds]:
    """The rounds of a run that is open."""
    if not config.meet:
        yield NoRounds()
        return
    rounds = Rounds(config, policy, run)
    try:
        rounds.join()
        yield rounds
    finally:
        rounds.manager.shutdown(wait=False)  # its heartbeat ends
