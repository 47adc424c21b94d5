"""What one program does is not seen by another one: not by the next of its worker, not by one beside it.

Each channel is two pieces of code. `write` leaves a mark or not; `read` looks, and answers what it sees. Whether the
mark was left must make no difference to the answer. The clock is open in principle: docs/grader.md."""

import contextlib
import json
import platform
import threading
import time

import pytest

from loophole_grader import GraderError, Limits
from loophole_grader.sandbox.pool import Worker

HEAD = """
import ctypes, fcntl, mmap, os, resource, signal, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
LIBRARY = os.__file__
def tried(function, *args):
    try:
        return function(*args)
    except BaseException as error:
        return type(error).__name__
def call(number, *args):
    done = libc.syscall(number, *args)
    return done if done >= 0 else -ctypes.get_errno()
def mapped(path, pages=64, flags=mmap.MAP_PRIVATE):
    with open(path, "rb") as f:
        return mmap.mmap(f.fileno(), pages * 4096, flags=flags, prot=mmap.PROT_READ)
def faults(path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    m = mapped(path)
    sum(m[i * 4096] for i in range(64))
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt - before
"""
LOCK = "struct.pack('hhqqi4x', {kind}, 0, 77 << 20, 9, 0)"
AFTER = {  # what the next program of the same worker could see; name: (write, read)
    "own pid": ("for _ in range(40): (p := os.fork()) or os._exit(0); os.wait()", "os.getpid()"),
    "pid counter": ("for _ in range(40): (p := os.fork()) or os._exit(0); os.wait()", "os.fork() or os._exit(0)"),
    "scratch files": ("open('mark', 'w').close()", "os.listdir('.')"),
    "write hint of an inode": (
        "tried(fcntl.fcntl, os.open(LIBRARY, 0), 1036, struct.pack('q', 3))",
        "tried(fcntl.fcntl, os.open(LIBRARY, 0), 1035, bytes(8))",
    ),
    "page cache, asked": ("call(221, os.open(LIBRARY, 0), 0, 0, 4)", "call(27, 0, 4096, ctypes.create_string_buffer(9))"),
    "page cache, put out": ("tried(mapped(LIBRARY).madvise, 21)", "faults(LIBRARY)"),
    "shared memory": ("call(29, 77, 4096, 0o1666)", "call(29, 77, 4096, 0o666)"),
}  # fmt: skip
BESIDE = {  # what a program beside could see; the writer sleeps while it holds
    "posix lock": (
        f"fcntl.fcntl(os.open(LIBRARY, 0), fcntl.F_SETLK, {LOCK.format(kind='fcntl.F_RDLCK')})",
        f"fcntl.fcntl(os.open(LIBRARY, 0), fcntl.F_GETLK, {LOCK.format(kind='fcntl.F_WRLCK')}).hex()",
    ),
    "lock of an open file": (
        f"fcntl.fcntl(os.open(LIBRARY, 0), 37, {LOCK.format(kind='fcntl.F_RDLCK')})",
        f"fcntl.fcntl(os.open(LIBRARY, 0), 36, {LOCK.format(kind='fcntl.F_WRLCK')}).hex()",
    ),
    "flock": ("fcntl.flock(os.open(LIBRARY, 0), 2)", "tried(fcntl.flock, os.open(LIBRARY, 0), 2 | 4)"),
    "lease": ("tried(fcntl.fcntl, os.open(LIBRARY, 0), 1024, 0)", "tried(fcntl.fcntl, os.open(LIBRARY, 0), 1025)"),
}  # fmt: skip


@pytest.fixture
def worker():
    made = []

    def make():
        made.append(Worker())
        return made[-1]

    yield make
    for one in made:
        one.close()


def seen(worker, read):
    """What a program answers."""
    source = f"{HEAD}\ndef look():\n    return repr(tried(lambda: {read}))"
    answers = []
    job = {"blocks": [[source, True]], "evaluator": "run_tests", "calls": ["look()"]}
    worker.run(job, Limits(cpu_s=10, wall_s=20), lambda _, answer: answers.append(json.loads(answer)))
    return answers[0] if answers else None


def write(worker, code, wall_s=20):
    """Run a program that leaves a mark; a worker that is closed meanwhile ends it."""
    source = f"{HEAD}\ntry:\n    exec({code!r})\nexcept Exception:\n    pass\n"
    job = {"blocks": [[source, True]], "call": "1", "variants": [None]}
    with contextlib.suppress(GraderError):
        worker.run(job, Limits(cpu_s=10, wall_s=wall_s))


@pytest.mark.slow
@pytest.mark.parametrize("name", AFTER)
def test_the_next_program_sees_nothing_of_the_last(worker, name):
    mark, look = AFTER[name]
    one = worker()
    clean = [seen(one, look)]
    write(one, mark)
    clean.append(seen(one, look))
    assert clean[0] is not None
    assert len(set(clean)) == 1, clean


@pytest.mark.slow
@pytest.mark.parametrize("name", BESIDE)
def test_a_program_beside_sees_nothing(worker, name):
    mark, look = BESIDE[name]
    one, two = worker(), worker()
    before = seen(two, look)
    holds = threading.Thread(target=write, args=(one, f"{mark}\ntime.sleep(3)", 4))
    holds.start()
    time.sleep(1.0)
    assert holds.is_alive()
    assert before is not None
    assert seen(two, look) == before
    one.close()
    holds.join()


REFUSED = {  # numbers of x86_64: (call, arguments), what it returns
    "lock, reported as taken": ("72, 0, 6, bytes(32)", "0"),
    "hint of an inode": ("72, 0, 1036, bytes(8)", "-1"),
    "shared memory": ("9, 0, 4096, 1, 0x21, -1, 0", "-1"),
    "pipe": ("22, bytes(8)", "-1"),
    "file in memory": ("319, b'x', 0", "-1"),
    "use of the machine": ("99, bytes(200)", "-1"),
    "clone3": ("435, 0, 0", "-38"),
    "unknown": ("599, 0", "-1"),
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of x86_64")
def test_what_the_filter_refuses(worker):
    one = worker()
    assert {name: seen(one, f"call({call})") for name, (call, _) in REFUSED.items()} == {
        name: answer for name, (_, answer) in REFUSED.items()
    }
