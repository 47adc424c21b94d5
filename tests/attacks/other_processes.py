"""Limits, memory, descriptors and environments of other processes."""

from attacks.forms import probe

probe(
    "limits_and_priority_of_others",
    """
    import os, resource
    tries = [lambda: resource.prlimit(@VICTIM@, resource.RLIMIT_NOFILE, (3, 3)),
             lambda: os.sched_setaffinity(@VICTIM@, {0}), lambda: os.setpriority(os.PRIO_PROCESS, @VICTIM@, 19),
             lambda: os.sched_setscheduler(@VICTIM@, os.SCHED_BATCH, os.sched_param(0)),
             lambda: resource.prlimit(os.getppid() or @VICTIM@, resource.RLIMIT_NOFILE, (3, 3))]
    won = 0
    for attempt in tries:
        try:
            attempt()
            won += 1
        except (OSError, ValueError, ZeroDivisionError):
            pass
    return won
    """,
    needs="limits",
    control="signals",
)
probe(
    "memory_of_others",
    """
    import ctypes, os
    libc = ctypes.CDLL(None, use_errno=True)
    class Piece(ctypes.Structure):
        _fields_ = [("start", ctypes.c_void_p), ("size", ctypes.c_size_t)]
    here = ctypes.create_string_buffer(8)
    for pid in (@VICTIM@, @PARENT@, os.getppid()):
        if not pid:
            continue
        try:
            with open(f"/proc/{pid}/maps") as maps:
                start = int(maps.readline().split("-")[0], 16)
        except (OSError, ValueError):
            continue
        there = Piece(start, 8)
        if libc.process_vm_readv(pid, ctypes.byref(Piece(ctypes.addressof(here), 8)), 1, ctypes.byref(there), 1, 0) > 0:
            return True
        try:
            with open(f"/proc/{pid}/mem", "rb", 0) as memory:
                memory.seek(start)
                memory.read(8)
                return True
        except OSError:
            pass
    return False
    """,
    needs="others",
)
probe(
    "descriptors_of_others",
    """
    import ctypes, os
    libc = ctypes.CDLL(None, use_errno=True)
    for pid in (@PARENT@, os.getppid()):
        if not pid:
            continue
        try:
            if os.listdir(f"/proc/{pid}/fd"):
                return True
        except OSError:
            pass
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            continue
        if any(libc.syscall(438, handle, number, 0) >= 0 for number in range(8)):  # pidfd_getfd
            return True
    return False
    """,
    needs="others",
)
probe(
    "environment_of_the_parent",
    """
    import ctypes, os, subprocess
    if "@SECRET@" in str(dict(os.environ)):
        return True
    if b"@SECRET@" in subprocess.run(["/usr/bin/env"], capture_output=True).stdout:
        return True
    with open("/proc/self/environ", "rb") as file:
        return b"@SECRET@" in file.read()
    """,
    control="environment",
)
probe(
    "descriptor_inherited",
    """
    import os
    for number in range(256):
        try:
            os.lseek(number, 0, 0)
            if b"@SECRET@" in os.read(number, 1000):
                return True
        except OSError:
            pass
    return False
    """,
    control="scratch_files",
)
