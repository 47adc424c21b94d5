"""Programs that burn CPU time, or sleep, beyond their limits."""

from textwrap import indent

from attacks.forms import NAMED, forge, in_wrong
from attacks.problems import SOLVED

_LOOPS = {
    "loop": "while True: pass",
    "loop_in_c": "sum(iter(int, 1))",
    "loop_in_a_regular_expression": "import re\nre.match('(a+)+$', 'a' * 60 + 'b')",
    "loop_swallows_everything": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "loop_swallows_the_cpu_signal": "import signal\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n"
    "    except (OSError, ValueError): pass\nwhile True: pass",
    "loop_raises_its_limits": "import resource\nfor r in range(16):\n    for h in (resource.RLIM_INFINITY, 1 << 40):\n"
    "        try: resource.setrlimit(r, (h, h))\n        except (OSError, ValueError): pass\nwhile True: pass",
    "loop_in_threads": "import threading\nfor _ in range(4): threading.Thread(target=sum, args=(iter(int, 1),)).start()\n"
    "while True: pass",
}
for _name, _body in _LOOPS.items():
    in_wrong(_name, _body, control="busy", status=("timeout", "killed"), cpu_s=0.5)
forge("loop_while_loading", "while True: pass\n" + SOLVED, control="busy", status=("timeout",), cpu_s=0.5)
forge(
    "cpu_burnt_by_forgotten_children",
    """
    import os, signal, time
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in range(200):
        pid = os.fork()
        if pid == 0:
            while time.process_time() < .015: pass
            os._exit(0)
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            pass
    """
    + indent(SOLVED, "    "),
    control="fork",
    needs="children",
)
forge(
    "cpu_burnt_by_a_chain_of_children",
    """
    import os, time
    for _ in range(10):
        pid = os.fork()
        if pid == 0:
            while time.process_time() < .6: pass
            os._exit(0)
        os.waitpid(pid, 0)
    """
    + indent(SOLVED, "    "),
    control="fork",
)
for _name, _body in (
    ("sleep", "import time\ntime.sleep(1000)"),
    (
        "sleep_through_signals",
        "import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: signal.sigtimedwait([], 100)",
    ),
    (
        "sleep_by_stopping_itself",
        "import os, signal\nif not os.fork():\n    os.kill(os.getpid(), signal.SIGSTOP)\nos.wait()",
    ),
):
    in_wrong(_name, NAMED + _body, control="short_sleep", status=("timeout",), wall_s=1.5)
forge(
    "orphan_holds_the_pipes_open",
    NAMED + "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)\nos._exit(0)\n",
    control="fork",
    status=("runtime_error",),
)
