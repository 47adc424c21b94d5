"""All processes of one program: how much CPU time and memory they use together, and how to end them.

Without cgroups. The runner's template is their reaper (as init of their pid namespace, or as subreaper), so whatever
leaves its session stays below it, and /proc lists its descendants. /proc is the host's, held as a file descriptor that
the programs do not have.
"""

import contextlib
import os
import signal
import time

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
UTIME, STIME, CUTIME, CSTIME, RSS = 11, 12, 13, 14, 21  # fields of /proc/PID/stat after the command
END_S = 10.0


class Family:
    """A program and every process below it, all of them below this process."""

    def __init__(self, proc: int | None, alone: bool) -> None:
        """`alone`: programs have a pid namespace of their own, in which this process is the init."""
        self.proc, self.alone = proc, alone
        self.listed = bool(proc is not None and self.read("self/stat") and self.has_lists())
        self.pid, self.rss, self.base_rss = 0, 0, 0
        self.seen: dict[int, float] = {}

    def has_lists(self) -> bool:
        """Whether the kernel lists the children of a task (CONFIG_PROC_CHILDREN)."""
        try:
            os.stat(f"self/task/{self.myself()}/children", dir_fd=self.proc)
        except OSError:
            return False
        return True

    def myself(self) -> str:
        """This process as the host's /proc names it."""
        return os.readlink("self", dir_fd=self.proc)

    def start(self, pid: int) -> None:
        """Watch a new program."""
        self.pid, self.rss = pid, 0
        self.seen = {}
        if self.proc is not None:
            self.base_rss = int(self.read("self/stat").rpartition(b")")[2].split()[RSS]) * PAGE

    def usage(self) -> tuple[float, int, int]:
        """CPU seconds so far; bytes in memory beyond what all shared at the start (0 for a single process, which its
        address space limits); how many processes there are."""
        members = self.members()
        if len(members) < 2 and not self.seen:
            return cpu_clock(self.pid), 0, len(members)
        return max(cpu_clock(self.pid), self._sum(members)), self.rss, len(members)

    def _sum(self, members: list[int]) -> float:
        """A program that has its dead children forgotten (SIGCHLD ignored) hides their time from its own account, so
        what each was seen with is kept, too."""
        total, self.rss = 0.0, 0
        for member in members:
            fields = self.read(f"{member}/stat").rpartition(b")")[2].split()
            if fields:
                own = (int(fields[UTIME]) + int(fields[STIME])) / TICK
                self.seen[member] = max(own, self.seen.get(member, 0.0))
                total += own + (int(fields[CUTIME]) + int(fields[CSTIME])) / TICK
                self.rss += max(0, int(fields[RSS]) * PAGE - self.base_rss)
        return max(total, sum(self.seen.values()))

    def members(self) -> list[int]:
        """Process ids, as the host's /proc names them; none without /proc."""
        if self.proc is None:
            return []
        if not self.listed:
            return self.scan()
        found, todo = [], self.children(self.myself())
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
        found = {int(self.myself())}
        root = set(found)
        while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
            found |= more
        return sorted(found - root)

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

    def end(self) -> tuple[int, float]:
        """Kill them all and wait for each, again until none is left, because they may fork meanwhile. Exit code of the
        program (negative: the signal) and the CPU seconds of all."""
        code, cpu_s = 0, 0.0
        deadline = time.monotonic() + END_S
        while time.monotonic() < deadline:
            self._kill()
            try:
                while True:
                    pid, status, usage = os.wait4(-1, 0 if self.alone else os.WNOHANG)
                    if not pid:
                        break
                    cpu_s += usage.ru_utime + usage.ru_stime
                    if pid == self.pid:
                        code = os.waitstatus_to_exitcode(status)
            except ChildProcessError:
                return code, round(max(cpu_s, sum(self.seen.values())), 4)
            time.sleep(0.0005)
        raise SystemExit("processes of a program could not be ended")

    def _kill(self) -> None:
        if self.alone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)  # everything in the namespace but its init; none can fork past it
            return
        for kill, target in [(os.kill, self.pid), (os.killpg, self.pid), *((os.kill, pid) for pid in self.members())]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(target, signal.SIGKILL)


def cpu_clock(pid: int) -> float:
    """CPU seconds of a process, from its own clock (the id is that of clock_getcpuclockid(3) on Linux)."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:  # it ended this instant
        return 0.0
