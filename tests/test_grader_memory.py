"""Programs that pass answers on to each other, or hold more memory than they may: the whole way, through `grade_batch`."""

import os
import threading
import time
from pathlib import Path

import pytest

from loophole_grader import Limits, Task, grade_batch

YES = tuple(f"assert Solution().f({i}) == {bool(int(bit))}" for i, bit in enumerate("1011010011"))
TASK = Task(
    "yes or no",
    YES,
    "",
    "Solution().f",
    "class Solution:\n    def f(self, i):\n        return i in (0, 2, 3, 5, 8, 9)\n",
)


def fenced(code):
    return f"```python\n{code}\n```"


PUBLISHER = """
class Solution:
    wrong = True
    def f(self, *args, **kwargs):
        return None

def run_tests():
    import fcntl, marshal, os, struct, time
    code = Solution.f.__code__
    if hasattr(Solution, "wrong") or code.co_varnames[:3] == ("self", "args", "kwargs"):
        return
    PUBLISH(marshal.dumps(code))
    time.sleep(4)
"""
BY_LOCKS = """
import fcntl, marshal, os, struct, time, types
FD = os.open(os.__file__, os.O_RDONLY)

def PUBLISH(data):
    def lock(place, value):
        fcntl.fcntl(FD, fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, place << 32, 1 + value, 0))
    for i in range(0, len(data), 3):
        lock(2 + i // 3, int.from_bytes(data[i:i + 3], "little"))
    lock(1, len(data))

def value_at(place):
    asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, place << 32, 1 << 32, 0)
    kind, _, start, length, _ = struct.unpack("hhqqi4x", fcntl.fcntl(FD, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else length - 1

def fetch():
    for _ in range(300):
        if (size := value_at(1)) not in (None, -1, (1 << 32) - 1):
            parts = [value_at(2 + i).to_bytes(3, "little") for i in range((size + 2) // 3)]
            return marshal.loads(b"".join(parts)[:size])
        time.sleep(0.01)
"""
READER = (
    BY_LOCKS
    + """
class Solution:
    found = None
    def f(self, *args, **kwargs):
        Solution.found = Solution.found or types.FunctionType(fetch(), globals())
        return Solution.found(self, *args, **kwargs)
"""
)


@pytest.mark.parametrize("workers", [1, 4])
def test_no_program_reads_the_canonical_solution_from_another(workers):
    """Locks that spell its code, on a file that both see."""
    rows = [BY_LOCKS + PUBLISHER, READER, READER + "\n# again"]
    verdicts = grade_batch([TASK] * 3, [fenced(row) for row in rows], workers=workers, limits=Limits(cpu_s=3, wall_s=8))
    assert [(v.gt_pass, v.tests_passed) for v in verdicts] == [(False, 0)] * 3


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
WAYS = {
    "memory files": "fd = os.memfd_create('x'); os.posix_fallocate(fd, 0, 1 << 20); libc.mmap(None, 1 << 20, 1, 1, fd, 0)",
    "shared pages that are let go": "p = libc.mmap(None, 1 << 20, 3, 0x21, -1, 0)\n"
    "                if p and p < 1 << 63: ctypes.memset(p, 1, 1 << 20); libc.madvise(ctypes.c_void_p(p), 1 << 20, 4)",
    "segments": "libc.shmget(0, 1 << 20, 0o1600)",
    "pipes": "r, w = os.pipe(); os.set_blocking(w, False); os.write(w, bytes(1 << 20))",
}


@pytest.mark.parametrize("way", WAYS)
def test_memory_that_no_resident_set_counts_is_not_to_be_had(way):
    def shared():
        fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return int(fields["Shmem"].split()[0]) >> 10

    before, most = shared(), 0
    row = fenced(SHARED.replace("MAKE", WAYS[way]))
    thread = threading.Thread(target=grade_batch, args=([TASK], [row]), kwargs={"limits": Limits(cpu_s=5, wall_s=10)})
    thread.start()
    while thread.is_alive():
        most = max(most, shared() - before)
        time.sleep(0.02)
    assert most < 100, f"{most} MiB beside a limit of 1024 for what is seen"


@pytest.mark.skipif(os.cpu_count() == 1, reason="needs something beside")
def test_thread_pools_and_large_stacks_work():
    pool = (
        "import threading\nfrom concurrent.futures import ThreadPoolExecutor\nthreading.stack_size(1 << 30)\n"
        "t = threading.Thread(target=int)\nt.start()\nt.join()\nthreading.stack_size(0)\n"
        "with ThreadPoolExecutor(64) as e:\n    assert sum(e.map(int, range(640))) == 204480\n"
        "import resource\nresource.setrlimit(resource.RLIMIT_STACK, (2**29, -1))\n"
    )
    [verdict] = grade_batch([TASK], [fenced(pool + TASK.canonical_solution)])
    assert verdict.gt_pass


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
class Solution:
    def f(self, i): return i in (0, 2, 3, 5, 8, 9)
"""


def test_pages_that_were_inherited_and_written_on_count_for_every_process():
    limits = Limits(memory_mb=256, cpu_s=8, wall_s=20)
    [verdict] = grade_batch([TASK], [fenced(WRITES_OVER_WHAT_IT_INHERITED)], limits=limits)
    assert verdict.status == "memory"
