"""Memory, the stack, output and descriptors without bound."""

from textwrap import dedent

from attacks.forms import NAMED, forge, in_wrong
from attacks.problems import SOLVED

for _name, _body in (
    ("list", "x = []\nwhile True: x.append(bytes(10 ** 6))"),
    ("one_string", "x = 'a' * 10 ** 11"),
    ("doubling", "x = [0]\nwhile True: x += x"),
    ("mmap", "import mmap\nx = [mmap.mmap(-1, 1 << 26) for _ in range(100)]\nfor m in x: m.write(b'x' * (1 << 26))"),
    ("swallowed", "x = []\nwhile True:\n    try: x.append(bytes(10 ** 7))\n    except MemoryError: pass"),
):
    in_wrong(f"memory_bomb_{_name}", _body, control="memory", status=("memory", "runtime_error", "timeout", "killed"))
forge(
    "memory_bomb_by_children",
    NAMED
    + dedent("""
    import os, time
    for _ in range(6):
        if os.fork() == 0:
            x = bytearray(250 << 20)
            time.sleep(1000)
    time.sleep(5)
    """)
    + SOLVED,
    control="memory",
    status=("memory", "killed"),
)
in_wrong(
    "recursion_in_c",
    "import sys\nsys.setrecursionlimit(2 ** 31 - 1)\nx = []\nfor _ in range(10 ** 6): x = [x]\nrepr(x)",
    control="recursion",
    status=("killed", "runtime_error", "memory", "timeout"),
)
in_wrong(
    "output_of_200_megabytes",
    "import os\nfor _ in range(200): os.write(1, b'x' * 10 ** 6)",
    control="printing",
    status=("output_limit",),
)
in_wrong("descriptors_exhausted", "import os\nkept = []\nwhile True: kept.append(os.pipe())", control="scratch_files")
