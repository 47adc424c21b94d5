"""Where replicas meet: torchft's Manager and DiLoCo, which find one another through a lighthouse.

The lighthouse knows by their heartbeats who is alive, and gives each round's members: all that are ready, once every living
one is, or after `patience` (then more than half of the living). One that is gone or late is left out; one that is behind
gets origin, momentum and round from another before it takes part (torchft calls that healing). Gloo on the CPU carries the
sum, which is the adapter's coordinates and no more: 2 MB for Qwen3-4B.

DiLoCo hangs its rounds on an optimizer's step. Ours is not over then: V is removed from the applied update afterwards. So
the hooks hang on a clock that is ticked when a round is due, and a round is each tick.
"""

import json
import socket
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import torch
from loguru import logger
from torch import Tensor, nn
from torch.distributed import DistError, TCPStore

from projected_grpo.ledger.errors import BadInput, BrokenWorld
from projected_grpo.replicas.outer import Flat, Nesterov

A_DAY = timedelta(days=1)
LOOPBACK = ("localhost", "127.0.0.1")
LEAST = timedelta(seconds=30)
"""However short the patience: for a message, on a busy machine."""
START_PATIENCES = 10
"""At the start the others load a model: so many times the patience of a round is waited for them."""


class ByTorchft:
    """A replica's place in torchft's group, and what it holds between rounds. `held`: rounds that its coordinates hold."""

    def __init__(self, flat: Flat, optimizer: Nesterov, held: int, address: str, patience: float) -> None:
        from torchft import Manager, ProcessGroupGloo
        from torchft.local_sgd import DiLoCo

        self.host, self.port = host_and_port(address)
        self.flat, self.optimizer, self.round = flat, optimizer, held
        self.origin = flat.flat.detach().clone()
        """[n + replicas], after the last round."""
        self.behind = 0
        """How many rounds it had missed when it last met the others."""
        self.patience = timedelta(seconds=patience)
        wait = max(self.patience, LEAST)
        name = "localhost" if self.host in LOOPBACK else socket.gethostname()
        self.store = TCPStore(name, 0, is_master=True, wait_for_workers=False)
        self.manager = Manager(
            pg=ProcessGroupGloo(timeout=wait), load_state_dict=None, state_dict=None, min_replica_size=1,
            use_async_quorum=False, timeout=wait, quorum_timeout=A_DAY, rank=0, world_size=1, store_addr=name,
            store_port=self.store.port, lighthouse_addr=f"http://{self.host}:{self.port}", hostname=name,
            replica_id=f"replica_{flat.replica}", init_sync=False,
        )  # fmt: skip
        self.manager.load_state_dict({"step": held, "batches_committed": 0})
        self.clock = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.0)
        self.diloco = DiLoCo(self.manager, [flat], self.clock, optimizer, sync_every=1, pin_memory=False)
        # After DiLoCo's hooks: when these are loaded, it has the origin and the momentum already.
        self.manager.register_state_dict_fn("round", self._heal, self._state)
        self.diloco.__enter__()

    def begin(self, facts: Mapping[str, Any]) -> bool:
        """Waits for the others at the start, at a key-value store next to the lighthouse. Returns whether they had begun
        before. Raises BadInput when they run something else, BrokenWorld when nobody answers."""
        me, everyone = self.flat.replica, range(self.flat.replicas)
        try:
            gate = TCPStore(self.host, self.port + 1, is_master=False, timeout=LEAST, wait_for_workers=False)
        except (DistError, RuntimeError) as e:
            raise self._silent(e) from e
        check_facts(facts, json.loads(gate.compare_set("facts", "", json.dumps(facts))))
        if gate.check(["begun"]):
            return True
        gate.set(f"replica {me}", "here")
        try:
            gate.wait([f"replica {i}" for i in everyone], START_PATIENCES * self.patience)
        except (DistError, RuntimeError):
            missing = [i for i in everyone if not gate.check([f"replica {i}"])]
            logger.warning(f"replica {missing} did not come; the others begin")
        gate.set("begun", "yes")
        return False

    def hold(self, *, brings: bool) -> None:
        """Holds a round, or with `brings` False only copies the group's state. `flat` holds the local coordinates
        before, the group's after. Raises BrokenWorld when the lighthouse does not answer.

        torchft throws the inner steps of a failed round away. Here they are put back and the round is held again."""
        flat, self.behind = self.flat, 0
        flat.take(brings=brings)
        learned = flat.flat.detach() - self.origin
        while True:
            self.optimizer.done = False
            try:
                self.clock.step()
            except BrokenWorld:
                raise
            except (RuntimeError, TimeoutError) as e:
                raise self._silent(e) from e
            if self.optimizer.done:
                break
            logger.warning(f"round {self.round + 1}: somebody went while it was held; it is held again")
            with torch.no_grad():
                flat.flat.copy_(self.origin + learned)
        # torchft mixes the local coordinates in with weight 0, which gives -0.0 another sign on each replica.
        self.origin = flat.flat.detach() + 0.0
        with torch.no_grad():
            flat.flat.copy_(self.origin)
        self.round += bool(self.optimizer.brought)
        flat.give()

    def _silent(self, e: Exception) -> BrokenWorld:
        return BrokenWorld(
            f"the lighthouse at {self.host}:{self.port} does not answer ({str(e).splitlines()[0]:.120}); start it and "
            "continue with --resume"
        )

    def _state(self) -> dict[str, Tensor | int]:
        """What another replica needs that is behind, in addition to DiLoCo's state."""
        return {"round": self.round, "origin": self.origin}

    @torch.no_grad()
    def _heal(self, state: Mapping[str, Any]) -> None:
        """Stand where the others are, with what was learned since the old origin on top of the new one."""
        flat = self.flat.flat
        flat.copy_(state["origin"] + (flat - self.origin))
        self.behind = state["round"] - self.round
        self.round, self.origin = state["round"], state["origin"].clone()

    def close(self) -> None:
        """Leave; the heartbeat ends with it."""
        self.diloco.__exit__(None, None, None)
        self.manager.shutdown(wait=False)


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
