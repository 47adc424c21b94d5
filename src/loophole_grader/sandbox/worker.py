"""The worker: executes setup code, forks a child for each program, watches it. Run as a script by pool.py.

    launcher    starts the worker, and removes its folder afterwards
      worker    init of a pid namespace; enters the layers, executes the setup code, forks and watches one program at a time
        child   one program, init of a new pid namespace

Nothing of a program is read into the worker's memory, of which the next program gets a copy: the child takes the job from
the shared pipe, and what it sends goes from pipe to pipe inside the kernel. The worker counts the bytes.

stdin:   HEADER, then `size` bytes: LOAD (setup code) once, RUN (a job). STOP (a HEADER alone) ends the program that is
         running, and is passed over when nothing runs.
stdout:  FRAME, then the payload: READY (JSON: the layers, and how the setup code failed) for the LOAD; for every RUN DATA
         (bytes from the child) and one END (JSON)
"""

# File descriptors and system calls throughout, on plain strings, so no pathlib:
# ruff: noqa: PTH100, PTH120

import _socket
import array
import contextlib
import fcntl
import functools
import gc
import json
import os
import random
import resource
import select
import signal
import socket
import struct
import sys
import termios
import time
import types

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# This file runs by itself, not as part of the package.
from child import FUTURES, REPORT, Job, brief, read_exact, write_all  # ty: ignore[import-not-found]
from family import Family, Proc  # ty: ignore[import-not-found]
from isolation import PR_SET_PDEATHSIG, Isolation, fork, prctl  # ty: ignore[import-not-found]

sys.path.pop(0)
_folder = os.path.dirname(os.path.abspath(__file__))
for _name, _module in list(sys.modules.items()):
    if _name != "__main__" and os.path.dirname(getattr(_module, "__file__", None) or "") == _folder:
        del sys.modules[_name]  # a program that imports one of these everyday names finds nothing

HEADER = struct.Struct("<cQddQ")  # op, size, cpu_s, wall_s, memory
FRAME = struct.Struct("<cI")
LOAD, RUN = b"L", b"R"
READY, DATA, END = b"Y", b"D", b"E"
OUTPUT_BYTES = 64 << 20  # printed to stdout and stderr together; drained and thrown away
FILE_BYTES = 1 << 20  # size of any file that a program writes
PROCESSES = 81  # 80 processes and threads of a program, and one that runs it with other solutions
RESULT_BYTES = 64 << 20  # what one program may send as answers
POLL_S = 0.05  # how often a busy program's CPU clock and memory are looked at
OPEN_FILES = 64
STACK_BYTES = 120 << 20  # deep recursion of honest programs; the kernel keeps a gap of 128 MiB below the stack
STACKS_BYTES = 1536 << 20  # address space beyond the memory limit: stacks of threads, which are hardly ever touched
BEGIN, LENT = 4, (5, 6)  # descriptors: closed when the program may begin; a pair of sockets
OWN_TASKS = 10  # launcher and worker, which may share the program's user
KERNEL = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
PR_SET_CHILD_SUBREAPER = 36


def send_frame(frames: int, kind: bytes, payload: bytes) -> None:
    write_all(frames, FRAME.pack(kind, len(payload)) + payload)


def move(source: int, target: int, size: int) -> None:
    """So many bytes from one pipe into another one (or /dev/null) without reading them into this process."""
    while size:
        moved = os.splice(source, target, size)
        if not moved:  # the parent is gone
            return
        size -= moved


class Worker:
    """The process that executes a setup code and from which programs are forked."""

    def __init__(self, isolation: Isolation) -> None:
        self.jobs, self.frames, self.isolation = os.dup(0), os.dup(1), isolation
        self.null = os.open(os.devnull, os.O_RDWR)
        os.dup2(self.null, 0)
        os.dup2(self.null, 1)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent that ignores it hands that on
        os.environ.clear()
        os.umask(0o022)  # programs pass through the folders of the new root
        isolation.enter()
        os.umask(0o077)
        prctl(PR_SET_CHILD_SUBREAPER, 1)  # what leaves its session becomes our child, and is found
        self.flags = 0  # of the compiler: __future__ imports of the setup code hold for the program, too
        self.module = types.ModuleType("solution")  # not "__main__": a main block does not run, as in the benchmark
        self.module.__file__ = "program.py"

    def serve(self) -> None:
        """Execute the setup code, then run programs until stdin ends."""
        while len(head := read_exact(self.jobs, HEADER.size)) == HEADER.size:
            op, size, *limits = HEADER.unpack(head)
            if op == LOAD:
                self.load(read_exact(self.jobs, size).decode("utf-8", "surrogatepass"))
            elif op == RUN:
                self.run(size, limits)

    def load(self, setup: str) -> None:
        """Execute the setup code (trusted text), and report."""
        # doctest and unittest look into "__main__" for tests, and on the command line for which of them.
        sys.modules["solution"] = sys.modules["__main__"] = self.module
        sys.argv = ["program.py"]
        failed = ""
        try:
            code = compile(setup, "<setup>", "exec")
            self.flags = code.co_flags & FUTURES
            exec(code, self.module.__dict__)
        except BaseException as error:  # noqa: BLE001  whatever it raises, sys.exit too, is reported as the problem's fault
            failed = brief(error)
        self.others = dict(self.module.__dict__)
        random.seed(0)  # a verdict is the same in every run
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 50, 50)
        self.proc = Proc(self.isolation.proc)
        report = {"active": self.isolation.active, "missing": self.isolation.missing, "failed": failed}
        send_frame(self.frames, READY, json.dumps(report).encode())

    def run(self, size: int, limits: list) -> None:
        """Start, watch, end and clean up one program. What it leaves in this function is gone with it."""
        cpu_s, _, memory = limits
        rlimits = resource_limits(int(1.5 * cpu_s) + 2, memory, self.isolation)
        self.isolation.renew_scratch()
        data, printed, begin = os.pipe(), os.pipe(), os.pipe()
        if self.isolation.home is not None:
            self.isolation.next_pid_namespace()
        if (pid := fork()) == 0:
            try:
                self.child(size, rlimits, data[1], printed[1], begin[0])
            finally:
                os._exit(1)
        for fd in (data[1], printed[1], begin[0]):
            os.close(fd)
        family = Family(pid, self.proc, self.isolation.home is not None)
        watch = Watch(family, limits, self, (data[0], printed[0], begin[1]))
        try:
            reason = watch.until_end()
            code, cpu_s = family.end()
            watch.drain()
        finally:
            watch.close()
        if not watch.started:
            raise SystemExit("the child ended before its program could begin")
        if reason == "exit" and cpu_s > watch.cpu_s:
            reason = "cpu"  # between two looks at the clock
        end = {"reason": watch.over or reason, "code": code, "cpu_s": cpu_s}
        send_frame(self.frames, END, json.dumps(end).encode())

    def child(self, size: int, rlimits: list, data: int, printed: int, begin: int) -> None:
        """Take the job, give up every privilege that the job does not need, run it. Never returns."""
        try:
            os.setsid()
            body = read_exact(self.jobs, size).decode()
            null = os.open(os.devnull, os.O_RDONLY)  # opened here: flags of a shared one would stay
            for source, target in ((null, 0), (printed, 1), (printed, 2), (data, REPORT), (begin, BEGIN)):
                os.dup2(source, target)
            os.chdir(self.isolation.scratch)
            write_all(REPORT, b"start []\n")
            for which, values in rlimits:
                resource.setrlimit(which, values)
            one, other = _socket.socketpair()
            for step in self.isolation.steps:
                step()
            os.dup2(one.detach(), LENT[0])
            os.dup2(other.detach(), LENT[1])
            os.closerange(LENT[1] + 1, 1 << 20)
            vars(socket)["socketpair"] = lend_pair
            job = Job(body, self.module.__dict__, self.others, self.flags)
        except Exception as error:  # noqa: BLE001  the sandbox failed, not the program, which has not started
            write_all(REPORT, b"broken " + json.dumps([brief(error)]).encode() + b"\n")
            os._exit(0)
        del body, rlimits, values, step, one, other, null, source, target, data, printed, begin, self
        # The parent knows now that a program runs: if this process ends its worker, nobody takes that for a failure
        # of the grader.
        read_exact(BEGIN, 1)
        os.close(BEGIN)
        job.run()
        os._exit(0)


_lent: list[socket.socket] = []


def lend_pair(
    family: int = socket.AF_UNIX, kind: int = socket.SOCK_STREAM, proto: int = 0
) -> tuple[socket.socket, ...]:
    """In place of socket.socketpair, in the child. An event loop needs a pair and gives it back; a program may make none, so
    this one was made before it. Raises PermissionError for another kind, and while it is in use."""
    if (family, kind, proto) != (socket.AF_UNIX, socket.SOCK_STREAM, 0) or any(end.fileno() >= 0 for end in _lent):
        raise PermissionError("one pair of stream sockets is there at a time")
    _lent[:] = [socket.socket(family, kind, proto, os.dup(fd)) for fd in LENT]
    return tuple(_lent)


@functools.cache
def resource_limits(cpu_s: int, memory: int, isolation: Isolation) -> list[tuple[int, tuple[int, int]]]:
    """What setrlimit is called with in a child."""
    wanted = {
        resource.RLIMIT_CPU: cpu_s,  # the hard end, in ticks of a rough clock; the worker looks at the exact limit itself
        resource.RLIMIT_AS: memory + STACKS_BYTES,  # the worker looks at what is really in memory
        resource.RLIMIT_FSIZE: FILE_BYTES,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_CORE: 0,
    }
    if isolation.uid is not None:
        wanted[resource.RLIMIT_NPROC] = PROCESSES
    elif "user_namespace" in isolation.active and KERNEL >= (5, 14):  # older ones count the user's tasks on the host
        wanted[resource.RLIMIT_NPROC] = PROCESSES + OWN_TASKS
    found = {which: (most := within_hard(which, value), most) for which, value in wanted.items()}
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]  # which the program may ask for
    return [(resource.RLIMIT_STACK, (within_hard(resource.RLIMIT_STACK, STACK_BYTES), hard)), *found.items()]


def within_hard(which: int, value: int) -> int:
    hard = resource.getrlimit(which)[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


# ---------------------------------------------------------------- watching it


class Watch:
    """One running child: its pipes, its clocks and its limits."""

    def __init__(self, family: Family, limits: list, worker: Worker, pipes: tuple[int, int, int]) -> None:
        self.cpu_s, wall_s, self.memory = limits
        self.jobs, self.frames, self.null, self.family = worker.jobs, worker.frames, worker.null, family
        self.data, self.printed, self.begin = pipes
        self.deadline = time.monotonic() + wall_s
        self.next_look = time.monotonic() + POLL_S
        self.output_left, self.result_left = OUTPUT_BYTES, RESULT_BYTES
        self.started = False
        self.over = ""  # "output" once a byte limit is passed
        self.poll = select.poll()
        for fd in (self.data, self.printed, self.family.ended):
            self.poll.register(fd, select.POLLIN)

    def close(self) -> None:
        for fd in (self.data, self.printed, self.begin, self.family.ended):
            os.close(fd)

    def until_end(self) -> str:
        """Relay until the child exits ("exit") or must be ended: "stopped", or the limit that it passed."""
        while True:
            gone = False
            for fd, _ in self.poll.poll(1000 * POLL_S):
                if fd == self.jobs:  # STOP, or the parent is gone
                    read_exact(self.jobs, HEADER.size)
                    return "stopped"
                if fd == self.family.ended:
                    gone = True
                else:
                    self.relay(fd)
            if self.over:
                return self.over
            if gone:
                return "exit"
            if reason := self.look():
                return reason

    def look(self) -> str:
        """Look at the clocks, from time to time: which limit is passed, or ""."""
        now = time.monotonic()
        if now < self.next_look:
            return ""
        self.next_look = now + POLL_S
        cpu_s, memory, processes = self.family.usage()
        if cpu_s > self.cpu_s:
            return "cpu"
        if memory > self.memory:
            return "memory"
        if processes > PROCESSES:  # the kernel does not limit the processes of the host's root
            return "processes"
        return "wall" if now > self.deadline else ""

    def relay(self, fd: int) -> bool:
        """Move on what one pipe holds; False when it is empty or closed."""
        size = waiting(fd)
        if not size:
            self.poll.unregister(fd)
            return False
        if fd == self.printed:
            self.output_left -= size
            move(fd, self.null, size)
        else:
            self.result_left -= size
            write_all(self.frames, FRAME.pack(DATA, size))
            move(fd, self.frames, size)
            if not self.started:  # from here on the job is read, and the shared pipe is the worker's again
                self.started = True
                self.poll.register(self.jobs, select.POLLIN)
                with contextlib.suppress(BrokenPipeError):  # no honest child's
                    os.write(self.begin, b".")
        if self.output_left < 0 or self.result_left < 0:
            self.over = "output"
        return not self.over

    def drain(self) -> None:
        """Relay what the dead child had already sent."""
        with contextlib.suppress(KeyError):  # a pipe that was closed before
            while not self.over and self.relay(self.data):
                pass


def waiting(pipe: int) -> int:
    """Bytes that a pipe holds."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a parent that ignores it hands that on
    isolation = Isolation(sys.argv[1], frozenset(filter(None, sys.argv[2].split(","))))
    isolation.prepare()
    if worker := os.fork():
        os.waitpid(worker, 0)
        os.execv("/bin/rm", ["rm", "-rf", isolation.folder])  # not by a fork: the pid namespace has ended
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.suppress(BrokenPipeError):  # the parent is gone
        Worker(isolation).serve()
    if "mount_namespace" not in isolation.active:
        isolation.remove_scratch()
