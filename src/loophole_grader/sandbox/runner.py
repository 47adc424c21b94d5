"""The runner: watches programs, one at a time. Run as a script by pool.py.

It enters the namespaces, probes every layer, holds the standard modules and forks a nursery, from which zygotes and, of
those, programs are forked (zygote.py). What it learns of programs stays here: nothing is forked from it any more.

It does not read jobs and answers either: the child takes the job from the shared pipe, and what it is sent and sends goes
from pipe to pipe inside the kernel. It has the program started, counts its output, ends it at its limits and kills
everything that it left behind.

stdin:   HEADER, then `size` bytes: LOAD (setup code), FORGET (a zygote), RUN (a job), CALL (the next call, for the
         program that is running), STOP (end it). CALL and STOP are passed over when nothing runs.
stdout:  FRAME, then the payload: READY (JSON: the layers) once;
         LOADED ("" or what failed) for every LOAD; for every RUN DATA (bytes from the child) and one END (JSON)
"""

# File descriptors and system calls throughout, on plain strings, so no pathlib:
# ruff: noqa: PTH100, PTH120

import array
import contextlib
import fcntl
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import termios
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# This file runs by itself, not as part of the package.
from child import SIZE, read_exact, write_all  # ty: ignore[import-not-found]
from family import Family  # ty: ignore[import-not-found]
from isolation import Isolation  # ty: ignore[import-not-found]
from zygote import BORN, FRAME, GO, HEADER, send_frame, start_nursery  # ty: ignore[import-not-found]

sys.path.pop(0)
_folder = os.path.dirname(os.path.abspath(__file__))
for _name, _module in list(sys.modules.items()):
    if _name != "__main__" and os.path.dirname(getattr(_module, "__file__", None) or "") == _folder:
        del sys.modules[_name]  # a program that imports one of these everyday names finds nothing

LOAD, FORGET, RUN, CALL, STOP = b"L", b"F", b"R", b"C", b"S"
READY, DATA, END = b"Y", b"D", b"E"
RESULT_BYTES = 64 << 20  # what one program may send as answers
BIRTH_S = 30.0  # wall time until a forked child has taken its job
LAST_S = 1.0  # wall time of a program after it closed the pipe of its answers
POLL_S = 0.05  # how often a busy program's CPU clock and memory are looked at
PRELOADED = (
    "abc array ast bisect calendar cmath collections contextlib copy dataclasses datetime decimal enum fractions "
    "functools heapq inspect io itertools json math operator queue random re statistics string textwrap threading "
    "time traceback typing unittest uuid"
)
SPLICE_F_NONBLOCK = 2
CREDENTIALS = struct.Struct("<iII")  # process, user, group


def serve(isolation: Isolation) -> None:
    """Answer requests until stdin ends. Ends the process if a zygote or a child dies where it must not: the parent then
    starts a new runner."""
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
    nursery = start_nursery(jobs, frames, isolation)
    send_frame(frames, READY, json.dumps({"active": isolation.active, "missing": isolation.missing}).encode())
    zygotes: dict[int, Zygote] = {}
    while len(head := read_exact(jobs, HEADER.size)) == HEADER.size:
        op, key, size, *_ = HEADER.unpack(head)
        if op == LOAD:
            zygotes[key] = Zygote(nursery, head, isolation)
        elif op == FORGET:
            zygotes.pop(key).control.close()
        elif op == RUN:
            end = run(zygotes[key], head, Pipes(jobs, frames, null), isolation)
            send_frame(frames, END, json.dumps(end).encode())
        else:
            move(jobs, null, size)


class Zygote:
    """The runner's end of a zygote."""

    def __init__(self, nursery: socket.socket, header: bytes, isolation: Isolation) -> None:
        """Have it forked; returns when it has executed its setup code."""
        self.control, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # What arrives says who sent it, by the process id that holds here.
        self.control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        with its:
            socket.send_fds(nursery, [header], [its.fileno()])
        self.pid = sender_of(self.control, None)
        self.family = Family(isolation.proc, isolation.pid_namespace, self.pid)

    def start(self, header: bytes, fds: list[int]) -> int:
        """Fork a program and give it its header and pipes; its process id. It has read its job then."""
        self.control.send(GO)
        socket.send_fds(self.control, [header], fds)
        return sender_of(self.control, BIRTH_S)


def sender_of(control: socket.socket, timeout: float | None) -> int:
    """Who says that it is born. Ends the process when nobody does."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    if not poll.poll(None if timeout is None else 1000 * timeout):
        raise SystemExit("a program could not be started in time")
    try:
        message, extra, _, _ = control.recvmsg(1, socket.CMSG_SPACE(CREDENTIALS.size))
    except ConnectionResetError:  # it ended with what it was sent unread
        message, extra = b"", []
    if message != BORN:  # nothing (it ended), or its zygote, which has waited for it
        raise SystemExit("a process ended before it took its job")
    for level, kind, data in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            return CREDENTIALS.unpack(data[: CREDENTIALS.size])[0]
    raise SystemExit("the kernel does not say who sent a message")


class Pipes:
    """What the runner shares with its parent, and where what nobody wants goes."""

    def __init__(self, jobs: int, frames: int, null: int) -> None:
        self.jobs, self.frames, self.null = jobs, frames, null


def run(zygote: Zygote, head: bytes, shared: Pipes, isolation: Isolation) -> dict:
    """Start, watch, end and clean up one program."""
    isolation.renew_scratch()
    data, printed, calls = os.pipe(), os.pipe(), os.pipe()
    theirs = [data[1], printed[1], calls[0]]
    pid = zygote.start(head, [*theirs, *([] if isolation.rules is None else [isolation.rules])])
    for fd in theirs:
        os.close(fd)
    zygote.family.start(pid, zygote.control)
    watch = Watch(zygote.family, HEADER.unpack(head), shared, (data[0], printed[0], calls[1]))
    try:
        reason = watch.until_end()
        code, cpu_s = zygote.family.end()
        watch.drain()
    finally:
        watch.close()
    if not watch.started:
        raise SystemExit("the child ended before its program could begin")
    if reason == "exit" and cpu_s > watch.cpu_s:
        reason = "cpu"  # between two looks at the clock
    return {"reason": watch.over or reason, "code": code, "cpu_s": cpu_s}


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


class Watch:
    """One running child: its pipes, its clocks and its limits."""

    def __init__(self, family: Family, header: tuple, shared: Pipes, pipes: tuple[int, int, int]) -> None:
        _, _, _, self.cpu_s, wall_s, self.memory, self.output_left, self.processes, _ = header
        self.jobs, self.frames, self.null, self.family = shared.jobs, shared.frames, shared.null, family
        self.data, self.printed, self.calls = pipes
        self.unsent = 0  # bytes of the current call that are still in the shared pipe: the child need not take them
        self.deadline = time.monotonic() + wall_s
        self.next_look = time.monotonic() + POLL_S
        self.result_left = RESULT_BYTES
        self.started = False
        self.over = ""  # "output" once a byte limit is passed; "forged"
        self.poll = select.poll()
        self.reaped = self.family.control.fileno()
        os.set_blocking(self.calls, False)
        for fd in (self.data, self.printed, self.reaped):
            self.poll.register(fd, select.POLLIN)

    def close(self) -> None:
        move(self.jobs, self.null, self.unsent)
        for fd in (self.data, self.printed, self.calls):
            os.close(fd)

    def until_end(self) -> str:
        """Relay until the child exits ("exit") or must be ended: "stopped", or the limit that it passed."""
        while True:
            gone = False
            for fd, _ in self.poll.poll(1000 * POLL_S):
                if fd == self.jobs:
                    if self.stop_asked():
                        return "stopped"
                elif fd == self.calls:
                    self.send_calls()
                elif fd == self.reaped:
                    gone = self.family.one_reaped()
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
            if not self.started:  # from here on the job is read, and the shared pipe is the runner's again
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
