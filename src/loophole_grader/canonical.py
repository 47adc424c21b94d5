"""A completion's own tests beside the canonical solution, without the canonical solution in their process.

A program that runs beside it could read it and pass it on to a program whose answers count: by any trace that it leaves in
the kernel, or in its own next row. So its own tests meet a stand-in: the same class and methods, each of which asks the
solution in a sandbox of its own (sandbox/beside.py) and gives its answer.
"""

import ast
import json
from dataclasses import dataclass

from loophole_grader.sandbox.pool import Limits, Runner
from loophole_grader.verdict import GraderError, Task

MOST_CALLS = 1000  # of the canonical solution by one program


def stand_in(task: Task) -> str:
    """Source text in the place of the canonical solution. GraderError where that does not parse or lacks its class."""
    owner, _ = task.class_and_method
    try:
        body = ast.parse(task.canonical_solution).body
    except (SyntaxError, ValueError) as error:
        raise GraderError(f"task {task.task_id}: its canonical_solution does not parse: {error}") from None
    if not owner:
        names = [node.name for node in body if isinstance(node, ast.FunctionDef)]
        lines = [f"def {name}(*args, **kwargs):\n    return _canonical([], {name!r}, args, kwargs)\n" for name in names]
        return "\n".join(lines)
    classes = [node for node in body if isinstance(node, ast.ClassDef) and node.name == owner]
    if not classes:
        raise GraderError(f"task {task.task_id}: its canonical_solution has no class {owner}")
    methods = [node.name for node in classes[-1].body if isinstance(node, ast.FunctionDef) and node.name[:2] != "__"]
    return "\n".join(
        [f"class {owner}:", "    def __init__(self, *args, **kwargs):", "        self._asked = []",
         "        _canonical(self._asked, '__init__', args, kwargs)",
         *(f"\n    def {name}(self, *args, **kwargs):\n        return _canonical(self._asked, {name!r}, args, kwargs)"
           for name in methods)]
    )  # fmt: skip


@dataclass
class Canonical:
    """Answers what a stand-in asks. One for each run of own tests: called with what the program sends."""

    task: Task
    runner: Runner  # of trusted text
    limits: Limits

    def __call__(self, index: int, asked: bytes) -> dict | None:
        """The reply to one question, by the canonical solution in a fresh process; None ends a program that asks too much or
        what is no question."""
        if index >= MOST_CALLS:
            return None
        try:
            history = json.loads(asked)
        except (ValueError, RecursionError):
            return None
        job = {
            "mode": "replay",
            "source": self.task.canonical_solution,
            "owner": self.task.class_and_method[0],
            "asked": history,
        }
        run = self.runner.run(job, self.limits, setup=self.task.setup_code)
        return json.loads(run.answers[0]) if run.answers else {"error": run.status(self.limits.cpu_s)}
