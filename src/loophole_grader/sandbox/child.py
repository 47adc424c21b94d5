"""What runs inside the judged process: one job, next to the program itself.

What it calls after the program has started was looked up before, so that a program that replaces a builtin (by
accident, mostly) does not break its own report. A program that tampers on purpose can only send other values, and
gains no more by that than by returning them.

Reports go to file descriptor 3, one line each: a kind, a blank, JSON ("value INDEX JSON" for an answer). Calls come from
file descriptor 4, one at a time: a size (4 bytes), then JSON.
"""

import json
import os
import struct
import sys

import judging  # ty: ignore[import-not-found]  (run by the file's folder, not as part of the package)
import values  # ty: ignore[import-not-found]  (run by the file's folder, not as part of the package)

REPORT, CALLS = 3, 4
EVALUATOR_CHARS = 500_000  # of a completion's own tests that are also run against a stub and the canonical solution
SIZE = struct.Struct("<I")


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

    def __init__(self, job: dict, names: dict, prefix: str) -> None:
        """`names`: those of the module in which the setup code ran; `prefix`: see `future_prefix`."""
        self.job, self.names, self.prefix = job, names, prefix
        self.compile, self.exec, self.eval = compile, exec, eval
        self.dumps = json.JSONEncoder(separators=(",", ":")).encode
        self.loads = json.JSONDecoder().decode
        self.read, self.write, self.encode, self.too_large = read_exact, write_all, values.encode, values.TooLargeError
        self.decode, self.rebuild = values.decode, values.rebuild
        self.base, self.exit, self.unpack, self.size = BaseException, os._exit, SIZE.unpack, SIZE.size
        self.getpid, self.pid = os.getpid, os.getpid()

    def send(self, kind: str, *line: object) -> None:
        self.only_the_first()
        self.write(REPORT, b"%s %s\n" % (kind.encode(), self.dumps(line).encode()))

    def only_the_first(self) -> None:
        """A process that the program forked, and that came back here, has nothing to report."""
        if self.getpid() != self.pid:
            self.exit(0)

    def send_value(self, index: int, value: object) -> None:
        self.only_the_first()
        self.write(REPORT, b"value %d %s\n" % (index, self.dumps(value).encode()))

    def fail(self, phase: str, error: BaseException) -> None:
        """Report an exception by the name of its class, and end."""
        kind = "MemoryError" if isinstance(error, MemoryError) else type(error).__name__[:80]
        self.send("fail", phase, kind, brief(error))
        self.exit(0)

    def run(self) -> None:
        getattr(self, "run_" + self.job["mode"])()

    def load(self) -> None:
        """Compile and execute the program of the job."""
        try:
            program = self.compile(self.prefix + self.job["source"], "<program>", "exec")
        except BaseException as error:  # noqa: BLE001  hostile source raises more than SyntaxError: MemoryError, ValueError, ...
            self.fail("compile", error)
        self.send("compiled")
        if self.job.get("evaluator"):
            self.send("own", own_evaluator(self.job["source"], self.job["evaluator"]))
        try:
            self.exec(program, self.names)
        except self.base as error:
            self.fail("load", error)
        self.send("loaded")

    def run_tests(self) -> None:
        """Ground truth: evaluate each call and send its value. No expected value is in this process, and no call
        beyond the current one."""
        call, index = self.job["call"], 0
        self.load()
        while call is not None:
            try:
                self.send_value(index, self.answers(*call))
            except self.too_large:
                self.send("large", index)
                self.exit(0)
            except self.base as error:
                self.fail("test", error)
            head = self.read(CALLS, self.size)
            call = self.loads(self.read(CALLS, *self.unpack(head)).decode()) if head else None
            index += 1
        self.send("done")

    def answers(self, prelude: str, expressions: list[str], given: dict[str, object] | None = None) -> list:
        """Values of expressions after a prelude, coded; `given`: names bound first, to data that came coded."""
        for name, coded in given.items() if given else ():
            self.names[name] = self.rebuild(self.decode(coded), self.names)
        if prelude:
            self.exec(self.compile(prelude, "<test>", "exec"), self.names)
        return [self.encode(self.eval(self.compile(text, "<test>", "eval"), self.names)) for text in expressions]

    def run_call(self) -> None:
        """The completion's own word: a program and the call of its own tests."""
        self.load()
        try:
            self.eval(self.compile(self.job["call"], "<call>", "eval"), self.names)
        except self.base as error:
            self.fail("call", error)
        self.send("done")

    def run_judge(self) -> None:
        """Trusted text only: what is left of assertions, on values that were computed elsewhere."""
        sys.setrecursionlimit(20_000)  # the benchmark's is_same_list recurses once per node
        for index, item in enumerate(self.job["items"]):
            self.send_value(index, judging.judge(item, self.names))
        self.send("done")


def brief(error: BaseException) -> str:
    """One short line about an exception, even if its __str__ is hostile."""
    try:
        return f"{type(error).__name__}: {error}"[:200]
    except BaseException:  # noqa: BLE001  its text is the program's own code
        return "an exception without a text"


def future_prefix(setup: str) -> str:
    """What stands for the setup code, which ran already, before a program that is compiled by itself: its __future__
    imports, and a statement, if it has any, so that one in the program is the syntax error that it would be in one
    piece with the setup code."""
    import ast

    body = ast.parse(setup).body
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]  # a docstring
    futures = [node for node in body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    return "".join(f"{ast.unparse(node)};" for node in futures) + (
        "0\n" if len(body) > len(futures) else "\n" * bool(futures)
    )


def own_evaluator(code: str, name: str) -> list | None:
    """[class or "", text or None] of the completion's own evaluation function; None if it defines none.

    A function at module level wins over a method, a method over a function nested in another one (which no call from
    outside can reach). Among equals the first in ast.walk order counts. Text None: it cannot be printed.
    """
    if name not in code:
        return None
    import ast

    try:
        tree = ast.parse(code)
    except (SyntaxError, RecursionError, MemoryError, ValueError):  # it compiled with the setup code, so: too deep
        return None
    found: list[tuple[int, str, ast.FunctionDef]] = []
    owners: dict[ast.AST, tuple[int, str]] = {tree: (0, "")}
    for node in ast.walk(tree):
        rank, parent = owners.get(node, (0, ""))
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.FunctionDef) and inner.name == name:
                found.append((rank, parent, inner))
            owners[inner] = (rank, parent)
            if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                owners[inner] = (2, "")
            elif isinstance(inner, ast.ClassDef) and rank < 2:
                owners[inner] = (1, inner.name)
    if not found:
        return None
    _, parent, function = min(found, key=lambda item: item[0])
    try:
        text = ast.unparse(function)
        return [parent, text if len(text) <= EVALUATOR_CHARS else None]
    except RecursionError:
        return [parent, None]
