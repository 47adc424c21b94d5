"""A completion's own tests beside the canonical solution, without the canonical solution in their process.

A program that runs beside it could read it and pass it on to a program whose answers count: by any trace that it leaves in
the kernel, or in its own next row. So its own tests meet a stand-in: the same class and names, each of which asks the
solution in a sandbox of its own (sandbox/beside.py) and gives its answer. Questions and answers go through this process as
text that nobody reads here.
"""

import ast
import json
import queue
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from loophole_grader.sandbox.pool import Limits, Runner
from loophole_grader.verdict import GraderError, Task

MOST_CALLS = 5000  # of the canonical solution by one program
TOO_LARGE = b"{}"  # what comes in the place of a question or an answer with too much data (as in sandbox/beside.py)
_PROPERTIES = ("property", "cached_property")


def stand_in(task: Task) -> str:
    """Source text in the place of the canonical solution. GraderError where that does not parse or lacks its class."""
    owner, _ = task.class_and_method
    if not owner:
        return "\n".join(
            f"def {name}(*args, **kwargs):\n    return _canonical.call(None, {name!r}, args, kwargs)\n"
            for name in _functions(task)
        )
    classes = _classes(task)
    if owner not in classes:
        raise GraderError(f"task {task.task_id}: its canonical_solution has no class {owner}")
    members = _members(owner, classes)
    return "\n".join(
        [f"class {owner}(_canonical.base):", "    def __init__(self, *args, **kwargs):",
         "        _canonical.make(self, args, kwargs)", "\n    def __getattr__(self, name):",
         "        return _canonical.get(self, name)",
         *(f"\n    {name} = _canonical.member({name!r}, {is_method})" for name, is_method in members.items())]
    )  # fmt: skip


def lacks_method(task: Task) -> bool:
    """Whether the canonical solution surely does not define the method that is asked for, as far as its text tells: a base
    whose text is not there, a decorator, `__getattr__` or a name that is used outside the class may bring it."""
    owner, method = task.class_and_method
    classes = _classes(task)
    if not owner or owner not in classes or method in _members(owner, classes) or method[:2] == "__":
        return False
    inner = {id(part) for part in ast.walk(classes[owner])}
    parts = [part for statement in _body(task) for part in ast.walk(statement) if id(part) not in inner]
    return not _may_inherit(owner, classes) and not any(
        isinstance(part, ast.Name) and part.id == owner for part in parts
    )


def _may_inherit(owner: str, classes: dict[str, ast.ClassDef]) -> bool:
    """Whether a class may have names that its text, and that of its bases, does not show."""
    node, others = classes[owner], {name: one for name, one in classes.items() if name != owner}
    if (
        node.decorator_list
        or node.keywords
        or "__getattr__" in _defined_in(node)
        or "__getattribute__" in _defined_in(node)
    ):
        return True
    names = [base.id if isinstance(base, ast.Name) else "" for base in node.bases]
    return any(name != "object" and (name not in others or _may_inherit(name, others)) for name in names)


def _defined_in(node: ast.ClassDef) -> set[str]:
    return {inner.name for inner in _statements(node.body) if isinstance(inner, ast.FunctionDef)}


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of a module or class, also under if, try, with and loops."""
    for node in body:
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            parts = [node, *getattr(node, "handlers", [])]
            for inner in (getattr(part, field, []) for part in parts for field in ("body", "orelse", "finalbody")):
                yield from _statements(inner)


@lru_cache(maxsize=256)
def _parsed(text: str) -> list[ast.stmt]:
    """Trusted text, read once for all the rows of its problem. Nobody changes what is read."""
    return ast.parse(text).body


def _body(task: Task) -> list[ast.stmt]:
    try:
        return _parsed(task.canonical_solution)
    except (SyntaxError, ValueError) as error:
        raise GraderError(f"task {task.task_id}: its canonical_solution does not parse: {error}") from None


def _functions(task: Task) -> list[str]:
    nodes = list(_statements(_body(task)))
    found = {node.name: None for node in nodes if isinstance(node, ast.FunctionDef)}
    lambdas = [node for node in nodes if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda)]
    return [*found, *(name for node in lambdas for name in _bound(node) if name not in found)]


def _classes(task: Task) -> dict[str, ast.ClassDef]:
    """Classes of the setup code and of the canonical solution, by name; of several the last."""
    try:
        setup = _parsed(task.setup_code)
    except (SyntaxError, ValueError):  # an error of its own, where it is executed
        setup = []
    return {node.name: node for node in _statements([*setup, *_body(task)]) if isinstance(node, ast.ClassDef)}


def _members(owner: str, classes: dict[str, ast.ClassDef]) -> dict[str, bool]:
    """The names that a class has, or those of its bases whose text is there: whether each is surely a method."""
    node, found = classes[owner], {}
    others = {name: one for name, one in classes.items() if name != owner}  # no circle
    for base in reversed(node.bases):
        if isinstance(base, ast.Name) and base.id in others:
            found |= _members(base.id, others)
    for inner in _statements(node.body):
        if isinstance(inner, ast.FunctionDef):
            marks = {
                mark.attr if isinstance(mark, ast.Attribute) else getattr(mark, "id", "")
                for mark in inner.decorator_list
            }
            found[inner.name] = marks.isdisjoint(_PROPERTIES) and marks.isdisjoint(("setter", "getter", "deleter"))
        elif isinstance(inner, (ast.Assign, ast.AnnAssign)):
            found |= dict.fromkeys(_bound(inner), False)
    return {name: is_method for name, is_method in found.items() if name[:2] != "__"}


def _bound(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if node.value else []
    return [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]


def node_classes(task: Task) -> list[str]:
    """Classes whose objects go between tests and canonical solution by their attributes: those of the trusted text, the
    solution's own aside."""
    return [name for name in _classes(task) if name != task.class_and_method[0]]


def _error(text: str) -> bytes:
    """A reply that raises RuntimeError in the tests."""
    return json.dumps({"error": ["RuntimeError", [text]]}).encode()


class Canonical:
    """Answers what a stand-in asks. One for each run of own tests: called with what the program sends. Close it behind the
    run."""

    def __init__(self, task: Task, runner: Runner, limits: Limits) -> None:
        """`runner`: of trusted text; `limits`: of all answers together."""
        self.task, self.runner, self.limits = task, runner, limits
        self.gave_up = False  # on questions that are too many or too large, after answers to all others
        self.talk: _Talk | None = None

    def __call__(self, index: int, asked: bytes) -> bytes | None:
        """The reply to one question; None ends a program that asks for too much. Raises GraderError."""
        if index == 0:  # perhaps for the second time: the program runs again
            self.close()
            self.gave_up = False
            self.talk = _Talk(self.task, self.runner, self.limits)
        assert self.talk is not None
        reply = TOO_LARGE if index >= MOST_CALLS or asked == TOO_LARGE else self.talk.ask(asked)
        if reply != TOO_LARGE:
            return reply
        self.gave_up = not self.talk.ended
        return None

    def close(self) -> None:
        if self.talk is not None:
            self.talk.close()


class _Talk:
    """One process with the canonical solution, and a thread that drives it."""

    def __init__(self, task: Task, runner: Runner, limits: Limits) -> None:
        self.failure: Exception | None = None
        self.status = ""
        self.asked: list[bytes] = []
        self.questions: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()  # None: the process has ended
        self.ended = False
        owner, _ = task.class_and_method
        job = {"mode": "replay", "source": task.canonical_solution, "owner": owner, "classes": node_classes(task),
               "functions": [] if owner else _functions(task)}  # fmt: skip
        self.thread = threading.Thread(target=self._run, args=(runner, job, limits, task.setup_code), daemon=True)
        self.thread.start()

    def ask(self, question: bytes) -> bytes:
        if not self.ended:
            self.questions.put(question)
            if (answer := self.answers.get()) is not None:
                return answer
            self.ended = True
        if self.failure is not None:
            raise self.failure
        return _error(self.status)

    def close(self) -> None:
        self.questions.put(None)
        self.thread.join()

    def _run(self, runner: Runner, job: dict[str, Any], limits: Limits, setup: str) -> None:
        try:
            run = runner.run(job, limits, self._next, setup)
            self.status = f"the canonical solution: {run.status(limits.cpu_s)}"
        except Exception as error:  # noqa: BLE001  raised again in the thread that asks
            self.failure = error
        finally:
            self.answers.put(None)

    def _next(self, index: int, answer: bytes) -> bytes | None:
        """The next question. If the process has to be run again, it is asked everything again."""
        if index == len(self.asked):
            if index:
                self.answers.put(answer)
            question = self.questions.get()
            if question is None:
                self.questions.put(None)  # for the case that the process has to be run again: nobody asks any more
                return None
            self.asked.append(question)
        return self.asked[index]
