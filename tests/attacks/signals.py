"""Signals for itself, its runner, the suite and bystanders."""

from functools import partial

from attacks import forms
from attacks.forms import OLD_CALL

probe = partial(forms.probe, control="signals", needs="others")
in_wrong = partial(forms.in_wrong, control="signals")

in_wrong("kill_own_group", "import os, signal\nos.killpg(0, signal.SIGKILL)", status=("killed", "ok"))
probe(
    "kill_the_runner",
    """
    import os, signal, time
    runner = os.getppid()
    if runner not in (0, @PARENT@):
        os.kill(runner, signal.SIGKILL)
        time.sleep(.1)
    return False
    """,
    status=("ok",),
)
probe("signal_the_parent", "import os, signal\nos.kill(@PARENT@, signal.SIGURG)\nreturn True\n")
probe("kill_a_bystander", "import os, signal\nos.kill(@VICTIM@, signal.SIGKILL)\nreturn True\n")
in_wrong(
    "signal_all",
    "import os, signal\nsignal.signal(signal.SIGURG, signal.SIG_IGN)\nos.kill(-1, signal.SIGURG)",
    needs="others",
)
probe(
    "signal_by_descriptor",
    """
    import os, signal
    signal.pidfd_send_signal(os.pidfd_open(@VICTIM@), signal.SIGKILL)
    return True
    """,
)
probe(
    "descriptor_owner_signals_the_parent",  # F_SETOWN: the kernel then sends SIGURG or SIGIO in the program's name
    """
    import fcntl, os, signal
    read, write = os.pipe()
    fcntl.fcntl(read, fcntl.F_SETOWN, @PARENT@)
    fcntl.fcntl(read, 10, signal.SIGURG)  # F_SETSIG
    fcntl.fcntl(read, fcntl.F_SETFL, os.O_ASYNC)
    os.write(write, b"x")
    return False
    """,
)
probe("kill_by_the_32_bit_entry", OLD_CALL + "return old_call(37, @VICTIM@, 9, 0) == 0\n")
probe("kill_by_the_x32_entry", "import ctypes\nreturn ctypes.CDLL(None).syscall(0x40000000 + 62, @VICTIM@, 9) == 0\n")
