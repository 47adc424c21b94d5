"""Processes that we start end with us, however we end."""

import ctypes
import signal
import sys

_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """In a child between fork and exec: be killed when the parent ends, however it ends."""
    if _LIBC:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
