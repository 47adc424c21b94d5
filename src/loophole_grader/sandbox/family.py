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
PAGE = os.sysconf("SC_PAGE_SIZE")
UTIME, STIME, CUTIME, CSTIME = 11, 12, 13, 14  # fields of /proc/PID/stat after the command
RESIDENT, OF_FILES = 1, 2  # fields of /proc/PID/statm, in pages
END_S = 10.0


class Family:
    """A program and every process below it."""

    def __init__(self, pid: int, proc: int | None, alone: bool) -> None:
        """`alone`: the program is the init of a pid namespace of its own."""
        self.pid, self.proc, self.alone = pid, proc, alone
        self.ended = os.pidfd_open(pid)  # readable once the program has ended
        self.worker = "self" if proc is None else os.readlink("self", dir_fd=proc)
        self.inherited = self.own_memory(self.worker)
        self.held = 0
        self.code: int | None = None
        self.cpu_s = 0.0
        self.seen: dict[int, float] = {}

    def usage(self) -> tuple[float, int, int]:
        """CPU seconds so far; bytes of their own in memory beyond what the program began with; how many processes there are.

        What a process has inherited counts as its own, since it may have written on it and then holds a copy: for the first
        process alone that is taken off."""
        members = self.members()
        return max(cpu_clock(self.pid), self._sum(members)), max(0, self.held - self.inherited), len(members)

    def own_memory(self, pid: object) -> int:
        """Bytes in memory that are no file's: resident pages but for those of files (nothing else is shared here)."""
        fields = self.read(f"{pid}/statm").split()
        return (int(fields[RESIDENT]) - int(fields[OF_FILES])) * PAGE if fields else 0

    def _sum(self, members: list[int]) -> float:
        """CPU seconds. A program that has its dead children forgotten (SIGCHLD ignored) hides their time from its own
        account, so what each was seen with is kept, too."""
        total, self.held = 0.0, 0
        for member in members:
            fields = self.read(f"{member}/stat").rpartition(b")")[2].split()
            if fields:
                own = (int(fields[UTIME]) + int(fields[STIME])) / TICK
                self.seen[member] = max(own, self.seen.get(member, 0.0))
                total += own + (int(fields[CUTIME]) + int(fields[CSTIME])) / TICK
                self.held += self.own_memory(member)
        # what is alone is on a finer clock
        return max(total, sum(self.seen.values())) if len(self.seen) > 1 else 0.0

    def members(self) -> list[int]:
        """Process ids, as the host's /proc names them; none without /proc."""
        found, todo = [], self.children(self.worker)
        while todo:
            found.append(member := todo.pop())
            todo += self.children(str(member))
        return found

    def children(self, pid: str) -> list[int]:
        found: list[int] = []
        if self.proc is None:
            return found
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            tasks = os.open(f"{pid}/task", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.proc)
            try:
                for task in os.listdir(tasks):  # noqa: PTH208
                    found += map(int, self.read(f"{pid}/task/{task}/children").split())
            finally:
                os.close(tasks)
        return found

    def read(self, name: str) -> bytes:
        """A file of /proc; empty where the process has ended."""
        if self.proc is None:
            return b""
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.proc)
            try:
                return os.read(fd, 1 << 16)
            finally:
                os.close(fd)
        return b""

    def end(self) -> tuple[int, float]:
        """Kill them all and wait for each, again until none is left, because they may fork meanwhile. Exit code of the
        program (negative: the signal) and the CPU seconds of all."""
        deadline = time.monotonic() + END_S
        ended = select.poll()
        ended.register(self.ended, select.POLLIN)
        with contextlib.suppress(ChildProcessError):
            while time.monotonic() < deadline:
                self._kill()
                pid, status, used = os.wait4(-1, os.WNOHANG)
                if not pid and self.code is None:
                    ended.poll(1000 * END_S)
                elif not pid:
                    time.sleep(0.001)
                if not pid:
                    continue
                self.cpu_s += used.ru_utime + used.ru_stime
                if pid == self.pid:
                    self.code = os.waitstatus_to_exitcode(status)
            raise SystemExit("processes of a program could not be ended")
        assert self.code is not None
        return self.code, round(max(self.cpu_s, sum(self.seen.values())), 4)

    def _kill(self) -> None:
        # With the init of a namespace goes everything in it.
        targets = [(os.kill, self.pid)] if self.code is None else []
        if not self.alone:
            targets += [(os.killpg, self.pid), *((os.kill, pid) for pid in self.members())]
        for kill, target in targets:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(target, signal.SIGKILL)


def cpu_clock(pid: int) -> float:
    """CPU seconds of a process, from its own clock (the id is that of clock_getcpuclockid(3) on Linux)."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:  # it ended this instant
        return 0.0
