"""The system calls that a judged program may make, as a seccomp filter (x86_64 and aarch64): all others fail.

What is not listed fails with EPERM, as on a host that forbids it, so a program that only tries goes on. A few of
those that are listed are looked at more closely (`checked`): by their arguments, or answered by the filter itself.

What decides is whether a call could leave something behind that a later program sees, or reach one that runs at the
same time. So there is no lock (every one is reported as taken: a program is alone with its files), no shared memory
(nothing that no resident set counts, no futex on a file's pages), nothing that asks or changes what the page cache
holds, no lease, hint or watch on a file, no size or use of the machine, no new pipe or socket (each takes the next of
the machine's inode numbers, which the next program can read).

Sources of the numbers: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux; of the
filter's form: linux/filter.h, linux/seccomp.h; of arguments: linux/fcntl.h, asm-generic/mman-common.h, ioctls.h,
sched.h."""

import ctypes
import errno
import functools
import os
import struct

# why: {name: (number on x86_64, number on aarch64)}; -1: not there
ALLOWED = {
    "files: reading, writing, folders; which files is for the mount namespace and Landlock to say": {
        "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67),
        "pwrite64": (18, 68), "preadv": (295, 69), "pwritev": (296, 70), "open": (2, -1), "openat": (257, 56),
        "close": (3, 57), "close_range": (436, 436), "lseek": (8, 62), "stat": (4, -1), "fstat": (5, 80),
        "lstat": (6, -1), "newfstatat": (262, 79), "access": (21, -1), "faccessat": (269, 48), "faccessat2": (439, 439),
        "getdents": (78, -1), "getdents64": (217, 61), "getcwd": (79, 17), "chdir": (80, 49), "fchdir": (81, 50),
        "rename": (82, -1), "renameat": (264, 38), "renameat2": (316, 276), "mkdir": (83, -1), "mkdirat": (258, 34),
        "rmdir": (84, -1), "unlink": (87, -1), "unlinkat": (263, 35), "link": (86, -1), "linkat": (265, 37),
        "symlink": (88, -1), "symlinkat": (266, 36), "readlink": (89, -1), "readlinkat": (267, 78),
        "truncate": (76, 45), "ftruncate": (77, 46), "fallocate": (285, 47), "fsync": (74, 82), "fdatasync": (75, 83),
        "dup": (32, 23), "dup2": (33, -1), "dup3": (292, 24),
        "copy_file_range": (326, 285), "sendfile": (40, 71), "umask": (95, 166),
    },
    "memory of the process": {
        "munmap": (11, 215), "mremap": (25, 216), "mprotect": (10, 226), "brk": (12, 214),
    },
    "processes and threads of the program": {
        "fork": (57, -1), "vfork": (58, -1), "exit": (60, 93), "exit_group": (231, 94), "wait4": (61, 260),
        "waitid": (247, 95), "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178), "getpgid": (121, 155),
        "getpgrp": (111, -1), "setpgid": (109, 154), "getsid": (124, 156), "setsid": (112, 157),
        "set_tid_address": (218, 96), "set_robust_list": (273, 99), "rseq": (334, 293),
        "arch_prctl": (158, -1), "sched_yield": (24, 124), "sched_getaffinity": (204, 123),
        "sched_getparam": (143, 121), "sched_getscheduler": (145, 120), "sched_get_priority_max": (146, 125),
        "sched_get_priority_min": (147, 126), "getpriority": (140, 141),
    },
    "signals to itself": {
        "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
        "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133), "sigaltstack": (131, 132), "pause": (34, -1),
        "alarm": (37, -1), "setitimer": (38, 103), "getitimer": (36, 102), "restart_syscall": (219, 128),
    },
    "who it is and what it may use": {
        "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177),
        "getgroups": (115, 158), "getresuid": (118, 148), "getresgid": (120, 150), "getrlimit": (97, 163),
        "setrlimit": (160, 164), "getrusage": (98, 165), "times": (100, 153), "uname": (63, 160),
    },
    "the time, and waiting for it": {
        "gettimeofday": (96, 169), "time": (201, -1), "clock_gettime": (228, 113), "clock_getres": (229, 114),
        "clock_nanosleep": (230, 115), "nanosleep": (35, 101),
    },
    "random numbers": {"getrandom": (318, 278)},
    "waiting for pipes and sockets, and the socket pair that a program is lent (asyncio)": {
        "poll": (7, -1), "ppoll": (271, 73), "select": (23, -1), "pselect6": (270, 72), "epoll_create": (213, -1),
        "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_wait": (232, -1), "epoll_pwait": (281, 22),
        "eventfd": (284, -1), "eventfd2": (290, 19), "recvfrom": (45, 207),
    },
}  # fmt: skip
MISSING = {"statx": (332, 291), "openat2": (437, 437), "epoll_pwait2": (441, 441)}
"""Not there (ENOSYS), as on an older kernel: the C library then takes another one."""
ARCHES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, AUDIT_ARCH_*

CLONE_REFUSED = 0x7E021080  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, NEWTIME; CLONE_PIDFD
FUTEX_PRIVATE = 128
FUTEX_WAITS = (0, 9, 256, 265)  # FUTEX_WAIT, WAIT_BITSET; each with FUTEX_CLOCK_REALTIME, too
FUTEX_WAKES = (1, 10)
SIGKILL, SIGCHLD = 9, 17
PRCTL = (2, 3, 15, 16, 21, 22, 39)  # PDEATHSIG, DUMPABLE, NAME (get), SECCOMP (get), NO_NEW_PRIVS: to read; NAME to set
DESCRIPTORS = (0, 1, 2, 3, 4, 1030)  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC
LOCKS = (5, 6, 7, 36, 37, 38)  # F_GETLK, F_SETLK, F_SETLKW, and those of an open file description
IOCTLS = (0x541B, 0x5421, 0x5450, 0x5451, 0x5401, 0x5413)  # FIONREAD, FIONBIO, FIONCLEX, FIOCLEX, TCGETS, TIOCGWINSZ
ADVICE = (0, 4, 8, 10, 11, 14, 15, 16, 17, 18, 19)  # normal, dontneed, free, fork, huge pages, dumps, fork again
MAP_SHARED = 1  # MAP_SHARED_VALIDATE has this bit, too
LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_BITS, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER_AT, ARCH_AT, ARGUMENTS_AT = 0, 4, 16  # in struct seccomp_data; the low half of an argument comes first
_INSTRUCTION = struct.Struct("<HBBI")
Instruction = tuple[int, int, int, int]
Range = tuple[int, list[Instruction]]  # the first number of it, and what is done with a call
FAIL: Instruction = (RETURN, 0, 0, ERRNO | errno.EPERM)
PASS: Instruction = (RETURN, 0, 0, ALLOW)
NOT_THERE: Instruction = (RETURN, 0, 0, ERRNO | errno.ENOSYS)
AGAIN: Instruction = (RETURN, 0, 0, ERRNO | errno.EAGAIN)
KILLED: Instruction = (RETURN, 0, 0, KILL)
DONE: Instruction = (RETURN, 0, 0, ERRNO)  # the call returns 0 and is not made


@functools.cache
def filter_for(own_pid: int | None) -> tuple[ctypes.Array, ctypes.Array]:
    """A filter for prctl, made once for a process and its forks: struct sock_fprog, and the instructions that it
    points to. `own_pid`: allow signals to this process and its group only. Raises OSError on other machines."""
    machine = os.uname().machine
    if machine not in ARCHES:
        raise OSError(errno.ENOSYS, f"no system call numbers for {machine}")
    made = instructions(*ARCHES[machine], own_pid)
    code = ctypes.create_string_buffer(b"".join(_INSTRUCTION.pack(*one) for one in made))
    return ctypes.create_string_buffer(struct.pack("HP", len(made), ctypes.addressof(code))), code


def instructions(column: int, arch: int, own_pid: int | None) -> list[Instruction]:
    """The filter for one architecture (a column of the tables above): a binary search for the number of the call. The
    kernel runs a new filter once for every number, so a chain of comparisons would cost each program a
    millisecond."""
    verdicts: dict[int, list[Instruction]] = {}
    for group in ALLOWED.values():
        verdicts |= {numbers[column]: [PASS] for numbers in group.values()}
    verdicts |= {numbers[column]: checks for numbers, checks in checked(own_pid).values()}
    verdicts |= {numbers[column]: [NOT_THERE] for numbers in MISSING.values()}
    verdicts.pop(-1, None)
    ranges: list[Range] = [(0, [FAIL])]
    for number in sorted({0, *verdicts, *(number + 1 for number in verdicts)}):
        verdict = verdicts.get(number, [FAIL])
        if verdict != ranges[-1][1]:
            ranges.append((number, verdict))
    return [
        (LOAD, 0, 0, ARCH_AT),
        (JUMP_EQUAL, 1, 0, arch),
        (RETURN, 0, 0, KILL),  # the 32-bit entry of the same kernel has other numbers
        (LOAD, 0, 0, NUMBER_AT),
        *_search(ranges),
    ]


def _search(ranges: list[Range]) -> list[Instruction]:
    """Find the range of a number. The last one has no end: the numbers of the x32 entry are in it."""
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    below, rest = _search(ranges[:middle]), _search(ranges[middle:])
    return [(JUMP_AT_LEAST, len(below), 0, ranges[middle][0]), *below, *rest]


def argument(index: int) -> Instruction:
    """Load the low half of an argument."""
    return LOAD, 0, 0, ARGUMENTS_AT + 8 * index


def among(values: tuple[int, ...], then: Instruction) -> list[Instruction]:
    """Return `then` for these values; else go on."""
    return [step for value in values for step in ((JUMP_EQUAL, 0, 1, value & 0xFFFFFFFF), then)]


def checked(own_pid: int | None) -> dict[str, tuple[tuple[int, int], list[Instruction]]]:
    """Calls whose arguments decide: name: (numbers as above, what is done, which ends in a return)."""

    def only(index: int, *values: int) -> list[Instruction]:
        return [argument(index), *among(values, PASS), FAIL]

    # The init of a pid namespace does not die of signals that it sends: who asks for its end is ended by the filter.
    kill = [argument(1), (JUMP_EQUAL, 0, 7, SIGKILL), argument(0), *among((0, 1, -1), KILLED), PASS]
    # A shared wait is over at once: the C library, which waits so for the end of a thread, looks and asks again.
    # A shared wake wakes nobody. The end of a thread wakes who waits on any page, but nobody can.
    shared = [*among(FUTEX_WAITS, AGAIN), *among(FUTEX_WAKES, DONE), FAIL]
    return {
        # descriptors and their flags; locks are reported as taken and are not
        "fcntl": ((72, 25), [argument(1), *among(DESCRIPTORS, PASS), *among(LOCKS, DONE), FAIL]),
        "flock": ((73, 32), [DONE]),
        # bytes waiting, blocking, close-on-exec, whether it is a terminal
        "ioctl": ((16, 29), only(1, *IOCTLS)),
        # private memory only
        "mmap": ((9, 222), [argument(3), (JUMP_BITS, 0, 1, MAP_SHARED), FAIL, PASS]),
        # of this process alone: no page of a file read ahead or put out, none merged
        "madvise": ((28, 233), only(2, *ADVICE)),
        # no new namespaces; no descriptor of the process, whose inode number the machine counts up
        "clone": ((56, 220), [argument(0), (JUMP_BITS, 0, 1, CLONE_REFUSED), FAIL, PASS]),
        # so that clone is taken: its flags lie where a filter cannot look
        "clone3": ((435, 435), [NOT_THERE]),
        # of this process alone; on a page of a file it would be shared with whoever has the file
        "futex": ((202, 98), [argument(1), (JUMP_BITS, 0, 1, FUTEX_PRIVATE), PASS, *shared]),
        # to the other end of a pair: the length of the address is 0
        "sendto": ((44, 206), only(5, 0)),
        # of this process
        "prlimit64": ((302, 261), only(0, 0)),
        # not of SIGCHLD: who ignores the end of its children hides their CPU time
        "rt_sigaction": ((13, 134), [argument(0), (JUMP_EQUAL, 0, 1, SIGCHLD), FAIL, PASS]),
        # not the signal at the worker's death (PR_SET_PDEATHSIG), no keeping of capabilities
        "prctl": ((157, 167), only(0, *PRCTL)),
        # without a pid namespace: itself and its group, and no thread of another process
        "kill": ((62, 129), kill if own_pid is None else only(0, own_pid, 0, -own_pid)),
        "tkill": ((200, 130), [PASS if own_pid is None else FAIL]),
        "tgkill": ((234, 131), [PASS] if own_pid is None else only(0, own_pid)),
    }
