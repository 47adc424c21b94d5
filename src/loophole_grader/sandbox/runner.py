"""The runner: warm processes that fork one fresh child per program. Run as a script by sandbox.py.

    runner      enters the namespaces, probes every layer, holds the standard modules
      template  one per setup code, which it has executed; reaper of its programs, init of their pid namespace
        child   one program

Neither runner nor template ever executes a program or reads one: the child itself takes the job from the shared pipe,
and what it is sent and sends goes from pipe to pipe inside the kernel. So nothing of one job is in the memory with which
the next one starts: a program could find there the answers of a better one. The template only starts the child, has its
answers moved on, counts its output, ends it at its limits and kills everything that it left behind.

stdin:   HEADER, then `size` bytes: LOAD (setup code), FORGET (a template), RUN (a job), CALL (the next call, for the
         program that is running), STOP (end it). CALL and STOP are passed over when nothing runs.
stdout:  FRAME, then the payload: READY (layers, JSON) once; LOADED ("" or what failed) for every LOAD; for every RUN DATA
         (bytes from the child) and one END (JSON)
"""

# File descriptors and system calls throughout, on plain strings, so no pathlib:
# ruff: noqa: PTH100, PTH120

import array
import contextlib
import ctypes
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
from child import CALLS, REPORT, SIZE, Job, brief, future_prefix, read_exact, write_all  # ty: ignore[import-not-found]
from family import Family  # ty: ignore[import-not-found]
from isolation import NAMESPACES, PR_SET_PDEATHSIG, Isolation, unshare  # ty: ignore[import-not-found]

sys.path.pop(0)
_folder = os.path.dirname(os.path.abspath(__file__))
for _name, _module in list(sys.modules.items()):
    if _name != "__main__" and os.path.dirname(getattr(_module, "__file__", None) or "") == _folder:
        del sys.modules[_name]  # a program that imports one of these everyday names finds nothing

HEADER = struct.Struct("<cIQddQQQQ")  # op, template, size, cpu_s, wall_s, memory, output_bytes, processes, file_bytes
FRAME = struct.Struct("<cI")
LOAD, FORGET, RUN, CALL, STOP = b"L", b"F", b"R", b"C", b"S"
READY, LOADED, DATA, END = b"Y", b"T", b"D", b"E"
RESULT_BYTES = 64 << 20  # what one program may send as answers
OPEN_FILES = 64
STACK_BYTES = 120 << 20  # deep recursion of honest programs; the kernel keeps a gap of 128 MiB below the stack
SETUP_S = 30.0  # CPU seconds of a setup code
LAST_S = 1.0  # wall time of a program after it closed the pipe of its answers
POLL_S = 0.05  # how often a busy program's CPU clock is looked at
OWN_TASKS = 40  # runner and templates, which share the program's user where it has none of its own
PRELOADED = (
    "abc array ast bisect calendar cmath collections contextlib copy dataclasses datetime decimal enum fractions "
    "functools heapq inspect io itertools json math operator queue random re statistics string textwrap threading "
    "time traceback typing unittest uuid"
)
PR_SET_CHILD_SUBREAPER, SPLICE_F_NONBLOCK = 36, 2
libc = ctypes.CDLL(None, use_errno=True)


# ---------------------------------------------------------------- the runner


def serve(isolation: Isolation) -> None:
    """Answer requests until stdin ends. Ends the process if a template or a child dies where it must not: the parent
    then starts a new runner."""
    jobs, frames = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a signal without a handler does not reach the init of a namespace
    for name in PRELOADED.split():
        __import__(name)
    os.environ.clear()
    isolation.enter()
    os.umask(0o077)
    gc.collect()
    gc.freeze()
    send_frame(frames, READY, json.dumps({"active": isolation.active, "missing": isolation.missing}).encode())
    templates: dict[int, int] = {}
    while len(head := read_exact(jobs, HEADER.size)) == HEADER.size:
        op, key, size, *_ = HEADER.unpack(head)
        if op == LOAD:
            setup = read_exact(jobs, size).decode("utf-8", "surrogatepass")
            templates[key] = start_template(jobs, frames, setup, isolation)
        elif op == FORGET:
            os.close(templates.pop(key))
        elif op == RUN:
            os.write(templates[key], head)
            if not os.read(templates[key], 1):
                raise SystemExit(0 if ended(jobs) else "a template ended")
        else:
            move(jobs, null, size)


def send_frame(frames: int, kind: bytes, payload: bytes) -> None:
    write_all(frames, FRAME.pack(kind, len(payload)) + payload)


def ended(pipe: int) -> bool:
    """Whether nobody can write to a pipe any more: the parent closed it or is gone."""
    poll = select.poll()
    poll.register(pipe, 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def waiting(pipe: int) -> int:
    """Bytes that a pipe holds."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def move(source: int, target: int, size: int) -> None:
    """So many bytes from one pipe into another one (or /dev/null) without reading them into this process."""
    while size:
        moved = os.splice(source, target, size)
        if not moved:  # the parent is gone
            return
        size -= moved


def start_template(jobs: int, frames: int, setup: str, isolation: Isolation) -> int:
    """Fork a template; the socket through which the runner hands it headers. A pid namespace begins with the next
    fork, so a second process stands between, which waits."""
    ours, its = socket.socketpair()
    pid = os.fork()
    if pid:
        its.close()
        if not os.read(ours.fileno(), 1):
            raise SystemExit("a template could not start")
        return ours.detach()
    code = 70
    try:
        ours.close()
        if isolation.pid_namespace:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            unshare(NAMESPACES["pid_namespace"])
            if inner := os.fork():
                os.closerange(3, 1 << 20)
                os.waitpid(inner, 0)
                os._exit(0)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        Template(its.fileno(), jobs, frames, isolation).serve(setup)
        code = 0
    finally:
        os._exit(code)


class Template:
    """A process that has executed a setup code, from which its programs are forked."""

    def __init__(self, control: int, jobs: int, frames: int, isolation: Isolation) -> None:
        self.control, self.jobs, self.frames, self.isolation = control, jobs, frames, isolation
        self.family = Family(isolation.proc, isolation.pid_namespace)
        self.prefix = ""
        self.module = types.ModuleType("solution")  # not "__main__": a main block does not run, as in the benchmark

    def serve(self, setup: str) -> None:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what leaves its session becomes our child, and is found
        sys.modules["solution"] = self.module
        send_frame(self.frames, LOADED, self.set_up(setup).encode())
        random.seed(0)  # every child starts from the same state: a verdict is the same in every run
        gc.collect()
        gc.freeze()
        os.write(self.control, b".")
        while len(head := read_exact(self.control, HEADER.size)) == HEADER.size:
            end = self.run(HEADER.unpack(head))
            send_frame(self.frames, END, json.dumps(end).encode())
            os.write(self.control, b".")

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

    def run(self, header: tuple) -> dict:
        """Fork, watch, end and clean up one program."""
        self.isolation.look_at_scratch()
        data, printed, calls = os.pipe(), os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                self.child(header, data[1], printed[1], calls[0])
            finally:
                os._exit(70)
        for fd in (data[1], printed[1], calls[0]):
            os.close(fd)
        self.family.start(pid)
        watch = Watch(self, header, data[0], printed[0], calls[1])
        try:
            reason = watch.until_end()
            code, cpu_s = self.family.end()
            watch.drain()
        finally:
            watch.close()
        if not watch.started:
            raise SystemExit("the child ended before it took its job")
        self.isolation.renew_scratch()
        if reason == "exit" and cpu_s > header[3]:
            reason = "cpu"  # between two looks at the clock
        return {"reason": watch.over or reason, "code": code, "cpu_s": cpu_s}

    def child(self, header: tuple, data: int, printed: int, calls: int) -> None:
        """Take the job, give up every privilege that the job does not need, run it. Never returns."""
        os.setsid()
        body = read_exact(self.jobs, header[2])
        calls = os.dup(calls)  # above the numbers that are given away next
        null = os.open(os.devnull, os.O_RDONLY)  # of its own: flags of the shared one would stay
        for source, target in ((null, 0), (printed, 1), (printed, 2), (data, REPORT)):
            os.dup2(source, target)
        os.dup2(calls, CALLS)
        os.chdir(self.isolation.scratch)
        write_all(REPORT, b"start []\n")
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            limit_resources(header, self.isolation)
            self.isolation.confine()
            os.closerange(CALLS + 1, 1 << 20)
            job = Job(json.loads(body), self.module.__dict__, self.prefix)
            del body
        except Exception as error:  # noqa: BLE001  the sandbox failed, not the program, which has not started
            write_all(REPORT, b"broken " + json.dumps([brief(error)]).encode() + b"\n")
            os._exit(0)
        del header, data, printed, calls, self
        # The parent knows now that a program runs: if this process ends its runner, nobody takes that for a failure
        # of the grader.
        read_exact(CALLS, 1)
        job.run()
        os._exit(0)


def limit_resources(header: tuple, isolation: Isolation) -> None:
    _, _, _, cpu_s, _, memory, _, processes, file_bytes = header
    set_limit(resource.RLIMIT_STACK, STACK_BYTES)
    set_limit(resource.RLIMIT_CPU, int(cpu_s) + 2)  # the hard end; the template looks at the exact limit itself
    set_limit(resource.RLIMIT_AS, memory)
    set_limit(resource.RLIMIT_FSIZE, file_bytes)
    set_limit(resource.RLIMIT_NOFILE, OPEN_FILES)
    set_limit(resource.RLIMIT_CORE, 0)
    # The kernel counts all tasks of the user, so those that run already come on top, except for a user of our own.
    if isolation.uid is None:
        processes += OWN_TASKS if isolation.own_count else tasks_of_user(isolation.proc, os.getuid())
    set_limit(resource.RLIMIT_NPROC, processes)


def set_limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))


def tasks_of_user(proc: int | None, uid: int) -> int:
    """Running tasks (threads) of one user."""
    count = 0
    for entry in [] if proc is None else os.listdir(proc):  # noqa: PTH208
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(entry, dir_fd=proc).st_uid == uid:
                    count += os.stat(f"{entry}/task", dir_fd=proc).st_nlink - 2
    return count


class Watch:
    """One running child: its pipes, its clocks and its limits."""

    def __init__(self, template: Template, header: tuple, data: int, printed: int, calls: int) -> None:
        _, _, _, self.cpu_s, wall_s, self.memory, self.output_left, self.processes, _ = header
        self.jobs, self.frames, self.family = template.jobs, template.frames, template.family
        self.data, self.printed, self.calls = data, printed, calls
        self.unsent = 0  # bytes of the current call that are still in the shared pipe: the child need not take them
        self.null = os.open(os.devnull, os.O_WRONLY)
        self.deadline = time.monotonic() + wall_s
        self.next_look = time.monotonic() + POLL_S
        self.result_left = RESULT_BYTES
        self.started = False
        self.over = ""  # "output" once a byte limit is passed; "forged"
        self.poll = select.poll()
        self.pidfd = pidfd_of(self.family.pid)
        os.set_blocking(calls, False)
        for fd in (data, printed, *([] if self.pidfd is None else [self.pidfd])):
            self.poll.register(fd, select.POLLIN)

    def close(self) -> None:
        move(self.jobs, self.null, self.unsent)
        for fd in (self.data, self.printed, self.calls, self.null, self.pidfd):
            if fd is not None:
                os.close(fd)

    def until_end(self) -> str:
        """Relay until the child exits ("exit") or must be ended: "stopped", or the limit that it passed."""
        while True:
            events = self.poll.poll(1000 * POLL_S if self.pidfd is not None else 5)
            for fd, _ in events:
                if fd == self.jobs:
                    if self.stop_asked():
                        return "stopped"
                elif fd == self.calls:
                    self.send_calls()
                elif fd != self.pidfd:
                    self.relay(fd)
            if self.over:
                return self.over
            if self.ended(events):
                return "exit"
            if reason := self.look():
                return reason

    def ended(self, events: list[tuple[int, int]]) -> bool:
        if self.pidfd is not None:
            return any(fd == self.pidfd for fd, _ in events)
        return os.waitid(os.P_PID, self.family.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

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
        if processes > self.processes:  # the kernel does not limit the processes of the host's root
            return "processes"
        return "wall" if now > self.deadline else ""

    def stop_asked(self) -> bool:
        head = read_exact(self.jobs, HEADER.size)
        if len(head) < HEADER.size:  # the parent is gone
            self.family.end()
            raise SystemExit(0)
        op, _, size, *_ = HEADER.unpack(head)
        if op == STOP:
            return True
        with contextlib.suppress(BlockingIOError, BrokenPipeError):  # the pipe is empty: an honest child waits for it
            os.write(self.calls, SIZE.pack(size))
        self.unsent = size
        self.poll.unregister(self.jobs)  # what comes next stands behind the call
        self.poll.register(self.calls, select.POLLOUT)
        self.send_calls()
        return False

    def send_calls(self) -> None:
        try:
            while self.unsent:
                self.unsent -= os.splice(self.jobs, self.calls, self.unsent, flags=SPLICE_F_NONBLOCK)
        except BlockingIOError:
            return
        except BrokenPipeError:  # the child closed it: it gets no more calls
            move(self.jobs, self.null, self.unsent)
            self.unsent = 0
        self.poll.unregister(self.calls)
        self.poll.register(self.jobs, select.POLLIN)

    def relay(self, fd: int) -> bool:
        """Move on what one pipe holds; False when it is empty or closed."""
        size = waiting(fd)
        if not size:
            self.poll.unregister(fd)
            if fd == self.data:  # it can never answer, so it is at its end, or does not mean to come to one
                self.deadline = min(self.deadline, time.monotonic() + LAST_S)
            return False
        if fd == self.printed:
            self.output_left -= size
            move(fd, self.null, size)
        else:
            self.result_left -= size
            acknowledged = self.started
            if not self.started:  # from here on the job is read, and the shared pipe is the template's again
                self.started = True
                self.poll.register(self.jobs, select.POLLIN)
            elif self.unsent:  # an answer to a call that it has not even taken
                self.over = "forged"
            write_all(self.frames, FRAME.pack(DATA, size))
            move(fd, self.frames, size)
            if not acknowledged:
                os.write(self.calls, b".")
        if self.output_left < 0 or self.result_left < 0:
            self.over = "output"
        return not self.over

    def drain(self) -> None:
        """Relay what the dead child had already sent."""
        with contextlib.suppress(KeyError):  # a pipe that was closed before
            while not self.over and self.relay(self.data):
                pass
            while not self.over and self.relay(self.printed):
                pass


def pidfd_of(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # an old kernel or a sandbox without it: poll instead
        return None


if __name__ == "__main__":
    owner = os.getpid()
    isolation = Isolation(sys.argv[1], frozenset(filter(None, sys.argv[2].split(","))))
    try:
        serve(isolation)
    except (BrokenPipeError, KeyboardInterrupt):  # the parent is gone
        pass
    finally:
        if os.getpid() == owner:
            isolation.leave()
