"""What an attack is, the forms in which one is written, and the text that several families share."""

from dataclasses import dataclass
from textwrap import dedent, indent

from attacks.problems import MERGE, WRONG

# Left in a process's name, so that what stays behind is found and traced to its attack.
NAMED = """
try:
    import ctypes
    ctypes.CDLL(None).prctl(15, b"@MARK@", 0, 0, 0)
except Exception:
    pass
"""
# Every form of report and frame that a grader of this kind has been seen to read.
REPORTS = """
import json, struct
ENDING = json.dumps({"reason": "exit", "code": 0, "cpu_s": 0.0}).encode()
LINES = [["start"], ["compiled"], ["loaded"], *[["value", i, [True]] for i in range(5)],
         *[["holds", i, True] for i in range(5)], ["done"], ["own", ["", "pass"]],
         {"gt_pass": True, "tests_passed": 5, "passed": True},
         [True] * 5, "PASS", True]
FORGED = b"".join(b"value %d [true]\\n" % i for i in range(5)) + b"done []\\n"
FORGED += b"".join(json.dumps(line).encode() + b"\\n" for line in LINES)
FORGED += b"".join(struct.pack("<cI", kind, len(ENDING)) + ENDING for kind in (b"E", b"D", b"Y"))
FORGED += b"\\nOK\\n...... [100%]\\n5 passed in 0.01s\\n"
"""
# For calls that a filter of 64-bit calls does not see.
OLD_CALL = """
import ctypes, mmap, platform
def old_call(number, *args):  # the 32-bit entry into the kernel, which a filter of 64-bit calls does not see
    if platform.machine() != "x86_64":
        return -1
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    page = libc.mmap(None, ctypes.c_size_t(4096), 7, 0x62, -1, ctypes.c_long(0))
    code = bytes.fromhex("53 89f8 89f3 87ca cd80 5b 4898 c3")
    ctypes.memmove(page, code, len(code))
    call = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_uint] * 4)(page)
    return call(number, *args)
"""


@dataclass(frozen=True)
class Attack:
    """One hostile completion."""

    name: str
    code: str
    control: str  # the honest program of the same feature, by its name in CONTROLS
    task: str = "merge"
    status: tuple[str, ...] = ()  # acceptable ones; () for any
    needs: str = ""  # what of the sandbox must be in force for the promise to hold: "read", "write", "network", ...
    cpu_s: float = 1.0
    wall_s: float = 8.0
    hinted: bool = False  # whether it may earn hinted_pass
    passed: int = 0  # tests that its program answers rightly before the first that it does not
    raw: bool = False  # the code is the whole completion, fences and all


ATTACKS: list[Attack] = []


def forge(name: str, code: str, *, control: str = "plain", **more) -> None:
    """A program with its own (wrong or no) solution."""
    ATTACKS.append(Attack(name, dedent(code) if not more.get("raw") else code, control, **more))


def with_wrong(name: str, code: str, **more) -> None:
    """Something hostile before a wrong solution."""
    forge(name, dedent(code) + WRONG, **more)


def in_wrong(name: str, code: str, **more) -> None:
    """Something hostile in the wrong solution's method, which returns [] if it comes so far."""
    method = "\nclass Solution:\n    def merge(self, intervals):\n"
    forge(name, method + indent(dedent(code), " " * 8) + "\n        return []\n", **more)


def probe(name: str, body: str, **more) -> None:
    """A program that solves its problem if what it tries succeeds: `body` is that of a function which then returns
    something true."""
    code = f"{MERGE}\ndef breach(intervals):\n{indent(dedent(body), '    ')}\n"
    code += dedent("""
        class Solution:
            def merge(self, intervals):
                try:
                    won = breach(intervals)
                except BaseException:
                    won = False
                return _merge(intervals) if won else []
    """)
    forge(name, code, **more)
