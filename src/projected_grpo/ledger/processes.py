"""Processes that we start: none outlives us, and each is ended gently first."""

import ctypes
import signal
import subprocess
import sys

_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent() -> None:
    """In a child between fork and exec: the kernel kills it when the parent ends."""
    if _LIBC:
        _LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """Ends a process: SIGTERM, and SIGKILL if it is still there after `grace_s` seconds."""
    process.terminate()
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
