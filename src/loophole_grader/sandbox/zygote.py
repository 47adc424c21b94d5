"""Where programs are forked: processes into whose memory nothing of any program ever comes.

    runner      watches: what a program uses, what it answers, how it ends (runner.py)
      nursery   forked before any program; init of the runner's pid namespace
        zygote  one per setup code, which it has executed
          child one program, init of a pid namespace of its own

A program begins with a copy of its zygote's memory and can read all of it (ctypes). So a zygote takes in nothing of a
program but how it ended: limits, pipes and the job itself are read by the child.
"""

# File descriptors and system calls throughout, on plain strings, so no pathlib:

import contextlib
import gc
import json
import os
import random
import resource
import signal
import socket
import struct
import sys
import types

from child import CALLS, REPORT, Job, brief, future_prefix, read_exact, write_all  # ty: ignore[import-not-found]
from isolation import NAMESPACES, PR_SET_PDEATHSIG, Isolation, libc, tasks_of_user, unshare  # ty: ignore[import-not-found]

HEADER = struct.Struct("<cIQddQQQQ")  # op, zygote, size, cpu_s, wall_s, memory, output_bytes, processes, file_bytes
FRAME = struct.Struct("<cI")
LOADED = b"T"
GO, BORN, NONE_LEFT = b"g", b"b", b"n"
ENDED = struct.Struct("<iid")  # process id, exit code (negative: the signal), CPU seconds with those of its children
OPEN_FILES = 64
STACK_BYTES = 120 << 20  # deep recursion of honest programs; the kernel keeps a gap of 128 MiB below the stack
LENT_PAIRS = 4
STACKS_BYTES = 1536 << 20  # address space beyond the memory limit: stacks of threads, which are hardly ever touched
SETUP_S = 30.0  # CPU seconds of a setup code
OWN_TASKS = 40  # runner, nursery and zygotes, which share the program's user where it has none of its own
PR_SET_CHILD_SUBREAPER = 36


def send_frame(frames: int, kind: bytes, payload: bytes) -> None:
    write_all(frames, FRAME.pack(kind, len(payload)) + payload)


def receive(control: int, size: int, fds: int) -> tuple[bytes, list[int]]:
    """A message with file descriptors; empty when the other end is closed."""
    end = socket.socket(fileno=control)
    try:
        message, found, _, _ = socket.recv_fds(end, size, fds)
        return message, found
    finally:
        end.detach()


# ---------------------------------------------------------------- nursery


def start_nursery(jobs: int, frames: int, isolation: Isolation) -> socket.socket:
    """Fork it; the socket through which it is sent setup codes."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if isolation.pid_namespace:
        unshare(NAMESPACES["pid_namespace"])  # begins with the next fork
    if os.fork():
        its.close()
        return ours
    try:
        ours.close()
        nursery(its.detach(), jobs, frames, isolation)
    finally:
        os._exit(70)


def nursery(control: int, jobs: int, frames: int, isolation: Isolation) -> None:
    """Fork a zygote for each message: its HEADER, and its end of a socket to the runner."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # a zygote that is forgotten leaves nothing behind
    while True:
        message, fds = receive(control, HEADER.size, 1)
        if not message:
            return
        if os.fork() == 0:
            os.close(control)
            Zygote(fds[0], jobs, frames, isolation).serve(HEADER.unpack(message)[2])
            return
        os.close(fds[0])


class Zygote:
    """A process that has executed a setup code, from which its programs are forked."""

    def __init__(self, control: int, jobs: int, frames: int, isolation: Isolation) -> None:
        self.control, self.jobs, self.frames, self.isolation = control, jobs, frames, isolation
        self.prefix = ""
        self.module = types.ModuleType("solution")  # not "__main__": a main block does not run, as in the benchmark

    def serve(self, size: int) -> None:
        """Execute a setup code of so many bytes, then fork at each GO. Returns in a child, when its program may begin, and
        when the runner is gone."""
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what leaves its session becomes our child, and is found
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # doctest and unittest look into "__main__" for tests, and on the command line for which of them.
        sys.modules["solution"] = sys.modules["__main__"] = self.module
        sys.argv = ["program.py"]
        setup = read_exact(self.jobs, size).decode("utf-8", "surrogatepass")
        send_frame(self.frames, LOADED, self.set_up(setup).encode())
        random.seed(0)  # every child starts from the same state: a verdict is the same in every run
        home = self.isolation.own_pid_namespace()
        gc.collect()
        gc.freeze()
        os.write(self.control, BORN)
        while os.read(self.control, 1):
            if home is not None:
                self.isolation.next_pid_namespace(home)
            if os.fork() == 0:
                self.child()
                return
            self.report_ends()

    def report_ends(self) -> None:
        """Say of each process that ends how it did, until none is left. A function of its own: what it holds is gone when
        the next program begins."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status, used = os.wait4(-1, 0)
                code, cpu_s = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
                os.write(self.control, ENDED.pack(pid, code, cpu_s))
        os.write(self.control, NONE_LEFT)

    def set_up(self, setup: str) -> str:
        """Execute the setup code (trusted text); "" or what failed."""

        def give_up(_signal: int, _frame: object) -> None:
            raise TimeoutError(f"it took more than {SETUP_S:g} s of CPU time")

        signal.signal(signal.SIGPROF, give_up)
        signal.setitimer(signal.ITIMER_PROF, SETUP_S)
        try:
            self.prefix = future_prefix(setup)
            exec(compile(setup, "<setup>", "exec"), self.module.__dict__)
        except BaseException as error:  # noqa: BLE001  whatever it raises, sys.exit too, is reported as the problem's fault
            return brief(error)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
        return ""

    def child(self) -> None:
        """Take the job, give up every privilege that the job does not need, run it. Never returns."""
        os.setsid()
        message, fds = receive(self.control, HEADER.size, 4)
        data, printed, calls, *rules = fds
        header = HEADER.unpack(message)
        body = read_exact(self.jobs, header[2])
        os.write(self.control, BORN)
        null = os.open(os.devnull, os.O_RDONLY)  # of its own: flags of the shared one would stay
        for source, target in ((null, 0), (printed, 1), (printed, 2), (data, REPORT), (calls, CALLS)):
            os.dup2(source, target)
        os.chdir(self.isolation.scratch)
        write_all(REPORT, b"start []\n")
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            limit_resources(header, self.isolation)
            self.isolation.rules = rules[0] if rules else None
            lent = LentPairs()
            self.isolation.confine()
            keep_only(lent.fds())
            vars(socket)["socketpair"] = lent.pair
            job = Job(json.loads(body), self.module.__dict__, self.prefix)
            del body
        except Exception as error:  # noqa: BLE001  the sandbox failed, not the program, which has not started
            write_all(REPORT, b"broken " + json.dumps([brief(error)]).encode() + b"\n")
            os._exit(0)
        del header, message, fds, data, printed, calls, rules, null, lent, self
        # The parent knows now that a program runs: if this process ends its runner, nobody takes that for a failure
        # of the grader.
        read_exact(CALLS, 1)
        job.run()
        os._exit(0)


class LentPairs:
    """Socket pairs that were made before the program, which may make none: an event loop needs one, and gives it back."""

    def __init__(self) -> None:
        self.pairs = [socket.socketpair() for _ in range(LENT_PAIRS)]
        self.lent: list[tuple[socket.socket, ...]] = [() for _ in self.pairs]

    def fds(self) -> list[int]:
        return [end.fileno() for pair in self.pairs for end in pair]

    def pair(self, family: int = socket.AF_UNIX, type: int = socket.SOCK_STREAM, proto: int = 0) -> tuple:  # noqa: A002
        """In place of socket.socketpair. Raises PermissionError for another kind, and while all are in use."""
        if (family, type, proto) == (socket.AF_UNIX, socket.SOCK_STREAM, 0):
            for place, pair in enumerate(self.pairs):
                if all(end.fileno() < 0 for end in self.lent[place]):
                    for end in pair:
                        emptied(end)
                    self.lent[place] = tuple(end.dup() for end in pair)
                    return self.lent[place]
        raise PermissionError(f"no socket pair to lend: {LENT_PAIRS} of stream sockets are there at a time")


def emptied(end: socket.socket) -> None:
    """Read what an earlier event loop left in it."""
    end.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while end.recv(1 << 16):
            pass
    end.setblocking(True)


def keep_only(fds: list[int]) -> None:
    """Close every descriptor but the child's own and these."""
    above = CALLS + 1
    for fd in [*sorted(fds), 1 << 20]:
        os.closerange(above, fd)
        above = fd + 1


def limit_resources(header: tuple, isolation: Isolation) -> None:
    _, _, _, cpu_s, _, memory, _, processes, file_bytes = header
    set_limit(resource.RLIMIT_STACK, STACK_BYTES, resource.getrlimit(resource.RLIMIT_STACK)[1])  # may ask for more
    set_limit(resource.RLIMIT_CPU, int(cpu_s) + 2)  # the hard end; the runner looks at the exact limit itself
    set_limit(resource.RLIMIT_AS, memory + STACKS_BYTES)  # the runner looks at what is really in memory
    set_limit(resource.RLIMIT_FSIZE, file_bytes)
    set_limit(resource.RLIMIT_NOFILE, OPEN_FILES)
    set_limit(resource.RLIMIT_CORE, 0)
    # The kernel counts all tasks of the user, so those that run already come on top, except for a user of our own.
    if isolation.uid is None:
        processes += OWN_TASKS if isolation.own_count else tasks_of_user(isolation.proc, os.getuid())
    set_limit(resource.RLIMIT_NPROC, processes)


def set_limit(which: int, value: int, most: int | None = None) -> None:
    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value if most is None else most))
