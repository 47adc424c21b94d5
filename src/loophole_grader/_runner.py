"""The runner: a warm, single-threaded process that forks one fresh child per program. Run as a script by sandbox.py.

It never executes a program and never reads one: the child itself takes the job from the shared pipe, so nothing of one
job is left in the memory of the next. The runner only starts the child, relays what it sends, counts its output, ends
it at its limits and kills everything that it left behind.

stdin:   HEADER (RUN, then a job of `size` bytes; or STOP: end the program that is running, ignored when none is)
stdout:  FRAME + payload: READY once; then for every job DATA (bytes from the child) and one END (JSON)
"""

# File descriptors and system calls throughout, on plain strings, so no pathlib:
# ruff: noqa: PTH100, PTH101, PTH102, PTH106, PTH112, PTH114, PTH116, PTH118, PTH120, PTH123, PTH208

import contextlib
import ctypes
import gc
import json
import os
import random
import resource
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
import types

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import values  # ty: ignore[import-not-found]  (this file runs by itself, not as part of the package)

sys.path.pop(0)

HEADER = struct.Struct("<cQddQQQQ")  # op, size, cpu_s, wall_s, memory, output_bytes, processes, file_bytes
FRAME = struct.Struct("<cI")
RUN, STOP, READY, DATA, END = b"R", b"S", b"Y", b"D", b"E"
RESULT_BYTES = 64 << 20  # what one program may send as answers
OPEN_FILES = 64
STACK_BYTES = 120 << 20  # deep recursion of honest programs; the kernel keeps a gap of 128 MiB below the stack
POLL_S = 0.05  # how often a busy program's CPU clock is looked at
PRELOADED = (
    "abc array ast bisect calendar cmath collections contextlib copy dataclasses datetime decimal enum fractions "
    "functools heapq inspect io itertools json math operator queue random re statistics string textwrap threading "
    "time traceback typing unittest uuid"
)
PR_SET_PDEATHSIG, PR_SET_KEEPCAPS, PR_SET_CHILD_SUBREAPER = 1, 8, 36
CAP_DAC_READ_SEARCH, CAPABILITY_VERSION_3 = 2, 0x20080522
libc = ctypes.CDLL(None, use_errno=True)


def read_exact(fd: int, size: int) -> bytes:
    """So many bytes; fewer only at the end of the stream."""
    parts = []
    while size and (part := os.read(fd, min(size, 1 << 20))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


# ---------------------------------------------------------------- the runner


def serve(scratch_root: str) -> None:
    """Run jobs until stdin ends. Ends the process if a child dies before it has taken its job: the pipe then holds
    half a job, and the parent starts a new runner."""
    jobs, frames = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    for name in PRELOADED.split():
        __import__(name)
    random.seed(0)  # every child starts from the same state: a verdict is the same in every run
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what leaves its session becomes our child, and is found
    os.environ.clear()
    os.umask(0o077)
    gc.collect()
    gc.freeze()
    write_all(frames, FRAME.pack(READY, 0))
    while len(header := read_exact(jobs, HEADER.size)) == HEADER.size:
        if header[:1] == RUN:
            end = run_job(jobs, frames, HEADER.unpack(header), scratch_root)
            payload = json.dumps(end).encode()
            write_all(frames, FRAME.pack(END, len(payload)) + payload)


def run_job(jobs: int, frames: int, header: tuple, scratch_root: str) -> dict:
    """Fork, watch, end and clean up one program."""
    scratch = os.path.join(scratch_root, "run")
    os.mkdir(scratch, 0o700)
    data_in, data_out = os.pipe()
    print_in, print_out = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            child(jobs, data_out, print_out, scratch, header)
        finally:
            os._exit(70)
    os.close(data_out)
    os.close(print_out)
    os.set_blocking(data_in, False)
    os.set_blocking(print_in, False)
    watch = Watch(pid, jobs, frames, data_in, print_in, header)
    try:
        reason = watch.until_end()
        end = {"reason": reason, **reap(pid)}
        watch.drain()
    finally:
        os.close(data_in)
        os.close(print_in)
        watch.close()
    if not watch.started:
        raise SystemExit("the child ended before it took its job")
    remove_tree(scratch)
    return {**end, "reason": watch.over or end["reason"]}


class Watch:
    """One running child: its pipes, its clocks and its limits."""

    def __init__(self, pid: int, jobs: int, frames: int, data: int, printed: int, header: tuple) -> None:
        _, _, self.cpu_s, wall_s, _, self.output_left, _, _ = header
        self.pid, self.jobs, self.frames, self.data, self.printed = pid, jobs, frames, data, printed
        self.deadline = time.monotonic() + wall_s
        self.result_left = RESULT_BYTES
        self.started = False
        self.over = ""  # "output" once a byte limit is passed
        self.poll = select.poll()
        self.pidfd = pidfd_of(pid)
        for fd in (data, printed, *([] if self.pidfd is None else [self.pidfd])):
            self.poll.register(fd, select.POLLIN)

    def close(self) -> None:
        if self.pidfd is not None:
            os.close(self.pidfd)

    def until_end(self) -> str:
        """Relay until the child exits ("exit") or must be ended: "cpu", "wall", "output", "stopped"."""
        while True:
            for fd, _ in self.poll.poll(1000 * POLL_S if self.pidfd is not None else 5):
                if fd == self.jobs:
                    if self.stop_asked():
                        return "stopped"
                elif fd != self.pidfd:
                    self.relay(fd)
            if self.over:
                return self.over
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return "exit"
            if cpu_clock(self.pid) > self.cpu_s:
                return "cpu"
            if time.monotonic() > self.deadline:
                return "wall"

    def stop_asked(self) -> bool:
        header = read_exact(self.jobs, HEADER.size)
        if len(header) < HEADER.size:  # the parent is gone
            kill_all(self.pid)
            raise SystemExit(0)
        return header[:1] == STOP

    def relay(self, fd: int) -> bool:
        """Take what one pipe holds; False when it is empty or closed."""
        try:
            chunk = os.read(fd, 1 << 16)
        except BlockingIOError:
            return False
        if not chunk:
            self.poll.unregister(fd)
            return False
        if fd == self.printed:
            self.output_left -= len(chunk)
        else:
            self.result_left -= len(chunk)
            if not self.started:  # from here on the job is read, and the shared pipe is the runner's again
                self.started = True
                self.poll.register(self.jobs, select.POLLIN)
            write_all(self.frames, FRAME.pack(DATA, len(chunk)) + chunk)
        if self.output_left < 0 or self.result_left < 0:
            self.over = "output"
            return False
        return True

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


def cpu_clock(pid: int) -> float:
    """CPU seconds of a process, from its own clock (the id is that of clock_getcpuclockid(3) on Linux)."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:  # already gone, or no such clock: RLIMIT_CPU still holds
        return 0.0


def reap(pid: int) -> dict:
    """Kill the child and all that it left behind; its exit code (negative: the signal) and CPU seconds."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    kill_all(pid)
    return {"code": os.waitstatus_to_exitcode(status), "cpu_s": round(usage.ru_utime + usage.ru_stime, 4)}


def kill_all(pid: int) -> None:
    """End every descendant. They all end up as our children, since we are their subreaper; again until none is left,
    because they may fork while we look."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            reaped, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if reaped:
            continue
        for left in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)
        time.sleep(0.001)
    raise SystemExit("processes of a program could not be ended")


def descendants(root: int) -> list[int]:
    """All processes below one, by /proc/PID/stat (the parent is the second field after the command)."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError), open(f"/proc/{entry}/stat", "rb") as stat:
                parents[int(entry)] = int(stat.read().rpartition(b")")[2].split()[1])
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    return sorted(found - {root})


def remove_tree(path: str) -> None:
    """Remove the scratch directory, whatever the program did to its permissions or shape."""
    try:
        os.rmdir(path)  # nearly always empty
        return
    except OSError:
        pass

    def retry(function, name, _):
        os.chmod(os.path.dirname(name), 0o700)
        if not os.path.islink(name):
            os.chmod(name, 0o700)
        function(name)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        shutil.rmtree(path, onerror=retry)
    except OSError:  # a tree deeper than files may be open; rm needs none of them at a time
        subprocess.run(["/bin/rm", "-rf", path], check=True)
    finally:
        sys.setrecursionlimit(limit)


# ---------------------------------------------------------------- the child


def child(jobs: int, data: int, printed: int, scratch: str, header: tuple) -> None:
    """Take the job, give up every privilege that the job does not need, run it. Never returns."""
    os.setsid()
    body = read_exact(jobs, header[1])
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    os.dup2(data, 3)
    os.closerange(4, 1 << 20)
    os.chdir(scratch)
    write_all(3, b'["start"]\n')
    try:
        limit_resources(header, own_user=drop_root(scratch))
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # after the change of user, which clears it
        job = Job(json.loads(body))
        del body
    except Exception as error:  # noqa: BLE001  the sandbox failed, not the program, which has not started
        write_all(3, json.dumps(["broken", brief(error)]).encode() + b"\n")
        os._exit(0)
    job.run()
    os._exit(0)


def limit_resources(header: tuple, own_user: bool) -> None:
    _, _, cpu_s, _, memory, _, processes, file_bytes = header
    cpu = int(cpu_s) + 2  # the hard end; the runner looks at the exact limit itself
    set_limit(resource.RLIMIT_STACK, STACK_BYTES)
    set_limit(resource.RLIMIT_CPU, cpu)
    set_limit(resource.RLIMIT_AS, memory)
    set_limit(resource.RLIMIT_FSIZE, file_bytes)
    set_limit(resource.RLIMIT_NOFILE, OPEN_FILES)
    set_limit(resource.RLIMIT_CORE, 0)
    # The kernel counts all tasks of the user, so those that run already come on top, except for a user of our own.
    set_limit(resource.RLIMIT_NPROC, processes + (0 if own_user else tasks_of_user(os.getuid())))


def set_limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))


def tasks_of_user(uid: int) -> int:
    """Running tasks (threads) of one user."""
    count = 0
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{entry}").st_uid == uid:
                    count += os.stat(f"/proc/{entry}/task").st_nlink - 2
    return count


def drop_root(scratch: str) -> bool:
    """A child of a root runner becomes a user that owns nothing, so that it cannot signal the trainer, write its files
    or escape the process limit; True if it did. It keeps the right to read files only where the standard library is
    closed to others (a Python below /root). A container may map no further user or forbid the change: it stays root."""
    if os.getuid() != 0:
        return False
    kept = 0 if open_to_others(os.__file__) else 1 << CAP_DAC_READ_SEARCH
    uid = 20_000 + os.getppid() % 40_000  # one user per runner: the process limit counts per user
    try:
        os.chown(scratch, uid, uid)
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)
        os.setresuid(uid, uid, uid)
    except OSError:
        os.chown(scratch, 0, -1)
        return False
    set_capabilities(kept)
    return True


def set_capabilities(kept: int) -> None:
    head = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0)
    if libc.capset(head, sets):
        raise OSError(ctypes.get_errno(), "capset")


def open_to_others(path: str) -> bool:
    """Whether a user who owns nothing may read the file: every folder above it lets others pass."""
    while path != os.path.dirname(path):
        if not os.stat(path).st_mode & (0o001 if os.path.isdir(path) else 0o004):
            return False
        path = os.path.dirname(path)
    return True


class Job:
    """One job in the child.

    What it calls after the program has started was looked up before, so that a program that replaces a builtin (by
    accident, mostly) does not break its own report. A program that tampers on purpose can only send other values, and
    gains no more by that than by returning them.
    """

    def __init__(self, job: dict) -> None:
        self.job = job
        self.compile, self.exec, self.eval = compile, exec, eval
        self.dumps = json.JSONEncoder(separators=(",", ":")).encode
        self.write, self.encode, self.too_large = write_all, values.encode, values.TooLargeError
        self.base, self.memory, self.exit = BaseException, MemoryError, os._exit
        self.module = types.ModuleType("solution")  # not "__main__": a main block does not run, as in the benchmark
        sys.modules["solution"] = self.module
        self.names = self.module.__dict__

    def send(self, *line: object) -> None:
        self.write(3, self.dumps(line).encode() + b"\n")

    def fail(self, phase: str, error: BaseException) -> None:
        """Report an exception by the name of its class, and end."""
        kind = "MemoryError" if isinstance(error, MemoryError) else type(error).__name__
        self.send("fail", phase, kind, brief(error))
        self.exit(0)

    def run(self) -> None:
        getattr(self, "run_" + self.job["mode"])()

    def load(self) -> None:
        """Compile and execute the program of the job."""
        try:
            program = self.compile(self.job["source"], "<program>", "exec")
        except BaseException as error:  # noqa: BLE001  hostile source raises more than SyntaxError: MemoryError, ValueError, ...
            self.fail("compile", error)
        self.send("compiled")
        if self.job.get("evaluator"):
            self.send("own", own_evaluator(self.job["code"], self.job["evaluator"]))
        try:
            self.exec(program, self.names)
        except self.base as error:
            self.fail("load", error)
        self.send("loaded")

    def run_tests(self) -> None:
        """Ground truth: evaluate each call and send its value. No expected value is in this process."""
        self.load()
        for index, (prelude, expressions, whole) in enumerate(self.job["calls"]):
            try:
                self.send("value", index, self.answers(prelude, expressions, whole))
            except self.too_large:
                self.send("large", index)
                self.exit(0)
            except self.base as error:
                self.fail("test", error)
        self.send("done")

    def answers(self, prelude: str, expressions: list[str], whole: str) -> list:
        if whole:
            self.exec(self.compile(whole, "<test>", "exec"), self.names)
            return [True]
        if prelude:
            self.exec(self.compile(prelude, "<test>", "exec"), self.names)
        return [self.encode(self.eval(self.compile(text, "<test>", "eval"), self.names)) for text in expressions]

    def run_call(self) -> None:
        """The completion's own word: a program and the call of its own tests."""
        self.load()
        try:
            self.eval(self.compile(self.job["call"], "<call>", "eval"), self.names)
        except self.base as error:
            self.fail("call", error)
        self.send("done")

    def run_judge(self) -> None:
        """Trusted text only: what is left of assertions, on values that were computed elsewhere."""
        sys.setrecursionlimit(20_000)  # the benchmark's is_same_list recurses once per node
        self.load()
        for index, (expression, answers) in enumerate(self.job["items"]):
            try:
                rebuilt = [values.rebuild(values.decode(answer), self.names) for answer in answers]
                scope = {**self.names, **{f"_answer{place}": value for place, value in enumerate(rebuilt)}}
                holds = bool(eval(compile(expression, "<test>", "eval"), scope))
            except Exception as error:  # noqa: BLE001  an answer of the wrong kind makes the benchmark's helpers raise
                self.send("raised", index, brief(error))
            else:
                self.send("holds", index, holds)
        self.send("done")


def brief(error: BaseException) -> str:
    """One short line about an exception, even if its __str__ is hostile."""
    try:
        return f"{type(error).__name__}: {error}"[:200]
    except BaseException:  # noqa: BLE001  its text is the program's own code
        return "an exception without a text"


def own_evaluator(code: str, name: str) -> list | None:
    """[class or "", text or None] of the completion's own evaluation function; None if it defines none.

    A function at module level wins over a method, a method over a function nested in another one (which no call from
    outside can reach). Among equals the first in ast.walk order counts. Text None: it cannot be printed.
    """
    if name not in code:
        return None
    import ast

    try:
        tree = ast.parse(code)
    except (SyntaxError, RecursionError, MemoryError, ValueError):  # it compiled with the setup code, so: too deep
        return None
    found: list[tuple[int, str, ast.FunctionDef]] = []
    owners: dict[ast.AST, tuple[int, str]] = {tree: (0, "")}
    for node in ast.walk(tree):
        rank, parent = owners.get(node, (0, ""))
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.FunctionDef) and inner.name == name:
                found.append((rank, parent, inner))
            owners[inner] = (rank, parent)
            if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                owners[inner] = (2, "")
            elif isinstance(inner, ast.ClassDef) and rank < 2:
                owners[inner] = (1, inner.name)
    if not found:
        return None
    _, parent, function = min(found, key=lambda item: item[0])
    try:
        return [parent, ast.unparse(function)]
    except RecursionError:
        return [parent, None]


if __name__ == "__main__":
    try:
        serve(sys.argv[1])
    except (BrokenPipeError, KeyboardInterrupt):  # the parent is gone
        pass
    finally:
        shutil.rmtree(sys.argv[1], ignore_errors=True)
