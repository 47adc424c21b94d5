"""The world around the attacks: canaries, servers and secrets for them to find, and what became of them all."""

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
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from attacks import ATTACKS, SOLVED, TASKS, Attack, problems
from loophole_grader import Limits, RowError, Verdict, close_pool, grade_batch

SECRET = "s3cr3t-0f-the-p4rent"
OPEN_PLACES = [Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path("/run"), Path("/")]
PR_SET_CHILD_SUBREAPER = 36


def listener(family: int, kind: int, address: object) -> tuple[socket.socket, list[bytes]]:
    """A socket, and what arrives at it, for as long as the suite runs."""
    opened, heard = socket.socket(family, kind), []
    opened.bind(address)
    if kind == socket.SOCK_STREAM:
        opened.listen(64)

    def listen() -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                if kind == socket.SOCK_DGRAM:
                    heard.append(opened.recv(100))
                else:
                    opened.accept()[0].close()
                    heard.append(b"connected")

    threading.Thread(target=listen, daemon=True).start()
    return opened, heard


@dataclass
class World:
    """What one suite sets up for its attacks to find."""

    base: Path
    cwd: Path
    home: Path
    listeners: dict[str, tuple[socket.socket, list[bytes]]]
    abstract: str
    victim: subprocess.Popen
    signals: list[int] = field(default_factory=list)


def canaries(place: Path) -> None:
    """Files that anyone may read, change and remove."""
    place.mkdir(exist_ok=True)
    for name in ("keep.txt", "open.txt", "secret.txt"):
        (place / name).write_text(f"keep me, {SECRET}")
        (place / name).chmod(0o600 if name == "secret.txt" else 0o666)
    place.chmod(0o777)


def snapshot(places: list[Path]) -> dict[str, tuple]:
    """Mode, time, attributes and content of each file and folder."""
    found = {}
    for place in places:
        for path in [place, *place.rglob("*")]:
            state, is_file = path.lstat(), path.is_file() and not path.is_symlink()
            marks = os.listxattr(path, follow_symlinks=False)
            found[str(path)] = state.st_mode, state.st_mtime_ns, marks, path.read_bytes() if is_file else b""
    return found


def marked(mark: str) -> list[str]:
    """Files in folders that all share, and processes, that bear the mark of an attack."""
    found = [str(path) for place in OPEN_PLACES if place.is_dir() for path in place.iterdir() if mark in path.name]
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            text = (folder / "comm").read_bytes() + (folder / "cmdline").read_bytes()
            if mark.encode() in text:
                found.append(f"{folder.name}: {text!r}")
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
    patch.setenv("ATTACK_SUITE_TOKEN", SECRET)
    if os.getuid() == 0 and (program := shutil.which("id")):
        shutil.copy(program, base / "id")
        (base / "id").chmod(0o4755)
    abstract = f"attack-suite-{os.getpid()}"
    listeners = {
        "tcp": listener(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
        "udp": listener(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
        "path": listener(socket.AF_UNIX, socket.SOCK_STREAM, str(base / "socket")),
        "abstract": listener(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + abstract),
    }
    (base / "socket").chmod(0o777)
    close_pool()  # what runs from here on inherits what it can
    found = World(base, cwd, home, listeners, abstract, subprocess.Popen(["sleep", "3600"]))
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
        found.victim.kill()
        found.victim.wait()
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        signal.signal(signal.SIGURG, old)
        for opened, _ in listeners.values():
            opened.close()
        shutil.rmtree(base, ignore_errors=True)
        shutil.rmtree(cwd, ignore_errors=True)
        patch.undo()


def run_attacks(
    chosen: Sequence[Attack], world: World
) -> tuple[dict[str, Verdict | RowError], list[Verdict | RowError]]:
    """Grade attacks in a few batches, an honest solution behind each. Nothing has changed in the world afterwards,
    and no batch took too long. Returns the verdicts on the attacks, by name, and those on the honest ones."""
    verdicts, honest, mark = {}, [], f"atk{os.getpid() % 100000}"
    places = [root / "canaries" for root in (world.base, world.cwd, world.home)]
    for place in places:
        canaries(place)
    before, batches = snapshot(places), defaultdict(list)
    for attack in chosen:
        batches[attack.cpu_s, attack.wall_s].append((attack, completion_of(attack, world, places, mark)))
    for (cpu_s, wall_s), members in batches.items():
        texts = [
            text for attack, code in members for text in (code, f"```python\n# after {attack.name}\n{SOLVED}\n```")
        ]
        tasks = [TASKS[name] for attack, _ in members for name in (attack.task, "merge")]
        begun = time.monotonic()
        graded = grade_batch(tasks, texts, limits=Limits(cpu_s=cpu_s, wall_s=wall_s, memory_mb=384), workers=2)
        assert time.monotonic() - begun < len(members) * (2 * wall_s + 3), [attack.name for attack, _ in members]
        verdicts |= {attack.name: one for (attack, _), one in zip(members, graded[::2], strict=True)}
        honest += graded[1::2]
    after = snapshot(places)
    assert [path for path in {*before, *after} if before.get(path) != after.get(path)] == []
    assert marked(mark) == []  # processes, and files in folders that all share
    return verdicts, honest


def completion_of(attack: Attack, world: World, places: list[Path], mark: str) -> str:
    """The text of an attack, with the words that name what is there to be reached."""
    words = {
        "DIR": places[0], "CWD": places[1], "HOME": places[2], "MARK": mark, "SECRET": SECRET,
        "PARENT": os.getpid(), "VICTIM": world.victim.pid,
        "PORT": world.listeners["tcp"][0].getsockname()[1], "UDP": world.listeners["udp"][0].getsockname()[1],
        "SOCKET": world.base / "socket", "ABSTRACT": world.abstract, "SUID": world.base / "id", "SUITE": problems.__file__,
    }  # fmt: skip
    code = attack.code
    for word, value in words.items():
        code = code.replace(f"@{word}@", str(value))
    return code if attack.raw else f"```python\n# {ATTACKS.index(attack)}\n{code}\n```"
