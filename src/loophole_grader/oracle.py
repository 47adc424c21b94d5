"""Strict ground truth, judged outside the judged process.

An assertion is split into what the program must compute and what is done with it:

- `assert CALL == LITERAL`: the sandbox evaluates CALL and ships its value; this process compares it with the literal by
  Python's == on plain data. The literal never enters the sandbox.
- other assertions around calls of the solution (`is_same_list(CALL, ...)`, `abs(CALL - x) < eps`, `CALL == CALL2`),
  with or without statements before them: the sandbox ships the values of the calls, and a second process that runs
  trusted text only (setup code and the assertion) evaluates the rest.
- anything else (no call to be found, a call inside a lambda or comprehension, several assertions in one test) runs
  whole inside the sandbox. This is weaker: the program could interfere with it. `Plan.split` tells.

Plain == holds: 1 == True and 1 == 1.0, as in the benchmark.
"""

import ast
import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from loophole_grader import values
from loophole_grader.sandbox import Limits, Run, Runner
from loophole_grader.verdict import GraderError, Task

JUDGE_LIMITS = Limits(cpu_s=30.0, wall_s=300.0, memory_mb=4096)
_NOT_LITERAL = object()


@dataclass(frozen=True)
class Plan:
    """How one test is judged."""

    observed: tuple[str, ...]  # expressions that the sandbox evaluates and ships
    prelude: str = ""  # statements that the sandbox runs before them
    expected: Any = _NOT_LITERAL  # compare the one observed value with this, in this process
    remainder: str = ""  # else: trusted expression over _answer0, _answer1, ...
    whole: str = ""  # else: the statement as it stands, run inside the sandbox

    @property
    def split(self) -> bool:
        """Whether the judgement lies outside the sandbox."""
        return not self.whole


@dataclass
class Judgement:
    """The ground-truth run of one program."""

    run: Run
    passed: int  # tests before the first failure
    answers_right: bool  # every test passed


@lru_cache(maxsize=1024)
def plans_of(task: Task) -> tuple[Plan, ...]:
    """One plan per test. Raises GraderError naming the task and the test that does not parse."""
    return tuple(_plan(test, index, task) for index, test in enumerate(task.tests))


def _plan(test: str, index: int, task: Task) -> Plan:
    try:
        *before, last = ast.parse(test).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise GraderError(f"task {task.task_id}: test {index} does not parse ({error}): {test:.80}") from None
    if not isinstance(last, ast.Assert) or any(isinstance(node, ast.Assert) for node in before):
        return Plan((), whole=test)
    prelude = "\n".join(ast.unparse(statement) for statement in before)
    compared = last.test
    if isinstance(compared, ast.Compare) and [type(op) for op in compared.ops] == [ast.Eq]:
        for one, other in ((compared.left, compared.comparators[0]), (compared.comparators[0], compared.left)):
            expected = literal(other)
            if expected is not _NOT_LITERAL and literal(one) is _NOT_LITERAL:
                return Plan((ast.unparse(one),), prelude, expected=expected)
    splitter = _Splitter(_root_name(task.func_name), _bound_names(before))
    remainder = splitter.visit(copy.deepcopy(compared))
    if not splitter.observed or splitter.blocked:
        return Plan((), whole=test)
    return Plan(tuple(splitter.observed), prelude, remainder=ast.unparse(ast.fix_missing_locations(remainder)))


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

    def __init__(self, root: str, bound: set[str]) -> None:
        self.root, self.bound = root, bound
        self.observed: list[str] = []
        self.blocked = False

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Call) and self._on_solution(node):
            return self._observe(node)
        if isinstance(node, ast.Name) and node.id in self.bound:
            return self._observe(node)
        inner = any(self._touches(part) for part in ast.walk(node))
        if inner and isinstance(
            node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.NamedExpr)
        ):
            self.blocked = True  # the call depends on names that exist only in there
            return node
        if isinstance(node, ast.Name) and node.id == self.root:
            self.blocked = True  # the class itself, not a call on it
        return self.generic_visit(node)

    def _on_solution(self, node: ast.expr) -> bool:
        while isinstance(node, (ast.Call, ast.Attribute)):
            node = node.func if isinstance(node, ast.Call) else node.value
        return isinstance(node, ast.Name) and node.id == self.root

    def _touches(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and (node.id == self.root or node.id in self.bound)

    def _observe(self, node: ast.expr) -> ast.Name:
        self.observed.append(ast.unparse(node))
        return ast.Name(f"_answer{len(self.observed) - 1}", ast.Load())


@dataclass
class _Judge:
    """Compares answers as they come; what needs the second process is collected for the end."""

    plans: tuple[Plan, ...]
    right: dict[int, bool] = field(default_factory=dict)
    deferred: dict[int, list[Any]] = field(default_factory=dict)

    def take(self, index: int, answer: Any) -> bool:
        """Whether the program should go on: False from the first wrong answer."""
        if index >= len(self.plans):
            return False
        plan = self.plans[index]
        if plan.whole:
            self.right[index] = answer == [True]
            return self.right[index]
        try:
            decoded = [values.decode(one) for one in answer]
        except (ValueError, TypeError):  # not what the encoder writes: the program wrote to the pipe itself
            decoded = []
        plain = len(decoded) == len(plan.observed) and not values.contains_opaque(decoded)
        if plain and plan.remainder:
            self.deferred[index] = answer
            return True
        self.right[index] = plain and _equal(decoded[0], plan.expected)
        return self.right[index]


def _equal(answer: Any, expected: Any) -> bool:
    try:
        return bool(answer == expected)
    except (RecursionError, OverflowError):
        return False


def judge_program(runner: Runner, judge: "JudgeRunner", task: Task, code: str, limits: Limits) -> Judgement:
    """Run setup and program in the sandbox and judge the answers here, up to the first wrong one."""
    plans = plans_of(task)
    job = {
        "mode": "tests",
        "source": program_text(task.setup_code, code),
        "code": code,
        "evaluator": task.evaluator_name,
        "calls": [[plan.prelude, list(plan.observed), plan.whole] for plan in plans],
    }
    state = _Judge(plans)
    run = runner.run(job, limits, state.take)
    if state.deferred:
        state.right.update(_judge_rest(judge, task, plans, state.deferred))
    passed = next((index for index in range(len(plans)) if not state.right.get(index)), len(plans))
    return Judgement(run, passed, bool(plans) and passed == len(plans))


def program_text(setup_code: str, code: str) -> str:
    """The program as the benchmark runs it: setup first, in one piece (so `from __future__` in a completion that
    follows setup code is a syntax error, as there)."""
    return f"{setup_code}\n\n{code}" if setup_code else code


class JudgeRunner:
    """The second process, shared by all threads: it runs trusted text only."""

    def __init__(self, runner: Runner, lock: Any) -> None:
        self.runner, self.lock = runner, lock

    def run(self, setup_code: str, items: list[list[Any]]) -> Run:
        with self.lock:
            return self.runner.run({"mode": "judge", "source": setup_code, "items": items}, JUDGE_LIMITS)


def _judge_rest(
    judge: JudgeRunner, task: Task, plans: tuple[Plan, ...], deferred: dict[int, list[Any]]
) -> dict[int, bool]:
    """Which of the deferred tests hold on their answers, by test index."""
    run = judge.run(task.setup_code, [[plans[index].remainder, answer] for index, answer in deferred.items()])
    if "loaded" not in run.lines:
        raise GraderError(f"task {task.task_id}: setup_code failed in the judge: {_why(run)}")
    # An answer that ends the judge (too deep for the benchmark's helpers) has no entry, and so fails.
    return dict(zip(deferred, (answer is True for answer in run.answers), strict=False))


def check_setup(judge: JudgeRunner, task: Task) -> None:
    """Raises GraderError naming the task if its setup code does not run by itself."""
    run = judge.run(task.setup_code, [])
    if "done" not in run.lines:
        raise GraderError(f"task {task.task_id}: its setup_code fails by itself: {_why(run)}")


def _why(run: Run) -> str:
    fail = run.lines.get("fail")
    return str(fail[-1]) if fail else f"{run.reason}, exit code {run.code}"
