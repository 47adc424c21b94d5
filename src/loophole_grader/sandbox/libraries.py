"""Which files a program needs: the standard library, and the shared libraries behind it.

No more than these are in its sight, and all of them are read once when a runner starts. A page that is in memory already
tells nothing by how fast it is read; one that is on disk could be read by a program as a mark for a later one.
"""

# File descriptors and system calls throughout, on plain strings, so no pathlib:
# ruff: noqa: PTH113, PTH114, PTH115, PTH118, PTH119, PTH120, PTH123, PTH207, PTH208

import contextlib
import ctypes
import glob
import json
import os
import sys

NOT_NEEDED = ("site-packages", "dist-packages", "test", "idlelib", "ensurepip", "tkinter", "turtledemo", "lib2to3")
"""Folders of the standard library that no solution imports."""
CHUNK = 1 << 20


def standard_library() -> str:
    """Its folder."""
    return os.path.dirname(os.path.realpath(os.__file__))


def files_of(paths: list[str]) -> list[str]:
    """The files that these are and that are in these folders, of each folder side by side: without NOT_NEEDED, and without
    byte code of another interpreter."""
    found: dict[str, set[str]] = {}
    for path in paths:
        for folder, folders, names in [(os.path.dirname(path), [], [path])] if os.path.isfile(path) else os.walk(path):
            if folder == standard_library():
                folders[:] = [name for name in folders if name not in NOT_NEEDED and not name.startswith("config-")]
            if os.path.basename(folder) == "__pycache__":
                names = [name for name in names if name.endswith(f".{sys.implementation.cache_tag}.pyc")]
            files = (os.path.join(folder, name) for name in names)
            found.setdefault(folder, set()).update(file for file in files if os.path.isfile(file))
    return [file for folder in sorted(found) for file in sorted(found[folder])]


def shared_libraries() -> list[str]:
    """Real paths of all that is mapped once every extension module of the standard library is loaded, the interpreter's own
    among them. In a throwaway process: loading them all would make every fork slower."""
    result_in, result_out = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.close(result_in)
            with contextlib.suppress(OSError):
                ctypes.CDLL("libgcc_s.so.1")  # the C library loads it when a thread ends itself
            folder = os.path.join(standard_library(), "lib-dynload")
            for path in glob.glob(os.path.join(glob.escape(folder), "**/*.so*"), recursive=True):
                with contextlib.suppress(OSError):
                    ctypes.CDLL(path)
            with open("/proc/self/maps") as lines:
                mapped = {line.split(None, 5)[5].strip() for line in lines if "/" in line}
            with open(result_out, "w") as out:
                json.dump(
                    sorted(path for path in mapped if ".so" in os.path.basename(path) and os.path.isfile(path)), out
                )
        finally:
            os._exit(0)
    os.close(result_out)
    with open(result_in) as lines:
        found = lines.read()
    os.waitpid(pid, 0)
    return json.loads(found) if found else []


def names_of(libraries: list[str]) -> dict[str, str]:
    """Symbolic links through which the loader finds these files: link to target, as it is written."""
    links = {}
    loaders = glob.glob("/lib*/ld-*") + glob.glob("/usr/lib*/ld-*")
    for folder in {os.path.dirname(path) for path in libraries}:
        loaders += [os.path.join(folder, name) for name in os.listdir(folder)]
    for path in loaders:
        if os.path.islink(path) and os.path.realpath(path) in libraries:
            links[path] = os.readlink(path)
    return links


def warm(files: list[str]) -> None:
    """Read each once."""
    for path in files:
        with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
            while file.read(CHUNK):
                pass
