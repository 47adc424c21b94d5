"""Several processes train one model, each on its share of a step's prompts (docs/queue.md).

    torchrun --nproc-per-node N scripts/train.py ...

Every process (rank) holds the whole model, takes the prompts that `share` gives it, and has its gradient added to
those of the others. Parameters stay equal bit for bit (`check_equal`). Rows, random numbers and the loss's
denominators are those of one process. A single rank does nothing and imports no torch."""

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from projected_grpo.ledger import errors

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
TIMEOUT = timedelta(minutes=30)
"""How long a rank waits for the others before it gives up the run: longer than any part of a step, or the first
SVD."""


@dataclass(frozen=True)
class Ranks:
    """The processes that train together, seen from one of them. Methods are called by every rank, in the same
    order."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Its number on this machine."""
    local_size: int = 1

    def share(self, items: Sequence[T]) -> list[T]:
        """This rank's items: neighbours, one more for the first ranks where the number does not divide, maybe
        none."""
        least, more = divmod(len(items), self.size)
        start = self.rank * least + min(self.rank, more)
        return list(items[start : start + least + (self.rank < more)])

    def device(self, asked: str) -> str:
        """This rank's device: the CPU, or the GPU of its number."""
        if self.size == 1:
            return asked
        import torch

        if asked == "cpu" or (asked == "auto" and not torch.cuda.is_available()):
            return "cpu"
        torch.cuda.set_device(self.local_rank)
        return f"cuda:{self.local_rank}"

    @contextmanager
    def raise_together(self) -> Generator[None]:
        """An error of these on one rank ends all: the first such rank prints it, all exit with its code."""
        if self.size == 1:
            yield
            return
        refusal = None
        try:
            yield
        except (errors.BadInput, errors.NonFinite, errors.JudgeFailed, errors.Unfinished) as e:
            refusal = (str(e), errors.EXIT_BAD_INPUT if isinstance(e, errors.BadInput) else errors.EXIT_FAILED)
        except SystemExit as e:  # --help, or what tyro has refused and printed
            refusal = ("", int(e.code or 0))
        for speaker, theirs in enumerate(self._all(refusal)):
            if theirs is not None:
                try:
                    if self.rank == speaker and theirs[0]:
                        errors.fail(*theirs)
                    raise SystemExit(theirs[1])
                finally:
                    self._all(None)  # torchrun ends all as soon as one is gone: not before the speaker has spoken

    def in_rank_order(self, make: Callable[[], T]) -> T:
        """`make()`, on one rank of each machine first: what that puts into the cache the others find there."""
        made: list[T] = []
        for first in (True, False):
            with self.raise_together():
                if first == (self.local_rank == 0):
                    made.append(make())
        return made[0]

    def on_rank0(self, make: Callable[[], T]) -> T:
        """`make()`, called on rank 0 alone, for all. Files are read and written so."""
        made: Any = None
        with self.raise_together():
            if self.rank == 0:
                made = make()
        return self._all(made)[0]

    def add_gradients(self, vectors: "Mapping[str, torch.nn.Parameter]") -> None:
        """Every parameter's gradient becomes the sum over ranks, the same bits on each; no gradient counts as
        zeros."""
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

    def gather(self, rows: Sequence[T]) -> list[T]:
        """Everybody's rows on every rank, in the order that one process would have them in."""
        return [row for theirs in self._all(list(rows)) for row in theirs]

    def span(self, rows: int) -> tuple[int, int]:
        """(rows of all ranks together, where this rank's `rows` begin among them)."""
        counts = self._all(rows)
        return sum(counts), sum(counts[: self.rank])

    def check_equal(self, step: int, checksum: Callable[[], int]) -> None:
        """Ends every rank, with code 1, when the parameters are not the same bits on all: they no longer train one
        model."""
        with self.raise_together():
            if self.size > 1 and len(set(self._all(checksum()))) > 1:
                why = f"step {step}: the ranks' parameters differ after the update; this step is not written"
                raise errors.Unfinished(f"{why}, the run is good up to its last checkpoint")

    def _all(self, value: T) -> list[T]:
        """Everybody's value, in the order of ranks."""
        if self.size == 1:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * self.size
        with _alive():
            dist.all_gather_object(values, value)
        return values


ALONE = Ranks()


@contextmanager
def _alive() -> Generator[None]:
    """BrokenWorld when the others are not heard of any more."""
    try:
        yield
    except RuntimeError as e:
        raise errors.BrokenWorld(
            f"another process is gone, or silent for {TIMEOUT.total_seconds():.0f} s; torchrun says which one. Complete "
            f"steps are on disk, continue with --resume ({e})"
        ) from e


def here() -> Ranks:
    """This process as torchrun started it; a single rank where it did not."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    return Ranks(*(int(os.environ[name]) for name in names)) if os.environ.keys() >= set(names) else ALONE


@contextmanager
def joined() -> Generator[Ranks]:
    """The ranks of this process, with the connections to the others open inside."""
    ranks = here()
    if ranks.size == 1:
        yield ranks
        return
    import torch
    import torch.distributed as dist

    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=TIMEOUT)
    yield ranks
    dist.destroy_process_group()  # not after a failure: it would wait for those that are gone
