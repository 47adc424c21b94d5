"""The world around the attacks: canaries, servers and secrets for them to find, and what became of each one."""

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from attacks import ATTACKS, SOLVED, TASKS, Attack, problems
from loophole_grader import Limits, Verdict, close_pool, grade

SECRET, SECRET_NAME = "s3cr3t-0f-the-p4rent", "ATTACK_SUITE_TOKEN"
OPEN_PLACES = [Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path("/run"), Path("/")]
PR_SET_CHILD_SUBREAPER = 36


class Listener:
    """Takes whatever arrives at one socket, for as long as the suite runs."""

    def __init__(self, family: int, kind: int, address: object) -> None:
        self.heard: list[bytes] = []
        self.socket = socket.socket(family, kind)
        self.socket.bind(address)
        if kind == socket.SOCK_STREAM:
            self.socket.listen(64)
        threading.Thread(target=self._listen, args=(kind,), daemon=True).start()

    def _listen(self, kind: int) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                if kind == socket.SOCK_DGRAM:
                    self.heard.append(self.socket.recv(100))
                    continue
                one, _ = self.socket.accept()
                with one:
                    one.settimeout(2)
                    self.heard.append(b"connected")
                    with contextlib.suppress(OSError):
                        self.heard.append(one.recv(100))

    @property
    def port(self) -> int:
        return self.socket.getsockname()[1]


@dataclass
class World:
    """What one suite sets up for its attacks to find: canaries, servers, secrets."""

    base: Path
    cwd: Path
    home: Path
    listeners: dict[str, Listener]
    abstract: str
    signals: list[int] = field(default_factory=list)


@dataclass
class Outcome:
    """What became of one attack."""

    verdict: Verdict | None = None
    honest: Verdict | None = None
    error: BaseException | None = None
    seconds: float = 0.0
    changed: list[str] = field(default_factory=list)  # canaries that are not as they were, and files that are new
    processes: list[str] = field(default_factory=list)
    victim_lives: bool = True
    left_open: list[str] = field(default_factory=list)  # System V objects


def mark_of(attack: Attack) -> str:
    return f"atk{os.getpid() % 100000}-{ATTACKS.index(attack):03d}"


def key_of(attack: Attack) -> int:
    return 0x20000000 + (os.getpid() % 30000) * 1000 + ATTACKS.index(attack)


def canaries(place: Path) -> None:
    """Files that anyone may read, change and remove."""
    place.mkdir()
    for name in ("keep.txt", "open.txt"):
        (place / name).write_text(f"keep me, {SECRET}")
        (place / name).chmod(0o666)
    (place / "secret.txt").write_text(SECRET)
    (place / "secret.txt").chmod(0o600)
    place.chmod(0o777)


def snapshot(places: list[Path]) -> dict[str, tuple[int, int, list[str], bytes]]:
    """Mode, time, attributes and content of each file and folder."""
    found = {}
    for place in places:
        for path in [place, *place.rglob("*")]:
            state, is_file = path.lstat(), path.is_file() and not path.is_symlink()
            marks = os.listxattr(path, follow_symlinks=False)
            found[str(path)] = state.st_mode, state.st_mtime_ns, marks, path.read_bytes() if is_file else b""
            if os.getuid() != 0 and state.st_mode & 0o700 == 0:
                path.chmod(0o700)  # so that it can be cleared away
    return found


def marked_files(mark: str, places: list[Path]) -> list[str]:
    """Files of the attack in folders that all share."""
    return [
        str(path)
        for place in places
        if place.is_dir()
        for path in place.iterdir()
        if mark in path.name or "left_behind" in path.name
    ]


def marked_processes(mark: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            text = (folder / "comm").read_bytes() + (folder / "cmdline").read_bytes()
            if mark.encode() in text:
                found.append(f"{folder.name}: {text!r}")
    return found


def system_v_objects(key: int) -> list[str]:
    """What is left of shared memory, message queues and semaphores; removed, so that a failure leaves nothing."""
    libc, found = ctypes.CDLL(None), []
    remove = {"shm": lambda number: libc.shmctl(number, 0, None), "msg": lambda number: libc.msgctl(number, 0, None),
              "sem": lambda number: libc.semctl(number, 0, 0)}  # fmt: skip
    for kind, end in remove.items():
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]:
                if int(line.split()[0]) == key:
                    found.append(f"{kind}: {line}")
                    end(int(line.split()[1]))
    return found


def descendants() -> dict[int, str]:
    """Living processes below this one, wherever they fled: the suite is their subreaper."""
    parents, states = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            name, _, rest = (folder / "stat").read_text().rpartition(")")
            states[int(folder.name)] = f"{name}) {rest.split()[0]}"
            parents[int(folder.name)] = int(rest.split()[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    return {pid: states[pid] for pid in found - {os.getpid()} if not states[pid].endswith("Z")}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def surroundings() -> Iterator[World]:
    """The world of one suite, and no trace of it afterwards."""
    patch = pytest.MonkeyPatch()
    # Not tmp_path: another user may not pass through that, and every door is to be open here.
    base = Path(tempfile.mkdtemp(prefix="attack-suite-"))
    cwd = Path(tempfile.mkdtemp(prefix=".attack-suite-", dir=Path.cwd()))
    home, scratch = base / "home", base / "tmp"
    for folder in (base, cwd, home, scratch):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
    patch.setattr(tempfile, "tempdir", str(scratch))  # for the graders of this suite alone
    patch.setenv("HOME", str(home))
    patch.setenv(SECRET_NAME, SECRET)
    if os.getuid() == 0 and (program := shutil.which("id")):
        shutil.copy(program, base / "id")
        (base / "id").chmod(0o4755)
    abstract = f"attack-suite-{os.getpid()}"
    listeners = {
        "tcp": Listener(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
        "udp": Listener(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
        "path": Listener(socket.AF_UNIX, socket.SOCK_STREAM, str(base / "socket")),
        "abstract": Listener(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + abstract),
    }
    (base / "socket").chmod(0o777)
    close_pool()  # what runs from here on inherits what it can
    found = World(base, cwd, home, listeners, abstract)
    old = signal.signal(signal.SIGURG, lambda number, _: found.signals.append(number))
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    secret_fd = os.open(base / "fd.txt", os.O_CREAT | os.O_RDWR)
    os.write(secret_fd, SECRET.encode())
    os.set_inheritable(secret_fd, True)
    try:
        yield found
    finally:
        close_pool()
        os.close(secret_fd)
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        signal.signal(signal.SIGURG, old)
        for listener in listeners.values():
            listener.socket.close()
        shutil.rmtree(base, ignore_errors=True)
        shutil.rmtree(cwd, ignore_errors=True)
        patch.undo()


def run_attack(attack: Attack, world: World) -> Outcome:
    """Grade an honest solution, the attack and an honest one, all by one worker."""
    outcome, mark = Outcome(), mark_of(attack)
    places = [root / attack.name for root in (world.base, world.cwd, world.home)]
    for place in places:
        canaries(place)
    before = snapshot(places)
    shared = [*OPEN_PLACES, world.base, world.cwd, world.home]
    victim = subprocess.Popen(["sleep", "600"]) if "@VICTIM@" in attack.code else None
    free = free_port() if "@FREE@" in attack.code else 0
    words = {
        "DIR": places[0], "CWD": places[1], "HOME": places[2], "MARK": mark, "KEY": key_of(attack), "SECRET": SECRET,
        "SECRET_NAME": SECRET_NAME, "PARENT": os.getpid(), "PARENT_GROUP": os.getpgid(0),
        "VICTIM": victim.pid if victim else 0, "PORT": world.listeners["tcp"].port, "FREE": free,
        "UDP": world.listeners["udp"].port, "SOCKET": world.base / "socket", "ABSTRACT": world.abstract,
        "SUID": world.base / "id", "SUITE": problems.__file__,
    }  # fmt: skip
    if free:
        threading.Thread(target=knock, args=(free, mark), daemon=True).start()

    def filled(code: str) -> str:
        for word, value in words.items():
            code = code.replace(f"@{word}@", str(value))
        return code

    code = filled(attack.code)
    first, last = (f"```python\n# {attack.name}, {when}\n{SOLVED}\n```" for when in ("before", "after"))
    limits = Limits(cpu_s=attack.cpu_s, wall_s=attack.wall_s, memory_mb=384)
    times = [time.monotonic()]
    try:
        verdicts = []
        texts = [first, code if attack.raw else f"```python\n{code}\n```", last]
        for task, text in zip(("merge", attack.task, "merge"), texts, strict=True):
            verdicts.append(grade(TASKS[task], text, limits=limits))  # one after the other: a batch has no order
            times.append(time.monotonic())
        _, outcome.verdict, outcome.honest = verdicts
    except Exception as error:  # noqa: BLE001  the test of this attack fails by it
        outcome.error = error
        times += [times[0], time.monotonic()]
    outcome.seconds = times[2] - times[1]
    outcome.processes = marked_processes(mark)
    after = snapshot([place for place in places if place.exists()])
    outcome.changed = [path for path in {*before, *after} if before.get(path) != after.get(path)]
    outcome.changed += marked_files(mark, shared)
    for path in map(Path, marked_files(mark, shared)):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    outcome.left_open = system_v_objects(key_of(attack))
    for place in places:
        shutil.rmtree(place, ignore_errors=True)
    if victim:
        outcome.victim_lives = victim.poll() is None
        victim.kill()
        victim.wait()
    return outcome


def knock(port: int, name: str) -> None:
    """Try to reach what an attack may have opened, for three seconds."""
    end = time.monotonic() + 3
    while time.monotonic() < end:
        for family, address in ((socket.AF_INET, ("127.0.0.1", port)), (socket.AF_UNIX, "\0" + name)):
            with contextlib.suppress(OSError), socket.socket(family) as one:
                one.connect(address)
        time.sleep(0.05)
