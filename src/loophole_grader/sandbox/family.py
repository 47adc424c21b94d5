"""All processes of one program: how much CPU time and memory they use together, and how to end them.

Without cgroups. The worker is their reaper (the program itself where it is the init of a pid namespace), so whatever
leaves its session stays below the worker, and /proc lists its descendants. /proc is the host's, held as a file descriptor
that the programs do not have.
"""

import contextlib
import os
import select
import signal
import time

TICK = os.sysconf("SC_CLK_TCK")
UTIME, STIME, CUTIME, CSTIME = 11, 12, 13, 14  # fields of /proc/PID/stat after the command
HELD = (b"RssAnon:", b"VmPTE:")  # of /proc/PID/status, in KiB
END_S = 10.0


class Proc:
    """The host's /proc, where it is there, and the worker in it, whose descendants the programs are."""

    def __init__(self, folder: int) -> None:
        """`folder`: of /proc, a file descriptor; -1 where it is not there."""
        self.folder, self.worker = folder, "self"
        with contextlib.suppress(OSError):
            self.worker = os.readlink("self", dir_fd=folder)
        self.inherited = self.own_memory(self.worker)
        """Bytes of a program before it begins."""

    def descriptor(self, name: str, _flags: int = 0) -> int:
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.folder)

    def read(self, name: str) -> bytes:
        """A file; empty where the process has ended."""
        with contextlib.suppress(OSError), open(name, "rb", opener=self.descriptor) as file:
            return file.read()
        return b""

    def own_memory(self, pid: object) -> int:
        """Bytes in memory that are no file's (nothing else is shared here), and those of the page tables."""
        return self._held(f"{pid}") or max((self._held(task) for task in self.tasks(f"{pid}")), default=0)

    def _held(self, task: str) -> int:
        """Of one thread; 0 where it has ended, though its process may go on."""
        lines = self.read(f"{task}/status").splitlines()
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(HELD))

    def cpu_s(self, pid: int) -> tuple[float, float]:
        """CPU seconds of a process, and of those of its children that it has waited for."""
        fields = self.read(f"{pid}/stat").rpartition(b")")[2].split()
        ticks = [int(fields[which]) for which in (UTIME, STIME, CUTIME, CSTIME)] if fields else [0] * 4
        return sum(ticks[:2]) / TICK, sum(ticks[2:]) / TICK

    def descendants(self) -> list[int]:
        """Process ids, as the host's /proc names them; none without it."""
        found, todo = [], self.children(self.worker)
        while todo:
            found.append(member := todo.pop())
            todo += self.children(str(member))
        return found

    def children(self, pid: str) -> list[int]:
        return [int(child) for task in self.tasks(pid) for child in self.read(f"{task}/children").split()]

    def tasks(self, pid: str) -> list[str]:
        """The threads of a process, as folders in /proc; none where it has ended."""
        with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
            threads = self.descriptor(f"{pid}/task")
            opened.callback(os.close, threads)
            return [f"{pid}/task/{thread}" for thread in os.listdir(threads)]  # noqa: PTH208
        return []


class Family:
    """A program and every process below it."""

    def __init__(self, pid: int, proc: Proc, alone: bool) -> None:
        """`alone`: the program is the init of a pid namespace."""
        self.pid, self.proc, self.alone = pid, proc, alone
        self.ended = os.pidfd_open(pid)  # readable once the program has ended
        self.code: int | None = None
        self.cpu_s = 0.0
        self.seen: dict[int, float] = {}  # CPU seconds of each process when it was last looked at

    def usage(self) -> tuple[float, int, int]:
        """CPU seconds so far; bytes in memory, but for files' pages, beyond what the program began with; processes.

        What a process has inherited counts too, since it may have written on it and then holds a copy: for the first
        process alone that is taken off. A program that has its dead children forgotten (SIGCHLD ignored) hides their time
        from its account, so what each was seen with counts, too."""
        members = self.proc.descendants()
        total, held = 0.0, -self.proc.inherited
        for member in members:
            used, of_children = self.proc.cpu_s(member)
            self.seen[member] = max(used, self.seen.get(member, 0.0))
            total += used + of_children
            held += self.proc.own_memory(member)
        if len(self.seen) < 2:
            total = 0.0  # what is alone is on a finer clock
        return max(cpu_clock(self.pid), total, self.seen_s()), max(0, held), len(members)

    def seen_s(self) -> float:
        return sum(self.seen.values()) if len(self.seen) > 1 else 0.0

    def end(self) -> tuple[int, float]:
        """Kill them all and wait for each, again until none is left, because they may fork meanwhile. Exit code of the
        program (negative: the signal) and the CPU seconds of all."""
        deadline = time.monotonic() + END_S
        while time.monotonic() < deadline:
            self._kill()
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                assert self.code is not None
                return self.code, round(max(self.cpu_s, self.seen_s()), 4)
            if pid:
                self.cpu_s += used.ru_utime + used.ru_stime
                if pid == self.pid:
                    self.code = os.waitstatus_to_exitcode(status)
            elif self.code is None:
                ended = select.poll()
                ended.register(self.ended, select.POLLIN)
                ended.poll(1000 * END_S)
            else:
                time.sleep(0.001)
        raise SystemExit("processes of a program could not be ended")

    def _kill(self) -> None:
        # With the init of a namespace goes everything in it.
        targets = [(os.kill, self.pid)] if self.code is None else []
        if not self.alone:
            targets += [(os.killpg, self.pid), *((os.kill, pid) for pid in self.proc.descendants())]
        for kill, target in targets:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(target, signal.SIGKILL)


def cpu_clock(pid: int) -> float:
    """CPU seconds of a process, from its clock (the id is that of clock_getcpuclockid(3) on Linux)."""
    with contextlib.suppress(OSError):  # it ended this instant
        return time.clock_gettime((~pid << 3) | 2)
    return 0.0
