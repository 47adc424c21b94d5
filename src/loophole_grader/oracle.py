"""Ground truth, judged outside the judged process.

Each test is `assert CALL == VALUE`. CALL calls the solution by the name that the problem gives, with positional or
keyword arguments. Arguments and VALUE are literals, in which `inf` may stand for infinity. Every other form is
refused when problems are loaded. The sandbox evaluates CALL and sends what came of it as plain data. This process
compares that with VALUE by Python's ==, so 1 == True and 1 == 1.0 hold, as in the benchmark. VALUE never enters the
sandbox."""

import ast
import functools
import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from loophole_grader.sandbox import values
from loophole_grader.sandbox.pool import Execution, Limits, SetupError, Worker, shared_pool
from loophole_grader.sandbox.reading import Block
from loophole_grader.verdict import ProblemError, Task

KEPT_TASKS = 1024  # whose tests are kept as they were read
_PARSING = threading.Lock()  # CPython 3.11 counts the depth of all trees that threads make at a time as one


class Check(NamedTuple):
    """One test."""

    call: str
    expected: Any
    longest: int
    """Bytes of the longest answer that can be right. A list of "false" is three times as long as one of 0, which is
    equal to it; an integer as large as a float has 260 digits."""


def read_test(test: str, func_name: str) -> Check:
    """One assert statement. Raises ValueError that says which form is wanted."""
    try:
        match ast.parse(test).body:
            case [ast.Assert(ast.Compare(ast.Call() as call, [ast.Eq()], [right]), None)]:
                names = [word.arg for word in call.keywords]
                if ast.unparse(call.func) == func_name and all(names) and len({*names}) == len(names):
                    for argument in (*call.args, *(word.value for word in call.keywords)):
                        _value_of(argument)
                    value = _value_of(right)
                    return Check(ast.unparse(call), value, 400 + 8 * len(json.dumps(values.encode(value))))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        pass
    raise ValueError(f"{test.strip()!r:.80}; write assert {func_name or 'FUNCTION'}(ARGUMENTS) == VALUE in literals")


class _Infinite(ast.NodeTransformer):
    """Puts the number in the place of the name `inf`."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(float("inf")) if node.id == "inf" else node


def _value_of(node: ast.expr) -> Any:
    """The value of a literal. Raises ValueError and TypeError for anything else."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.literal_eval(_Infinite().visit(node))


@functools.lru_cache(maxsize=KEPT_TASKS)
def _read(task: Task) -> tuple[list[Check], list[str]]:
    """(tests, one line for each test that is refused)."""
    checks, refused = [], []
    for number, test in enumerate(task.tests):
        try:
            with _PARSING:
                checks.append(read_test(test, task.func_name))
        except ValueError as why:
            refused.append(f"test {number} cannot be judged: {why}")
    return checks, refused


def prepare(worker: Worker, task: Task) -> None:
    """Has a worker ready for a task's programs. Raises ProblemError with a line for every test that cannot be judged,
    or if the setup code fails by itself."""
    if faults := _read(task)[1] or _setup_faults(worker, task.setup_code):
        raise ProblemError("\n".join(f"task {task.task_id}: {fault}" for fault in faults))


def _setup_faults(worker: Worker, setup: str) -> list[str]:
    try:
        worker.load(setup)
    except SetupError as error:
        return [f"its setup_code fails by itself: {error}"]
    return []


def check_tests(tasks: Iterable[Task], places: Mapping[str, str] | None = None) -> None:
    """Whether every test of these problems can be judged; for where problems are loaded. Raises ProblemError with a
    line for every test of another form than `assert CALL == VALUE`, and for each problem that has no test, whose
    setup code fails by itself, or whose canonical solution does not define what the tests call. `places`: where a
    problem stands ("file:line"), by its id."""
    found: list[str] = []
    pool = shared_pool()
    worker = pool.borrow()
    setup_faults = functools.cache(functools.partial(_setup_faults, worker))
    try:
        for task in tasks:
            faults = [*_read(task)[1], *_lacking(task), *(setup_faults(task.setup_code) if task.setup_code else ())]
            where = f"{places[task.task_id]}: " if places and task.task_id in places else ""
            found += [f"{where}task {task.task_id}: {fault}" for fault in faults]
    finally:
        pool.give_back(worker)
    if found:
        raise ProblemError("\n".join(found if len(found) == 1 else [f"{len(found)} faults in the problems:", *found]))


def _lacking(task: Task) -> Iterator[str]:
    """What a problem lacks, whatever its tests are like."""
    if not task.tests:
        yield "it has no tests, so no program can be right; fill in its gt_answer"
    if task.canonical_solution:
        owner, method = task.class_and_method
        if not re.search(rf"\b{owner or method}\b", task.canonical_solution):
            yield f"its canonical_solution does not define {owner or method}; mend it"
        try:
            ast.parse(task.canonical_solution)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            yield f"its canonical_solution does not parse: {error}"


def judge_program(worker: Worker, task: Task, blocks: Sequence[Block], limits: Limits) -> tuple[Execution, int, bool]:
    """Run setup and program in the sandbox and judge the answers here, up to the first wrong one. It gets the calls,
    and never a value that is expected. Returns the run, the number of tests before the first failure, and whether
    every test passed. Raises GraderError."""
    checks, passed = _read(task)[0], 0

    def take(index: int, answer: bytes) -> bool:
        """Judges an answer. True after a wrong one and after the last one: no more is wanted."""
        nonlocal passed
        right = index < len(checks) and _is(answer, checks[index])
        passed = index + right
        return not right or passed == len(checks)

    calls = [check.call for check in checks]
    job = {"blocks": blocks, "evaluator": task.evaluator_name, "calls": calls}
    run = worker.run(job, limits, take, task.setup_code)
    return run, passed, bool(checks) and passed == len(checks) and run.reason == "enough"


def _is(answer: bytes, check: Check) -> bool:
    """Whether an answer stands for a value that equals what is expected."""
    try:
        return len(answer) <= check.longest and values.decode(json.loads(answer)) == check.expected
    except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
        return False  # not what the encoder writes: the program wrote to the pipe itself
