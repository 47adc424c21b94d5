"""Programs that hold more memory than they may: the whole way, through `grade_batch`."""

import os
import threading
import time
from pathlib import Path

import pytest

from loophole_grader import Limits, Task, grade_batch

TASK = Task("one", ("assert Solution().f(0) == 1",), "", "Solution().f")


def fenced(code):
    return f"```python\n{code}\n```"


SHARED = """
import ctypes, os, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for _ in range(3):
    if os.fork() == 0:
        for _ in range(200):
            try:
                MAKE
            except OSError:
                pass
        time.sleep(1000)
time.sleep(2)
"""
WAYS = [
    # memory files
    "fd = os.memfd_create('x'); os.posix_fallocate(fd, 0, 1 << 20); libc.mmap(None, 1 << 20, 1, 1, fd, 0)",
    # shared pages that are let go
    "p = libc.mmap(None, 1 << 20, 3, 0x21, -1, 0)\n"
    "                if p and p < 1 << 63: ctypes.memset(p, 1, 1 << 20); libc.madvise(ctypes.c_void_p(p), 1 << 20, 4)",
    "libc.shmget(0, 1 << 20, 0o1600)",
    "r, w = os.pipe(); os.set_blocking(w, False); os.write(w, bytes(1 << 20))",
]


@pytest.mark.slow
def test_memory_that_no_resident_set_counts_is_not_to_be_had():
    def shared():
        fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return int(fields["Shmem"].split()[0]) >> 10

    before, most = shared(), 0
    rows = [fenced(SHARED.replace("MAKE", way)) for way in WAYS]
    limits = Limits(cpu_s=5, wall_s=10)
    thread = threading.Thread(
        target=grade_batch, args=([TASK] * len(rows), rows), kwargs={"limits": limits, "workers": len(rows)}
    )
    thread.start()
    while thread.is_alive():
        most = max(most, shared() - before)
        time.sleep(0.02)
    assert most < 100, f"{most} MiB beside a limit of 1024 for what is seen"


WRITES_OVER_WHAT_IT_INHERITED = """
import gc, ctypes, os, time
gc.unfreeze()
for _ in range(30):
    if os.fork() == 0:
        for one in gc.get_objects():
            count = ctypes.c_char.from_address(id(one) + 8)
            count.value = count.value
        keep = bytearray(3 << 20)
        time.sleep(60)
time.sleep(3)
"""


HOLDS_IT_AFTER_ITS_FIRST_THREAD_ENDED = """
import ctypes, os, threading, time
def grow():
    kept = [b"x" * (50 << 20) for _ in range(4)]
    time.sleep(60)
for _ in range(3):
    if os.fork() == 0:
        threading.Thread(target=grow).start()
        ctypes.CDLL(None).syscall(EXIT, 0)
time.sleep(20)
""".replace("EXIT", {"x86_64": "60", "aarch64": "93"}.get(os.uname().machine, "60"))


@pytest.mark.slow
@pytest.mark.parametrize("program", [WRITES_OVER_WHAT_IT_INHERITED, HOLDS_IT_AFTER_ITS_FIRST_THREAD_ENDED])
def test_memory_counts_for_every_process(program):
    """Pages that were inherited and written on; and those of a process whose first thread has ended."""
    limits = Limits(memory_mb=256, cpu_s=8, wall_s=20)
    [verdict] = grade_batch([TASK], [fenced(program)], limits=limits)
    assert verdict.status == "memory"
