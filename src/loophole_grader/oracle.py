"""Ground truth, judged outside the judged process.

Each test is `assert CALL == VALUE` (tests.py). The sandbox evaluates CALL and sends what came of it as plain data; this
process compares that with VALUE by Python's ==, so 1 == True and 1 == 1.0 hold, as in the benchmark.
"""

import ast
import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from loophole_grader.sandbox import values
from loophole_grader.sandbox.pool import Execution, Limits, SetupError, Worker, shared_pool
from loophole_grader.sandbox.reading import Block
from loophole_grader.tests import Check, RefusedError, read_test
from loophole_grader.verdict import ProblemError, Task

KEPT_TASKS = 1024  # whose tests are kept as they were read
_PARSING = threading.Lock()  # CPython 3.11 counts the depth of all trees that threads make at a time as one
AT_ONCE = 32  # calls at most between two looks at the answers


@dataclass
class Judgement:
    """The ground-truth run of one program."""

    run: Execution
    passed: int  # tests before the first failure
    answers_right: bool  # every test passed


# ---------------------------------------------------------------- problems


@lru_cache(maxsize=KEPT_TASKS)
def _read(task: Task) -> tuple[tuple[Check, ...], tuple[int, ...], tuple[str, ...]]:
    """(tests, the longest answer that can be right for each, one line for each test that is refused)."""
    checks, longest, refused = [], [], []
    for number, test in enumerate(task.tests):
        try:
            with _PARSING:
                check = read_test(test, task.func_name)
            # A list of "false" is three times as long as one of 0, which is equal to it; an integer as large as a float
            # has 260 digits.
            longest.append(400 + 8 * len(json.dumps(values.encode(check.expected))))
            checks.append(check)
        except RefusedError as why:
            refused.append(f"task {task.task_id}: test {number} cannot be judged: {why}")
        except values.TooLargeError:
            refused.append(f"task {task.task_id}: test {number} cannot be judged: its value is too large; shorten it")
    return tuple(checks), tuple(longest), tuple(refused)


def checks_of(task: Task) -> tuple[Check, ...]:
    """The tests in order. Raises ProblemError with a line for every test that cannot be judged."""
    checks, _, refused = _read(task)
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
    failed: dict[str, str] = {"": ""}  # setup code, and why it fails
    try:
        for task in tasks:
            if task.setup_code not in failed:
                failed[task.setup_code] = _failure(worker, task.setup_code)
            lines = [*_read(task)[2], *_lacking(task)]
            if why := failed[task.setup_code]:
                lines.append(_setup_failed(task, why))
            place = (places or {}).get(task.task_id)
            found += [f"{place}: {line}" if place else line for line in lines]
    finally:
        pool.give_back(worker)
    if found:
        raise ProblemError("\n".join(found if len(found) == 1 else [f"{len(found)} faults in the problems:", *found]))


def _failure(worker: Worker, setup: str) -> str:
    """Why a setup code fails by itself; "" if it does not."""
    try:
        worker.load(setup)
    except SetupError as error:
        return str(error)
    return ""


def _lacking(task: Task) -> Iterator[str]:
    """What a problem lacks, whatever its tests are like."""
    if not task.tests:
        yield f"task {task.task_id}: it has no tests, so no program can be right; fill in its gt_answer"
    if task.canonical_solution:
        owner, method = task.class_and_method
        if not re.search(rf"\b{owner or method}\b", task.canonical_solution):
            yield f"task {task.task_id}: its canonical_solution does not define {owner or method}; mend it"
        try:
            ast.parse(task.canonical_solution)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            yield f"task {task.task_id}: its canonical_solution does not parse: {error}"


# ---------------------------------------------------------------- one program


def judge_program(worker: Worker, task: Task, blocks: Sequence[Block], limits: Limits) -> Judgement:
    """Run setup and program in the sandbox and judge the answers here, up to the first wrong one. It gets the calls,
    is let go on bit by bit, and never gets a value that is expected. Raises GraderError."""
    checks, longest = checks_of(task), _read(task)[1]
    passed, allowed = 0, 1

    def take(index: int, answer: bytes) -> int | None:
        """How many more calls may be evaluated: as many as were right, once all that were allowed are. None after a wrong
        answer and after the last one."""
        nonlocal passed, allowed
        if index == 0:  # of a second try, too
            allowed = 1
        right = len(answer) <= longest[index] and _is(answer, checks[index])
        passed = index + right
        if not right or passed == len(checks):
            return None
        more = min(passed, AT_ONCE) if passed == allowed else 0
        allowed += more
        return more

    calls = [check.call for check in checks]
    job = {"mode": "tests", "blocks": blocks, "evaluator": task.evaluator_name, "calls": calls}
    run = worker.run(job, limits, take, task.setup_code)
    return Judgement(run, passed, bool(checks) and passed == len(checks) and run.reason == "enough")


def _is(answer: bytes, check: Check) -> bool:
    """Whether an answer stands for a value that equals what is expected."""
    try:
        return values.decode(json.loads(answer)) == check.expected
    except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
        return False  # not what the encoder writes: the program wrote to the pipe itself


def load_setup(worker: Worker, task: Task) -> None:
    """Have a worker ready for a task's programs. Raises ProblemError if the setup code fails by itself."""
    try:
        worker.load(task.setup_code)
    except SetupError as error:
        raise ProblemError(_setup_failed(task, error)) from None


def _setup_failed(task: Task, error: object) -> str:
    return f"task {task.task_id}: its setup_code fails by itself: {error}"
