"""All processes of one program: how much CPU time and memory they use together, and how to end them.

Without cgroups. The worker is their reaper (the program itself where it is the init of a pid namespace), so whatever
leaves its session stays below the worker, and /proc lists its descendants. /proc is the host's, held as a file
descriptor that the programs do not have."""

import contextlib
import os
import select
import signal
import time

TICK = os.sysconf("SC_CLK_TCK")
HELD = (b"RssAnon:", b"VmPTE:")  # of /proc/PID/status, in KiB
END_S = 10.0


class Proc:
    """The host's /proc, and the worker in it, whose descendants the programs are."""

    def __init__(self, folder: int) -> None:
        """`folder`: of /proc, a file descriptor."""
        self.folder = folder
        self.worker = int(os.readlink("self", dir_fd=folder))
        self.inherited = self.own_memory(self.worker)  # bytes of a program before it begins

    def descriptor(self, name: str, _flags: int = 0) -> int:
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.folder)

    def read(self, name: str) -> bytes:
        """A file; empty where the process has ended."""
        with contextlib.suppress(OSError), open(name, "rb", opener=self.descriptor) as file:
            return file.read()
        return b""

    def own_memory(self, pid: int) -> int:
        """Bytes in memory that are no file's (nothing else is shared here), and those of the page tables."""
        for task in (f"{pid}", *self.tasks(pid)):  # the first thread has no memory once it has ended
            lines = self.read(f"{task}/status").splitlines()
            if held := sum(int(line.split()[1]) << 10 for line in lines if line.startswith(HELD)):
                return held
        return 0

    def cpu_s(self, pid: int) -> tuple[float, float]:
        """CPU seconds of a process, and of those of its children that it has waited for."""
        fields = self.read(f"{pid}/stat").rpartition(b")")[2].split()[11:15]  # utime, stime, cutime, cstime
        ticks = [int(field) for field in fields] or [0] * 4
        return sum(ticks[:2]) / TICK, sum(ticks[2:]) / TICK

    def descendants(self) -> list[int]:
        """Process ids, as the host's /proc names them."""
        members = [self.worker]
        for member in members:  # which grows
            for task in self.tasks(member):
                members += map(int, self.read(f"{task}/children").split())
        return members[1:]

    def tasks(self, pid: int) -> list[str]:
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
        process alone that is taken off. A program that has its dead children forgotten (SIGCHLD ignored) hides their
        time from its account, so what each was seen with counts, too."""
        members = self.proc.descendants()
        total, held = 0.0, -self.proc.inherited
        for member in members:
            used, of_children = self.proc.cpu_s(member)
            self.seen[member] = max(used, self.seen.get(member, 0.0))
            total += used + of_children
            held += self.proc.own_memory(member)
        if len(self.seen) < 2:
            total = 0.0  # what is alone is on a finer clock
        with contextlib.suppress(OSError):  # it ended this instant
            total = max(total, time.clock_gettime((~self.pid << 3) | 2))  # as of clock_getcpuclockid(3) on Linux
        return max(total, self.seen_s()), max(0, held), len(members)

    def seen_s(self) -> float:
        return sum(self.seen.values()) if len(self.seen) > 1 else 0.0

    def end(self) -> tuple[int, float]:
        """Kill them all and wait for each, again until none is left, because they may fork meanwhile. Exit code of
        the program (negative: the signal) and the CPU seconds of all."""
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
