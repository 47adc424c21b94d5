"""The layers between a judged program and the host, each probed at the runner's start and reported.

The runner enters its namespaces once (`Isolation.enter`), builds its own file system there and prepares Landlock rules
and a seccomp filter; a forked child then gives up what is left in a dozen system calls (`Isolation.confine`). A layer
counts as active only if a throwaway process could set it up; a missing one is named with the reason.
"""

# File descriptors and system calls throughout, on plain strings, so no pathlib:
# ruff: noqa: PTH102, PTH103, PTH106, PTH110, PTH112, PTH114, PTH116, PTH118, PTH119, PTH120, PTH123, PTH211

import contextlib
import ctypes
import itertools
import json
import os
import platform
import resource
import shutil
import signal
import time
from collections.abc import Callable

import landlock  # ty: ignore[import-not-found]  (run by the file's folder, not as part of the package)
import seccomp  # ty: ignore[import-not-found]
from libraries import files_of, names_of, shared_libraries, standard_library, warm  # ty: ignore[import-not-found]
from scratch import empty_folder  # ty: ignore[import-not-found]

NAMESPACES = {
    "user_namespace": 0x10000000,
    "mount_namespace": 0x00020000,
    "net_namespace": 0x40000000,
    "ipc_namespace": 0x08000000,
    "pid_namespace": 0x20000000,
}
AGAIN_AFTER_S = 0.1  # wall time until what failed in a rehearsal is tried again
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
libc = ctypes.CDLL(None, use_errno=True)


class Isolation:
    """The layers around the programs of one runner."""

    def __init__(self, folder: str, without: frozenset[str]) -> None:
        """`without`: layers to leave out."""
        self.active = ["session", "rlimits"]
        self.missing = dict.fromkeys(without, "switched off")
        self.folder, self.scratch = folder, os.path.join(folder, "run")
        libraries = shared_libraries()
        self.links = names_of(libraries)
        others = ["/etc/ld.so.cache", "/usr/share/zoneinfo", "/etc/localtime"]
        self.readable = [path for path in (standard_library(), *libraries, *others) if os.path.exists(path)]
        self.files = files_of(self.readable)
        warm(self.files)
        self.proc: int | None = None  # the host's /proc, which the programs themselves have not
        self.outside: int | None = None  # the folder around `folder`, which is out of sight after the change of root
        self.rules: int | None = None
        self.filter: seccomp.Filter | None = None
        self.uid: int | None = None
        self.caps_kept = 0
        self.own_count = False

    @property
    def pid_namespace(self) -> bool:
        return "pid_namespace" in self.active

    def enter(self) -> None:
        """Set up in this process whatever the host allows. Its scratch directory then exists."""
        with contextlib.suppress(OSError):
            self.proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.outside = os.open(os.path.dirname(self.folder), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        names = [name for name in NAMESPACES if name not in self.missing]
        while names and (failed := surely(lambda: in_fork(lambda: self._enter_namespaces(names, rehearsal=True)))):
            self._give_up(names, failed)
        if self._enter_namespaces(names, rehearsal=False):
            raise SystemExit("namespaces that could be made a moment ago cannot be made")
        self.active += names
        if "mount_namespace" not in names:
            os.mkdir(self.scratch, 0o700)
        self._choose_user()
        self._prepare_landlock()
        self._prepare_seccomp()
        self.own_count = self.uid is not None or in_fork(count_is_own) is None
        self._rehearse_confinement()
        libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # the programs may have our user id: no ptrace, no /proc/PID/mem

    def leave(self) -> None:
        """Remove the runner's folder, for a parent that was killed before it could."""
        if "mount_namespace" not in self.active:
            shutil.rmtree(self.folder, ignore_errors=True)
        elif self.outside is not None:
            with contextlib.suppress(OSError):
                os.rmdir(os.path.basename(self.folder), dir_fd=self.outside)

    # ------------------------------------------------------------ namespaces

    def _enter_namespaces(self, names: list[str], rehearsal: bool) -> tuple[str, str] | None:
        """Enter them, in the order of NAMESPACES; what failed and why."""
        for name in names:
            try:
                if name == "user_namespace":
                    enter_user_namespace()
                elif name != "pid_namespace":
                    unshare(NAMESPACES[name])
                elif rehearsal:
                    # The runner itself stays outside: its nursery is the init of one, each program of another.
                    unshare(NAMESPACES[name])
                    if (failed := in_fork(lambda: named("pid_namespace", self._nest))) is not None:
                        return name, failed[1]
                if name == "mount_namespace":
                    self._build_root()
            except OSError as error:
                return name, str(error)
        return None

    def _build_root(self) -> None:
        """A root of its own: read-only views of what a program needs, devices without power, and a scratch directory
        in memory. Nothing else of the host's files is there, not even to look at.

        Every folder in it is in memory, with the host's files put into it one by one: a folder of the host's would keep the
        names that were looked for and not found, and a later program could tell them by how fast it does not find them."""
        mount(None, "/", None, MS_REC | MS_PRIVATE)
        inodes = len(self.files) + 10_000
        mount("none", self.folder, "tmpfs", MS_NOSUID | MS_NODEV, f"mode=755,size=4m,nr_inodes={inodes}")
        self._make_links()
        for folder in sorted({os.path.dirname(path) for path in (*self.files, *DEVICES)}):
            make_folders(self.folder + folder)
        self._show(self.files)
        for path in DEVICES:
            bind(path, self.folder + path)
        make_folders(self.folder + "/scratch/run")
        os.chdir(self.folder)
        call("pivot_root", PIVOT_ROOT[platform.machine()], b".", b".")
        detach(".")
        os.chdir("/")
        self.scratch = "/scratch/run"
        self._mount_scratch()
        mount(None, "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)

    def _show(self, files: list[str]) -> None:
        """Files of the host at their places in the new root, read-only. What is bound from a read-only view of a folder
        mostly is, which saves a call for each of thousands."""
        view = self.folder + "/view"
        make_folders(view)
        for folder, inside in itertools.groupby(files, os.path.dirname):
            mount(folder, view, None, MS_BIND | MS_REC)
            make_read_only(view)
            for path in inside:
                target = self.folder + path
                bind(os.path.realpath(path) if os.path.islink(path) else f"{view}/{os.path.basename(path)}", target)
                # not where it is a link to another folder, or mounted in this one
                if not os.statvfs(target).f_flag & os.ST_RDONLY:
                    make_read_only(target)
            detach(view)
        os.rmdir(view)

    def own_pid_namespace(self) -> int | None:
        """That of this process, to come back to; None where programs have none of their own."""
        return self._pid_namespace_now() if self.pid_namespace else None

    def _pid_namespace_now(self) -> int:
        return os.open("self/ns/pid", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.proc)

    def next_pid_namespace(self, home: int) -> None:
        """The next fork begins a new one: its process numbers start at 1, whatever ran before."""
        if libc.setns(home, NAMESPACES["pid_namespace"]):
            raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}")
        unshare(NAMESPACES["pid_namespace"])

    def _nest(self) -> None:
        """Two namespaces after each other inside this one. Raises OSError where the host does not allow that."""
        if self.proc is None:
            raise OSError(2, "no /proc, by which a process comes back to its own")
        home = self._pid_namespace_now()
        for _ in range(2):
            self.next_pid_namespace(home)
            if failed := in_fork(lambda: None):
                raise OSError(1, failed[1])

    def _make_links(self) -> None:
        """The names by which the loader finds shared libraries; /lib -> usr/lib first."""
        tops = {"/" + path.split("/")[1] for path in (*self.links, *self.readable)}
        for path, target in [
            *((top, os.path.relpath(os.path.realpath(top), "/")) for top in tops if os.path.islink(top)),
            *self.links.items(),
        ]:
            if not os.path.lexists(self.folder + path):
                make_folders(os.path.dirname(os.path.realpath(self.folder + path)))
                os.symlink(target, self.folder + path)

    # ------------------------------------------------------------ preparation

    def _choose_user(self) -> None:
        """A root runner's programs run as a user that owns nothing: no signal to the trainer, none of its files, a
        process limit that counts them alone. It keeps the right to read files only where the standard library is
        closed to others (a Python below /root, seen without a mount namespace)."""
        if os.getuid() != 0 or "own_user" in self.missing:
            self.missing.setdefault("own_user", "the runner is not root")
            return
        uid = 20_000 + os.getpid() % 40_000
        if failed := surely(lambda: in_fork(lambda: named("own_user", lambda: become(uid, 0)))):
            self.missing["own_user"] = failed[1]  # a container may map no further user or forbid the change
            return
        self.uid = uid
        self.caps_kept = 0 if open_to_others(os.__file__) else 1 << CAP_DAC_READ_SEARCH
        os.chown(self.scratch, uid, uid)
        self.active.append("own_user")

    def _prepare_landlock(self) -> None:
        if "landlock" in self.missing:
            return
        try:
            # The rule for the folder above holds for whatever is mounted there.
            above = os.path.dirname(self.scratch) if "mount_namespace" in self.active else self.scratch
            self.rules = landlock.ruleset(self.readable, DEVICES, above)
        except OSError as error:
            self.missing["landlock"] = str(error)

    def _prepare_seccomp(self) -> None:
        if "seccomp" in self.missing:
            return
        try:
            self.filter = seccomp.Filter()
        except OSError as error:
            self.missing["seccomp"] = str(error)

    def _rehearse_confinement(self) -> None:
        """Take the layers that `confine` sets up through a throwaway child; keep those that work."""
        layers = ["capabilities", "no_new_privs", "landlock", "seccomp"]
        names = [name for name in layers if name not in self.missing]
        while names and (failed := surely(lambda: in_fork(lambda: self._confine(names)))):
            self._give_up(names, failed)
        self.active += names

    def _give_up(self, names: list[str], failed: "Failure") -> None:
        """Without the layer that failed; without all of them if the rehearsal itself did."""
        for name in [failed[0]] if failed[0] in names else list(names):
            self.missing[name] = failed[1]
            names.remove(name)

    # ------------------------------------------------------------ the scratch directory

    def renew_scratch(self) -> None:
        """Before a program: a new directory, so that not even times, mode, attributes or inode numbers of the old one tell
        anything of the program that had it."""
        if "mount_namespace" in self.active:
            detach(self.scratch)
            self._mount_scratch()
            return
        empty_folder(self.scratch)
        os.rmdir(self.scratch)
        os.mkdir(self.scratch, 0o700)
        if self.uid is not None:
            os.chown(self.scratch, self.uid, self.uid)
        if self.rules is not None:
            os.close(self.rules)
            self.rules = landlock.ruleset(self.readable, DEVICES, self.scratch)

    def _mount_scratch(self) -> None:
        """An empty directory in memory, bounded in bytes and files."""
        owner = f"uid={self.uid},gid={self.uid}," if self.uid is not None else ""
        limits = f"mode=700,size={SCRATCH_BYTES},nr_inodes={SCRATCH_INODES}"
        mount("none", self.scratch, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOATIME, owner + limits)

    # ------------------------------------------------------------ in the child

    def confine(self) -> None:
        """Give up everything that the program does not need. Raises OSError if a layer fails that worked before."""
        if failed := self._confine(self.active):
            raise OSError(f"layer {failed[0]}: {failed[1]}")

    def _confine(self, names: list[str]) -> tuple[str, str] | None:
        steps: dict[str, Callable[[], None]] = {
            # no bounding set to drop: with no_new_privs and no exec a capability cannot come back
            "capabilities": lambda: become(self.uid, self.caps_kept),
            # ends with the zygote; after the change of user, which would undo it
            "session": lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
            "no_new_privs": lambda: prctl(PR_SET_NO_NEW_PRIVS, 1),
            "landlock": lambda: landlock.restrict_self(self.rules),
            "seccomp": self._install_filter,
        }
        for name, step in steps.items():
            if name in names and (failed := named(name, step)):
                return failed
        return None

    def _install_filter(self) -> None:
        # Inside its pid namespace a program meets only itself; elsewhere it may signal only itself.
        chosen = self.filter if self.pid_namespace else seccomp.Filter(os.getpid())
        assert chosen is not None
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(chosen.program))


# ---------------------------------------------------------------- system calls


def prctl(option: int, value: int, pointer: object = 0) -> None:
    if libc.prctl(option, value, pointer, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl {option}: {os.strerror(ctypes.get_errno())}")


def call(name: str, number: int, *arguments: object) -> None:
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def unshare(flags: int) -> None:
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), f"unshare: {os.strerror(ctypes.get_errno())}")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind)]
    if libc.mount(*texts, ctypes.c_ulong(flags), data.encode()):
        raise OSError(ctypes.get_errno(), f"mount of {target}: {os.strerror(ctypes.get_errno())}")


def bind(source: str, target: str) -> None:
    """A file at another place, which has none yet."""
    os.mknod(target, 0o444)
    mount(source, target, None, MS_BIND)


def make_read_only(path: str) -> None:
    mount(None, path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | kept_flags(path))


def detach(path: str) -> None:
    if libc.umount2(path.encode(), MNT_DETACH):
        raise OSError(ctypes.get_errno(), f"umount of {path}: {os.strerror(ctypes.get_errno())}")


def kept_flags(path: str) -> int:
    """The flags of a mount that a remount inside a user namespace must repeat."""
    flags = os.statvfs(path).f_flag
    return (flags & (2 | 4 | 8 | 1024 | 2048)) | (MS_RELATIME if flags & ST_RELATIME else 0)


def make_folders(path: str) -> None:
    mask = os.umask(0o022)
    os.makedirs(path, exist_ok=True)
    os.umask(mask)


def enter_user_namespace() -> None:
    """A user namespace that maps what this process may map: all ids for root (its map must be written by a process
    outside, here a fork), else only the own one."""
    uid, gid = os.getuid(), os.getgid()
    if uid != 0:
        unshare(NAMESPACES["user_namespace"])
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            write_file(f"/proc/self/{name}", text)
        return
    ready_in, ready_out = os.pipe()
    pid = os.getpid()
    maps = {name: identity_map(f"/proc/self/{name}") for name in ("uid_map", "gid_map")}

    def write_maps() -> tuple[str, str] | None:
        os.close(ready_out)
        if os.read(ready_in, 1):
            for name, text in maps.items():
                write_file(f"/proc/{pid}/{name}", text)
        return None

    helper = start_fork(write_maps)
    os.close(ready_in)
    try:
        unshare(NAMESPACES["user_namespace"])
        os.write(ready_out, b".")
    finally:
        os.close(ready_out)
        failed = end_fork(helper)
    if failed:
        raise OSError(failed[1])
    if os.getuid() != uid:
        raise OSError("the map of user ids was not taken")
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def identity_map(path: str) -> str:
    with open(path) as lines:
        ranges = [line.split() for line in lines]
    return "".join(f"{first} {first} {count}\n" for first, _, count in ranges)


def write_file(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def become(uid: int | None, capabilities: int) -> None:
    """Another user (None: the same one), with these capabilities only."""
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        if capabilities:
            prctl(PR_SET_KEEPCAPS, 1)
        os.setresuid(uid, uid, uid)
    head = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    if libc.capset(head, (ctypes.c_uint32 * 6)(capabilities, capabilities, 0, 0, 0, 0)):
        raise OSError(ctypes.get_errno(), f"capset: {os.strerror(ctypes.get_errno())}")


def open_to_others(path: str) -> bool:
    """Whether a user who owns nothing may read the file: every folder above it lets others pass."""
    while path != os.path.dirname(path):
        if not os.stat(path).st_mode & (0o001 if os.path.isdir(path) else 0o004):
            return False
        path = os.path.dirname(path)
    return True


# ---------------------------------------------------------------- throwaway processes

Failure = tuple[str, str]  # which layer, why


def named(layer: str, step: Callable[[], None]) -> Failure | None:
    try:
        step()
    except OSError as error:
        return layer, str(error)
    return None


def tasks_of_user(proc: int | None, uid: int) -> int:
    """Running tasks (threads) of one user."""
    count = 0
    for entry in [] if proc is None else os.listdir(proc):  # noqa: PTH208
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(entry, dir_fd=proc).st_uid == uid:
                    count += os.stat(f"{entry}/task", dir_fd=proc).st_nlink - 2
    return count


def count_is_own() -> Failure | None:
    """Whether the kernel counts the processes of this user apart from those outside (a user namespace, Linux 5.14)."""
    resource.setrlimit(resource.RLIMIT_NPROC, (20, 20))
    return in_fork(lambda: None)


def start_fork(function: Callable[[], Failure | None]) -> tuple[int, int]:
    """Run a function in a fork; (pid, pipe with its result)."""
    result_in, result_out = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(result_in)
        os.close(result_out)
        raise
    if pid == 0:
        code = 1
        try:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            os.close(result_in)
            os.write(result_out, json.dumps(function()).encode())
            code = 0
        except OSError as error:
            os.write(result_out, json.dumps(["fork", str(error)]).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(result_out)
    return pid, result_in


def end_fork(started: tuple[int, int]) -> Failure | None:
    pid, result_in = started
    text = os.read(result_in, 1 << 16)
    os.close(result_in)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if not text:
        return "fork", f"a probe ended with code {status}"
    failed = json.loads(text)
    return None if failed is None else (failed[0], failed[1])


def surely(rehearse: Callable[[], Failure | None]) -> Failure | None:
    """The failure of a rehearsal that fails twice: a layer is not to be left out because a machine was out of memory or of
    processes for a moment."""
    if rehearse() is None:
        return None
    time.sleep(AGAIN_AFTER_S)
    return rehearse()


def in_fork(function: Callable[[], Failure | None]) -> Failure | None:
    """Run a function in a throwaway fork: the failure that it returned, if any."""
    try:
        return end_fork(start_fork(function))
    except OSError as error:
        return "fork", str(error)
