"""The system calls that a judged program may not make, as a seccomp filter (x86_64 and aarch64).

A denied call fails with EPERM, as on a host that forbids it, so a program that only tries goes on. Sources of the
numbers: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux; of the filter's form:
linux/filter.h, linux/seccomp.h.
"""

import ctypes
import errno
import platform
import struct

# name: (number on x86_64, number on aarch64); -1: not there
DENIED = {
    # the network; socketpair of one process stays (asyncio needs it)
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201), "accept": (43, 202),
    "accept4": (288, 242),
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "ioprio_set": (251, 30), "migrate_pages": (256, 238), "move_pages": (279, 239),
    # other programs: what an exec would start has no part in an answer
    "execve": (59, 221), "execveat": (322, 281),
    # mounts, namespaces, file handles
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "unshare": (272, 97), "setns": (308, 268),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "fanotify_init": (300, 262),
    # owners, modes, times and attributes of files: Landlock does not cover them, so on a host without mount namespaces
    # they would reach every file of the user
    "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, -1),
    "fchown": (93, 55), "lchown": (94, -1), "fchownat": (260, 54), "utime": (132, -1), "utimes": (235, -1),
    "futimesat": (261, -1), "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    # parts of the kernel with a history of holes, of no use here
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "bpf": (321, 280),
    "perf_event_open": (298, 241), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "userfaultfd": (323, 282), "memfd_secret": (447, 447), "mbind": (237, 235),
    "personality": (135, 92), "modify_ldt": (154, -1), "uselib": (134, -1), "lookup_dcookie": (212, 18),
    # objects that outlive a process, and memory that no limit counts
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193),
    "semctl": (66, 191), "semtimedop": (220, 192), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188),
    "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181),
    # the machine
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225),
    "syslog": (103, 116), "acct": (163, 89), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "adjtimex": (159, 171), "clock_adjtime": (305, 266), "sethostname": (170, 161), "setdomainname": (171, 162),
    "iopl": (172, -1), "ioperm": (173, -1), "vhangup": (153, 58),
}  # fmt: skip
CHECKED = {
    "clone": (56, 220), "clone3": (435, 435), "socketpair": (53, 199), "prlimit64": (302, 261), "prctl": (157, 167),
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "setpriority": (141, 140), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274), "sched_setaffinity": (203, 122), "rt_sigaction": (13, 134),
}  # fmt: skip
ARCHES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, AUDIT_ARCH_*
X32_BIT = 0x40000000

CLONE_NEW_FLAGS = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
AF_UNIX, PR_SET_PDEATHSIG, SIGCHLD = 1, 1, 17
LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_BITS, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER_AT, ARCH_AT, FIRST_ARGUMENT_AT, SECOND_ARGUMENT_AT = (
    0,
    4,
    16,
    24,
)  # in struct seccomp_data; the low half of an argument comes first
_INSTRUCTION = struct.Struct("<HBBI")


class Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


class Filter:
    """A filter, ready to be installed in this process or in one forked from it."""

    def __init__(self, own_pid: int | None = None) -> None:
        """`own_pid`: allow signals to this process and its group only. Raises OSError on other machines."""
        machine = platform.machine()
        if machine not in ARCHES:
            raise OSError(errno.ENOSYS, f"no system call numbers for {machine}")
        instructions = _instructions(*ARCHES[machine], own_pid)
        self._code = ctypes.create_string_buffer(b"".join(_INSTRUCTION.pack(*one) for one in instructions))
        self.program = Program(len(instructions), ctypes.addressof(self._code))


Instruction = tuple[int, int, int, int]


def _instructions(column: int, arch: int, own_pid: int | None) -> list[Instruction]:
    fail = (RETURN, 0, 0, ERRNO | errno.EPERM)
    out: list[Instruction] = [
        (LOAD, 0, 0, ARCH_AT),
        (JUMP_EQUAL, 1, 0, arch),
        (RETURN, 0, 0, KILL),  # the 32-bit entry of the same kernel has other numbers
        (LOAD, 0, 0, NUMBER_AT),
    ]
    if column == 0:
        out += [(JUMP_AT_LEAST, 0, 1, X32_BIT), fail]
    for numbers in DENIED.values():
        if numbers[column] >= 0:
            out += [(JUMP_EQUAL, 0, 1, numbers[column]), fail]
    for name, checks in _argument_checks(own_pid).items():
        body = [(LOAD, 0, 0, FIRST_ARGUMENT_AT), *checks] if name != "clone3" else checks
        out += [(JUMP_EQUAL, 0, len(body), CHECKED[name][column]), *body]
    return [*out, (RETURN, 0, 0, ALLOW)]


def _argument_checks(own_pid: int | None) -> dict[str, list[Instruction]]:
    """What is done with a call once its first argument is loaded: each list ends in a return."""
    fail, allow = (RETURN, 0, 0, ERRNO | errno.EPERM), (RETURN, 0, 0, ALLOW)

    def only(*values: int) -> list[Instruction]:
        return [step for value in values for step in ((JUMP_EQUAL, 0, 1, value & 0xFFFFFFFF), allow)] + [fail]

    checks = {
        "clone": [(JUMP_BITS, 0, 1, CLONE_NEW_FLAGS), fail, allow],
        # Its flags lie in memory, where a filter cannot look; the C library then uses clone.
        "clone3": [(RETURN, 0, 0, ERRNO | errno.ENOSYS)],
        "socketpair": only(AF_UNIX),
        "prlimit64": only(0),
        "sched_setscheduler": only(0),
        "sched_setparam": only(0),
        "sched_setattr": only(0),
        "sched_setaffinity": only(0),
        # os.nice(): this process (PRIO_PROCESS, 0)
        "setpriority": [(JUMP_EQUAL, 1, 0, 0), fail, (LOAD, 0, 0, SECOND_ARGUMENT_AT), *only(0)],
        # Who ignores the end of its children hides their CPU time.
        "rt_sigaction": [(JUMP_EQUAL, 0, 1, SIGCHLD), fail, allow],
        "prctl": [(JUMP_EQUAL, 0, 1, PR_SET_PDEATHSIG), fail, allow],
    }
    if own_pid is not None:
        checks |= {
            "kill": only(own_pid, 0, -own_pid),
            "tkill": [fail],
            "tgkill": only(own_pid),
            "rt_sigqueueinfo": only(own_pid),
            "rt_tgsigqueueinfo": only(own_pid),
        }
    return checks
