"""The worker: executes setup code, forks a child for each program, watches it. Run as a script by pool.py.

    launcher      starts the worker, and removes its folder afterwards
      worker      enters the layers; init of a pid namespace
        server    forked for a setup code, which it executes; forks and watches one program at a time
          child   one program, init of a new pid namespace

Nothing of a program is read into the worker's memory, of which the next program gets a copy: the child takes the job
from the shared pipe, and what it sends goes from pipe to pipe inside the kernel. The worker counts the bytes.

stdin:   HEADER, then `size` bytes: LOAD (setup code), FORGET (it), RUN (a job). STOP (a HEADER alone) ends the program that
         is running, and is passed over when nothing runs.
stdout:  FRAME, then the payload: READY (JSON: the layers) once;
         LOADED ("" or what failed) for every LOAD; for every RUN DATA (bytes from the child) and one END (JSON)
"""

# File descriptors and system calls throughout, on plain strings, so no pathlib:
# ruff: noqa: PTH100, PTH120

import _socket
import array
import contextlib
import fcntl
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

HEADER = struct.Struct("<cQddQQQQ")  # op, size, cpu_s, wall_s, memory_mb, output_bytes, processes, file_bytes
FRAME = struct.Struct("<cI")
LOAD, FORGET, RUN = b"L", b"F", b"R"
READY, LOADED, DATA, END = b"Y", b"T", b"D", b"E"
SERVED = 75  # exit code of a server that ends as it should
RESULT_BYTES = 64 << 20  # what one program may send as answers
POLL_S = 0.05  # how often a busy program's CPU clock and memory are looked at
OPEN_FILES = 64
STACK_BYTES = 120 << 20  # deep recursion of honest programs; the kernel keeps a gap of 128 MiB below the stack
STACKS_BYTES = 1536 << 20  # address space beyond the memory limit: stacks of threads, which are hardly ever touched
BEGIN, LENT = 4, (5, 6)  # descriptors: from which a byte comes when the program may begin; a pair of sockets
OWN_TASKS = 10  # worker and server, which may share the program's user
KERNEL = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
SETUP_S = 30.0  # CPU seconds of a setup code
PR_SET_CHILD_SUBREAPER = 36


def serve(isolation: Isolation) -> None:
    """Fork a server for each setup code until stdin ends. Ends the process if a server dies where it must not: the
    parent then starts a new worker."""
    jobs, frames = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.clear()
    os.umask(0o022)  # programs pass through the folders of the new root
    isolation.enter()
    os.umask(0o077)
    send_frame(frames, READY, json.dumps({"active": isolation.active, "missing": isolation.missing}).encode())
    while len(head := read_exact(jobs, HEADER.size)) == HEADER.size:
        op, size, *_ = HEADER.unpack(head)
        if op != LOAD:
            continue
        if (pid := os.fork()) == 0:
            Server(jobs, frames, null, isolation).serve(size)
            os._exit(SERVED)
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != SERVED:
            raise SystemExit("a server ended")


def send_frame(frames: int, kind: bytes, payload: bytes) -> None:
    write_all(frames, FRAME.pack(kind, len(payload)) + payload)


def move(source: int, target: int, size: int) -> None:
    """So many bytes from one pipe into another one (or /dev/null) without reading them into this process."""
    while size and (moved := os.splice(source, target, size)):  # 0: the parent is gone
        size -= moved


class Server:
    """A process that has executed a setup code, from which its programs are forked."""

    def __init__(self, jobs: int, frames: int, null: int, isolation: Isolation) -> None:
        self.jobs, self.frames, self.null, self.isolation = jobs, frames, null, isolation
        self.flags = 0  # of the compiler: __future__ imports of the setup code hold for the program, too
        self.module = types.ModuleType("solution")  # not "__main__": a main block does not run, as in the benchmark
        self.module.__file__ = "program.py"

    def serve(self, size: int) -> None:
        """Execute a setup code of so many bytes, then run programs until it is to be forgotten."""
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        prctl(PR_SET_CHILD_SUBREAPER, 1)  # what leaves its session becomes our child, and is found
        # doctest and unittest look into "__main__" for tests, and on the command line for which of them.
        sys.modules["solution"] = sys.modules["__main__"] = self.module
        sys.argv = ["program.py"]
        failed = self.set_up(read_exact(self.jobs, size).decode("utf-8", "surrogatepass"))
        send_frame(self.frames, LOADED, failed.encode())
        if failed:
            return
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.others = dict(self.module.__dict__)
        random.seed(0)  # a verdict is the same in every run
        gc.collect()
        gc.freeze()
        self.proc = Proc(self.isolation.proc)
        while len(head := read_exact(self.jobs, HEADER.size)) == HEADER.size:
            op, size, *limits = HEADER.unpack(head)
            if op == FORGET:
                return
            if op == RUN:
                self.run(size, limits)

    def set_up(self, setup: str) -> str:
        """Execute the setup code (trusted text); "" or what failed."""
        signal.setitimer(signal.ITIMER_PROF, SETUP_S)  # which ends this process
        try:
            code = compile(setup, "<setup>", "exec")
            self.flags = code.co_flags & FUTURES
            exec(code, self.module.__dict__)
        except BaseException as error:  # noqa: BLE001  whatever it raises, sys.exit too, is reported as the problem's fault
            return brief(error)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        return ""

    def run(self, size: int, limits: list) -> None:
        """Start, watch, end and clean up one program. What it leaves in this function is gone with it."""
        rlimits = resource_limits(limits, self.isolation)
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
            while not watch.over and waiting(watch.data):  # what the dead child had already sent
                watch.relay(watch.data)
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
    """In place of socket.socketpair, in the child. An event loop needs a pair and gives it back; a program may make
    none, so this one was made before it. Raises PermissionError for another kind, and while it is in use."""
    if (family, kind, proto) != (socket.AF_UNIX, socket.SOCK_STREAM, 0) or any(end.fileno() >= 0 for end in _lent):
        raise PermissionError("one pair of stream sockets is there at a time")
    _lent[:] = [socket.socket(family, kind, proto, os.dup(fd)) for fd in LENT]
    return tuple(_lent)


def resource_limits(limits: list, isolation: Isolation) -> list[tuple[int, tuple[int, int]]]:
    """What setrlimit is called with in a child."""
    cpu_s, _, memory_mb, _, processes, file_bytes = limits
    wanted = {
        resource.RLIMIT_STACK: STACK_BYTES,
        resource.RLIMIT_CPU: int(1.5 * cpu_s) + 2,  # coarse; the worker looks at the exact limit
        resource.RLIMIT_AS: (memory_mb << 20) + STACKS_BYTES,  # the worker looks at what is really in memory
        resource.RLIMIT_FSIZE: file_bytes,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_CORE: 0,
    }
    if isolation.uid is not None:
        wanted[resource.RLIMIT_NPROC] = processes
    elif "user_namespace" in isolation.active and KERNEL >= (5, 14):  # older ones count the user's tasks on the host
        wanted[resource.RLIMIT_NPROC] = processes + OWN_TASKS
    found = []
    for which, value in wanted.items():
        hard = resource.getrlimit(which)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # A program may ask for more of the stack.
        found.append((which, (most, hard if which == resource.RLIMIT_STACK else most)))
    return found


class Watch:
    """One running child: its pipes, its clocks and its limits."""

    def __init__(self, family: Family, limits: list, server: Server, pipes: tuple[int, int, int]) -> None:
        self.cpu_s, wall_s, self.memory_mb, self.output_left, self.processes, _ = limits
        self.jobs, self.frames, self.null, self.family = server.jobs, server.frames, server.null, family
        self.data, self.printed, self.begin = pipes
        self.deadline = time.monotonic() + wall_s
        self.next_look = time.monotonic() + POLL_S
        self.result_left = RESULT_BYTES
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
        reason = ""
        while not reason:
            gone = False
            for fd, _ in self.poll.poll(1000 * POLL_S):
                if fd == self.jobs:
                    if not read_exact(self.jobs, HEADER.size):  # no STOP: the parent is gone
                        self.family.end()
                        raise SystemExit(0)
                    return "stopped"
                if fd == self.family.ended:
                    gone = True
                else:
                    self.relay(fd)
            reason = self.over or ("exit" if gone else self.look())
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
        if memory > self.memory_mb << 20:
            return "memory"
        if processes > self.processes:  # the kernel does not limit the processes of the host's root
            return "processes"
        return "wall" if now > self.deadline else ""

    def relay(self, fd: int) -> None:
        """Move on what one pipe holds. One that has no more is not looked at again."""
        size = waiting(fd)
        if not size:
            self.poll.unregister(fd)
        elif fd == self.printed:
            self.output_left -= size
            move(fd, self.null, size)
        else:
            self.result_left -= size
            write_all(self.frames, FRAME.pack(DATA, size))
            move(fd, self.frames, size)
            if not self.started:  # from here on the job is read, and the shared pipe is the worker's again
                self.started = True
                self.poll.register(self.jobs, select.POLLIN)
                with contextlib.suppress(BrokenPipeError):  # it has ended
                    os.write(self.begin, b".")
        if self.output_left < 0 or self.result_left < 0:
            self.over = "output"


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
        serve(isolation)
    if "mount_namespace" not in isolation.active:
        isolation.remove_scratch()
