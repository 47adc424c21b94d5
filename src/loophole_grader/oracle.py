"""Strict ground truth, judged outside the judged process.

`grammar` splits each test into exchanges: a call that the program must answer, and what is done with the answer.

- `assert CALL == LITERAL`: the sandbox evaluates CALL and ships its value; this process compares it with the literal by
  Python's == on plain data. The literal never enters the sandbox.
- every other test: a second process, which runs trusted text only (setup code and test), executes the test with the shipped
  values in the place of the calls. Each worker has one of its own; its time counts apart from the program's.

Plain == holds: 1 == True and 1 == 1.0, as in the benchmark.
"""

import ast
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from loophole_grader.canonical import lacks_method, stand_in
from loophole_grader.grammar import JudgePlan, Refused, exchanges_of, root_of
from loophole_grader.literals import NOT_LITERAL
from loophole_grader.names import DEFINITIONS, names_bound
from loophole_grader.sandbox import values
from loophole_grader.sandbox.pool import ANSWER_BYTES, Execution, Limits, Runner, SetupError, shared_pool
from loophole_grader.sandbox.reading import Block
from loophole_grader.verdict import GraderError, ProblemError, Task

JUDGE_LIMITS = Limits(cpu_s=10.0, wall_s=60.0, memory_mb=4096)  # of the second process, for one program
JUDGED_BYTES = 16 << 20  # of the answers to one test that the second process is given, as JSON
KEPT_TASKS = 1024  # whose prepared arguments are kept


@dataclass
class Judgement:
    """The ground-truth run of one program."""

    run: Execution
    passed: int  # tests before the first failure
    answers_right: bool  # every test passed


# ---------------------------------------------------------------- tests


def _refused(task: Task, test: int, why: object) -> str:
    return f"task {task.task_id}: test {test} cannot be judged outside the program: {why}"


@lru_cache(maxsize=KEPT_TASKS)
def _read(task: Task) -> tuple[tuple[JudgePlan, ...], tuple[str, ...]]:
    """(plans, one line per refused test)."""
    plans: list[JudgePlan] = []
    refused: list[str] = []
    for index, test in enumerate(task.tests):
        try:
            found = exchanges_of(test, index, task.func_name, task.setup_code)
        except Refused as why:
            refused.append(_refused(task, index, why))
            continue
        for plan in found:
            try:
                plans.append(replace(plan, longest=_longest(plan.expected)))
            except values.TooLargeError:
                why = (
                    f"what is expected of {plan.observed[0]:.60} is nested more than {values.MAX_DEPTH} deep, or has more "
                    f"than {values.MAX_NODES:,} values; compare its parts, or its length"
                )
                refused.append(_refused(task, index, why))
                break
    return tuple(plans), tuple(refused)


def _longest(expected: Any) -> int:
    """Bytes of JSON beyond which an answer cannot equal what is expected: a list of "false" is three times as long as one
    of 0, which is equal. What is longer is wrong without being read. Raises TooLargeError where no answer equals it."""
    return 100 + 8 * len(json.dumps(values.encode(expected))) if expected is not NOT_LITERAL else 0


def plans_of(task: Task) -> tuple[JudgePlan, ...]:
    """The exchanges of all tests, in order. Raises GraderError naming every test that cannot be judged, its line and why."""
    plans, refused = _read(task)
    if refused:
        raise ProblemError("\n".join(refused))
    return plans


def _blind(task: Task) -> list[str]:
    """A line where no test looks at anything of the program's: it would pay for any that loads."""
    plans = _read(task)[0]
    if not plans or any(plan.observed for plan in plans):
        return []
    return [
        f"task {task.task_id}: no test calls the solution and looks at what it returns or changes, so any program would "
        "be right; write assert CALL == VALUE"
    ]


def check_tests(tasks: Iterable[Task], *, allow: Sequence[str] = ()) -> None:
    """Whether every test of these problems can be judged; for where problems are loaded. Raises GraderError listing all
    that cannot, one per line: task, test, line, reason; and each problem that has no test, whose tests look at nothing of
    the program's, whose setup code does not run by itself, or whose canonical solution does not parse or does not define
    what is asked for. That is read off its text: whether it is right is for `check_solutions`. Setup code, each text once,
    and what tests compute as arguments run in a process; `allow`: distributions that these may then import, as in
    `grade_batch`. Raises ValueError for one that is not installed."""
    found: list[str] = []
    pool = shared_pool(tuple(allow))
    judge = pool.borrow(judge=True)
    try:
        failed: dict[str, str] = {}  # setup code, and why it does not run
        for task in tasks:
            if task.setup_code not in failed:
                failed[task.setup_code] = _failure(judge, task.setup_code)
            if why := failed[task.setup_code]:
                found.append(_setup_failed(task, why))
            refused = _read(task)[1]
            found += [*refused, *_lacking(task)]
            if not why and not refused:
                found += _unprepared(task, judge) or _blind(task)
    finally:
        pool.give_back(judge, judge=True)
    if found:
        what = "tests" if all(" cannot be judged outside " in line for line in found) else "problems or tests"
        raise GraderError("\n".join(found if len(found) == 1 else [f"{len(found)} {what} cannot be judged:", *found]))


def _failure(runner: Runner, setup: str) -> str:
    """Why a setup code does not run by itself, "" if it does. Raises GraderError if that cannot be told."""
    try:
        if setup.strip():
            runner.load(setup)
    except SetupError as error:
        return str(error)
    return ""


def _unprepared(task: Task, judge: Runner) -> list[str]:
    """A line for each test whose arguments cannot be computed."""
    try:
        prepared_of(task, JudgeRunner(judge))
    except GraderError as error:
        return [str(error)]
    return []


def _lacking(task: Task) -> list[str]:
    """What a problem lacks, whatever its tests are like."""
    found = []
    if not task.tests:
        found.append(
            f"task {task.task_id}: it has no tests, so no program can be right; leave it out, or fill in its gt_answer"
        )
    if not task.canonical_solution:
        return found
    try:
        stand_in(task)
        owner, method = task.class_and_method
        if (name := owner or method) not in _defined(task.canonical_solution):
            found.append(
                f"task {task.task_id}: its canonical_solution does not define {name} at the top level; mend it"
            )
        elif not root_of(task.func_name)[1] and _is_class(task.canonical_solution, name):
            found.append(
                f"task {task.task_id}: its canonical_solution defines {name} as a class; write func_name as {name}().METHOD"
            )
        elif lacks_method(task):
            found.append(f"task {task.task_id}: its canonical_solution does not define {owner}.{method}; mend it")
    except GraderError as error:
        found.append(str(error))
    except (RecursionError, MemoryError):
        found.append(f"task {task.task_id}: its canonical_solution is nested too deeply; mend it")
    return found


def _is_class(source: str, name: str) -> bool:
    return any(isinstance(one, ast.ClassDef) and one.name == name for one in ast.parse(source).body)


def _defined(source: str) -> set[str]:
    """Names that the statements of a program's top level define."""
    plain = (*DEFINITIONS, ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom)
    body = [statement for statement in ast.parse(source).body if isinstance(statement, plain)]
    return {
        name
        for statement in body
        for name in ({statement.name} if isinstance(statement, DEFINITIONS) else names_bound(statement))
    }


_prepared: dict[Task, dict[int, list]] = {}


def prepared_of(task: Task, judge: "JudgeRunner") -> dict[int, list]:
    """The arguments that the tests' own statements compute, coded, by test. Raises GraderError naming the tests."""
    plans = [plan for plan in plans_of(task) if plan.prepare]
    if not plans:
        return {}
    ready = _prepared.get(task)
    if ready is None:
        answers = judge.run(task, [["prepare", plan.prepare] for plan in plans]).answers
        found = [json.loads(answer) for answer in answers]
        found += [{"error": "computing its arguments does not end, or ends the process"}] * (len(plans) - len(found))
        failed = [(plan.test, one["error"]) for plan, one in zip(plans, found, strict=True) if "error" in one]
        if failed:
            raise ProblemError("\n".join(_refused(task, test, why) for test, why in failed))
        if len(_prepared) >= KEPT_TASKS:
            _prepared.clear()
        ready = _prepared[task] = {plan.test: one["values"] for plan, one in zip(plans, found, strict=True)}
    return ready


# ---------------------------------------------------------------- one program


@dataclass
class _Judge:
    """Judges answers as they come, and says what to ask next. Tests that need the second process are collected; the first
    of them is judged at once, so that a wrong program is stopped early, the others at the end."""

    plans: tuple[JudgePlan, ...]
    judge: "JudgeRunner"
    task: Task
    given: dict[int, list]
    right: dict[int, bool] = field(default_factory=dict)  # by exchange
    open: list[bytes] = field(default_factory=list)  # answers of the current test
    deferred: dict[int, list[bytes]] = field(default_factory=dict)  # by the test's last exchange
    too_large: bool = False  # the answers to one test
    left_s: float = field(default_factory=lambda: JUDGE_LIMITS.cpu_s)  # of the second process

    def __post_init__(self) -> None:
        self.collected = {plan.test for plan in self.plans if plan.remainder}
        self.first = next((index for index, plan in enumerate(self.plans) if plan.remainder), -1)

    def call(self, index: int) -> list | None:
        """The exchange as the sandbox gets it; None after the last one."""
        if index >= len(self.plans):
            return None
        plan = self.plans[index]
        given = {name: self.given[plan.test][place] for name, place in plan.given}
        return [plan.prelude, list(plan.observed), *([given] if given else [])]

    def take(self, index: int, answer: bytes) -> list | None:
        """The next call; None after a wrong answer and after the last one."""
        plan = self.plans[index]
        if index == 0:  # perhaps for the second time
            self.right, self.open, self.deferred = {}, [], {}
        if plan.test in self.collected:
            self.open.append(answer)
            self.too_large = sum(map(len, self.open)) > JUDGED_BYTES
            if self.too_large:
                return None
            self.right[index] = True  # its last exchange decides
            if plan.remainder:
                self.right[index] = False
                self.deferred[index], self.open = self.open, []
                size = sum(len(one) for answers in self.deferred.values() for one in answers)
                if (index == self.first or size > JUDGED_BYTES) and not self.settle():
                    return None
        else:
            self.right[index] = plan.expected is NOT_LITERAL or _right(plan, answer)
            if not self.right[index]:
                return None
        return self.call(index + 1)

    def settle(self) -> bool:
        """Have the collected answers judged; whether all of them are right."""
        deferred, self.deferred = self.deferred, {}
        if not deferred:
            return True
        if self.left_s <= 0:  # its answers have kept the second process busy for too long
            return False
        run = self.judge.run(
            self.task,
            [
                ["judge", self.plans[index].remainder, [raw.decode("ascii", "replace") for raw in answers]]
                for index, answers in deferred.items()
            ],
            self.left_s,
        )
        self.left_s -= run.cpu_s
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
    for one call at a time: at no time are there more of the tests in the sandbox than the current call. Raises GraderError,
    also for a problem whose tests cannot be judged."""
    plans = plans_of(task)
    given = prepared_of(task, judge)
    if blind := _blind(task):
        raise ProblemError(blind[0])
    state = _Judge(plans, judge, task, given)
    evaluator = [task.evaluator_name, *task.class_and_method]
    job = {"mode": "tests", "blocks": blocks, "evaluator": evaluator, "call": state.call(0)}
    run = runner.run(job, limits, state.take, task.setup_code, ANSWER_BYTES)
    state.settle()
    if state.too_large:
        run.reason = "output"
    failed = next((plan for index, plan in enumerate(plans) if not state.right.get(index)), None)
    passed = len(task.tests) if failed is None else failed.test
    return Judgement(run, passed, bool(plans) and failed is None and run.reason == "enough")


def load_setup(runner: Runner, task: Task) -> None:
    """Have a runner ready for a task's programs. Raises ProblemError if the setup code does not run by itself."""
    try:
        runner.load(task.setup_code)
    except SetupError as error:
        raise ProblemError(_setup_failed(task, error)) from None


def _setup_failed(task: Task, error: object) -> str:
    return f"task {task.task_id}: its setup_code fails by itself: {error}"


class JudgeRunner:
    """The second process of one worker: it runs trusted text only, and starts when a test first needs it."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.busy_s = 0.0  # wall time so far

    def run(self, task: Task, items: list[list], cpu_s: float | None = None) -> Execution:
        """Do the items of `judging.py`, up to the first test that does not hold. Raises GraderError, naming the task where
        its setup code does not run by itself."""

        def go_on(_index: int, found: bytes) -> bool | None:
            return None if found == b"false" else True

        begun = time.monotonic()
        try:
            limits = JUDGE_LIMITS if cpu_s is None else replace(JUDGE_LIMITS, cpu_s=cpu_s)
            return self.runner.run({"mode": "judge", "items": items}, limits, go_on, task.setup_code, ANSWER_BYTES)
        except SetupError as error:
            raise GraderError(_setup_failed(task, error)) from None
        finally:
            self.busy_s += time.monotonic() - begun
