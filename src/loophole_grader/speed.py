"""How fast this machine is, so that a CPU limit means the same work on each.

A limit is given in seconds of the reference machine. A fixed loop of the interpreter's everyday work is timed here,
and the limit grows by as much as it takes longer. It never shrinks: a program that is fast enough there is so on a
faster machine."""

import functools
import statistics
import time

REFERENCE_S = 0.0150
"""CPU seconds of the loop on the reference machine: one on which the slowest of the 80 canonical solutions takes 3
s."""
REPEATS = 5
VALID_S = 120.0
"""How long a measurement holds: what else a machine does slows each of its CPU seconds, too."""


def _work() -> int:
    """Integers, lists, a dict, strings, calls and a sort: what solutions spend their time with."""
    seen: dict[int, list[str]] = {}
    total = 0
    for i in range(12_000):
        total = (total * 31 + i) % 1_000_003
        seen.setdefault(total & 1023, []).append(str(i))
        if not i % 100:
            total += len(sorted(seen, key=lambda key: -key))
    return total


def slowness() -> float:
    """How many times as long as the reference machine this one takes, at least 1: the median of a few repeats, in CPU
    time of this thread, measured again every two minutes."""
    return _measured(time.monotonic() // VALID_S)


@functools.lru_cache(maxsize=1)
def _measured(_period: float) -> float:
    took = []
    for _ in range(REPEATS):
        begun = time.thread_time()
        _work()
        took.append(time.thread_time() - begun)
    return max(1.0, statistics.median(took) / REFERENCE_S)
