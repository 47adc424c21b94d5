"""Forks, daemons, siblings and threads that multiply or stay behind."""

from textwrap import dedent

from attacks.forms import NAMED, in_wrong, with_wrong

_SWALLOW = "    try: os.fork()\n    except OSError: pass"
in_wrong("fork_bomb", NAMED + f"import os\nwhile True:\n{_SWALLOW}", control="fork", wall_s=4.0)
in_wrong(
    "fork_and_hand_over",  # each process ends as soon as its child runs: a pid that is looked at is already gone
    NAMED + "import os\nwhile True:\n    try:\n        if os.fork(): os._exit(0)\n        os.setsid()\n"
    "    except OSError: pass",
    control="fork",
    wall_s=4.0,
)
with_wrong(
    "daemons_of_their_own_session",
    NAMED
    + dedent("""
    import os, signal, time
    for _ in range(4):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for number in range(1, 65):
                    try: signal.signal(number, signal.SIG_IGN)
                    except (OSError, ValueError): pass
                os.closerange(0, 1024)
                time.sleep(1000)
            os._exit(0)
    time.sleep(.2)
    """),
    control="fork",
)
with_wrong(
    "sibling_by_clone",  # CLONE_PARENT: a child of the program's own parent
    NAMED
    + dedent("""
    import ctypes, os, platform, time
    number = {"x86_64": 56, "aarch64": 220}.get(platform.machine(), -1)
    if ctypes.CDLL(None).syscall(number, 0x8000 | 17, 0, 0, 0, 0) == 0:
        os.setsid()
        os.closerange(0, 64)
        time.sleep(1000)
        os._exit(0)
    """),
    control="fork",
)
in_wrong(
    "thread_bomb",
    "import threading, time\nwhile True:\n    try: threading.Thread(target=time.sleep, args=(99,)).start()\n"
    "    except RuntimeError: time.sleep(.001)",
    control="threads",
    wall_s=2.0,
)
