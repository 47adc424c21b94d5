"""Processes that we start: none outlives us, and each is ended gently first."""

import ctypes
import signal
import subprocess
import sys

_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """In a child between fork and exec: be killed when the parent ends, however it ends."""
    if _LIBC:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """End a process, gently first: SIGTERM, and SIGKILL when it is still there after `grace_s` seconds. One that has ended
    is left alone."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
