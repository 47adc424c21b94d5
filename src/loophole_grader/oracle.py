"""Ground truth, judged outside the judged process.

Each test is `assert CALL == VALUE` (tests.py). The sandbox evaluates CALL and sends what came of it as plain data; this
process compares that with VALUE by Python's ==, so 1 == True and 1 == 1.0 hold, as in the benchmark.
"""

import ast
import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from loophole_grader.sandbox import values
from loophole_grader.sandbox.pool import Execution, Limits, Worker, shared_pool
from loophole_grader.sandbox.reading import Block
from loophole_grader.tests import Check, RefusedError, read_test
from loophole_grader.verdict import ProblemError, Task

KEPT_TASKS = 1024  # whose tests are kept as they were read
_PARSING = threading.Lock()  # CPython 3.11 counts the depth of all trees that threads make at a time as one


# ---------------------------------------------------------------- problems


@lru_cache(maxsize=KEPT_TASKS)
def _read(task: Task) -> tuple[tuple[Check, ...], tuple[str, ...]]:
    """(tests, one line for each test that is refused)."""
    checks, refused = [], []
    for number, test in enumerate(task.tests):
        try:
            with _PARSING:
                checks.append(read_test(test, task.func_name))
        except RefusedError as why:
            refused.append(f"test {number} cannot be judged: {why}")
    return tuple(checks), tuple(refused)


def checks_of(task: Task) -> tuple[Check, ...]:
    """The tests in order. Raises ProblemError with a line for every test that cannot be judged."""
    checks, refused = _read(task)
    if refused:
        raise ProblemError("\n".join(refused))
    return checks


def check_tests(tasks: Iterable[Task], places: Mapping[str, str] | None = None) -> None:
    """Whether every test of these problems can be judged; for where problems are loaded. Raises ProblemError with a line
    for every test of another form than `assert CALL == VALUE`, and for each problem that has no test, whose setup code
    fails by itself, or whose canonical solution does not define what the tests call. `places`: where a problem stands
    ("file:line"), by its id."""
    found: list[str] = []
    pool = shared_pool()
    worker = pool.borrow()
    failed: dict[str, list[str]] = {"": []}  # setup code, and why it fails
    try:
        for task in tasks:
            if task.setup_code not in failed:
                failed[task.setup_code] = []
                try:
                    worker.load(task.setup_code)
                except ProblemError as error:
                    failed[task.setup_code].append(str(error))
            lines = [*_read(task)[1], *_lacking(task), *failed[task.setup_code]]
            place = (places or {}).get(task.task_id)
            found += [f"{place}: " * bool(place) + f"task {task.task_id}: {line}" for line in lines]
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


# ---------------------------------------------------------------- one program


def judge_program(worker: Worker, task: Task, blocks: Sequence[Block], limits: Limits) -> tuple[Execution, int, bool]:
    """Run setup and program in the sandbox and judge the answers here, up to the first wrong one. It gets the calls, and
    never a value that is expected. Returns the run, the number of tests before the first failure, and whether every test
    passed. Raises GraderError."""
    checks, passed = checks_of(task), 0

    def take(index: int, answer: bytes) -> bool:
        """Judges an answer. True after a wrong one and after the last one: no more is wanted."""
        nonlocal passed
        right = len(answer) <= checks[index].longest and _is(answer, checks[index])
        passed = index + right
        return not right or passed == len(checks)

    calls = [check.call for check in checks]
    job = {"blocks": blocks, "evaluator": task.evaluator_name, "calls": calls}
    run = worker.run(job, limits, take, task.setup_code)
    return run, passed, bool(checks) and passed == len(checks) and run.reason == "enough"


def _is(answer: bytes, check: Check) -> bool:
    """Whether an answer stands for a value that equals what is expected."""
    try:
        return values.decode(json.loads(answer)) == check.expected
    except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
        return False  # not what the encoder writes: the program wrote to the pipe itself
