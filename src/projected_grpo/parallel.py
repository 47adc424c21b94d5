"""Several processes train one model, each on its share of a step's prompts (docs/parallel.md).

    torchrun --nproc-per-node N scripts/train.py ...

Every process (rank) holds the whole model, takes the prompts that `share` gives it, and has its gradient added to those of
the others; then all do the same arithmetic on the same numbers, so parameters stay equal bit for bit (`check_equal`). The
rows, the random numbers and the loss's denominators are those of one process.

A world of one does nothing at all: torch.distributed is not started, not even imported. Imports torch only where there are
several ranks, so that --help and the torch-free scripts can ask who they are.
"""

import os
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from projected_grpo.ledger.errors import (
    EXIT_BAD_INPUT,
    EXIT_FAILED,
    BadInput,
    BrokenWorld,
    JudgeFailed,
    NonFinite,
    fail,
)

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
TIMEOUT = timedelta(minutes=30)
"""How long a rank waits for the others before it gives the run up: longer than any rank may take for its share of sampling,
grading, an evaluation, the first SVD of the weights, or rank 0 for a new V."""


@dataclass(frozen=True)
class World:
    """The processes that train together, seen from one of them. Methods are called by every rank, in the same order."""

    rank: int = 0
    """Of this process, among all."""
    size: int = 1
    local_rank: int = 0
    """Among those of this machine."""
    local_size: int = 1

    # ------------------------------------------------------------ who does what

    def share(self, items: Sequence[T]) -> list[T]:
        """This rank's part: ranks take neighbouring items, the first ones one more where it does not divide. Some ranks get
        none when there are fewer items than ranks."""
        least, more = divmod(len(items), self.size)
        start = self.rank * least + min(self.rank, more)
        return list(items[start : start + least + (self.rank < more)])

    def device(self, asked: str) -> str:
        """This rank's device: `auto` and `cuda` are the GPU of its number. BadInput when there is none, or when one GPU is
        asked for by number and there are several ranks."""
        if self.size == 1:
            return asked
        import torch

        if asked == "cpu" or (asked == "auto" and not torch.cuda.is_available()):
            return "cpu"
        if asked not in ("auto", "cuda"):
            raise BadInput(f"--device {asked}: {self.size} processes need one each; use auto, cuda or cpu")
        if self.local_rank >= (found := torch.cuda.device_count()):
            raise BadInput(f"--nproc-per-node {self.local_size}: this machine has {found} GPUs; one process each")
        torch.cuda.set_device(self.local_rank)
        return f"cuda:{self.local_rank}"

    # ------------------------------------------------------------ failing together

    @contextmanager
    def together(self) -> Generator[None]:
        """What is refused on one rank inside ends all: the first such rank says why, once, and all exit with its code.

        BadInput, NonFinite and JudgeFailed are handled so. Anything else ends its own process, and torchrun then the others.
        """
        if self.size == 1:
            yield
            return
        told = None
        try:
            yield
        except BadInput as e:
            told = (str(e), EXIT_BAD_INPUT)
        except (NonFinite, JudgeFailed) as e:
            told = (str(e), EXIT_FAILED)
        for rank, theirs in enumerate(self._all(told)):
            if theirs is not None:
                self._end(rank, *theirs)

    def _end(self, speaker: int, message: str, code: int) -> None:
        """Exit on every rank, once the speaker has spoken: torchrun ends the others as soon as one of them is gone."""
        try:
            if self.rank == speaker:
                fail(message, code)
            raise SystemExit(code)
        finally:
            self._all(None)

    def by_turns(self, make: Callable[[], T]) -> T:
        """`make()`, on one rank of each machine first: what that puts into the cache the others find there."""
        made: list[T] = []
        for first in (True, False):
            with self.together():
                if first == (self.local_rank == 0):
                    made.append(make())
            if self.size == 1:
                break
        return made[0]

    def from_first(self, make: Callable[[], T]) -> T:
        """`make()`, called on rank 0 alone, for all. Files are read and written so."""
        if self.size == 1:
            return make()
        import torch.distributed as dist

        made: list[Any] = [None]
        with self.together():
            if self.rank == 0:
                made[0] = make()
        with _alive():
            dist.broadcast_object_list(made, src=0)
        return made[0]

    # ------------------------------------------------------------ adding up

    def add_gradients(self, vectors: "Mapping[str, torch.nn.Parameter]") -> None:
        """Every parameter's gradient becomes the sum over ranks, the same bits on each; no gradient counts as zeros."""
        if self.size == 1:
            return
        import torch
        import torch.distributed as dist

        flat = torch.cat([torch.zeros_like(p) if p.grad is None else p.grad for p in vectors.values()])
        with _alive():
            dist.all_reduce(flat)
        for p, grad in zip(vectors.values(), flat.split([p.numel() for p in vectors.values()]), strict=True):
            p.grad = grad.clone()

    def add(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Each number summed over ranks, in the order of ranks."""
        everyone = self._all(dict(numbers))
        return {name: sum(theirs[name] for theirs in everyone) for name in numbers}

    def slowest(self, timing: Mapping[str, float]) -> dict[str, float]:
        """The longest time of any rank, in seconds, part by part."""
        everyone = self._all(dict(timing))
        return {part: max(theirs[part] for theirs in everyone) for part in timing}

    def gather(self, rows: Sequence[T]) -> list[T]:
        """Everybody's rows on every rank, in the order that one process would have them in."""
        return [row for theirs in self._all(list(rows)) for row in theirs]

    def place(self, rows: int) -> tuple[int, int]:
        """(rows of all ranks together, where this rank's `rows` begin among them)."""
        counts = self._all(rows)
        return sum(counts), sum(counts[: self.rank])

    # ------------------------------------------------------------ staying equal

    def check_equal(self, step: int, vectors: "Mapping[str, torch.Tensor]") -> None:
        """Ends every rank, with code 1, when the parameters are not the same bits on all: they no longer train one model."""
        if self.size == 1:
            return
        import torch

        flat = torch.cat([p.detach() for p in vectors.values()]).cpu().contiguous()
        sums = self._all(zlib.crc32(flat.view(torch.uint8).numpy().tobytes()))
        if len(set(sums)) > 1:
            shown = ", ".join(f"rank {rank} {crc:08x}" for rank, crc in enumerate(sums))
            why = f"step {step}: the ranks' parameters differ after the update (CRC-32: {shown}); this step is not written"
            self._end(0, f"{why}, the run is good up to its last checkpoint", EXIT_FAILED)

    def check_same(self, facts: Callable[[], Mapping[str, Any]]) -> None:
        """BadInput on every rank when one was started with other facts (arguments, files) than rank 0. A world of one does
        not ask for them."""
        if self.size == 1:
            return
        first, *others = self._all(dict(facts()))
        for rank, theirs in enumerate(others, 1):
            for name, value in first.items():
                if theirs[name] != value:
                    raise BadInput(
                        f"rank {rank} has {name}={theirs[name]!r:.80}, rank 0 {value!r:.80}: start every machine with the "
                        "same arguments, files and versions"
                    )

    def _all(self, value: T) -> list[T]:
        """Everybody's value, in the order of ranks."""
        if self.size == 1:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * self.size
        with _alive():
            dist.all_gather_object(values, value)
        return values


ALONE = World()


def cores() -> int:
    """Cores of this machine; 1 where that is not known."""
    return os.cpu_count() or 1


@contextmanager
def _alive() -> Generator[None]:
    """BrokenWorld when the others are not heard of any more."""
    try:
        yield
    except RuntimeError as e:
        raise BrokenWorld(
            f"another process is gone, or silent for {TIMEOUT.total_seconds():.0f} s; torchrun says which one. Complete "
            f"steps are on disk, continue with --resume ({str(e).splitlines()[0]:.120})"
        ) from e


def here() -> World:
    """This process as torchrun started it; a world of one where it did not."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    if any(name not in os.environ for name in names):
        return ALONE
    return World(*(int(os.environ[name]) for name in names))


@contextmanager
def joined() -> Generator[World]:
    """The world of this process, with the connections to the others open inside."""
    world = here()
    if world.size == 1:
        yield world
        return
    import torch
    import torch.distributed as dist

    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=TIMEOUT)
    yield world
    dist.destroy_process_group()  # not after a failure: it would wait for those that are gone
