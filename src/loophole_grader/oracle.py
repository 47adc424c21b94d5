"""Strict ground truth, judged outside the judged process.

An assertion is split into what the program must compute and what is done with it:

- `assert CALL == LITERAL`: the sandbox evaluates CALL and ships its value; this process compares it with the literal by
  Python's == on plain data. The literal never enters the sandbox.
- other assertions around calls of the solution (`is_same_list(CALL, ...)`, `abs(CALL - x) < eps`, `CALL == CALL2`):
  the sandbox ships the values of the calls, and a second process that runs trusted text only (setup code and the
  assertion) evaluates the rest.
- statements before an assertion run in the sandbox, except assignments that no call needs (`expected = [1, 2]`).
- a test that cannot be split so (a call inside a lambda or comprehension, an assertion inside a loop) is refused: a
  program could pass it by interfering with it.

Plain == holds: 1 == True and 1 == 1.0, as in the benchmark.
"""

import ast
import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from loophole_grader.sandbox import values
from loophole_grader.sandbox.pool import Execution, Limits, Runner, SetupError
from loophole_grader.sandbox.reading import Block
from loophole_grader.verdict import GraderError, Task

JUDGE_LIMITS = Limits(cpu_s=5.0, wall_s=60.0, memory_mb=4096)
JUDGED_BYTES = 4 << 20  # of one answer that the second process is given: all workers share it
_NOT_LITERAL = object()


@dataclass(frozen=True)
class JudgePlan:
    """How one assertion is judged."""

    test: int  # which test it belongs to
    observed: tuple[str, ...]  # expressions that the sandbox evaluates and ships
    prelude: str = ""  # statements that the sandbox runs before them
    expected: Any = _NOT_LITERAL  # compare the one observed value with this, in this process
    remainder: str = ""  # else: trusted expression over _answer0, _answer1, ...

    @property
    def longest(self) -> int:
        """Bytes of JSON beyond which an answer cannot equal `expected`: a list of "false" is three times as long as
        one of 0, which is equal. What is longer is wrong without being read."""
        return 100 + 8 * len(json.dumps(values.encode(self.expected)))

    @property
    def call(self) -> list:
        """For the sandbox."""
        return [self.prelude, list(self.observed)]


@dataclass
class Judgement:
    """The ground-truth run of one program."""

    run: Execution
    passed: int  # tests before the first failure
    answers_right: bool  # every test passed


@lru_cache(maxsize=1024)
def plans_of(task: Task) -> tuple[JudgePlan, ...]:
    """One plan per assertion, in order. Raises GraderError naming the task and the test that does not parse or cannot
    be judged."""
    return tuple(plan for index, test in enumerate(task.tests) for plan in _plans(test, index, task))


def _plans(test: str, index: int, task: Task) -> list[JudgePlan]:
    place = f"task {task.task_id}: test {index}"
    try:
        body = ast.parse(test).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise GraderError(f"{place} does not parse ({error}): {test:.80}") from None
    splitter = _Splitter(_root_name(task.func_name))
    body = splitter.without_trusted_names(body)
    plans, prelude = [], []
    for statement in body:
        if isinstance(statement, ast.Assert):
            plans.append(splitter.plan(index, prelude, statement.test))
            prelude = []
        else:
            prelude.append(statement)
            splitter.bound |= _bound_names([statement])
            splitter.blocked |= any(isinstance(node, ast.Assert) for node in ast.walk(statement))
    if splitter.blocked or prelude or not plans:
        raise GraderError(f"{place} cannot be judged outside the program; write assert CALL == VALUE: {test:.80}")
    return plans


def literal(node: ast.expr) -> Any:
    """The value of an expression made of literals, or a marker if it is none. Beyond ast.literal_eval: inf and nan in
    their usual spellings, empty and converted containers, and arithmetic on numbers."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        pass
    if not all(isinstance(part, _LITERAL_NODES) for part in ast.walk(node)):
        return _NOT_LITERAL
    try:
        return eval(compile(ast.Expression(node), "<literal>", "eval"), {"__builtins__": {}}, dict(_LITERAL_NAMES))
    except Exception:  # noqa: BLE001  benchmark text that is no literal after all, such as an unknown name
        return _NOT_LITERAL


_LITERAL_NODES = (
    ast.Constant,
    ast.UnaryOp,
    ast.UAdd,
    ast.USub,
    ast.BinOp,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.Pow,
    ast.FloorDiv,
    ast.Mod,
    ast.List,
    ast.Tuple,
    ast.Set,
    ast.Dict,
    ast.Name,
    ast.Load,
    ast.Call,
)
_LITERAL_NAMES = {
    "inf": float("inf"),
    "nan": float("nan"),
    "float": float,
    "set": set,
    "frozenset": frozenset,
    "list": list,
    "tuple": tuple,
    "dict": dict,
}


def _root_name(func_name: str) -> str:
    return func_name.partition("(")[0].partition(".")[0].strip() or "Solution"


def _bound_names(statements: Sequence[ast.stmt]) -> set[str]:
    nodes = [node for statement in statements for node in ast.walk(statement)]
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


class _Splitter(ast.NodeTransformer):
    """Replaces each outermost call on the solution, and each name that the statements before bind, by _answerN."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.bound: set[str] = set()
        self.observed: list[str] = []
        self.blocked = False

    def without_trusted_names(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The test without the assignments that nothing in the sandbox needs, their values put where they are used:
        `expected = [1, 2]` is not for the program to read."""
        stored = [name for statement in body for name in _bound_names([statement])]
        needed = set()
        for statement in body:
            calls = [statement] if not isinstance(statement, ast.Assert) else self._calls(statement)
            needed |= {
                node.id
                for call in calls
                for node in ast.walk(call)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
            }
        trusted: dict[str, ast.expr] = {}
        kept = []
        for statement in body:
            if isinstance(statement, ast.Assign) and isinstance(target := statement.targets[0], ast.Name):
                used = {node.id for node in ast.walk(statement.value) if isinstance(node, ast.Name)}
                alone = len(statement.targets) == 1 and stored.count(target.id) == 1 and target.id not in needed
                if alone and self.root not in used and not used & set(stored):
                    trusted[target.id] = statement.value
                    continue
            kept.append(statement)
        return [_Insert(trusted).visit(statement) for statement in kept]

    def plan(self, index: int, before: list[ast.stmt], compared: ast.expr) -> JudgePlan:
        """How one assertion is judged, after these statements."""
        prelude = "\n".join(ast.unparse(statement) for statement in before)
        if isinstance(compared, ast.Compare) and [type(op) for op in compared.ops] == [ast.Eq]:
            for one, other in ((compared.left, compared.comparators[0]), (compared.comparators[0], compared.left)):
                expected = literal(other)
                if expected is not _NOT_LITERAL and self._is_observed(one):
                    return JudgePlan(index, (ast.unparse(one),), prelude, expected=expected)
        self.observed = []
        remainder = self.visit(copy.deepcopy(compared))
        return JudgePlan(
            index, tuple(self.observed), prelude, remainder=ast.unparse(ast.fix_missing_locations(remainder))
        )

    def visit(self, node: ast.AST) -> Any:
        if self._is_observed(node):
            self.observed.append(ast.unparse(node))
            return ast.Name(f"_answer{len(self.observed) - 1}", ast.Load())
        inner = any(self._touches(part) for part in ast.walk(node))
        if inner and isinstance(
            node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.NamedExpr)
        ):
            self.blocked = True  # the call depends on names that exist only in there
            return node
        if isinstance(node, ast.Name) and node.id == self.root:
            self.blocked = True  # the class itself, not a call on it
        return self.generic_visit(node)

    def _is_observed(self, node: ast.AST) -> bool:
        """Whether its value, nothing computed from it, is what the sandbox ships."""
        if isinstance(node, ast.Call):
            return self._on_solution(node)
        return isinstance(node, ast.Name) and node.id in self.bound

    def _on_solution(self, node: ast.expr) -> bool:
        while isinstance(node, (ast.Call, ast.Attribute)):
            node = node.func if isinstance(node, ast.Call) else node.value
        return isinstance(node, ast.Name) and node.id == self.root

    def _calls(self, node: ast.AST) -> list[ast.AST]:
        if isinstance(node, ast.Call) and self._on_solution(node):
            return [node]
        return [call for inner in ast.iter_child_nodes(node) for call in self._calls(inner)]

    def _touches(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and (node.id == self.root or node.id in self.bound)


class _Insert(ast.NodeTransformer):
    """Puts values where their names are read."""

    def __init__(self, named: dict[str, ast.expr]) -> None:
        self.named = named

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.named.get(node.id, node))


@dataclass
class _Judge:
    """Judges answers as they come, and says what to ask next. What needs the second process is collected; the first
    such answer is judged at once, so that a wrong program is stopped early, the others at the end."""

    plans: tuple[JudgePlan, ...]
    judge: "JudgeRunner"
    task: Task
    right: dict[int, bool] = field(default_factory=dict)
    deferred: dict[int, bytes] = field(default_factory=dict)

    def take(self, index: int, answer: bytes) -> Any:
        """The next call; None after a wrong answer and after the last one."""
        plan = self.plans[index]
        if index == 0:  # perhaps for the second time
            self.right, self.deferred = {}, {}
        if plan.remainder:
            if len(answer) > JUDGED_BYTES:
                return None
            self.deferred[index] = answer
            if (index == 0 or sum(map(len, self.deferred.values())) > JUDGED_BYTES) and not self.settle():
                return None
        else:
            self.right[index] = _right(plan, answer)
            if not self.right[index]:
                return None
        return self.plans[index + 1].call if index + 1 < len(self.plans) else None

    def settle(self) -> bool:
        """Have the collected answers judged; whether all of them are right."""
        deferred, self.deferred = self.deferred, {}
        if not deferred:
            return True
        run = self.judge.run(
            self.task, [[self.plans[i].remainder, raw.decode("ascii", "replace")] for i, raw in deferred.items()]
        )
        # An answer that ends the judge (too deep for the benchmark's helpers) has no entry, and so fails.
        found = dict(zip(deferred, (answer == b"true" for answer in run.answers), strict=False))
        self.right.update({index: found.get(index, False) for index in deferred})
        return all(found.get(index) for index in deferred)


def _right(plan: JudgePlan, answer: bytes) -> bool:
    if len(answer) > plan.longest:
        return False
    try:
        values_found = json.loads(answer)
    except (ValueError, RecursionError):  # not what the encoder writes: the program wrote to the pipe itself
        return False
    return isinstance(values_found, list) and len(values_found) == 1 and values.matches(values_found[0], plan.expected)


def judge_program(
    runner: Runner, judge: "JudgeRunner", task: Task, blocks: Sequence[Block], limits: Limits
) -> Judgement:
    """Run setup and program in the sandbox and judge the answers here, up to the first wrong one. The program is asked
    for one value at a time: at no time are there more tests in the sandbox than the current call."""
    plans = plans_of(task)
    first = plans[0].call if plans else None
    evaluator = [task.evaluator_name, *task.class_and_method]
    job = {"mode": "tests", "blocks": blocks, "evaluator": evaluator, "call": first}
    state = _Judge(plans, judge, task)
    run = runner.run(job, limits, state.take, task.setup_code)
    state.settle()
    failed = next((plan for index, plan in enumerate(plans) if not state.right.get(index)), None)
    passed = len(task.tests) if failed is None else failed.test
    return Judgement(run, passed, bool(plans) and failed is None and run.reason == "enough")


class JudgeRunner:
    """The second process, shared by all threads: it runs trusted text only."""

    def __init__(self, runner: Runner, lock: Any) -> None:
        self.runner, self.lock = runner, lock

    def run(self, task: Task, items: list[list[str]]) -> Execution:
        """Judge [expression, answers] each, until the first that does not hold. Raises GraderError if the setup code
        of the task does not run by itself, naming the task."""
        job = {"mode": "judge", "items": items}

        def go_on(_index: int, holds: bytes) -> bool | None:
            return True if holds == b"true" else None

        try:
            with self.lock:
                return self.runner.run(job, JUDGE_LIMITS, go_on, task.setup_code)
        except SetupError as error:
            raise GraderError(f"task {task.task_id}: its setup_code fails by itself: {error}") from None
