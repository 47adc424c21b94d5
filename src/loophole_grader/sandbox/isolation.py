"""The layers between a judged program and the host. What the host does not allow is named with the reason.

The worker enters its namespaces once (`Isolation.enter`), builds a file system there and prepares Landlock rules
and a seccomp filter. A forked child then gives up what remains in a dozen system calls (`Isolation.steps`).
Sources: linux/landlock.h, linux/mount.h, linux/prctl.h.
"""

# File descriptors and system calls throughout, on plain strings, so no pathlib:
# ruff: noqa: PTH102, PTH103, PTH110, PTH112, PTH113, PTH118, PTH119, PTH120, PTH123
# ruff: noqa: PTH208

import contextlib
import ctypes
import json
import os
import signal
import stat
import struct
import sys
from collections.abc import Callable

import seccomp  # ty: ignore[import-not-found]  (run by the file's folder, not as part of the package)

NAMESPACES = {
    "user_namespace": 0x10000000,
    "mount_namespace": 0x00020000,
    "net_namespace": 0x40000000,
    "ipc_namespace": 0x08000000,
    "pid_namespace": 0x20000000,
}
SCRATCH_BYTES, SCRATCH_INODES = 64 << 20, 20_000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
MS_NOATIME, MS_RELATIME = 1024, 1 << 21
ST_RELATIME = 4096  # the other flags of statvfs have the values of their MS_ namesakes
MNT_DETACH = 2
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 8, 22, 38
SECCOMP_MODE_FILTER = 2
CAP_DAC_READ_SEARCH, CAPABILITY_VERSION_3 = 2, 0x20080522
DEVICES = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"]
HIDDEN = ("site-packages", "dist-packages")  # folders of the standard library that are not part of it
STANDARD_LIBRARY = os.path.dirname(os.path.realpath(os.__file__))
libc = ctypes.CDLL(None, use_errno=True)
capset, prctl_call, system_call = libc.capset, libc.prctl, libc.syscall  # found once, not in every child
fork = ctypes.PyDLL(None).fork
"""os.fork() without Python's handlers, which cost a millisecond in the child: what is forked here has one thread."""


class Isolation:
    """The layers around the programs of one worker."""

    def __init__(self, folder: str, without: frozenset[str]) -> None:
        """`folder`: of this worker alone. `without`: layers to leave out."""
        self.active = ["session", "rlimits"]
        self.missing = dict.fromkeys(without, "switched off")
        self.folder, self.scratch = folder, os.path.join(folder, "run")
        paths = [STANDARD_LIBRARY, *shared_libraries(), "/etc/ld.so.cache", "/usr/share/zoneinfo", "/etc/localtime"]
        self.readable = [path for path in paths if os.path.exists(path)]
        # the host's, which the programs themselves do not have
        self.proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.home: int | None = None  # the worker's pid namespace
        self.rules: int | None = None
        self.uid: int | None = None
        self.unused_uid = 20_000 + os.getpid() % 40_000
        self.caps_kept = 0
        # With these a child gives up what the program does not need. OSError if a layer fails that worked before.
        self.steps: list[Callable[[], object]] = []

    def prepare(self) -> None:
        """In the process that forks the worker: whose pid namespace is that of the host, and ends with it."""
        self._add("user_namespace", enter_user_namespace)
        self._add("pid_namespace", self._try_pid_namespace)
        if "pid_namespace" in self.active:
            unshare(NAMESPACES["pid_namespace"])

    def enter(self) -> None:
        """In the worker: set up whatever else the host allows. Its scratch directory then exists."""
        os.mkdir(self.scratch, 0o700)
        if "pid_namespace" in self.active:
            self._open_home()
        self._add("mount_namespace", self._build_root)
        self._add("net_namespace", lambda: unshare(NAMESPACES["net_namespace"]))
        self._add("ipc_namespace", lambda: unshare(NAMESPACES["ipc_namespace"]))
        self._add("own_user", self._choose_user)
        self._add("landlock", self._prepare_landlock)
        self._add("seccomp", lambda: seccomp.filter_for(None))
        self._rehearse_confinement()
        self.steps = list(self._steps().values())
        prctl(PR_SET_DUMPABLE, 0)  # the programs may have our user id: no ptrace, no /proc/PID/mem

    def _add(self, name: str, step: Callable[[], object]) -> None:
        """Set up one layer, and note that it is active or why it is missing."""
        if name in self.missing:
            return
        try:
            step()
        except OSError as error:
            self.missing[name] = str(error)
        else:
            self.active.append(name)

    def _build_root(self) -> None:
        """A new root: read-only views of what a program needs, devices without power, and a scratch directory
        in memory. Nothing else of the host's files is there, not even to look at."""
        unshare(NAMESPACES["mount_namespace"])
        mount(None, "/", None, MS_REC | MS_PRIVATE)
        mount("none", self.folder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=4m")
        try:
            for path in (*self.readable, *DEVICES):
                self._show(path)
            for name in HIDDEN:
                if os.path.isdir(hidden := f"{self.folder}{STANDARD_LIBRARY}/{name}"):
                    mount("none", hidden, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV)
            os.makedirs(self.folder + "/scratch/run")
            os.chdir(self.folder)
            check(system_call(PIVOT_ROOT[os.uname().machine], b".", b"."), "pivot_root")
            detach(".")
        except OSError:
            os.chdir("/")
            detach(self.folder)
            raise
        os.chdir("/")
        self.scratch = "/scratch/run"
        self._mount_scratch()
        mount(None, "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)

    def _show(self, path: str) -> None:
        """A file or folder of the host at its place in the new root. All but devices are read-only."""
        target = self.folder + path
        if os.path.isdir(path):
            os.makedirs(target, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.mknod(target, 0o444)
        mount(os.path.realpath(path), target, None, MS_BIND)
        if path not in DEVICES:
            flags = os.statvfs(target).f_flag  # a remount inside a user namespace must repeat them
            kept = (flags & (2 | 4 | 8 | 1024 | 2048)) | (MS_RELATIME if flags & ST_RELATIME else 0)
            mount(None, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | kept)

    def _try_pid_namespace(self) -> None:
        """In throwaway processes: a namespace, and two after each other inside it."""

        def inside() -> dict[str, str]:
            self._open_home()
            for _ in range(2):
                self.next_pid_namespace()
                in_fork(dict)
            return {}

        def outside() -> dict[str, str]:
            unshare(NAMESPACES["pid_namespace"])
            return in_fork(inside)

        in_fork(outside)

    def _open_home(self) -> None:
        self.home = os.open("self/ns/pid", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.proc)

    def next_pid_namespace(self) -> None:
        """The next fork begins a new one: its process numbers start at 1, whatever ran before."""
        check(libc.setns(self.home, NAMESPACES["pid_namespace"]), "setns")
        unshare(NAMESPACES["pid_namespace"])

    def _choose_user(self) -> None:
        """A root worker's programs run as a user that owns nothing: no signal to the trainer, none of its files, a
        process limit that counts them alone. It keeps the right to read files only where the standard library is
        closed to others (a Python below /root, seen without a mount namespace)."""
        if os.getuid() != 0:
            raise OSError(1, "the worker is not root")

        def closed() -> dict[str, str]:
            become(self.unused_uid, 0)  # a container may map no further user or forbid the change
            return {} if os.access(os.__file__, os.R_OK) else {os.__file__: "closed"}

        self.caps_kept = 1 << CAP_DAC_READ_SEARCH if in_fork(closed) else 0
        self.uid = uid = self.unused_uid
        os.chown(self.scratch, uid, uid)

    def _prepare_landlock(self) -> None:
        # The rule for the folder above holds for whatever is mounted there.
        above = os.path.dirname(self.scratch) if "mount_namespace" in self.active else self.scratch
        self.rules = ruleset(self.readable, DEVICES, above)

    def _rehearse_confinement(self) -> None:
        """Take the steps of a child in a throwaway one; keep the layers that work there."""

        def reasons() -> dict[str, str]:
            failed = {}
            for name, step in self._steps().items():
                try:
                    step()
                except OSError as error:
                    failed[name] = str(error)
            return failed

        self.active += [name for name in ("capabilities", "no_new_privs") if name not in self.missing]
        failed = in_fork(reasons)
        self.missing |= failed
        self.active = [name for name in self.active if name not in failed]

    def renew_scratch(self) -> None:
        """A new, empty scratch directory, before a program."""
        if "mount_namespace" in self.active:
            detach(self.scratch)
            self._mount_scratch()
            return
        self.remove_scratch()
        os.mkdir(self.scratch, 0o700)
        if self.uid is not None:
            os.chown(self.scratch, self.uid, self.uid)
        if self.rules is not None:
            os.close(self.rules)
            self._prepare_landlock()

    def remove_scratch(self) -> None:
        """Remove a folder, however deep it is and whatever modes a program gave to what is in it."""
        remove = ["sh", "-c", 'chmod -R u+rwx "$0"; rm -rf "$0"', self.scratch]
        os.waitpid(os.posix_spawn("/bin/sh", remove, {}), 0)

    def _mount_scratch(self) -> None:
        """An empty directory in memory, bounded in bytes and files."""
        owner = f"uid={self.uid},gid={self.uid}," if self.uid is not None else ""
        limits = f"mode=700,size={SCRATCH_BYTES},nr_inodes={SCRATCH_INODES}"
        mount("none", self.scratch, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOATIME, owner + limits)

    def _steps(self) -> dict[str, Callable[[], object]]:
        steps: dict[str, Callable[[], object]] = {
            # no bounding set to drop: with no_new_privs and no exec a capability cannot come back
            "capabilities": lambda: become(self.uid, self.caps_kept),
            # ends with the worker; after the change of user, which would undo it
            "session": lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
            "no_new_privs": lambda: prctl(PR_SET_NO_NEW_PRIVS, 1),
            "landlock": lambda: landlock(RESTRICT_SELF, self.rules, 0),
            "seccomp": self._install_filter,
        }
        return {name: step for name, step in steps.items() if name in self.active}

    def _install_filter(self) -> None:
        # Inside its pid namespace a program meets only itself; elsewhere it may signal only itself.
        program, _ = seccomp.filter_for(None if "pid_namespace" in self.active else os.getpid())
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program)


def shared_libraries() -> list[str]:
    """Every name of the files that are mapped once all extension modules of the standard library are loaded. In a
    throwaway process: loading them all would make every fork slower."""

    def mapped() -> dict[str, str]:
        with contextlib.suppress(OSError):
            ctypes.CDLL("libgcc_s.so.1")  # the C library loads it when a thread ends itself
        modules = os.path.join(STANDARD_LIBRARY, "lib-dynload")
        for name in os.listdir(modules) if os.path.isdir(modules) else ():
            with contextlib.suppress(OSError):
                ctypes.CDLL(os.path.join(modules, name))
        with open("/proc/self/maps") as lines:
            paths = {line.split(None, 5)[5].strip() for line in lines if "/" in line}
        return {path: "" for path in paths if ".so" in os.path.basename(path) and os.path.isfile(path)}

    files = {path for path in in_fork(mapped) if not path.startswith(STANDARD_LIBRARY + "/")}
    folders = {os.path.dirname(path) for path in files}
    folders |= {folder.removeprefix("/usr") for folder in folders}  # where /lib is a link to /usr/lib
    names = (os.path.join(folder, name) for folder in folders if os.path.isdir(folder) for name in os.listdir(folder))
    return sorted(path for path in names if os.path.realpath(path) in files)


# ---------------------------------------------------------------- Landlock: which files a process may still open

CREATE, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
ASK_VERSION, PATH_BENEATH = 1, 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_SOCK, MAKE_BLOCK, TRUNCATE = 1 << 6, 1 << 9, 1 << 11, 1 << 14
FILE_RIGHTS = READ_FILE | WRITE_FILE | TRUNCATE
ALL_TCP = 0b11  # bind, connect
ALL_SCOPES = 0b11  # abstract unix sockets and signals of processes outside


def ruleset(readable: list[str], writable: list[str], scratch: str) -> int:
    """A file descriptor of rules: read `readable`, read and write the files `writable`, do anything but execute and
    make devices and sockets below `scratch`; nothing else on any file, no TCP, no signal to a process outside."""
    abi = landlock(CREATE, None, ctypes.c_size_t(0), ASK_VERSION)
    # 13 rights at first; then REFER (2), TRUNCATE (3) and IOCTL_DEV (5). Version 4 knows TCP, 6 the scopes.
    handled = (1 << 13 + (abi >= 2) + (abi >= 3) + (abi >= 5)) - 1
    attributes = struct.pack("<QQQ", handled, ALL_TCP * (abi >= 4), ALL_SCOPES * (abi >= 6))
    fd = landlock(CREATE, attributes, ctypes.c_size_t(8 if abi < 4 else 16 if abi < 6 else 24), 0)
    rights = dict.fromkeys(readable, READ_FILE | READ_DIR) | dict.fromkeys(writable, handled & FILE_RIGHTS)
    rights[scratch] = handled & ~(EXECUTE | MAKE_CHAR | MAKE_BLOCK | MAKE_SOCK)
    for path, allowed in rights.items():
        with contextlib.suppress(FileNotFoundError):
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            is_folder = stat.S_ISDIR(os.fstat(place).st_mode)
            rule = struct.pack("<Qi", allowed if is_folder else allowed & FILE_RIGHTS, place)
            landlock(ADD_RULE, fd, PATH_BENEATH, rule, 0)
            os.close(place)
    return fd


def landlock(number: int, *arguments: object) -> int:
    result = system_call(number, *arguments)
    check(result < 0, "landlock")
    return result


def check(failed: int, what: str) -> None:
    if failed:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def prctl(option: int, value: int, pointer: object = 0) -> None:
    check(prctl_call(option, value, pointer, 0, 0), f"prctl {option}")


def unshare(flags: int) -> None:
    check(libc.unshare(flags), "unshare")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind)]
    check(libc.mount(*texts, ctypes.c_ulong(flags), data.encode()), f"mount of {target}")


def detach(path: str) -> None:
    check(libc.umount2(path.encode(), MNT_DETACH), f"umount of {path}")


def enter_user_namespace() -> None:
    """A user namespace that maps what this process may map: all ids for root, else only one. The map of root must be
    written by a process outside, here a fork that waits until this one is inside."""
    uid, gid, pid = os.getuid(), os.getgid(), os.getpid()
    if uid != 0:
        unshare(NAMESPACES["user_namespace"])
        write_maps(pid, {"setgroups": "deny", "uid_map": f"{uid} {uid} 1", "gid_map": f"{gid} {gid} 1"})
    else:
        maps = {}
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/self/{name}") as lines:
                ranges = [line.split() for line in lines]
            maps[name] = "".join(f"{first} {first} {count}\n" for first, _, count in ranges)
        inside, tell = os.pipe()
        if (helper := os.fork()) == 0:
            try:
                os.close(tell)
                if os.read(inside, 1):
                    write_maps(pid, maps)
            finally:  # whatever it raises: what goes on here would be a second worker
                os._exit(0)
        os.close(inside)
        try:
            unshare(NAMESPACES["user_namespace"])
            os.write(tell, b".")
        finally:
            os.close(tell)
            os.waitpid(helper, 0)
    if os.getuid() != uid:
        raise OSError("the map of user ids was not taken")
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def write_maps(pid: int, maps: dict[str, str]) -> None:
    for name, text in maps.items():
        with open(f"/proc/{pid}/{name}", "w") as file:
            file.write(text)


def become(uid: int | None, capabilities: int) -> None:
    """Another user (None: the same one), with these capabilities only."""
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        if capabilities:
            prctl(PR_SET_KEEPCAPS, 1)
        os.setresuid(uid, uid, uid)
    head = struct.pack("<2I", CAPABILITY_VERSION_3, 0)
    check(capset(head, struct.pack("<6I", capabilities, capabilities, 0, 0, 0, 0)), "capset")


def in_fork(function: Callable[[], dict[str, str]]) -> dict[str, str]:
    """What a function returns in a throwaway fork. Raises the OSError that it raises, RuntimeError for others."""
    source, target = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            try:
                result: list = [function(), ""]
            except OSError as error:
                result = [{}, str(error)]
            os.write(target, json.dumps(result).encode())
        except BaseException as error:  # noqa: BLE001  what goes on here would be a second worker
            sys.excepthook(type(error), error, error.__traceback__)
        finally:
            os._exit(0)
    os.close(target)
    with os.fdopen(source) as lines:
        answer = lines.read()
    os.waitpid(pid, 0)
    if not answer:
        raise RuntimeError("a fork of the worker ended without a result")
    found, failed = json.loads(answer)
    if failed:
        raise OSError(1, failed)
    return found
