"""For each attack an honest solution that uses the same feature innocently."""

from textwrap import dedent

from attacks.problems import MERGE, SOLVED, TASKS

# What stands before the solution and, where it is another one, the expression that it returns.
_MERGING = {
    "printing": "import sys\nprint('x' * 1000)\nprint('[\"done\"]', file=sys.stderr, flush=True)\n",
    "scratch_files": """
        import os, tempfile
        with open("notes.txt", "w") as out:
            out.write("a")
        with open("notes.txt") as back:
            assert back.read() == "a"
        os.makedirs("a/b", exist_ok=True)
        assert os.path.exists("a/b") and os.path.basename("/x/y.txt") == "y.txt"
        os.symlink("notes.txt", "link")
        os.remove("notes.txt")
        """,
    "set_work": "x = {i * 7919 for i in range(100000)} | {frozenset({1}), (1, 2)}\ny = {i: i for i in x}\n",
    "short_sleep": "import time\ntime.sleep(.05)\n",
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor\nimport threading\n"
        "t = threading.Thread(target=print)\nt.start()\nt.join()\n",
        "ThreadPoolExecutor(4).submit(_merge, intervals).result()",
    ),
    "atexit": "import atexit\natexit.register(print, 'goodbye')\n",
    "del_method": "class R:\n    def __del__(self): print('freed')\nR()\nr = R()\n",
    "catches_exit": "import sys\ntry:\n    sys.exit(0)\nexcept SystemExit:\n    pass\n"
    "try:\n    raise KeyboardInterrupt\nexcept BaseException:\n    pass\n",
    "own_exception": "class E(Exception):\n    def __str__(self): return 'x'\n"
    "try:\n    raise E\nexcept E as e:\n    print(e)\n",
    "exec_builtin": "exec('a = 1')\nassert eval('a + 1') == 2\nc = compile('1', '', 'eval')\n",
    "ctypes": "import ctypes\nassert ctypes.c_int(5).value == 5\nassert ctypes.sizeof(ctypes.c_int) == 4\n",
    "json_dumps": ("import json\n", "json.loads(json.dumps(_merge(intervals)))"),
    "monkeypatch": "import heapq, math\nheapq.push = heapq.heappush\nmath.TAU2 = 2\n",
    "frames": "import sys\nassert sys._getframe().f_lineno\ndef depth():\n    return sys._getframe(1)\ndepth()\n",
    "gc_collect": "import gc\ngc.collect()\ngc.disable()\nassert gc.get_objects()\ngc.freeze()\n",
    "lazy_import": "import importlib, sys\nm = importlib.import_module('colorsys')\nassert 'colorsys' in sys.modules\n",
    "eq_on_helper": "class P:\n    def __init__(self, x): self.x = x\n    def __eq__(self, o): return self.x == o.x\n"
    "    def __hash__(self): return hash(self.x)\nassert len({P(1), P(1)}) == 1\n",
    "metaclass": "class M(type):\n    pass\nclass A(metaclass=M):\n    pass\nclass S(type):\n    pass\n",
    "own_source": "import inspect, os.path, sys, encodings.idna, linecache, traceback\n"
    "assert os.path.join('a', 'b') == 'a/b'\n"
    "import colorsys, decimal, statistics, string, sqlite3\ninspect.getsource(colorsys)\n",
    "subclasses": (
        "class I(int):\n    def __repr__(self): return 'I'\nclass L(list):\n    pass\n",
        "L(L(I(x) for x in pair) for pair in _merge(intervals))",
    ),
    "pickle": ("import copy, pickle\n", "pickle.loads(pickle.dumps(copy.deepcopy(_merge(intervals))))"),
    "generator_to_list": (
        "import itertools\ndef one(pairs):\n    yield from pairs\n",
        "list(itertools.islice(itertools.chain(one(_merge(intervals)), itertools.count()), len(_merge(intervals))))",
    ),
    "busy": "import resource\nresource.getrlimit(resource.RLIMIT_CPU)\ntotal = sum(i * i for i in range(10 ** 6))\n",
    "fork": "import os\npid = os.fork()\nif pid == 0:\n    os._exit(3)\nassert os.waitpid(pid, 0)[1] >> 8 == 3\n",
    "memory": "x = bytes(30 << 20)\ntry:\n    y = 'a' * 10 ** 12\nexcept MemoryError:\n    pass\n",
    "recursion": "import functools, sys\nsys.setrecursionlimit(10 ** 6)\n@functools.lru_cache(None)\ndef depth(n):\n"
    "    return n and 1 + depth(n - 1)\nassert depth(5000) == 5000\n",
    "signals": "import os, signal\nhits = []\nsignal.signal(signal.SIGUSR1, lambda *a: hits.append(1))\n"
    "os.kill(os.getpid(), signal.SIGUSR1)\nassert hits\nsignal.alarm(0)\n"
    "try:\n    signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt:\n    pass\n",
    "environment": "import os\nos.environ['MY_FLAG'] = '1'\nassert os.getenv('MY_FLAG') == '1'\n",
    "asyncio": (
        "import asyncio\nasync def soon(x):\n    await asyncio.sleep(0)\n    return _merge(x)\n",
        "asyncio.run(soon(intervals))",
    ),
}
_LONG = "class Solution:\n    def f(self, n):\n        return list(range(n))\n"
_NESTED = "class Solution:\n    def f(self, n):\n        x = []\n        for _ in range(n): x = [x]\n        return x\n"
_OWN_TESTS = "def run_tests():\n    assert Solution().merge([[1, 2], [2, 3]]) == [[1, 3]]\n"


def _honest(before: str, answer: str = "_merge(intervals)") -> str:
    return dedent(before) + MERGE + f"\nclass Solution:\n    def merge(self, intervals):\n        return {answer}\n"


CONTROLS: dict[str, tuple[str, str]] = {
    name: ("merge", _honest(*((one,) if isinstance(one, str) else one))) for name, one in _MERGING.items()
} | {
    "plain": ("merge", SOLVED),
    "shadowed_names": ("merge", "str = print = isinstance = type = eval = exec = compile = id = None\n" + SOLVED),
    "own_tests": ("merge", SOLVED + _OWN_TESTS),
    "long_answer": ("long", _LONG),
    "nested_answer": ("nested", _NESTED),
    "bool": ("even", TASKS["even"].canonical_solution),
}
