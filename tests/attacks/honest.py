"""For each attack an honest solution that uses the same feature innocently."""

from textwrap import dedent

from attacks.problems import MERGE, SOLVED, TASKS


def _honest(before: str, answer: str = "_merge(intervals)") -> str:
    return dedent(before) + MERGE + f"\nclass Solution:\n    def merge(self, intervals):\n        return {answer}\n"


CONTROLS: dict[str, tuple[str, str]] = {
    "plain": ("merge", SOLVED),
    "printing": ("merge", _honest("import sys\nprint('x' * 1000)\nprint('[\"done\"]', file=sys.stderr, flush=True)\n")),
    "scratch_files": (
        "merge",
        _honest("""
        import os, tempfile
        with open("notes.txt", "w") as out:
            out.write("a")
        with open("notes.txt") as back:
            assert back.read() == "a"
        os.makedirs("a/b", exist_ok=True)
        assert os.path.exists("a/b") and os.path.basename("/x/y.txt") == "y.txt"
        os.symlink("notes.txt", "link")
        os.remove("notes.txt")
        """),
    ),
    "set_work": (
        "merge",
        _honest("x = {i * 7919 for i in range(100000)} | {frozenset({1}), (1, 2)}\ny = {i: i for i in x}\n"),
    ),
    "long_answer": ("long", "class Solution:\n    def f(self, n):\n        return list(range(n))\n"),
    "nested_answer": (
        "nested",
        "class Solution:\n    def f(self, n):\n        x = []\n        for _ in range(n): x = [x]\n        return x\n",
    ),
    "short_sleep": ("merge", _honest("import time\ntime.sleep(.05)\n")),
    "threads": (
        "merge",
        _honest(
            "from concurrent.futures import ThreadPoolExecutor\nimport threading\n"
            "t = threading.Thread(target=print)\nt.start()\nt.join()\n",
            "ThreadPoolExecutor(4).submit(_merge, intervals).result()",
        ),
    ),
    "atexit": ("merge", _honest("import atexit\natexit.register(print, 'goodbye')\n")),
    "del_method": ("merge", _honest("class R:\n    def __del__(self): print('freed')\nR()\nr = R()\n")),
    "catches_exit": (
        "merge",
        _honest(
            "import sys\ntry:\n    sys.exit(0)\nexcept SystemExit:\n    pass\ntry:\n    raise KeyboardInterrupt\n"
            "except BaseException:\n    pass\n"
        ),
    ),
    "own_exception": (
        "merge",
        _honest(
            "class E(Exception):\n    def __str__(self): return 'x'\ntry:\n    raise E\nexcept E as e:\n    print(e)\n"
        ),
    ),
    "exec_builtin": ("merge", _honest("exec('a = 1')\nassert eval('a + 1') == 2\nc = compile('1', '', 'eval')\n")),
    "ctypes": (
        "merge",
        _honest("import ctypes\nassert ctypes.c_int(5).value == 5\nassert ctypes.sizeof(ctypes.c_int) == 4\n"),
    ),
    "shadowed_names": ("merge", "str = print = isinstance = type = eval = exec = compile = id = None\n" + SOLVED),
    "json_dumps": ("merge", _honest("import json\n", "json.loads(json.dumps(_merge(intervals)))")),
    "monkeypatch": ("merge", _honest("import heapq, math\nheapq.push = heapq.heappush\nmath.TAU2 = 2\n")),
    "frames": (
        "merge",
        _honest("import sys\nassert sys._getframe().f_lineno\ndef depth():\n    return sys._getframe(1)\ndepth()\n"),
    ),
    "gc_collect": ("merge", _honest("import gc\ngc.collect()\ngc.disable()\nassert gc.get_objects()\ngc.freeze()\n")),
    "lazy_import": (
        "merge",
        _honest("import importlib, sys\nm = importlib.import_module('colorsys')\nassert 'colorsys' in sys.modules\n"),
    ),
    "eq_on_helper": (
        "merge",
        _honest(
            "class P:\n    def __init__(self, x): self.x = x\n    def __eq__(self, o): return self.x == o.x\n"
            "    def __hash__(self): return hash(self.x)\nassert len({P(1), P(1)}) == 1\n"
        ),
    ),
    "metaclass": (
        "merge",
        _honest("class M(type):\n    pass\nclass A(metaclass=M):\n    pass\nclass S(type):\n    pass\n"),
    ),
    "own_source": (
        "merge",
        _honest(
            "import inspect, os.path, sys, encodings.idna, linecache, traceback\nassert os.path.join('a', 'b') == 'a/b'\n"
            "import colorsys, decimal, statistics, string, sqlite3\ninspect.getsource(colorsys)\n"
        ),
    ),
    "subclasses": (
        "merge",
        _honest(
            "class I(int):\n    def __repr__(self): return 'I'\nclass L(list):\n    pass\n",
            "L(L(I(x) for x in pair) for pair in _merge(intervals))",
        ),
    ),
    "pickle": (
        "merge",
        _honest("import copy, pickle\n", "pickle.loads(pickle.dumps(copy.deepcopy(_merge(intervals))))"),
    ),
    "bool": ("even", TASKS["even"].canonical_solution),
    "generator_to_list": (
        "merge",
        _honest(
            "import itertools\ndef one(pairs):\n    yield from pairs\n",
            "list(itertools.islice(itertools.chain(one(_merge(intervals)), itertools.count()), len(_merge(intervals))))",
        ),
    ),
    "busy": (
        "merge",
        _honest(
            "import resource\nresource.getrlimit(resource.RLIMIT_CPU)\ntotal = sum(i * i for i in range(10 ** 6))\n"
        ),
    ),
    "fork": (
        "merge",
        _honest("import os\npid = os.fork()\nif pid == 0:\n    os._exit(3)\nassert os.waitpid(pid, 0)[1] >> 8 == 3\n"),
    ),
    "memory": ("merge", _honest("x = bytes(30 << 20)\ntry:\n    y = 'a' * 10 ** 12\nexcept MemoryError:\n    pass\n")),
    "recursion": (
        "merge",
        _honest(
            "import functools, sys\nsys.setrecursionlimit(10 ** 6)\n@functools.lru_cache(None)\ndef depth(n):\n"
            "    return n and 1 + depth(n - 1)\nassert depth(5000) == 5000\n"
        ),
    ),
    "signals": (
        "merge",
        _honest(
            "import os, signal\nhits = []\nsignal.signal(signal.SIGUSR1, lambda *a: hits.append(1))\n"
            "os.kill(os.getpid(), signal.SIGUSR1)\nassert hits\nsignal.alarm(0)\n"
            "try:\n    signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt:\n    pass\n"
        ),
    ),
    "environment": ("merge", _honest("import os\nos.environ['MY_FLAG'] = '1'\nassert os.getenv('MY_FLAG') == '1'\n")),
    "asyncio": (
        "merge",
        _honest(
            "import asyncio\nasync def soon(x):\n    await asyncio.sleep(0)\n    return _merge(x)\n",
            "asyncio.run(soon(intervals))",
        ),
    ),
    "own_tests": ("merge", SOLVED + "def run_tests():\n    assert Solution().merge([[1, 2], [2, 3]]) == [[1, 3]]\n"),
}
