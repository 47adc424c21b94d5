"""What one program does is not seen by another one: not by the next of its worker, not by one beside it.

Each channel is two pieces of code. `write` leaves a mark or not; `read` looks, and answers what it sees. Whether the mark
was left must make no difference to the answer. The clock is open in principle: docs/grader.md.
"""

import contextlib
import json
import platform
import threading
import time
from pathlib import Path

import pytest

from loophole_grader import GraderError, Limits
from loophole_grader.sandbox import seccomp
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
    "times of a library": ("tried(os.utime, LIBRARY, (1, 1))", "os.stat(LIBRARY).st_mtime"),
    "write hint of an inode": (
        "tried(fcntl.fcntl, os.open(LIBRARY, 0), 1036, struct.pack('q', 3))",
        "tried(fcntl.fcntl, os.open(LIBRARY, 0), 1035, bytes(8))",
    ),
    "flags of standard input": ("fcntl.fcntl(0, fcntl.F_SETFL, os.O_NONBLOCK)", "fcntl.fcntl(0, fcntl.F_GETFL)"),
    "page cache, asked": ("call(221, os.open(LIBRARY, 0), 0, 0, 4)", "call(27, 0, 4096, ctypes.create_string_buffer(9))"),
    "page cache, put out": ("tried(mapped(LIBRARY).madvise, 21)", "faults(LIBRARY)"),
    "imported modules": (
        "import colorsys; colorsys.mark = 1; sys.mark = 1", "(hasattr(sys, 'mark'), 'colorsys' in sys.modules)"
    ),
    "shared memory": ("call(29, 77, 4096, 0o1666)", "call(29, 77, 4096, 0o666)"),
    "how the last one ended": ("os._exit(99)", "'cpu_s' in str(FRAMES())"),
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
HELPERS = """
def FRAMES():
    frame, found = sys._getframe(), []
    while frame:
        found.append(sorted(frame.f_locals)) if frame.f_code.co_filename.endswith('worker.py') else None
        frame = frame.f_back
    return found
"""


@pytest.fixture
def runner():
    made = []

    def make():
        made.append(Worker())
        return made[-1]

    yield make
    for one in made:
        one.close()


def seen(runner, read):
    """What a program answers."""
    source = f"{HEAD}{HELPERS}\ndef look():\n    return repr(tried(lambda: {read}))"
    answers = []
    job = {"mode": "tests", "source": source, "call": "look()"}
    runner.run(job, Limits(cpu_s=10, wall_s=20), lambda _, answer: answers.append(json.loads(answer)))
    return answers[0] if answers else None


def write(runner, code, wall_s=20):
    """Run a program that leaves a mark; a runner that is closed meanwhile ends it."""
    source = f"{HEAD}\ntry:\n    exec({code!r})\nexcept Exception:\n    pass\n"
    job = {"mode": "call", "source": source, "call": "1"}
    with contextlib.suppress(GraderError):
        runner.run(job, Limits(cpu_s=10, wall_s=wall_s))


@pytest.mark.parametrize("name", AFTER)
def test_the_next_program_sees_nothing_of_the_last(runner, name):
    mark, look = AFTER[name]
    one = runner()
    clean = [seen(one, look)]
    write(one, mark)
    clean.append(seen(one, look))
    assert clean[0] is not None
    assert len(set(clean)) == 1, clean


@pytest.mark.parametrize("name", BESIDE)
def test_a_program_beside_sees_nothing(runner, name):
    mark, look = BESIDE[name]
    one, two = runner(), runner()
    before = seen(two, look)
    indented = mark.replace("\n", "\n    ")
    code = f"try:\n    {indented}\nexcept Exception: pass\ntime.sleep(3)"
    holds = threading.Thread(target=write, args=(one, code, 4))
    holds.start()
    time.sleep(1.0)
    assert holds.is_alive()
    assert before is not None
    assert seen(two, look) == before
    one.close()
    holds.join()


# ---- the filter


ARCH = seccomp.ARCHES["x86_64"][1]
CODE = seccomp.instructions(0, ARCH, None)


def test_every_call_that_passes_is_documented():
    """Numbers 0 to 600, as a program could make them, beside the list in docs/grader.md."""
    named = {numbers[0]: name for group in seccomp.ALLOWED.values() for name, numbers in group.items()}
    named |= {numbers[0]: name for name, (numbers, _) in seccomp.CHECKED.items()}
    text = (Path(__file__).parents[1] / "docs/grader.md").read_text("utf-8")
    assert seccomp.table() in text
    for number in range(600):
        says = seccomp.decision(CODE, number, ARCH)
        if number in named:
            assert f"`{named[number]}`" in text
        else:
            assert says in (seccomp.ERRNO | 1, seccomp.ERRNO | 38), number


@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of x86_64")
def test_the_filter_decides_as_the_kernel_does(runner):
    """What `decision` says of a call is what the call then meets."""
    for number, args in [(72, (0, 6)), (72, (0, 1036)), (9, (0, 4096, 1, 0x21)), (22, (0,)), (319, (0, 0)), (99, (0,))]:
        says = seccomp.decision(CODE, number, ARCH, args)
        met = seen(runner(), f"call({number}, {', '.join(map(str, args))})")
        expected = {seccomp.ERRNO: "0", seccomp.ERRNO | 1: "-1", seccomp.ERRNO | 38: "-38"}[says]
        assert met == repr(expected) or met == expected, (number, args)
