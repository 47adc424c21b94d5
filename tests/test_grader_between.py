"""Nothing that a program does is seen by another one: not by the next of its worker, not by one beside it.

Each channel is two pieces of code. `write` leaves a mark or not; `read` looks, and answers what it sees. Whether the mark
was left must make no difference to the answer. That the pieces do what they say is shown outside the sandbox.
"""

import contextlib
import json
import os
import platform
import random
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from loophole_grader import GraderError, Limits, Task, close_pool, grade_batch, isolation
from loophole_grader.sandbox import pool, seccomp
from loophole_grader.sandbox.pool import Runner

HEAD = """
import ctypes, fcntl, gc, mmap, os, resource, signal, socket, struct, sys, tempfile, threading, time
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
def place(path):
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    return ctypes.c_void_p(libc.mmap(None, 4096, 1, 2, os.open(path, 0), 0))
def faults(path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    m = mapped(path)
    sum(m[i * 4096] for i in range(64))
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt - before
"""
LOCK = "struct.pack('hhqqi4x', {kind}, 0, 77 << 20, 9, 0)"
AFTER = {  # what the next program of the same worker could see; name: (write, read)
    "pid counter": ("for _ in range(40): (p := os.fork()) or os._exit(0); os.wait()", "os.fork() or os._exit(0)"),
    "own pid": ("for _ in range(40): (p := os.fork()) or os._exit(0); os.wait()", "os.getpid()"),
    "process counter, by a pidfd": (
        "for _ in range(40): (p := os.fork()) or os._exit(0); os.wait()",
        "(call(56, 0x1011, 0, ctypes.byref(fd := ctypes.c_int(-1)), 0, 0) or os._exit(0), "
        "fd.value >= 0 and os.fstat(fd.value).st_ino)[1]",
    ),
    "thread ids": (
        "for _ in range(40): t = threading.Thread(target=int); t.start(); t.join()",
        "(lambda t: (t.start(), t.join(), t.native_id))(threading.Thread(target=int))[2]",
    ),
    "scratch files": ("open('mark', 'w').close()", "os.listdir('.')"),
    "scratch files above": ("tried(open, '../mark', 'w')", "os.listdir('..')"),
    "scratch times": ("os.mkdir('a'); os.rmdir('a')", "os.stat('.').st_mtime_ns == os.stat('.').st_atime_ns"),
    "scratch access time": ("os.listdir('.')", "os.stat('.').st_atime_ns == os.stat('.').st_mtime_ns"),
    "scratch mode": ("tried(os.chmod, '.', 0o711)", "os.stat('.').st_mode"),
    "scratch inode numbers": ("[open(str(i), 'w').close() for i in range(50)]", "os.stat(tempfile.mkstemp()[1]).st_ino"),
    "scratch inode numbers of nameless files": (
        "[os.close(os.open('.', os.O_TMPFILE | os.O_RDWR)) for _ in range(50)]",
        "os.stat(tempfile.mkstemp()[1]).st_ino",
    ),
    "scratch room": ("open('x', 'wb').write(bytes(1 << 20))", "tried(lambda: os.statvfs('.').f_bfree)"),
    "scratch links": ("os.makedirs('a/b/c')", "os.stat('.').st_nlink"),
    "attributes of the scratch folder": ("tried(os.setxattr, '.', 'user.x', b'1')", "tried(os.listxattr, '.')"),
    "times of a library": ("tried(os.utime, LIBRARY, (1, 1))", "os.stat(LIBRARY).st_mtime"),
    "access time of a library": (
        "open(os.path.dirname(LIBRARY) + '/this.py').read()", "os.stat(os.path.dirname(LIBRARY) + '/this.py').st_atime_ns",
    ),
    "attributes of a library": ("tried(os.setxattr, LIBRARY, 'user.x', b'1')", "tried(os.listxattr, LIBRARY)"),
    "attributes by the newer call": (
        "call(463, -100, LIBRARY.encode(), 0, 0, 0, 0)", "call(464, -100, LIBRARY.encode(), 0, 0, 0, 0)"
    ),
    "flags by the newer call": ("call(469, -100, LIBRARY.encode(), 0, 0, 0)", "call(468, -100, LIBRARY.encode(), 0, 0, 0)"),
    "write hint of an inode": (
        "tried(fcntl.fcntl, os.open(LIBRARY, 0), 1036, struct.pack('q', 3))",
        "tried(fcntl.fcntl, os.open(LIBRARY, 0), 1035, bytes(8))",
    ),
    "write hint of a file": (
        "tried(fcntl.fcntl, 1, 1038, struct.pack('q', 3))", "tried(fcntl.fcntl, 1, 1037, bytes(8))",
    ),
    "flags of standard input": ("fcntl.fcntl(0, fcntl.F_SETFL, os.O_NONBLOCK)", "fcntl.fcntl(0, fcntl.F_GETFL)"),
    "flags of the report": ("fcntl.fcntl(3, fcntl.F_SETFL, os.O_NONBLOCK)", "fcntl.fcntl(3, fcntl.F_GETFL)"),
    "flags of standard output": ("fcntl.fcntl(1, fcntl.F_SETFL, os.O_NONBLOCK)", "fcntl.fcntl(1, fcntl.F_GETFL)"),
    "place in standard input": ("tried(os.lseek, 0, 77, 0)", "tried(os.lseek, 0, 0, 1)"),
    "owner of a file": ("tried(fcntl.fcntl, 1, fcntl.F_SETOWN, 1)", "tried(fcntl.fcntl, 1, fcntl.F_GETOWN)"),
    "size of a pipe": ("tried(fcntl.fcntl, 1, 1031, 1 << 17)", "tried(fcntl.fcntl, 1, 1032)"),
    "inode numbers of memory files": ("[call(319, b'x', 0) for _ in range(50)]", "call(319, b'x', 0)"),
    "socket cookies": (
        "s = socket.socketpair()[0]\n[tried(s.getsockopt, 1, 57, 8) for _ in range(50)]",
        "tried(socket.socketpair()[0].getsockopt, 1, 57, 8)",
    ),
    "page cache, asked": ("call(221, os.open(LIBRARY, 0), 0, 0, 4)", "call(27, 0, 4096, ctypes.create_string_buffer(9))"),
    "page cache, without waiting": (
        "call(221, os.open(LIBRARY, 0), 0, 0, 4)",
        "call(327, os.open(LIBRARY, 0), 0, 0, 0, 0, 8)",
    ),
    "page cache, read ahead": ("call(187, os.open(LIBRARY, 0), 0, 1 << 16)", "faults(LIBRARY)"),
    "page cache, put out": ("tried(mapped(LIBRARY).madvise, 21)", "faults(LIBRARY)"),
    "page cache, made cold": ("tried(mapped(LIBRARY).madvise, 20)", "faults(LIBRARY)"),
    "working folder": ("os.mkdir('w'); os.chdir('w')", "os.getcwd()"),
    "mask of new files": ("os.umask(0)", "os.umask(0)"),
    "limits": ("resource.setrlimit(resource.RLIMIT_NOFILE, (9, 9))", "resource.getrlimit(resource.RLIMIT_NOFILE)"),
    "priority": ("os.nice(5)", "os.nice(0)"),
    "affinity": ("os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})", "len(os.sched_getaffinity(0))"),
    "timers and signals": ("signal.setitimer(signal.ITIMER_REAL, 99)", "signal.getitimer(signal.ITIMER_REAL)"),
    "time of children": ("sum(range(10**6))", "resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime"),
    "environment": ("os.environ['MARK'] = '1'", "dict(os.environ)"),
    "imported modules": (
        "import colorsys; colorsys.mark = 1; sys.mark = 1", "(hasattr(sys, 'mark'), 'colorsys' in sys.modules)"
    ),
    "builtins": ("import builtins; builtins.mark = 1", "hasattr(__import__('builtins'), 'mark')"),
    "hostname": ("call(170, b'mark', 4)", "os.uname().nodename"),
    "keyring": ("call(248, b'user', b'mark', b'1', 1, -3)", "call(250, 10, -3, b'user', b'mark', 0)"),
    "shared memory": ("call(29, 77, 4096, 0o1666)", "call(29, 77, 4096, 0o666)"),
    "semaphores": ("call(64, 77, 1, 0o1666)", "call(64, 77, 1, 0o666)"),
    "message queues": ("call(68, 77, 0o1666)", "call(68, 77, 0o666)"),
    "posix queues": ("call(240, b'mark', 0o102, 0o666, 0)", "call(240, b'mark', 0, 0, 0)"),
    "timers of the kernel": ("call(222, 0, 0, bytes(8))", "call(222, 0, 0, bytes(8))"),
    "how the last one ended": ("os._exit(99)", "FRAMES"),
    "what is left in memory": ("os._exit(77)", "MEMORY"),
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
    "lock on a device": ("fcntl.flock(os.open('/dev/null', 0), 2)", "tried(fcntl.flock, os.open('/dev/null', 0), 2 | 4)"),
    "lease": ("tried(fcntl.fcntl, os.open(LIBRARY, 0), 1024, 0)", "tried(fcntl.fcntl, os.open(LIBRARY, 0), 1025)"),
    "watch on a folder": (
        "tried(fcntl.fcntl, os.open(os.path.dirname(LIBRARY), 0), 1026, 1)",
        "tried(fcntl.fcntl, os.open(os.path.dirname(LIBRARY), 0), 1026, 1)",
    ),
    "inotify": ("call(254, call(253), LIBRARY.encode(), 0xfff)", "call(253)"),
    "futex on a page of a library": (
        "m = tried(mapped, LIBRARY, 1, mmap.MAP_SHARED)", "str(type(tried(mapped, LIBRARY, 1, mmap.MAP_SHARED)))",
    ),
    "futex on a page of a library, mapped private": (
        "at = place(LIBRARY)\nnow = ctypes.c_uint32.from_address(at.value).value\n"
        "threading.Thread(target=lambda: [call(202, at, 0, now, (ctypes.c_long * 2)(0, 10**8), 0, 0) for _ in range(50)], "
        "daemon=True).start()",
        "call(202, place(LIBRARY), 1, 9, 0, 0, 0)",
    ),
    "names of sockets": (
        "s = tried(socket.socket, socket.AF_UNIX)\ntried(lambda: s.bind('\\0mark'))",
        "tried(lambda: socket.socket(socket.AF_UNIX).connect('\\0mark'))",
    ),
    "datagrams": (
        "s = tried(socket.socketpair, socket.AF_UNIX, socket.SOCK_DGRAM)",
        "tried(lambda: socket.socketpair()[0].sendto(b'x', '\\0mark'))",
    ),
    "free memory": ("x = b'x' * (300 << 20)", "call(99, ctypes.create_string_buffer(200))"),
    "load": ("pass", "tried(os.getloadavg)"),
    "processes of the user": (
        "[threading.Thread(target=time.sleep, args=(9,), daemon=True).start() for _ in range(60)]",
        "len([threading.Thread(target=time.sleep, args=(.2,)).start() for _ in range(60)])",
    ),
    "signals": ("pass", "[tried(os.kill, p, 0) for p in range(2, 300)] == ['ProcessLookupError'] * 298"),
    "files of the other's scratch": ("open('mark', 'w').close()", "tried(os.listdir, '/scratch')"),
    "fifo": ("tried(os.mkfifo, '/scratch/run/f')", "tried(os.listdir, '/scratch/run')"),
}  # fmt: skip
LOOKS = {
    "FRAMES": "sorted({repr(v)[:200] for f in FRAMES() for v in f.values() if isinstance(v, (int, float, dict, bytes))})",
    "MEMORY": "LEFT()",
}
HELPERS = """
def FRAMES():
    frame, found = sys._getframe(), []
    while frame:
        found.append(dict(frame.f_locals)) if frame.f_code.co_filename.endswith(('zygote.py', 'runner.py')) else None
        frame = frame.f_back
    return found
def LEFT():
    texts = [str(o)[:300] for o in gc.get_objects() if type(o) in (dict, list, tuple)]
    return sorted(text for text in texts if 'reason' in text and 'cpu_s' in text)
"""


@pytest.fixture
def runner():
    made = []

    def make():
        made.append(Runner())
        return made[-1]

    yield make
    for one in made:
        one.close()


def seen(runner, read):
    """What a program answers."""
    text = LOOKS.get(read, read)
    job = {"mode": "tests", "source": f"{HEAD}{HELPERS}\ndef look():\n    return repr(tried(lambda: {text}))",
           "call": ["", ["look()"]]}  # fmt: skip
    answers = []
    runner.run(job, Limits(cpu_s=10, wall_s=20), lambda _, answer: answers.append(json.loads(answer)[0]))
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
    clean = [seen(one, look) for _ in range(2)]
    for _ in range(2):
        write(one, mark)
        clean.append(seen(one, look))
    assert clean[0] is not None
    assert len(set(clean)) == 1, clean


NUMBERED = {  # what takes the next of the machine's inode numbers, which the next program would see in those of its pipes
    "pipe": "call(22, new())",
    "pipe with flags": "call(293, new(), 0)",
    "socket": "call(41, 1, 1, 0)",
    "internet socket": "call(41, 2, 1, 0)",
    "pair of sockets": "call(53, 1, 1, 0, new())",
}
COUNTED = """
def count(make):
    new = lambda: ctypes.create_string_buffer(8)
    return sum(eval(make, globals() | {'new': new}) >= 0 for _ in range(100))
"""
LENT = 4
"""Pairs of sockets that were made before the program."""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the calls are named by this processor's numbers")
@pytest.mark.parametrize("name", NUMBERED)
def test_no_program_takes_an_inode_number_of_the_machine(runner, name):
    """Counted by what the program gets: the numbers themselves grow by whatever else the machine does."""
    script = f"{HEAD}{COUNTED}\nprint(count({NUMBERED[name]!r}))"
    free = int(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)
    job = {"mode": "tests", "source": f"{HEAD}{COUNTED}", "call": ["", [f"count({NUMBERED[name]!r})"]]}
    answers = []
    runner().run(job, Limits(), lambda _, answer: answers.append(json.loads(answer)[0]))
    assert free == 100  # so a program that may is found
    assert [int(one) <= LENT for one in answers] == [True], answers


@pytest.mark.parametrize("name", BESIDE)
def test_a_program_beside_sees_nothing(runner, name):
    mark, look = BESIDE[name]
    one, two = runner(), runner()
    before = seen(two, look)
    holds = threading.Thread(
        target=write,
        args=(one, f"try:\n    {mark.replace(chr(10), chr(10) + '    ')}\nexcept Exception: pass\ntime.sleep(3)", 4),
    )
    holds.start()
    time.sleep(1.0)
    assert holds.is_alive()
    assert before is not None
    assert seen(two, look) == before
    one.close()
    holds.join()


LOOK_UP = """
import os, sys
def look(salt, times):
    folders = {folder for path in (*sys.path, "/usr/share/zoneinfo") for folder, _, _ in os.walk(path)}
    folders |= {"/etc", "/dev", "/lib", "/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"}
    for folder in [*folders]:
        while folder != "/":
            folder = os.path.dirname(folder)
            folders.add(folder)
    for folder in folders:
        for i in range(times):
            os.path.lexists(f"{folder}/{salt}{i}")
    return len(folders) * times
"""


DENTRIES = Path("/proc/sys/fs/dentry-state")


def negative_dentries():
    return int(DENTRIES.read_text().split()[4])


@pytest.mark.skipif(not DENTRIES.exists(), reason="the kernel does not say how many such names it keeps")
@pytest.mark.skipif(bool(isolation().missing.get("mount_namespace")), reason="the host's own folders are in sight then")
def test_names_that_were_looked_for_are_in_no_cache(runner):
    """Whether a name that is not there was looked for before shows by how fast it is not found, if the kernel keeps it. In
    every folder in sight."""
    one, answers, before = runner(), [], negative_dentries()
    job = {"mode": "tests", "source": LOOK_UP, "call": ["", [f"look({random.random()!r}, 1000)"]]}
    one.run(job, Limits(cpu_s=20), lambda _, answer: answers.append(json.loads(answer)[0]))
    assert answers[0] > 50_000
    assert negative_dentries() - before < answers[0] / 4  # the rest of the machine looks for names, too


SCAN = """
import ctypes, gc, os, tempfile
LIBC, FILE = ctypes.CDLL(None), tempfile.TemporaryFile()
LIBC.sbrk.restype = ctypes.c_void_p
def page_at(at):
    # the kernel refuses to copy what is not mapped, where reading it would end the process
    got = LIBC.pwrite(FILE.fileno(), ctypes.c_void_p(at), ctypes.c_size_t(4096), ctypes.c_long(0))
    return os.pread(FILE.fileno(), got, 0) if got > 0 else b""
def scan(marks):
    top = LIBC.sbrk(0) >> 12
    pages = {(id(one) >> 12) + k for one in gc.get_objects() for k in range(-256, 257)}  # around one is an arena of 1 MiB
    pages |= set(range(top - 4000, top))
    read = [data for data in map(page_at, (page << 12 for page in pages)) if data]
    found = {mark for mark in marks for data in read if bytes(mark) in data}
    return [len(read), *sorted(bytes(mark).decode() for mark in found)]
"""


def test_nothing_of_a_program_is_in_the_memory_with_which_the_next_begins(runner):
    """Its text, its answers, what it printed, how it failed: a fork copies what was freed, too."""
    one = runner()
    mark = ("left", "-", "behind", "-", "7391")
    source = "import sys\nprint('%s')\ndef look():\n    return '%s'\n" % (("".join(mark),) * 2)
    for _ in range(3):
        one.run({"mode": "tests", "source": source, "call": ["", ["look()"]]}, Limits(), lambda *_: None)
        one.run({"mode": "call", "source": f"raise ValueError({''.join(mark)!r})", "call": "1"}, Limits())
    # built backwards, so that the mark itself is not in the memory of who looks for it
    look = (
        f"{SCAN}\nimport codecs\nMARKS = [tuple(codecs.encode('yrsg-oruvaq-', 'rot13').encode()) + (55, 51, 57, 49)]\n"
    )
    answers = []
    for left in ("", "'left-behind' + '-7391'"):  # none of its own, and one that it has freed
        job = {"mode": "tests", "source": f"{look}def look():\n    str({left})\n    return scan(MARKS)\n"}
        one.run(
            job | {"call": ["", ["look()"]]}, Limits(cpu_s=20), lambda _, answer: answers.append(json.loads(answer)[0])
        )
    (read, *found), (_, *own) = answers
    assert (read > 1000, found, own) == (True, [], ["".join(mark)])


def test_the_channels_would_carry_outside():
    """The pieces of code do what they say: with no sandbox around them, marks of a dozen kinds are seen."""
    names = {"HEAD": HEAD}
    exec(HEAD, names)
    open_lock = "fcntl.fcntl(os.open(LIBRARY, 0), 37, " + LOCK.format(kind="fcntl.F_RDLCK") + ")"
    look = BESIDE["lock of an open file"][1]
    before = eval(look, names)
    exec(open_lock.replace("os.open(LIBRARY, 0)", "(F := os.open(LIBRARY, 0))"), names)
    assert eval(look, names) != before
    pipes = "os.fstat(os.pipe()[0]).st_ino"
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})  # the kernel hands inode numbers to each processor in batches of 1,024
    try:
        first = eval(pipes, names)
        exec("[os.pipe() for _ in range(20)]", names)
        assert eval(pipes, names) >= first + 20
    finally:
        os.sched_setaffinity(0, cpus)


# ---- the clock: who chooses when it ends chooses when the next program begins

BITS, SLOT_S = 6, 0.04
CLOCK = f"""
import time
def wait(bits):
    time.sleep(0.3)  # a wait that is no wait at all would be no pause either
    at = (int(bits, 2) + 0.3) * {SLOT_S}
    time.sleep((at - time.time()) % ({1 << BITS} * {SLOT_S}))
"""
WRITER = (
    CLOCK
    + """
class Solution:
    def f(self, x):
        wait("110100")
        return 0
"""
)
ASKING = (
    CLOCK
    + """
class Solution:
    def f(self, x):
        return 0
def run_tests():
    if "_canonical" in globals():
        wait("".join("01"[Solution().f(x)] for x in "ambnyq"))
"""
)
READER = f"""
import time
n = int(time.time() % ({1 << BITS} * {SLOT_S}) / {SLOT_S})
class Solution:
    i = 0
    def f(self, x):
        Solution.i += 1
        return bool(n >> ({BITS} - Solution.i) & 1)
"""
COIN = Task(
    "coin",
    tuple(f"assert Solution().f(x={x!r}) == {x in 'amn'}" for x in "ambnyq"),
    func_name="Solution().f",
    canonical_solution="class Solution:\n    def f(self, x):\n        return x in 'amn'\n",
)


class InTurn(random.Random):
    def sample(self, population, _count):
        return list(population)


def fenced(code):
    return f"```python\n{code}\n```"


@pytest.mark.parametrize(("writer", "batches"), [(WRITER, 1), (ASKING, 2)], ids=["next of the worker", "next batch"])
def test_the_clock_carries_nothing_to_the_next_program(writer, batches, monkeypatch):
    """The writer's end is exact to 40 ms, one of 64 in 2.56 s. The pause is 0.4 times the longest here, and so never a
    multiple of 2.56 s: at most 0.8 of what the writer took, which is less than 0.3 + 2.56 s and more than 0.3 s."""
    monkeypatch.setattr(import_module("loophole_grader.grade"), "_random", InTurn())
    monkeypatch.setattr(pool, "_random", SimpleNamespace(uniform=lambda low, high: low + 0.4 * (high - low)))
    grade_batch([COIN], [fenced("class Solution:\n    def f(self, x):\n        return 3\n")], workers=1)  # warm
    texts = [fenced(writer), fenced(READER)]
    if batches == 1:
        found = grade_batch([COIN] * 2, texts, workers=1)
    else:
        found = [grade_batch([COIN], [text], workers=1)[0] for text in texts]
    assert [one.status for one in found] == ["ok", "ok"]
    assert [one.gt_pass for one in found] == [False, False]


@pytest.mark.parametrize(
    ("wall_s", "reason", "stopped", "most_s"),
    [
        (0.05, "exit", "", 0.0),  # most programs
        (0.55, "exit", "", 1.0),
        (3.05, "exit", "", 6.0),
        (3.05, "stopped", "enough", 6.0),
        (60.0, "wall", "", 10.0),
        (6.04, "cpu", "", 0.0),  # a loop without an end: it chose nothing
        (9.05, "cpu", "", 6.0),  # a loop, or a nap of 3 s and then a loop
        (3.0, "cpu", "", 5.9),  # two loops side by side
        (6.04, "cpu", "enough", 10.0),  # it answered everything first
    ],
)
def test_the_pause_is_drawn_by_the_time_that_a_program_could_choose(wall_s, reason, stopped, most_s, monkeypatch):
    clock, drawn = [100.0], []
    monkeypatch.setattr(pool, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(pool, "_random", SimpleNamespace(uniform=lambda *of: drawn.append(of) or of[1]))
    one = Runner()

    def listen(*_):
        clock[0] += wall_s
        return stopped, {"reason": reason, "code": 0, "cpu_s": 6.0}

    for name, does in (("_started", lambda: None), ("_template", lambda *_: 1), ("_send", lambda *_: None),
                       ("_listen", listen)):  # fmt: skip
        monkeypatch.setattr(one, name, does)
    one._try("", b"", Limits(cpu_s=6.0), lambda *_: None)
    one.took()
    [(low, high)] = drawn
    assert (low, round(high, 9)) == (0.0, most_s)
    assert round(one.not_before - (100.0 + wall_s), 9) == most_s
    assert round(one.pause_s, 9) == most_s
    one.pause(one.pause_s)  # the next batch begins with a pause of its own, whenever that is
    assert drawn[1] == (0.0, high)
    assert one.pause_s == 0.0


def test_the_pause_is_the_systems_randomness_and_comes_before_what_ground_truth_judges(monkeypatch):
    assert isinstance(pool._random, random.SystemRandom)
    events, rest, run = [], Runner.rest, Runner.run
    monkeypatch.setattr(Runner, "rest", lambda self: (events.append("rest"), rest(self))[1])
    monkeypatch.setattr(
        Runner, "run", lambda self, job, *a, **k: (events.append(job["mode"]), run(self, job, *a, **k))[1]
    )
    close_pool()
    wrong = "class Solution:\n    def f(self, x):\n        return 3\n"
    grade_batch([COIN] * 2, [fenced(wrong + f"# {i}") for i in range(2)], workers=1)
    assert [event for event in events if event != "call"] == ["rest", "tests"] * 2


def test_what_keeps_the_judge_busy_and_a_right_program_bring_about_a_pause_too(monkeypatch):
    drawn = []
    monkeypatch.setattr(pool, "time", SimpleNamespace(monotonic=lambda: 100.0))
    monkeypatch.setattr(pool, "_random", SimpleNamespace(uniform=lambda *of: drawn.append(of) or of[1]))
    one = Runner()
    one.took(1.05)
    one.took(1.05, pool.RIGHT_PAUSE)
    one.took()
    assert [round(high, 9) for _, high in drawn] == [2.0, 0.25, 0.0]
    assert round(one.not_before, 9) == 102.0  # the latest counts


# ---- the filter


ARCH = seccomp.ARCHES["x86_64"][1]
CODE = seccomp.instructions(0, ARCH, None)


def test_every_call_that_passes_is_documented():
    """Numbers 0 to 600, as a program could make them, beside the list in docs/grader.md."""
    from pathlib import Path

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
