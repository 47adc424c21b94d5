"""All processes of one program: how much CPU time and memory they use together, and how to end them.

Without cgroups. The program's zygote is their reaper (the program itself where it is the init of a pid namespace), so
whatever leaves its session stays below the zygote, and /proc lists its descendants. /proc is the host's, held as a file
descriptor that the programs do not have.
"""

import contextlib
import os
import select
import signal
import socket
import time

from zygote import ENDED, NONE_LEFT  # ty: ignore[import-not-found]

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
UTIME, STIME, CUTIME, CSTIME = 11, 12, 13, 14  # fields of /proc/PID/stat after the command
RESIDENT, OF_FILES = 1, 2  # fields of /proc/PID/statm, in pages
END_S = 10.0


class Family:
    """A program and every process below it, all of them below their zygote."""

    control: socket.socket

    def __init__(self, proc: int | None, alone: bool, zygote: int) -> None:
        """`alone`: a program is the init of a pid namespace of its own. `zygote`: its process id."""
        self.proc, self.alone, self.zygote = proc, alone, zygote
        self.listed = bool(proc is not None and self.read(f"{zygote}/stat") and self.has_lists())
        self.pid, self.held, self.inherited = 0, 0, 0
        self.code, self.cpu_s, self.over = 0, 0.0, False
        self.seen: dict[int, float] = {}

    def has_lists(self) -> bool:
        """Whether the kernel lists the children of a task (CONFIG_PROC_CHILDREN)."""
        try:
            os.stat(f"{self.zygote}/task/{self.zygote}/children", dir_fd=self.proc)
        except OSError:
            return False
        return True

    def start(self, pid: int, control: socket.socket) -> None:
        """Watch a new program. `control`: to its zygote, which says when and how a process has ended."""
        self.pid, self.control, self.held = pid, control, 0
        self.code, self.cpu_s, self.over = 0, 0.0, False
        self.seen = {}
        if self.proc is not None:
            self.inherited = self.own_memory(self.zygote)

    def usage(self) -> tuple[float, int, int]:
        """CPU seconds so far; bytes of their own in memory beyond what the program began with; how many processes there are.

        What a process has inherited counts as its own, since it may have written on it and then holds a copy: for the first
        process alone that is taken off."""
        members = self.members()
        return max(cpu_clock(self.pid), self._sum(members)), max(0, self.held - self.inherited), len(members)

    def own_memory(self, pid: int) -> int:
        """Bytes in memory that are no file's: resident pages but for those of files (nothing else is shared here)."""
        fields = self.read(f"{pid}/statm").split()
        return (int(fields[RESIDENT]) - int(fields[OF_FILES])) * PAGE if fields else 0

    def _sum(self, members: list[int]) -> float:
        """A program that has its dead children forgotten (SIGCHLD ignored) hides their time from its own account, so
        what each was seen with is kept, too."""
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
        if self.proc is None:
            return []
        if not self.listed:
            return self.scan()
        found, todo = [], self.children(str(self.zygote))
        while todo:
            found.append(member := todo.pop())
            todo += self.children(str(member))
        return found

    def children(self, pid: str) -> list[int]:
        found: list[int] = []
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            tasks = os.open(f"{pid}/task", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.proc)
            try:
                for task in os.listdir(tasks):  # noqa: PTH208
                    found += map(int, self.read(f"{pid}/task/{task}/children").split())
            finally:
                os.close(tasks)
        return found

    def scan(self) -> list[int]:
        """The same from every process of the host."""
        assert self.proc is not None
        parents = {}
        for entry in os.listdir(self.proc):  # noqa: PTH208
            if entry.isdigit() and (fields := self.read(f"{entry}/stat").rpartition(b")")[2].split()):
                parents[int(entry)] = int(fields[1])
        found = {self.zygote}
        while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
            found |= more
        return sorted(found - {self.zygote})

    def read(self, name: str) -> bytes:
        try:
            fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.proc)
        except (ProcessLookupError, FileNotFoundError):  # it ended
            return b""
        try:
            return os.read(fd, 1 << 16)
        except ProcessLookupError:
            return b""
        finally:
            os.close(fd)

    def one_reaped(self) -> bool:
        """Take what the zygote says: a process ended. Whether it was the program itself."""
        message = self.control.recv(ENDED.size)
        if len(message) != ENDED.size:
            raise SystemExit("a zygote ended")
        pid, code, cpu_s = ENDED.unpack(message)
        self.cpu_s += cpu_s
        if not (self.alone or pid == self.pid):
            return False
        self.code, self.over = code, True
        return True

    def end(self) -> tuple[int, float]:
        """Kill them all and have each waited for, again until none is left, because they may fork meanwhile. Exit code of
        the program (negative: the signal) and the CPU seconds of all."""
        deadline = time.monotonic() + END_S
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        while time.monotonic() < deadline:
            self._kill()
            if not poll.poll(10):
                continue
            if self.control.recv(ENDED.size, socket.MSG_PEEK) == NONE_LEFT:
                self.control.recv(1)
                return self.code, round(max(self.cpu_s, sum(self.seen.values())), 4)
            self.one_reaped()
        raise SystemExit("processes of a program could not be ended")

    def _kill(self) -> None:
        targets = [] if self.over else [(os.kill, self.pid)]  # with it goes everything in its namespace
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
