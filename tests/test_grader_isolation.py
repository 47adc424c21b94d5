"""The layers around a program: each stops what it is for, is named when it is missing, and weakens no honest
program."""

import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loophole_grader import LAYERS, IsolationError, Limits, Task, grade, grade_batch, isolation
from loophole_grader.__main__ import main
from loophole_grader.sandbox.pool import Pool

GRADING = sys.modules["loophole_grader.grade"]  # the package gives its name to the function
TASK = Task("ask", ("assert Solution().f(1) == 'yes'",), func_name="Solution().f")
NAMESPACES = frozenset(name for name in LAYERS if name.endswith("_namespace"))
# What a host may lack, from a container without user namespaces to an old kernel.
HOSTS = {
    "no namespaces": NAMESPACES,
    "no namespaces, no other user": NAMESPACES | {"own_user"},
    "no landlock": frozenset({"landlock"}),
    "no seccomp": frozenset({"seccomp"}),
    "no mount namespace": frozenset({"mount_namespace"}),
    "no pid namespace": frozenset({"pid_namespace"}),
    "nothing": frozenset(LAYERS) - {"session", "rlimits"},
}


def need(*layers):
    """Skip where the host has none of these layers."""
    if not set(layers) & set(isolation().active):
        reasons = [f"{layer}: {isolation().missing.get(layer)}" for layer in layers]
        pytest.skip("this host does not allow " + "; ".join(reasons))


def program(*statements):
    """One that answers "yes" if its statements raise nothing, and the error otherwise."""
    body = "\n".join(f"            {line}" for text in statements for line in text.split("\n"))
    return (
        "import ctypes, os, signal, socket, sys, threading, time\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "def ask(number, *args):\n    if libc.syscall(number, *args) < 0:\n"
        "        raise OSError(ctypes.get_errno(), 'refused')\n"
        f"class Solution:\n    def f(self, x):\n        try:\n{body}\n        except OSError as error:\n"
        "            return f'{type(error).__name__} {error.errno}'\n        return 'yes'\n"
    )


def passes(*statements, limits=None):
    return grade(TASK, f"```python\n{program(*statements)}\n```", limits=limits or Limits()).gt_pass


@pytest.fixture
def on_host(monkeypatch, caplog):
    """Has the grader work as on a host that lacks some layers."""
    pools = []

    def lacking(layers):
        pools.append(Pool(frozenset(layers)))
        monkeypatch.setattr(GRADING, "shared_pool", lambda *_: pools[-1])

    with caplog.at_level(logging.CRITICAL, "loophole_grader"):
        yield lacking
    for pool in pools:
        pool.close()


# ---- what each layer stops


@pytest.mark.parametrize(
    ("layers", "statement"),
    [
        (("mount_namespace", "landlock"), "os.listdir('/root')"),
        (("mount_namespace", "landlock"), f"open({__file__!r}).read()"),
        (("mount_namespace", "landlock"), "os.mkdir('../mark')"),
        (("seccomp",), "socket.socket(socket.AF_UNIX)"),
        (("seccomp",), "os.execv('/bin/true', ['true'])"),
        (("seccomp",), "ask(425, 8, ctypes.create_string_buffer(200))  # io_uring_setup"),
        (("seccomp",), "if libc.prctl(1, 0, 0, 0, 0): raise OSError(ctypes.get_errno())  # PR_SET_PDEATHSIG"),
        (("capabilities",), "os.chown('.', 1, 1)"),
        (("capabilities",), "os.setuid(1 if os.getuid() != 1 else 2)"),
    ],
)
def test_a_layer_stops(layers, statement):
    need(*layers)
    assert not passes(statement)


def test_the_program_is_alone_in_its_pid_namespace():
    need("pid_namespace")
    assert passes("assert (os.getpid(), os.getppid()) == (1, 0)", "os.kill(1, 15)", "time.sleep(.05)")
    assert passes("if not (p := os.fork()): os._exit(0)", "assert p == 2", "threading.Thread(target=print).start()")


# ---- what no layer may stop


HONEST = [
    ["t = [threading.Thread(target=sum, args=([1],)) for _ in range(8)]", "for x in t: x.start()"],
    ["threading.stack_size(1 << 30)", "t = threading.Thread(target=int)", "t.start()", "t.join()"],
    ["sys.setrecursionlimit(10**6)", "def d(n): return 0 if n == 0 else 1 + d(n - 1)", "assert d(10**5) == 10**5"],
    [
        "import functools\nsys.setrecursionlimit(10**6)\n@functools.cache\ndef d(n): return n and 1 + d(n - 1)",
        "assert d(10**5) == 10**5",
    ],
    ["assert len(bytearray(600 << 20)) == 600 << 20"],
    ["if (p := os.fork()) == 0: time.sleep(9)", "os.kill(p, 9)", "assert os.waitpid(p, 0)[1] == 9"],
    ["import tempfile", "tempfile.TemporaryFile().write(b'x')"],
    ["import sqlite3, decimal, zoneinfo, hashlib, zlib, lzma, csv, pickle, html.parser, urllib.parse"],
    [
        "import secrets, uuid, random",
        "secrets.token_hex(), uuid.uuid4(), os.urandom(3), random.SystemRandom().random()",
    ],
    ["signal.signal(signal.SIGALRM, lambda *_: 0)", "signal.setitimer(signal.ITIMER_REAL, .01)", "time.sleep(.05)"],
    ["import asyncio", "async def g(): return 3", "for _ in range(3): assert asyncio.run(g()) == 3"],
    ["a, b = socket.socketpair()", "a.send(b'x')", "assert b.recv(1) == b'x'"],
    ["os.sched_getaffinity(0)"],
]


def test_an_honest_program_may():
    need("pid_namespace", "own_user")
    found = grade_batch([TASK] * len(HONEST), [f"```python\n{program(*lines)}\n```" for lines in HONEST])
    assert [lines for lines, one in zip(HONEST, found, strict=True) if not one.gt_pass] == []


# ---- poorer hosts


def test_a_throwaway_process_ends_whatever_it_raises():
    """The sneaky fail: it goes on as a second worker on the same pipes."""
    code = (
        "import isolation\ndef odd(): raise ValueError('odd')\ndef denied(*_): raise PermissionError\n"
        "isolation.write_maps = denied\nfor step in (lambda: isolation.in_fork(odd), isolation.enter_user_namespace):\n"
        "    try: step()\n    except RuntimeError: print('RuntimeError')\n    except OSError: print('OSError')\n"
    )
    environment = {"PYTHONPATH": str(Path(GRADING.__file__).parent / "sandbox")}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert run.stdout.split() == ["RuntimeError", "OSError"]
    assert "ValueError: odd" in run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("host", HOSTS)
def test_an_honest_solution_passes_on_a_poorer_host(on_host, host):
    on_host(HOSTS[host])
    assert passes("t = threading.Thread(target=print)", "t.start()", "t.join()", "open('x', 'w').write('y')")
    assert passes("assert os.listdir() == []", "import sqlite3")
    assert not passes("raise OSError")


@pytest.mark.slow
def test_a_program_that_ends_its_runner_is_killed_and_its_neighbours_are_judged(on_host):
    on_host(HOSTS["nothing"])
    bad = "import os, time\nos.kill(os.getppid(), 9)\ntime.sleep(9)\n"
    texts = [program("pass"), bad, program("pass") + "#"]
    verdicts = grade_batch([TASK] * 3, [f"```python\n{text}\n```" for text in texts], workers=1)
    assert [(one.status, one.gt_pass) for one in verdicts] == [("ok", True), ("killed", False), ("ok", True)]


def test_full_isolation_can_be_required(on_host, monkeypatch, tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    problem = {"id": 1, "gt_answer": list(TASK.tests), "setup_code": "", "func_name": TASK.func_name}
    rows.write_text(json.dumps({"problem": problem, "completion": f"```python\n{program('pass')}\n```"}))
    on_host(HOSTS["no landlock"])
    with pytest.raises(IsolationError, match=r"landlock \(switched off\)"):
        grade_batch([TASK], [f"```python\n{program('pass')}\n```"], require_isolation="full")
    assert main([str(rows), "--require-isolation", "full"]) == 2
    assert "landlock (switched off)" in capsys.readouterr().err
    assert main([str(rows)]) == 0
    assert json.loads(capsys.readouterr().out)["gt_pass"]
    monkeypatch.undo()
    if isolation().lacking:
        pytest.skip(f"this host has no full isolation: {isolation().lacking}")
    assert main([str(rows), "--require-isolation", "full"]) == 0
    assert json.loads(capsys.readouterr().out)["layers"] == list(isolation().active)


# ---- time and memory of all of a program's processes


@pytest.mark.slow
def test_cpu_time_of_children_that_nobody_waits_for_counts(on_host):
    on_host({"seccomp"})  # which would forbid to ignore SIGCHLD
    code = (
        "import os, signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nwhile True:\n    if not os.fork():\n"
        "        x = 0\n        while x < 2_000_000: x += 1\n        os._exit(0)\n"
        "    try: os.wait()\n    except OSError: pass\n"
    )
    assert grade(TASK, f"```python\n{code}\n```", limits=Limits(cpu_s=1, wall_s=20)).status == "timeout"


@pytest.mark.slow
def test_a_killed_parent_leaves_no_process_and_no_folder(tmp_path):
    code = (
        "import os, signal, sys, tempfile\nfrom loophole_grader.sandbox.pool import Limits, Worker\nrunner = Worker()\n"
        "runner.load('')\nprint(runner._process.pid, runner._scratch, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    pid, folder = run.stdout.split()
    end = time.monotonic() + 10
    while time.monotonic() < end and (Path(folder).exists() or Path("/proc", pid).exists()):
        time.sleep(0.02)
    assert not Path(folder).exists()
    state = Path("/proc", pid, "stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"
