"""Files that a program must not see."""

from functools import partial
from textwrap import dedent

from attacks import forms

probe = partial(forms.probe, control="own_source", needs="read")

_READ = """
import os
def has(path):
    try:
        with open(path, "rb") as file:
            return b"{}" in file.read(10000)
    except OSError:
        return False
"""
probe(
    "read_an_open_file_elsewhere",
    _READ.format("@SECRET@") + "return has('@DIR@/open.txt') or has('@CWD@/open.txt')\n",
)
probe(
    "read_by_links_and_roots",
    _READ.format("@SECRET@")
    + dedent("""
    os.symlink("@HOME@/secret.txt", "peek")
    paths = ["peek", "./../../../../../../@HOME@/secret.txt", "/proc/self/root@HOME@/secret.txt"]
    paths.append("/proc/1/root@HOME@/secret.txt")
    paths += [f"/proc/{pid}/root@HOME@/secret.txt" for pid in (os.getppid(), @PARENT@)]
    paths += [f"/proc/{pid}/cwd/tests/attacks/world.py" for pid in (os.getppid(), @PARENT@)]
    try:
        os.link("@HOME@/secret.txt", "hard")
        paths.append("hard")
    except OSError:
        pass
    return any(has(path) for path in paths)
    """),
)
probe(
    "read_by_a_file_handle",  # what a right to read every file allows, past every folder
    """
    import ctypes, os
    libc = ctypes.CDLL(None, use_errno=True)
    class Handle(ctypes.Structure):
        _fields_ = [("size", ctypes.c_uint), ("kind", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]
    handle, mount = Handle(128), ctypes.c_int()
    if libc.name_to_handle_at(-100, b"@HOME@/secret.txt", ctypes.byref(handle), ctypes.byref(mount), 0):
        return False
    for base in (".", "/", "/usr", "/lib", "/tmp"):
        try:
            fd = os.open(base, os.O_RDONLY)
        except OSError:
            continue
        got = libc.open_by_handle_at(fd, ctypes.byref(handle), os.O_RDONLY)
        if got >= 0 and b"@SECRET@" in os.read(got, 1000):
            return True
    return False
    """,
)
probe(
    "read_the_tests_of_this_suite",
    _READ.format("merge-intervals") + "return has('@SUITE@')\n",
)
