"""Every stage of a run for real, on a model of random weights: what the device holds then, to be put beside what was
predicted of it.

A GPU's memory is what torch's allocator has in use. A CPU's is the process's resident memory (VmHWM), from which malloc has
to give back what is freed: no counter of ours has a say in either.
"""

import ctypes
import gc
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate

from projected_grpo.adapters.base import Adapter
from projected_grpo.adapters.lora import attach_lora
from projected_grpo.adapters.noise import noise_adapter
from projected_grpo.fits.cards import GIB
from projected_grpo.fits.estimate import Basis, Job, Stage
from projected_grpo.fits.fake import endless
from projected_grpo.fits.settings import FitsConfig
from projected_grpo.fits.stages import Subject, moments
from projected_grpo.ledger.console import progress
from projected_grpo.ledger.errors import BadInput
from projected_grpo.model.load import enable_checkpointing, of_shape

TOLERANCE = 0.1
"""By how much a stage's rise may differ from what was predicted."""
SLACK = {"cpu": 2**23, "cuda": 2**26}
"""Bytes that do not count: Python's own objects and what malloc has not given back; workspaces of cuBLAS, 32 MiB for each
stream, which are in RESERVE."""
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_MMAP_THRESHOLD, _TRIM_THRESHOLD, _SMALL = -3, -1, 65536
"""glibc's names of what mallopt sets (malloc.h), and bytes from which on memory is given back when it is freed."""


class Memory:
    """What this process holds on a device, and the most that it has held."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            return
        if platform.libc_ver()[0] != "glibc" or not CLEAR.exists():
            raise BadInput("--measure: a CPU's memory is read from /proc, under glibc; use --device cuda, or Linux")
        self.libc = ctypes.CDLL(None)
        for what in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            self.libc.mallopt(what, _SMALL)

    def start(self) -> int:
        """Bytes that are held now; the most is counted from here on."""
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)
            return torch.cuda.memory_allocated(self.device)
        self.libc.malloc_trim(0)  # what is free between blocks that are not
        CLEAR.write_text("5")  # VmHWM begins anew (proc_pid_clear_refs(5))
        return _resident("VmRSS")

    def peak(self) -> int:
        """The most bytes that were held since `start`."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return _resident("VmHWM")


def _resident(name: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])


@dataclass(frozen=True)
class Measured:
    """A stage, and the rise of memory in it: the most that was held, less what was there before, in bytes."""

    stage: Stage
    rise: int
    slack: int

    @property
    def predicted(self) -> int:
        return self.stage.peak - self.stage.base

    @property
    def ratio(self) -> float:
        """Measured / predicted."""
        return self.rise / self.predicted

    @property
    def compared(self) -> str:
        """The ratio, or that the two are so near to one another that there is none."""
        if self.close and abs(self.ratio - 1) > TOLERANCE:
            return f"< {self.slack >> 20} MiB apart"
        return f"{self.ratio:.2f}"

    @property
    def close(self) -> bool:
        return abs(self.rise - self.predicted) <= max(TOLERANCE * self.predicted, self.slack)


def random_subject(shape: Any, config: FitsConfig, device: torch.device) -> Subject:
    """A model of random weights and an adapter off its start, on the device; nothing ends its completions."""
    torch.manual_seed(config.seed)
    with device:
        model = of_shape(shape, config.dtype, card=device.type == "cuda")
    adapter = random_lora(model, config) if config.adapter == "lora" else noise_adapter(model)
    if config.gradient_checkpointing:
        enable_checkpointing(model)
    return Subject(endless(model, "random"), adapter, card=device.type == "cuda")


def random_lora(model: Any, config: FitsConfig) -> Adapter:
    """A LoRA whose B is not zero."""
    adapter = attach_lora(model, config.lora_rank, config.seed)
    with torch.no_grad():
        for theta in adapter.vectors.values():
            theta.normal_(std=0.01)
    return adapter


def random_basis(adapter: Adapter, k: int) -> Basis:
    """A V of k orthonormal rows a module (at most as many as it has coordinates), on the model's device."""
    return {
        name: torch.linalg.qr(torch.randn(p.numel(), min(k, p.numel()), device=p.device)).Q.T.contiguous()
        for name, p in adapter.vectors.items()
    }


def measure(
    config: FitsConfig, shape: Any, jobs: Sequence[Job], stages: Sequence[Stage], device: torch.device
) -> list[Measured]:
    """Every job twice on the device, the second time measured: the first one loads libraries and starts threads. `stages`:
    what was predicted of each. BadInput where the device's memory cannot be read, or is too small."""
    memory = Memory(device)
    subject = random_subject(shape, config, device)
    basis, _kept = random_basis(subject.adapter, config.k), moments(subject.adapter)
    return [
        Measured(stage, rise_of(job, subject, basis, memory), SLACK[device.type])
        for job, stage in progress(list(zip(jobs, stages, strict=True)), "stages, for real")
    ]


def rise_of(job: Job, subject: Subject, basis: Basis, memory: Memory) -> int:
    """Bytes that a job takes above what is held before it."""
    try:
        job.real(subject, basis)
        before = memory.start()
        job.real(subject, basis)
    except torch.OutOfMemoryError as e:
        raise BadInput(
            f"--measure: {job.name} ({job.batch}) does not fit this device; try a smaller {job.setting}"
        ) from e
    return memory.peak() - before


def told(measured: Sequence[Measured]) -> str:
    """A row per stage."""
    rows = [
        [m.stage.name, m.stage.batch, f"{m.predicted / GIB:.4g}", f"{m.rise / GIB:.4g}", m.compared] for m in measured
    ]
    header = ["stage", "largest batch, tokens", "predicted rise, GiB", "measured", "measured / predicted"]
    return tabulate(rows, header, tablefmt="simple", colalign=("left", "left", *["right"] * 3), disable_numparse=True)
