"""Landlock: which files a process may still open, by its own decision. Source: linux/landlock.h."""

import ctypes
import os
import stat
import struct

CREATE, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
ASK_VERSION, PATH_BENEATH = 1, 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_SOCK, MAKE_BLOCK, TRUNCATE = 1 << 6, 1 << 9, 1 << 11, 1 << 14
ALL_TCP = 0b11  # bind, connect
ALL_SCOPES = 0b11  # abstract unix sockets and signals of processes outside
READ = READ_FILE | READ_DIR
FILE_RIGHTS = READ_FILE | WRITE_FILE | TRUNCATE
libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """The host's Landlock version. Raises OSError where it has none."""
    return _call(CREATE, None, ctypes.c_size_t(0), ASK_VERSION)


def ruleset(readable: list[str], writable: list[str], scratch: str) -> int:
    """A file descriptor of rules: read `readable`, read and write the files `writable`, do anything but execute and
    make devices and sockets below `scratch`; nothing else on any file, no TCP, no signal to a process outside."""
    abi = version()
    # 13 rights at first; then REFER (2), TRUNCATE (3) and IOCTL_DEV (5). Version 4 knows TCP, 6 the scopes.
    handled = (1 << 13 + (abi >= 2) + (abi >= 3) + (abi >= 5)) - 1
    attributes = struct.pack("<QQQ", handled, ALL_TCP * (abi >= 4), ALL_SCOPES * (abi >= 6))
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    fd = _call(CREATE, attributes, ctypes.c_size_t(size), 0)
    for path in readable:
        _allow(fd, path, READ)
    for path in writable:
        _allow(fd, path, handled & FILE_RIGHTS)
    _allow(fd, scratch, handled & ~(EXECUTE | MAKE_CHAR | MAKE_BLOCK | MAKE_SOCK))
    return fd


def restrict_self(fd: int) -> None:
    """Apply the rules to this process, for ever. Needs no_new_privs."""
    _call(RESTRICT_SELF, fd, 0)


def _allow(fd: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= FILE_RIGHTS
        _call(ADD_RULE, fd, PATH_BENEATH, struct.pack("<Qi", rights, place), 0)
    finally:
        os.close(place)


def _call(number: int, *arguments: object) -> int:
    result = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"landlock: {os.strerror(ctypes.get_errno())}")
    return result
