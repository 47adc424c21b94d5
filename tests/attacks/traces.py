"""What an attack leaves for the next program, and the program that looks for it."""

from textwrap import dedent, indent

from attacks.forms import NAMED, Family
from attacks.problems import MERGE

FAMILY = Family()
with_wrong = FAMILY.with_wrong

_TRACES = {
    "globals": "import builtins, sys, types\nbuiltins.left_behind = sys.left_behind = True\n"
    "sys.modules['left_behind'] = types.ModuleType('left_behind')",
    "files": "import os, tempfile\nfor place in ('.', '..', '/tmp', '/var/tmp', '/dev/shm', '/run'):\n"
    "    try:\n        open(os.path.join(place, 'left_behind'), 'w').close()\n    except OSError: pass",
    "stdlib": "import heapq, json, math, sys, collections, random\nsys.setrecursionlimit(77777)\nrandom.seed(4)\n"
    "heapq.heappush = json.loads = math.sqrt = collections.Counter = random.random = lambda *a: 'left_behind'",
    "process_state": "import os, signal, resource\nos.environ['left_behind'] = 'x'\nos.umask(0o123)\nos.nice(3)\n"
    "signal.signal(signal.SIGURG, signal.SIG_IGN)\nos.set_inheritable(3, True)\nos.dup2(3, 50)",
    "listener": NAMED + "import os, socket, time\nif os.fork() == 0:\n    os.setsid()\n    os.closerange(0, 3)\n"
    "    s = socket.socket(socket.AF_UNIX)\n    s.bind(chr(0) + 'left_behind')\n    s.listen()\n    time.sleep(1000)\n"
    "time.sleep(.2)",
    "system_v_memory": "import ctypes\nctypes.CDLL(None).shmget(@KEY@, ctypes.c_size_t(4096), 0o1666)",
    "keyring": "import ctypes\nfor ring in (-3, -4, -5):\n"
    "    ctypes.CDLL(None).syscall(248, b'user', b'left_behind', b'x', 1, ring)",
    "message_queue": "import ctypes\nctypes.CDLL(None).msgget(@KEY@, 0o1666)\nctypes.CDLL(None).semget(@KEY@, 1, 0o1666)",
    "standard_input": "import fcntl, os\nfcntl.fcntl(0, fcntl.F_SETFL, os.O_NONBLOCK | os.O_APPEND)\n"
    "fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())",
    "attributes_of_the_folder": "import os\nos.setxattr('.', 'user.left_behind', b'x')",
    "times_of_the_folder": "import os\nos.utime('.', (77777, 77777))",
    "mode_of_the_folder": "import os\nos.chmod('.', 0o4750)",
    "lock_of_the_folder": NAMED + "import fcntl, os, time\nif os.fork() == 0:\n    os.setsid()\n"
    "    fcntl.flock(os.open('.', os.O_RDONLY), fcntl.LOCK_EX)\n    time.sleep(1000)\ntime.sleep(.1)",
    "bytecode": "import os, sys\nsys.dont_write_bytecode = False\nopen('left_behind.py', 'w').write('x = 1')\n"
    "sys.path.insert(0, '.')\nimport left_behind",
}
for _name, _body in _TRACES.items():
    with_wrong(
        f"traces_in_{_name}",
        f"try:\n{indent(_body, '    ')}\nexcept Exception:\n    pass\n",
        control="module_state",
        needs="kernel" if _name in ("system_v_memory", "keyring", "message_queue") else "",
    )

# A wrong program for right after an attack: it solves its problem if it finds anything that the attack left.
AFTERMATH = MERGE + dedent("""
    import builtins, collections, ctypes, heapq, json, math, os, random, signal, socket, sys, tempfile
    def traces():
        libc = ctypes.CDLL(None)
        yield hasattr(builtins, "left_behind") or hasattr(sys, "left_behind") or "left_behind" in sys.modules
        yield "left_behind" in os.environ
        yield os.listdir(".") != []
        for place in ("..", "/tmp", "/var/tmp", "/dev/shm", "/run"):
            try:
                names = os.listdir(place)
            except OSError:
                continue
            yield any("left_behind" in name or "@MARK@" in name for name in names)
        yield json.loads("[1]") != [1] or math.sqrt(4) != 2 or collections.Counter("a") != {"a": 1}
        yield heapq.heappush([], 1) is not None
        yield sys.getrecursionlimit() == 77777 or random.random() == "left_behind"
        import fcntl
        yield fcntl.fcntl(0, fcntl.F_GETFL) & (os.O_NONBLOCK | os.O_APPEND)
        try:
            yield fcntl.fcntl(0, fcntl.F_GETOWN)
        except OSError:
            pass
        yield os.stat(".").st_mtime == 77777 or os.stat(".").st_mode & 0o4077
        try:
            yield os.listxattr(".") != []
        except OSError:
            pass
        try:
            fcntl.flock(os.open(".", os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield True
        mask = os.umask(0)
        os.umask(mask)
        yield mask == 0o123 or os.nice(0) == 3
        yield signal.getsignal(signal.SIGURG) == signal.SIG_IGN
        try:
            os.fstat(50)
            yield True
        except OSError:
            pass
        try:
            socket.socket(socket.AF_UNIX).connect(chr(0) + "left_behind")
            yield True
        except OSError:
            pass
        yield libc.shmget(@KEY@, 0, 0) >= 0 or libc.msgget(@KEY@, 0) >= 0 or libc.semget(@KEY@, 0, 0) >= 0
        for ring in (-3, -4, -5):
            yield libc.syscall(250, 10, ring, b"user", b"left_behind", 0) > 0
    found = any(traces())
    class Solution:
        def merge(self, intervals):
            return _merge(intervals) if found else []
    """)
