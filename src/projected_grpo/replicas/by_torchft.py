"""Where replicas meet: torchft's Manager, which finds the others through a lighthouse; and DiLoCo's outer step.

    origin             coordinates after the last round, the same bits on every replica
    local              what a replica has made of them in its H steps
    pseudo-gradient    the mean of origin - local over the replicas that bring something; Nesterov's method steps on it

The lighthouse knows by their heartbeats who is alive, and gives each round's members: all that are ready, once every living
one is, or after `patience` (then more than half of the living). One that is gone or late is left out; one that is behind
gets origin, momentum and round from another before it takes part (torchft calls that healing). Gloo on the CPU carries the
sum, which is the adapter's coordinates and no more: 2 MB for Qwen3-4B. Every replica takes the same step on the same
numbers, so none has to send the result to another.

Differences from torchft's DiLoCo, which hangs its rounds on the inner optimizer's step:
1. a round is held when the whole step is over: V is removed from the applied update after the optimizer's step;
2. the inner steps of a failed round are kept, and the round is held again;
3. one that has just come back has nothing to bring, and does not count as one that has learned nothing.

Source: Douillard et al. 2023 (arXiv:2311.08105), algorithm 1; the outer optimizer is that of torchft's example.
"""

import json
import socket
from collections.abc import Mapping
from copy import deepcopy
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import torch
from jaxtyping import Float
from loguru import logger
from torch import Tensor, nn
from torch.distributed import DistError, TCPStore

from projected_grpo.config import TrainConfig
from projected_grpo.ledger.errors import BadInput, BrokenWorld

A_DAY = timedelta(days=1)
LOOPBACK = ("localhost", "127.0.0.1")
LEAST = timedelta(seconds=30)
"""However short the patience: for a message, on a busy machine."""
START_PATIENCES = 10
"""At the start the others load a model: so many times the patience of a round is waited for them."""


class ByTorchft:
    """A replica's place in torchft's group, and what it holds between rounds."""

    def __init__(self, config: TrainConfig, vectors: Mapping[str, nn.Parameter], state: Mapping[str, Any]) -> None:
        """`vectors`: the run's coordinates, [n] of each module. `state`: of its last round; empty for a new run."""
        from torchft import Manager, ProcessGroupGloo

        self.host, self.port = host_and_port(config.meet)
        self.replica, self.replicas, self.vectors = config.replica, config.replicas, vectors
        self.origin = nn.Parameter(self.local())
        """[n], coordinates after the last round: the outer optimizer's one parameter."""
        momentum = config.outer_momentum
        self.optimizer = torch.optim.SGD([self.origin], lr=config.outer_lr, momentum=momentum, nesterov=momentum > 0)
        self.round = 0
        """How many rounds the origin holds."""
        self.brought: tuple[int, ...] = ()
        """Replicas that brought something to the latest round."""
        self.behind = 0
        """How many rounds it had missed when it last met the others."""
        if state:
            self.load(state)
        self.patience = timedelta(seconds=config.patience)
        wait = max(self.patience, LEAST)
        name = "localhost" if self.host in LOOPBACK else socket.gethostname()
        self.store = TCPStore(name, 0, is_master=True, wait_for_workers=False)
        self.manager = Manager(
            pg=ProcessGroupGloo(timeout=wait), load_state_dict=self.load, state_dict=self.state, min_replica_size=1,
            use_async_quorum=False, timeout=wait, quorum_timeout=A_DAY, rank=0, world_size=1, store_addr=name,
            store_port=self.store.port, lighthouse_addr=f"http://{self.host}:{self.port}", hostname=name,
            replica_id=f"replica_{self.replica}", init_sync=False,
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

    def begin(self, facts: Mapping[str, Any]) -> bool:
        """Waits for the others at the start, at a key-value store next to the lighthouse. Returns whether they had begun
        before. Raises BadInput when they run something else, BrokenWorld when nobody answers."""
        try:
            gate = TCPStore(self.host, self.port + 1, is_master=False, timeout=LEAST, wait_for_workers=False)
        except (DistError, RuntimeError) as e:
            raise self._silent(e) from e
        check_facts(facts, json.loads(gate.compare_set("facts", "", json.dumps(facts))))
        if gate.check(["begun"]):
            return True
        gate.set(f"replica {self.replica}", "here")
        everyone = range(self.replicas)
        try:
            gate.wait([f"replica {i}" for i in everyone], START_PATIENCES * self.patience)
        except (DistError, RuntimeError):
            missing = [i for i in everyone if not gate.check([f"replica {i}"])]
            logger.warning(f"replica {missing} did not come; the others begin")
        gate.set("begun", "yes")
        return False

    def hold(self, *, brings: bool) -> None:
        """Holds a round, or with `brings` False only copies the group's state. The run's coordinates are the local ones
        before, the group's after. Raises BrokenWorld when the lighthouse does not answer, a number is not finite, or two
        replicas have the same number."""
        self.behind = 0
        pseudo_gradient = self.origin.detach() - self.local()
        marks = pseudo_gradient.new_zeros(self.replicas)
        marks[self.replica] = float(brings)
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
        gradient, shares = mean.split([len(pseudo_gradient), self.replicas])
        # All replicas see the same numbers: all stop.
        if not mean.isfinite().all():
            raise BrokenWorld("a replica brought numbers that are not finite; its log says which step made them")
        if shares.max() * self.manager.num_participants() > 1.5:
            raise BrokenWorld("two replicas have the same number; give each its own --replica")
        self.brought = tuple(i for i, share in enumerate(shares.tolist()) if share > 0)
        if self.brought:
            self.origin.grad = gradient / shares.sum()  # over those that bring something
            self.optimizer.step()
            self.round += 1
        parts = self.origin.detach().split([p.numel() for p in self.vectors.values()])
        for p, part in zip(self.vectors.values(), parts, strict=True):
            p.data.copy_(part)

    def _silent(self, e: Exception) -> BrokenWorld:
        return BrokenWorld(
            f"the lighthouse at {self.host}:{self.port} does not answer ({str(e).splitlines()[0]:.120}); start it and "
            "continue with --resume"
        )


def check_facts(facts: Mapping[str, Any], first: Mapping[str, Any]) -> None:
    """Raises BadInput when this replica was started with something else than the first one was."""
    for name, value in json.loads(json.dumps(facts)).items():
        if first.get(name) != value:
            raise BadInput(
                f"this replica has {name}={value!r:.80}, the first of its group {first.get(name)!r:.80}: start all with the "
                "same arguments and files"
            )


def host_and_port(address: str) -> tuple[str, int]:
    """Of torchft://HOST:PORT. BadInput where it is not that."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise BadInput(f"--meet {address}: must be torchft://HOST:PORT, the lighthouse's")
    return host, port
