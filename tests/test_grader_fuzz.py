"""Random system calls of one program, whatever the filter lets through, leave nothing that another program sees.

The writer makes calls drawn from the list of those that pass, with arguments that mean something (descriptors, paths, sizes,
flags, addresses of buffers). The reader looks at everything that a program can look at without waiting. What it sees must be
what it sees when nothing ran before, or beside.
"""

import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loophole_grader.sandbox import seccomp
from loophole_grader.sandbox.pool import Limits, Runner

pytestmark = pytest.mark.slow
QUIET = ("exit", "exit_group", "rt_sigreturn", "restart_syscall", "vfork", "pause", "rt_sigsuspend")
"""They only end or hold up the process that makes them."""
NUMBERS = sorted(
    {n[0] for group in seccomp.ALLOWED.values() for name, n in group.items() if name not in QUIET}
    | {n[0] for n, _ in seccomp.CHECKED.values()}
)
ARGUMENTS = st.one_of(
    st.sampled_from([0, 1, 2, 3, 4, 5, 9, -1, -100, 77, 512, 4096, 1 << 20, 0x21, 0x22, 0o600, 0o100, 0o2000000]),
    st.sampled_from(["BUFFER", "LIBRARY", "NAME", "FOLDER", "NULL"]),
    st.integers(0, 1 << 32),
)
CALLS = st.lists(
    st.tuples(st.sampled_from(NUMBERS), st.lists(ARGUMENTS, min_size=0, max_size=6)), min_size=4, max_size=16
)

HEAD = """
import ctypes, fcntl, gc, os, resource, signal, socket, struct, sys, tempfile, threading, time
libc = ctypes.CDLL(None, use_errno=True)
KEPT = {"BUFFER": ctypes.create_string_buffer(1 << 16), "LIBRARY": ctypes.create_string_buffer(os.__file__.encode()),
        "NAME": ctypes.create_string_buffer(b"mark"), "FOLDER": ctypes.create_string_buffer(b"."),
        "NULL": ctypes.create_string_buffer(b"/dev/null")}
FD = [os.open(os.__file__, 0), os.open(".", 0), os.open("/dev/null", 2)]
def tried(function):
    try:
        return function()
    except BaseException as error:
        return type(error).__name__
"""
WRITER = """
def make(number, args):
    libc.syscall(ctypes.c_long(number), *[ctypes.c_void_p(ctypes.addressof(KEPT[a]) if a in KEPT else a & (1 << 64) - 1)
                                          for a in args])
for number, args in CALLS:
    if not (p := os.fork()):
        signal.setitimer(signal.ITIMER_REAL, .02)
        make(number, args)
        os._exit(0)
    tried(lambda: os.waitpid(p, 0))
for number, args in CALLS:
    if number not in WAITS:
        make(number, args)
time.sleep(HOLD)
"""
READER = """
def stat(path):
    s = os.stat(path)
    return s.st_mode, s.st_ino, s.st_nlink, s.st_uid, s.st_size, s.st_mtime_ns, s.st_atime_ns, s.st_ctime_ns
def settled(fd):
    # What a program has said itself may still be on its way to the runner; what another left behind stays where it is.
    for _ in range(200):
        found = tried(lambda: struct.unpack('i', fcntl.ioctl(fd, 0x541B, bytes(4))))
        if found == (0,) or not isinstance(found, tuple):
            break
        time.sleep(.005)
    return found
def look():
    lock = struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0)
    return repr({
        "listing": tried(lambda: os.listdir(".")), "above": tried(lambda: os.listdir("..")),
        "library": tried(lambda: stat(os.__file__)),
        "devices": [tried(lambda: stat("/dev/" + d)[:5]) for d in ("null", "zero")],
        "folder": tried(lambda: stat(os.path.dirname(os.__file__))),
        "locks": [tried(lambda: fcntl.fcntl(fd, 5, lock)) for fd in FD],
        "flocks": [tried(lambda: fcntl.flock(fd, 6)) for fd in FD],
        "flags": [tried(lambda: fcntl.fcntl(fd, 3)) for fd in range(5)],
        "places": [tried(lambda: os.lseek(fd, 0, 1)) for fd in range(5)],
        "limits": [resource.getrlimit(n) for n in range(16)], "nice": os.nice(0), "mask": os.umask(0o77),
        "who": (os.getpid(), os.getppid(), os.getsid(0), os.getpgrp(), os.getuid(), os.getcwd()),
        "fork": tried(lambda: os.fork() or os._exit(0)),
        "thread": (lambda t: (t.start(), t.join(), t.native_id))(threading.Thread(target=int))[2],
        "inode": os.stat(tempfile.mkstemp()[1]).st_ino, "signals": (signal.sigpending(), signal.pthread_sigmask(0, [])),
        "timer": signal.getitimer(signal.ITIMER_REAL), "cores": len(os.sched_getaffinity(0)), "node": os.uname().nodename,
        "environ": dict(os.environ), "fds": [tried(lambda: os.fstat(fd).st_mode) for fd in range(16)],
        "queued": [settled(fd) for fd in range(5)],
        "children": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss > 0,
    })
"""
ONLY_IN_A_CHILD = [
    "read",
    "readv",
    "pread64",
    "preadv",
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "epoll_wait",
    "epoll_pwait",
    "wait4",
    "waitid",
    "futex",
    "rt_sigtimedwait",
    "nanosleep",
    "clock_nanosleep",
    "recvfrom",
    "fork",
    "close",
    "close_range",
    "dup2",
    "dup3",
    "munmap",
    "mremap",
    "mprotect",
    "brk",
    "set_tid_address",
    "arch_prctl",
    "sigaltstack",
    "rt_sigprocmask",
    "setrlimit",
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "rseq",
    "set_robust_list",
    "alarm",
    "setitimer",
    "copy_file_range",
    "sendfile",
    "mmap",
    "clone",
    "kill",
    "tkill",
    "tgkill",
    "rt_sigqueueinfo",
    "rt_tgsigqueueinfo",
    "rt_sigaction",
    "prlimit64",
    "madvise",
    "prctl",
]
"""They would hold up or break the writer itself."""
PLACES = {name: n[0] for group in seccomp.ALLOWED.values() for name, n in group.items()}
PLACES |= {name: n[0] for name, (n, _) in seccomp.CHECKED.items()}
WAITS = [PLACES[name] for name in ONLY_IN_A_CHILD]
LIMITS = Limits(cpu_s=5, wall_s=8)


def written(runner: Runner, calls: list, hold: float = 0.0) -> None:
    source = f"{HEAD}\nCALLS = {calls!r}\nWAITS = {WAITS!r}\nHOLD = {hold}\n{WRITER}"
    runner.run({"mode": "call", "source": source, "call": "1"}, LIMITS)


def seen(runner: Runner) -> str:
    answers: list[bytes] = []
    runner.run({"mode": "tests", "source": HEAD + READER, "call": "look()"}, LIMITS, lambda _, a: answers.append(a))
    return answers[0].decode() if answers else "nothing"


@pytest.fixture(scope="module")
def two():
    runners = Runner(), Runner()
    yield runners
    for runner in runners:
        runner.close()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(calls=CALLS)
def test_no_calls_are_seen_by_the_next_program(two, calls):
    before = seen(two[0])
    assert before != "nothing"
    written(two[0], calls)
    assert seen(two[0]) == before


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(calls=CALLS)
def test_no_calls_are_seen_beside(two, calls):
    before = seen(two[1])
    thread = threading.Thread(target=written, args=(two[0], calls, 1.5))
    thread.start()
    time.sleep(0.8)
    found = seen(two[1])
    thread.join()
    assert found == before


def test_the_reader_sees_a_mark_where_there_is_one(two, monkeypatch):
    """It is not blind: the same look, after a change that is its own."""
    before = seen(two[0])
    monkeypatch.setattr(__import__("sys").modules[__name__], "HEAD", HEAD + "\nopen('mark', 'w').close()\nos.nice(1)\n")
    assert seen(two[0]) != before
