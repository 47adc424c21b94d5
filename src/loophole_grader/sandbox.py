"""Run programs in isolated child processes, under limits, and get structured results.

One runner (`_runner.py`) per worker: a fresh interpreter, started with Popen so that the trainer itself never forks,
which then forks one child per program. Layers around a child: own session and process group, every descendant killed
at the end, resource limits (address space, CPU, file size, processes, open files), an empty environment, a fresh
scratch directory as working directory, no standard input, bounded output. A root runner makes its children
unprivileged users.

Not covered yet: the network, reading files, writing to places that are open to everyone, and, without root, signals to
processes of the same user.
"""

import atexit
import json
import os
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loophole_grader.verdict import GraderError, Status

RETRIES = 2  # further tries after a runner died
GRACE_S = 30.0  # how long after a job's wall limit a silent runner counts as dead
START_S = 60.0
_RUNNER = Path(__file__).with_name("_runner.py")
_HEADER = struct.Struct("<cQddQQQQ")  # as in _runner.py, a script that is not imported here
_FRAME = struct.Struct("<cI")


@dataclass(frozen=True)
class Limits:
    """What one program may use. Raises ValueError for a limit that is not positive."""

    cpu_s: float = 6.0  # CPU seconds per program run: the same on an idle and on a busy machine
    wall_s: float = 60.0  # wall seconds, a generous backstop for programs that sleep
    memory_mb: int = 1024  # address space, MiB
    output_bytes: int = 1 << 20  # printed to stdout and stderr together; drained and thrown away
    processes: int = 16  # processes and threads of the program
    file_bytes: int = 1 << 20  # size of any file that it writes

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"limit {name} must be positive, got {value!r}")


@dataclass
class Run:
    """What became of one program."""

    reason: str = ""  # exit | cpu | wall | output | stopped
    code: int = 0  # exit code; negative: the signal that ended it
    cpu_s: float = 0.0
    lines: dict[str, list[Any]] = field(default_factory=dict)  # the last report line of each kind, without its kind
    answers: list[Any] = field(default_factory=list)  # of run_tests and run_judge: one entry per test, in order

    def status(self, cpu_limit_s: float) -> Status:
        """How the program ended: ok, compile_error, runtime_error, timeout, memory, output_limit or killed."""
        if self.reason == "stopped" or "done" in self.lines:
            return "ok"
        if self.reason in ("cpu", "wall") or (self.code == -9 and self.cpu_s >= cpu_limit_s):
            return "timeout"
        if self.reason == "output" or "large" in self.lines:
            return "output_limit"
        if "compiled" not in self.lines:
            return "compile_error"  # hostile source can also end the interpreter while it is being compiled
        if self.lines.get("fail", [])[1:2] == ["MemoryError"]:
            return "memory"
        return "killed" if self.code < 0 else "runtime_error"


OnAnswer = Callable[[int, Any], bool]  # index and report; False ends the program


class RunnerDiedError(Exception):
    """The runner process ended, hung or spoke nonsense. Internal: `Runner.run` retries."""


class Runner:
    """One warm runner process. Not for use by two threads at a time, except `close`."""

    def __init__(self) -> None:
        self.closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._scratch = ""
        self._greeted = False

    def run(self, job: Mapping[str, Any], limits: Limits, on_answer: OnAnswer | None = None) -> Run:
        """Run one job in a fresh child. Raises GraderError when the runner died on it three times."""
        body = json.dumps(job).encode()
        for attempt in range(RETRIES + 1):
            try:
                return self._try(body, limits, on_answer or (lambda _index, _answer: True))
            except (RunnerDiedError, OSError, ValueError) as error:  # ValueError: the pipe was closed meanwhile
                if self.closed:
                    raise GraderError("the grader was closed while it was judging") from error
                self._end()
                if attempt == RETRIES:
                    raise GraderError(f"the sandbox failed {RETRIES + 1} times on one program: {error}") from error
        raise AssertionError("unreachable")

    def close(self) -> None:
        """End the process, all that it runs and its scratch directory. Any thread may call this."""
        self.closed = True
        self._end()

    def _try(self, body: bytes, limits: Limits, on_answer: OnAnswer) -> Run:
        process = self._started()
        assert process.stdin is not None
        header = _HEADER.pack(
            b"R",
            len(body),
            limits.cpu_s,
            limits.wall_s,
            limits.memory_mb << 20,
            limits.output_bytes,
            limits.processes,
            limits.file_bytes,
        )
        process.stdin.write(header + body)
        deadline = time.monotonic() + limits.wall_s + GRACE_S
        result, pending, stopped = Run(), bytearray(), False
        while True:
            kind, payload = self._frame(process, deadline)
            if kind == b"E":
                break
            pending += payload
            if b"\n" not in payload:
                continue
            *complete, rest = pending.split(b"\n")
            pending = bytearray(rest)
            if not stopped and not all(_take(line, result, on_answer) for line in complete):
                stopped = True
                process.stdin.write(_HEADER.pack(b"S", 0, 0, 0, 0, 0, 0, 0))
        if "broken" in result.lines and "compiled" not in result.lines:  # later the program could have written it
            raise RunnerDiedError(f"the sandbox could not be set up: {result.lines['broken']}")
        end = json.loads(payload)
        result.reason = "stopped" if stopped else end["reason"]
        result.code, result.cpu_s = end["code"], end["cpu_s"]
        return result

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self.closed:
                raise RunnerDiedError("closed")
            if self._process is None:
                self._scratch = tempfile.mkdtemp(prefix="loophole-grader-")
                Path(self._scratch).chmod(0o711)  # the unprivileged child passes through it to its own directory
                # A fixed hash seed makes the order of sets, and so a verdict, the same in every run. -I would ignore
                # it; the environment holds nothing else, so there is nothing else to ignore.
                self._process = subprocess.Popen(
                    [sys.executable, "-s", "-S", "-P", "-B", str(_RUNNER), self._scratch],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    bufsize=0,
                    cwd="/",
                    env={"PYTHONHASHSEED": "0"},
                    start_new_session=True,
                )
                self._greeted = False
            process = self._process
        if not self._greeted:
            kind, _ = self._frame(process, time.monotonic() + START_S)
            if kind != b"Y":
                raise RunnerDiedError(f"unexpected first frame {kind!r}")
            self._greeted = True
        return process

    def _frame(self, process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bytes]:
        kind, size = _FRAME.unpack(_read(process, _FRAME.size, deadline))
        return kind, _read(process, size, deadline)

    def _end(self) -> None:
        with self._lock:
            process, scratch = self._process, self._scratch
            self._process = None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()  # the runner then ends its child, removes its scratch directory and exits
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()  # its child dies with it
            process.wait()
        process.stdout.close()
        shutil.rmtree(scratch, ignore_errors=True)


def _take(line: bytes | bytearray, result: Run, on_answer: OnAnswer) -> bool:
    """Record one report line. The child is not trusted: whatever it should not send is passed over."""
    try:
        kind, *rest = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return True
    if kind in ("value", "holds", "raised") and len(rest) == 2:
        if rest[0] != len(result.answers):  # only the next answer counts, never a correction of an earlier one
            return True
        result.answers.append(rest[1] if kind != "raised" else False)
        return on_answer(rest[0], result.answers[-1])
    if isinstance(kind, str):
        result.lines.setdefault(kind, rest)
    return True


def _read(process: subprocess.Popen[bytes], size: int, deadline: float) -> bytes:
    assert process.stdout is not None
    parts, poll = [], select.poll()
    poll.register(process.stdout, select.POLLIN)
    while size:
        if not poll.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
            raise RunnerDiedError("no answer within the wall limit")
        part = os.read(process.stdout.fileno(), size)
        if not part:
            raise RunnerDiedError(f"it ended with code {process.wait()}")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class Pool:
    """Warm runners, lent to one thread at a time and kept for the next batch. `judge` runs trusted text only: it is a
    process of its own, in which expected values may stand."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.judge, self.judge_lock = Runner(), threading.Lock()
        self.checked_setups: set[str] = set()
        self._idle: list[Runner] = []
        self._lock = threading.Lock()

    def borrow(self) -> Runner:
        with self._lock:
            return self._idle.pop() if self._idle else Runner()

    def give_back(self, runner: Runner) -> None:
        with self._lock:
            if not runner.closed:
                self._idle.append(runner)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for runner in [*idle, self.judge]:
            runner.close()


_pool: Pool | None = None
_pool_lock = threading.Lock()


def shared_pool() -> Pool:
    """The pool of this process; a process forked from this one gets its own."""
    global _pool
    with _pool_lock:
        if _pool is None or _pool.pid != os.getpid():
            _pool = Pool()
        return _pool


def close_pool() -> None:
    """End all warm runners of this process; the next batch starts new ones. Runs by itself at exit."""
    global _pool
    with _pool_lock:
        pool, _pool = _pool, None
    if pool is not None and pool.pid == os.getpid():
        pool.close()


atexit.register(close_pool)
