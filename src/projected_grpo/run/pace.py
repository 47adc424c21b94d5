"""Why is this step so slow? Says what the machine is doing when a step takes three times its usual time.

pace = Pace();  told = pace.look(step, kind, seconds)      '' while nothing is odd
"""

import os
import statistics
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import psutil

from projected_grpo.parallel import cores

SLOW = 3.0
"""Times the median."""
KNOWN = 5
"""Steps of a kind before anything is called its usual time."""
WINDOW = 20
LOOKED = 0.5
"""Seconds for which other processes are watched, once a step has been slow."""
SHOWN = 3
"""Other processes that are named."""
BUSY = 0.05
"""Of a core: what a process must have to be named."""


@dataclass
class Pace:
    """What the steps of a run usually take, by kind: one with per-sample gradients takes longer than one without."""

    taken: dict[str, deque[float]] = field(default_factory=dict)
    clock: float = field(default_factory=time.perf_counter)
    used: float = field(default_factory=time.process_time)
    """When the last step ended, and the processor time that this process had had by then."""

    def look(self, step: int, kind: str, seconds: float) -> str:
        """Remember a step. Returns a sentence when it took SLOW times the median of the last WINDOW of its kind, of which at
        least KNOWN are known, else nothing."""
        usual = self.taken.setdefault(kind, deque(maxlen=WINDOW))
        median = statistics.median(usual) if len(usual) >= KNOWN else None
        own = (time.process_time() - self.used) / max(time.perf_counter() - self.clock, 1e-9)
        told = ""
        if median is not None and seconds >= SLOW * median:
            told = (
                f"step {step} took {seconds:.1f} s, {seconds / median:.1f} times the median of the last {len(usual)} "
                f"({median:.1f} s): this process had {own:.2f} of {cores()} cores; {_machine()}"
            )
        usual.append(seconds)
        self.clock, self.used = time.perf_counter(), time.process_time()
        return told


def _machine() -> str:
    """What the machine is doing now."""
    before, swapped = _others(), _swapped()
    time.sleep(LOOKED)
    share = [((used - before.get(pid, (name, used))[1]) / LOOKED, name) for pid, (name, used) in _others().items()]
    named = ", ".join(f"{name} {s:.2f}" for s, name in sorted(share, reverse=True)[:SHOWN] if s > BUSY) or "none"
    free, moved = psutil.virtual_memory().available / 2**30, (_swapped() - swapped) / 2**20
    return (
        f"load {os.getloadavg()[0]:.1f}; busiest others: {named}; {free:.1f} GiB of memory free"
        + (f", {moved:.0f} MiB swapped in {LOOKED:g} s" if moved else "")
    )  # fmt: skip


def _others() -> Mapping[int, tuple[str, float]]:
    """Name and processor seconds so far of every other process."""
    found = psutil.process_iter(["name", "cpu_times"])
    times = {p.pid: (p.info["name"] or "?", p.info["cpu_times"]) for p in found if p.pid != os.getpid()}
    return {pid: (name, t.user + t.system) for pid, (name, t) in times.items() if t}


def _swapped() -> int:
    swap = psutil.swap_memory()
    return swap.sin + swap.sout
