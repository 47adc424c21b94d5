"""What runs inside the judged process: one job, next to the program itself.

What it calls after the program has started was looked up before, so that a program that replaces a builtin (by
accident, mostly) does not break the report. A program that tampers on purpose can only send other values, and
gains no more by that than by returning them.

Reports go to file descriptor 3, one line each: a kind, a blank, JSON ("value INDEX JSON" for an answer).
"""

import __future__

import json
import os
from typing import Any, NoReturn

# Run by the file's folder, not as part of the package.
import values  # ty: ignore[import-not-found]
from evaluator import execute, own_evaluator, statements  # ty: ignore[import-not-found]
from isolation import fork  # ty: ignore[import-not-found]
from reading import readings  # ty: ignore[import-not-found]

REPORT = 3
FUTURES = 0  # the flags of all __future__ imports
for _name in __future__.all_feature_names:
    FUTURES |= getattr(__future__, _name).compiler_flag
_compile, _exec, _eval, _AnyError = compile, exec, eval, BaseException
_exit, _getpid = os._exit, os.getpid
_dumps, _loads = json.JSONEncoder(separators=(",", ":")).encode, json.JSONDecoder().decode


def read_exact(fd: int, size: int) -> bytes:
    """So many bytes; fewer only at the end of the stream."""
    parts = []
    while size and (part := os.read(fd, min(size, 1 << 20))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


class Job:
    """One job: the program, and what is wanted of it."""

    def __init__(self, job: str, names: dict, others: dict, flags: int) -> None:
        """`job`: JSON, with the "calls" of ground truth, or the "call" of the completion's evaluation function and
        the "variants" of the solution; `names`: of the module in which the setup code ran; `others`: the same once
        more, for another solution; `flags`: __future__ imports of the setup code."""
        self.job, self.names, self.others, self.flags = _loads(job), names, others, flags
        self.pid, self.variant = _getpid(), ""
        self.failure: BaseException | None = None  # of the first text that did not compile

    def send(self, kind: str, line: object) -> None:
        """Report a line. A process that the program forked, and that came back here, has nothing to report."""
        if _getpid() != self.pid:
            _exit(0)
        write_all(REPORT, f"{kind} {_dumps(line)}\n".encode())

    def fail(self, phase: str, error: BaseException | None) -> NoReturn:
        """Report an exception by the name of its class, and end."""
        kind = "MemoryError" if isinstance(error, MemoryError) else type(error).__name__[:80]
        self.send("fail" + self.variant, [phase, kind, brief(error)])
        _exit(0)

    def run(self) -> None:
        """Compile the program that the "blocks" of the job are (reading.py), run it, and report. Where none compiles,
        the report is how the benchmark's reading failed. Never returns."""
        for source in readings(self.job["blocks"], self.compiled):
            if program := self.compiled(source):
                break
        else:
            self.fail("compile", self.failure)
        self.send("compiled", [])
        if "calls" in self.job:
            self.send("own", own_evaluator(source, self.job["evaluator"]))
            self.evaluate(program)
        self.call_variants(source, program)

    def execute(self, program: Any) -> None:
        try:
            _exec(program, self.names)
        except _AnyError as error:
            self.fail("load", error)
        self.send("loaded", [])

    def compiled(self, source: str) -> Any:
        """The code of a text, as it would compile behind the setup code, but that a program may begin with __future__
        imports; None if it does not compile."""
        try:
            return _compile(source, "<program>", "exec", self.flags, dont_inherit=True)
        except BaseException as error:  # noqa: BLE001  hostile source raises more than SyntaxError: MemoryError, ValueError, ...
            self.failure = self.failure or error
            return None

    def evaluate(self, program: Any) -> NoReturn:
        """Ground truth: evaluate each call and send its value. No expected value is in this process."""
        self.execute(program)
        for index, call in enumerate(self.job["calls"]):
            try:
                answer = values.encode(_eval(_compile(call, "<test>", "eval"), self.names))
                self.send(f"value {index}", answer)
            except _AnyError as error:
                self.fail("test", error)
        self.end()

    def call_variants(self, source: str, program: Any) -> None:
        """The completion's evaluation function: called in its program, with its solution (None) or with others.
        Variants run one after the other: the last in this process, those before in forks of it, as long as they leave
        no file."""
        *first, last = variants = self.job["variants"]
        parts = statements(source, program.co_flags & FUTURES) if any(variants) else []
        for number, instead in enumerate(first):
            if not (pid := fork()):
                self.call(program, parts, instead, str(number))
            os.waitpid(pid, 0)
            if os.listdir():  # noqa: PTH208
                return
        self.call(program, parts, last, str(len(first)) if first else "")

    def call(self, program: Any, parts: list, instead: list | None, variant: str) -> None:
        """Run one variant. Never returns."""
        self.pid, self.variant = _getpid(), variant
        if instead is None:
            self.execute(program)
        else:
            try:
                execute(parts, self.names, self.others, *instead)
            except _AnyError as error:
                self.fail("load", error)
        try:
            _eval(_compile(self.job["call"], "<call>", "eval"), self.names)
        except _AnyError as error:
            self.fail("call", error)
        self.end()

    def end(self) -> NoReturn:
        self.send("done" + self.variant, [])
        _exit(0)


def brief(error: BaseException | None) -> str:
    """One short line about an exception, even if its __str__ is hostile."""
    try:
        return f"{type(error).__name__}: {error}"[:200]
    except BaseException:  # noqa: BLE001  its text is made by the program
        return "an exception without a text"
