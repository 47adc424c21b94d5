"""Run programs in isolated child processes, under limits, and get structured results.

A worker process (`worker.py`) is a fresh interpreter, started with Popen so that the trainer itself never forks. It
executes the setup code once and forks one child per program. The layers around a child are those of `isolation.py`.
Those that the host does not allow are named once through `logging` (not `warnings`: a strict warnings filter would
turn the note into a failure of the batch), and `isolation()` returns them."""

import atexit
import contextlib
import functools
import json
import logging
import os
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from loophole_grader.verdict import GraderError, Status

RETRY_AFTER_S = 0.2  # before the second try, after a worker failed by itself: what made it fail may pass
GRACE_S = 15.0  # how long after a job's wall limit a silent worker counts as dead
START_S = 60.0  # for a worker to start, and for a setup code to run
KEPT_VERDICTS = 4096
REPORT_BYTES = 64 << 10  # of a report line, but for the answers to a test (see oracle.py): a few names and numbers
_WORKER = Path(__file__).with_name("worker.py")
_HEADER = struct.Struct("<cQddQQQQ")  # as in worker.py, a script that is not imported here
_FRAME = struct.Struct("<cI")
_KINDS = re.compile(b"start|compiled|own|loaded|broken|(?:done|fail)[012]?")
HARMLESS = {"blocks": [["", True]], "call": "1", "variants": [None]}  # a job
_warn_once = functools.cache(logging.getLogger("loophole_grader").warning)

LAYERS = (
    "session", "rlimits", "user_namespace", "mount_namespace", "net_namespace", "ipc_namespace", "pid_namespace",
    "own_user", "capabilities", "no_new_privs", "landlock", "seccomp",
)  # fmt: skip


@dataclass(frozen=True)
class Layers:
    """What stands between a program and the host."""

    active: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)  # layer: why

    @property
    def lacking(self) -> dict[str, str]:
        """The missing layers without which the isolation is not full. Only a root worker can make its programs
        another user; elsewhere the namespaces do what that does."""
        return {name: why for name, why in self.missing.items() if name != "own_user"}

    @property
    def named(self) -> str:
        """What is lacking, with the reasons, as text."""
        return "; ".join(f"{name} ({why})" for name, why in self.lacking.items())


@dataclass(frozen=True)
class Limits:
    """What one program may use. Raises ValueError for a limit that is not positive."""

    cpu_s: float = 6.0  # CPU seconds per run: of the reference machine for `grade_batch`, as they are for a worker
    wall_s: float = 60.0  # wall seconds of all runs of a program together, a generous backstop for those that sleep
    memory_mb: int = 1024  # in memory, MiB, of all its processes together
    output_bytes: int = 64 << 20  # printed to stdout and stderr together; drained and thrown away
    processes: int = 80  # processes and threads of the program
    file_bytes: int = 1 << 20  # size of any file that it writes

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"limit {name} must be positive, got {value!r}")


@dataclass
class Execution:
    """What became of one program."""

    reason: str = ""  # exit | cpu | memory | processes | wall | output | enough (answers) | forged (reports) | died
    code: int = 0  # exit code; negative: the signal that ended it
    cpu_s: float = 0.0
    lines: dict[str, list[Any]] = field(default_factory=dict)  # the first report line of each kind, without its kind
    answers: int = 0  # how many the program has sent

    @property
    def done(self) -> bool:
        """Whether the program came to its end within its limits."""
        return "done" in self.lines and self.reason == "exit"

    def status(self, cpu_limit_s: float) -> Status:
        """How the program ended: ok, compile_error, runtime_error, timeout, memory, output_limit or killed."""
        if self.reason in ("cpu", "wall") or (self.code == -9 and self.cpu_s >= cpu_limit_s):
            return "timeout"
        if self.reason == "enough" or self.done:
            return "ok"
        if self.reason in ("died", "forged", "processes"):
            return "killed"
        if self.reason == "output":
            return "output_limit"
        if "compiled" not in self.lines:
            return "compile_error"  # hostile source can also end the interpreter while it is being compiled
        if self.reason == "memory" or self.lines.get("fail", [])[1:2] == ["MemoryError"]:
            return "memory"
        return "killed" if self.code < 0 else "runtime_error"


# Index and JSON of an answer -> whether no more is wanted. Called from index 0 again if the program has to be run
# again.
OnAnswer = Callable[[int, bytes], bool]
FAILURES = OSError, ValueError  # a worker that ended, hung or spoke nonsense, or whose pipe was closed
DEFAULT_LIMITS = Limits()


class SetupError(GraderError):
    """Setup code failed by itself; the message says how."""


class Worker:
    """One warm worker process. Not for use by two threads at a time, except `close`."""

    _stdin: IO[bytes]
    _stdout: IO[bytes]

    def __init__(self, without: frozenset[str] = frozenset()) -> None:
        """`without`: layers to leave out, as on a host that does not allow them."""
        self.closed = False
        self.layers = Layers()
        self._without = without
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._scratch = ""
        self._inbox = bytearray()
        self._setup: str | None = None  # the setup code that the process has executed
        self._result = Execution()

    def run(
        self, job: Mapping[str, Any], limits: Limits, on_answer: OnAnswer = lambda *_: True, setup: str = ""
    ) -> Execution:
        """Run one job in a fresh child, after `setup`. A program whose worker dies gets one more try; if that dies,
        too, and a harmless program runs, the reason is "died". Raises SetupError, and GraderError when the grader
        failed twice."""
        end = time.monotonic() + limits.wall_s
        for last in (False, True):
            left_s = max(end - time.monotonic(), 0.001)
            try:
                return self._try(setup, job, replace(limits, wall_s=left_s), on_answer)
            except FAILURES as error:
                if last or time.monotonic() > end:
                    return self._given_up(error, setup, "wall" if time.monotonic() > end else "died")
                time.sleep(RETRY_AFTER_S)
        raise AssertionError("not reached")

    def _given_up(self, error: Exception, setup: str, reason: str) -> Execution:
        """After the last try. The program may have ended its worker, on a host that allows no better cage, or
        something else did: a harmless program after the same setup tells. Raises SetupError and GraderError."""
        lines = self._result.lines
        if setup and self.layers.active and self._setup is None:  # it failed while setup code ran in it
            raise SetupError(str(error)) from None
        if "start" in lines:
            with contextlib.suppress(*FAILURES):
                if self._try(setup, HARMLESS, DEFAULT_LIMITS, lambda *_: True).done:
                    return Execution(reason=reason, lines=lines)
        raise GraderError(f"the sandbox failed twice on one program: {error}") from error

    def load(self, setup: str) -> None:
        """Execute a setup code, if that is not done. Raises SetupError and GraderError."""
        if self._process is None or setup != self._setup:
            self.run(HARMLESS, DEFAULT_LIMITS, setup=setup)

    def close(self) -> None:
        """End the process, all that it runs and its scratch directory. Any thread may call this."""
        self.closed = True
        self.end()

    def _try(self, setup: str, job: Mapping[str, Any], limits: Limits, on_answer: OnAnswer) -> Execution:
        """Raises one of FAILURES after the process has been ended; SetupError; GraderError after `close`."""
        result = self._result = Execution()
        try:
            self._start()
            self._execute(setup)
            deadline = time.monotonic() + limits.wall_s + GRACE_S
            self._send(b"R", deadline, json.dumps(job).encode(), limits)
            stopped, end = self._listen(on_answer, deadline)
            if "broken" in result.lines and "compiled" not in result.lines:  # later the program could have written it
                result.lines.pop("start", None)
                raise ConnectionError(f"the sandbox could not be set up: {result.lines['broken']}")
        except FAILURES as error:
            if self.closed:
                raise GraderError("the grader was closed while it was judging") from error
            self.end()
            raise
        late = stopped == "enough" and end["cpu_s"] > limits.cpu_s
        result.reason = "cpu" if late else stopped or end["reason"]
        result.code, result.cpu_s = end["code"], end["cpu_s"]
        return result

    def _listen(self, on_answer: OnAnswer, deadline: float) -> tuple[str, dict]:
        """Take in what a program reports; why it was stopped, or "", and how it ended."""
        pending, stopped = bytearray(), ""
        while True:
            kind, payload = self._frame(deadline)
            if kind == b"E":
                return stopped, json.loads(payload)
            if stopped:
                continue
            pending += payload
            *complete, pending = pending.split(b"\n") if b"\n" in payload else [pending]
            for line in complete:
                stopped = stopped or self._take(bytes(line), on_answer)
            if stopped:
                pending.clear()
                self._send(b"S", deadline)

    def _take(self, line: bytes, on_answer: OnAnswer) -> str:
        """Record one report line; why to stop the program, or "". The child is not trusted: the first line that the
        code around the program would not send ends it."""
        result = self._result
        kind, _, rest = line.partition(b" ")
        if kind == b"value":
            index, _, answer = rest.partition(b" ")
            if index != b"%d" % result.answers:
                return "forged"
            result.answers += 1
            return "enough" if on_answer(result.answers - 1, answer) else ""
        try:
            fields = json.loads(rest) if _KINDS.fullmatch(kind) and len(rest) <= REPORT_BYTES else None
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, list) or result.lines.setdefault(kind.decode(), fields) is not fields:
            return "forged"
        return ""

    def _execute(self, setup: str) -> None:
        """Have the setup code executed, if it is not. Raises SetupError."""
        if setup == self._setup:
            return
        deadline = time.monotonic() + START_S
        if self._setup is not None:
            self._send(b"F", deadline)
        self._setup = None
        self._send(b"L", deadline, setup.encode("utf-8", "surrogatepass"))
        _, failed = self._frame(deadline)
        if failed:
            raise SetupError(failed.decode("utf-8", "replace"))
        self._setup = setup

    def _start(self) -> None:
        """Start the process, if it does not run."""
        with self._lock:
            if self.closed:
                raise ConnectionError("closed")
            if self._process is not None:
                return
            self._scratch = tempfile.mkdtemp(prefix="loophole-grader-")
            Path(self._scratch).chmod(0o711)  # an unprivileged child passes through it to its directory
            # A fixed hash seed makes the order of sets, and so a verdict, the same in every run. -I would ignore
            # it; the environment holds nothing else, so there is nothing else to ignore.
            process = self._process = subprocess.Popen(
                [sys.executable, "-s", "-S", "-P", "-B", str(_WORKER), self._scratch, ",".join(self._without)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                cwd="/",
                env={"PYTHONHASHSEED": "0"},
                start_new_session=True,
            )
            assert process.stdin is not None
            assert process.stdout is not None
            self._stdin, self._stdout = process.stdin, process.stdout
            os.set_blocking(self._stdin.fileno(), False)
            self._inbox.clear()
            self._setup, self.layers = None, Layers()
        _, report = self._frame(time.monotonic() + START_S)
        found = json.loads(report)
        self.layers = Layers(tuple(name for name in LAYERS if name in found["active"]), found["missing"])
        if self.layers.lacking:
            _warn_once("programs are judged without these layers of isolation: %s", self.layers.named)

    def _send(self, op: bytes, deadline: float, body: bytes = b"", limits: Limits = DEFAULT_LIMITS) -> None:
        view = memoryview(_HEADER.pack(op, len(body), *vars(limits).values()) + body)
        while view:
            _wait(self._stdin, select.POLLOUT, deadline)
            view = view[os.write(self._stdin.fileno(), view) :]

    def _frame(self, deadline: float) -> tuple[bytes, bytes]:
        """The kind and the payload of what the worker sends next."""
        kind, length = _FRAME.unpack(self._read(_FRAME.size, deadline))
        return kind, self._read(length, deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        while len(self._inbox) < size:
            _wait(self._stdout, select.POLLIN, deadline)
            if not (part := os.read(self._stdout.fileno(), 1 << 18)):
                raise ConnectionError("it ended its process")
            self._inbox += part
        data = bytes(self._inbox[:size])
        del self._inbox[:size]
        return data

    def end(self) -> None:
        """End the process and all that it runs; the next job starts a fresh one."""
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return
        self._stdin.close()  # the worker then ends its child, removes its scratch directory and exits
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()  # its child dies with it
            process.wait()
        self._stdout.close()
        shutil.rmtree(self._scratch, ignore_errors=True)


def _wait(pipe: IO[bytes], event: int, deadline: float) -> None:
    """Until more has come, or more can go. Only one side sends at a time."""
    poll = select.poll()
    poll.register(pipe, event)
    if not poll.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
        raise TimeoutError("no answer within the wall limit")


class Pool:
    """Warm workers, lent to one thread at a time and kept for the next batch, and the verdicts that were reached in
    them."""

    def __init__(self, without: frozenset[str] = frozenset()) -> None:
        self.pid, self.without = os.getpid(), without
        self.verdicts: dict[Hashable, Any] = {}  # the oldest first
        self._idle: list[Worker] = []
        self._lock = threading.Lock()

    def borrow(self) -> Worker:
        """A worker. Its process starts with its first job."""
        with self._lock:
            return self._idle.pop() if self._idle else Worker(self.without)

    def give_back(self, worker: Worker) -> None:
        with self._lock:
            if not worker.closed:
                self._idle.append(worker)

    def remember(self, key: Hashable, verdict: Any) -> None:
        """Keep a verdict, and no more than KEPT_VERDICTS."""
        with self._lock:
            self.verdicts[key] = verdict
            while len(self.verdicts) > KEPT_VERDICTS:
                del self.verdicts[next(iter(self.verdicts))]

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.close()


_pool: Pool | None = None
_pool_lock = threading.Lock()


def shared_pool() -> Pool:
    """The pool of this process; a process forked from this one gets another."""
    global _pool
    with _pool_lock:
        if _pool is None or _pool.pid != os.getpid():
            _pool = Pool()
        return _pool


def isolation() -> Layers:
    """The layers of isolation on this host, from a worker of the shared pool (started if there is none). Raises
    GraderError if none can be started."""
    pool = shared_pool()
    worker = pool.borrow()
    try:
        if not worker.layers.active:
            worker.load("")
        return worker.layers
    finally:
        pool.give_back(worker)


def close_pool() -> None:
    """End all warm workers of this process; the next batch starts new ones. Runs by itself at exit."""
    global _pool
    with _pool_lock:
        pool, _pool = _pool, None
    if pool is not None and pool.pid == os.getpid():
        pool.close()


atexit.register(close_pool)
